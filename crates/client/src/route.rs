//! One request, as data.

use std::marker::PhantomData;

use berth_domain::Span;
use reqwest::Method;
use serde::Serialize;

/// One request and the type of its answer. An answer without a body is read as JSON's `null`.
#[derive(Debug)]
pub struct Route<T> {
    pub(crate) method: Method,
    pub(crate) path: Vec<String>,
    pub(crate) query: String,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) key: Option<String>,
    pub(crate) accept: &'static str,
    /// How long the server is asked to wait before it answers.
    pub(crate) wait: Span,
    /// Whether the request may be sent twice without a further effect.
    pub(crate) repeatable: bool,
    answer: PhantomData<fn() -> T>,
}

impl<T> Route<T> {
    fn new(method: Method, path: &[&str], repeatable: bool) -> Self {
        Self {
            method,
            path: path.iter().map(|segment| (*segment).to_owned()).collect(),
            query: String::new(),
            body: None,
            key: None,
            accept: "application/json",
            wait: Span::ZERO,
            repeatable,
            answer: PhantomData,
        }
    }

    pub(crate) fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path, true)
    }

    pub(crate) fn put(path: &[&str]) -> Self {
        Self::new(Method::PUT, path, true)
    }

    pub(crate) fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path, false)
    }

    pub(crate) fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path, false)
    }

    pub(crate) fn query(self, query: &impl Serialize) -> Self {
        // Queries are flat structs of words and numbers, which always have such a text.
        Self { query: serde_urlencoded::to_string(query).unwrap_or_default(), ..self }
    }

    pub(crate) fn body(self, body: &impl Serialize) -> Self {
        Self { body: Some(serde_json::to_vec(body).unwrap_or_default()), ..self }
    }

    pub(crate) fn waiting(self, wait: Option<berth_wire::TimeSpan>) -> Self {
        Self { wait: wait.map(|span| span.0).unwrap_or_default(), ..self }
    }

    pub(crate) fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    pub(crate) fn once(self) -> Self {
        Self { repeatable: false, ..self }
    }

    pub(crate) fn repeatable(self) -> Self {
        Self { repeatable: true, ..self }
    }

    pub(crate) fn keyed(self, key: Option<&str>) -> Self {
        Self { repeatable: key.is_some(), key: key.map(str::to_owned), ..self }
    }
}
