//! The client and its requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_domain::Revision;
use berth_wire::{HISTORY_HEADER, REVISION_HEADER};
use parking_lot::RwLock;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use secrecy::SecretString;
use serde::de::DeserializeOwned;

use crate::builder::{ClientBuilder, authorization};
use crate::{ClientError, Route};

/// A client of one server. Copies share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: Url,
    /// Whether a token may be sent to the server.
    pub(crate) may_carry_token: bool,
    /// Whether this client has a certificate of its own.
    pub(crate) has_certificate: bool,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    /// The header that authenticates the client. Copies of the client share it, so that a rotated token counts for all
    /// of them.
    pub(crate) authorization: Arc<RwLock<Option<HeaderValue>>>,
    /// Whether the server said that its history went back.
    pub(crate) went_back: Arc<AtomicBool>,
}

/// Shows the address of the server and hides the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// The answer of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// The body, as a type.
    pub body: T,
    /// The body, as it was sent.
    pub text: String,
    /// The revision of the answer.
    pub revision: Revision,
}

impl Client {
    /// Makes a builder of a client for the server at `base`, such as `http://127.0.0.1:8080`.
    #[must_use]
    pub fn builder(base: &str) -> ClientBuilder {
        ClientBuilder::new(base)
    }

    /// Replaces the token of this client and all its copies. Refuses a token that would be sent over the network
    /// without encryption.
    pub fn set_token(&self, token: &SecretString) -> Result<(), ClientError> {
        let authorization = authorization(token)?;
        if !self.may_carry_token {
            return Err(ClientError::TokenOverHttp { url: self.base().to_owned() });
        }
        *self.authorization.write() = Some(authorization);
        Ok(())
    }

    /// A client of the same server that asks with this token, or with none, and shares the connections of this one.
    pub fn with_token(&self, token: Option<&SecretString>) -> Result<Self, ClientError> {
        let other = Self { authorization: Arc::default(), ..self.clone() };
        token.map_or(Ok(()), |token| other.set_token(token))?;
        Ok(other)
    }

    /// Makes a request with the client's token.
    pub(crate) fn send_to(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &*self.authorization.read() {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        }
    }

    /// Returns the server's address.
    #[must_use]
    pub fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// Returns whether any answer so far said that the server's history went back.
    #[must_use]
    pub fn saw_history_go_back(&self) -> bool {
        self.went_back.load(Ordering::Relaxed)
    }

    /// Notes what the headers of an answer say about the server.
    pub(crate) fn note_headers(&self, headers: &HeaderMap) {
        self.went_back.store(headers.contains_key(HISTORY_HEADER), Ordering::Relaxed);
    }

    /// Sends a request and reads its answer.
    pub async fn ask<T: DeserializeOwned>(&self, route: &Route<T>) -> Result<Answer<T>, ClientError> {
        let (revision, text) = self.ask_text(route, &[]).await?;
        let body = parse(self.base(), &text)?;
        Ok(Answer { body, text, revision })
    }

    /// Sends a request and reads its answer as text. A status in `taken` is no error.
    pub(crate) async fn ask_text<T>(
        &self,
        route: &Route<T>,
        taken: &[StatusCode],
    ) -> Result<(Revision, String), ClientError> {
        let (status, headers, text) = self.exchange(route).await?;
        if status.is_success() || taken.contains(&status) {
            return Ok((revision_of(&headers), text));
        }
        Err(self.refusal(status, &headers, &text))
    }

    pub(crate) fn refusal(&self, status: StatusCode, headers: &HeaderMap, text: &str) -> ClientError {
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        problem_in(text).unwrap_or_else(|| {
            let what = if kind.is_empty() { "nothing" } else { kind };
            ClientError::NotBerth { url: self.base().to_owned(), why: format!("status {status} with {what}") }
        })
    }
}

pub(crate) fn problem_in(text: &str) -> Option<ClientError> {
    serde_json::from_str(text).ok().map(|problem| ClientError::Problem(Box::new(problem)))
}

pub(crate) fn revision_of(headers: &HeaderMap) -> Revision {
    let number = headers.get(REVISION_HEADER).and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
    number.map(Revision::new).unwrap_or_default()
}

/// Parses the body of an answer. An empty body counts as `null`.
fn parse<T: DeserializeOwned>(url: &str, text: &str) -> Result<T, ClientError> {
    let text = if text.trim().is_empty() { "null" } else { text };
    serde_json::from_str(text).map_err(|error| ClientError::NotBerth {
        url: url.to_owned(),
        why: format!("its answer cannot be read: {error}"),
    })
}

/// A stream of text.
#[derive(Debug)]
pub struct TextStream {
    pub(crate) response: Response,
    pub(crate) url: String,
}

impl TextStream {
    /// Returns the next piece, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let piece = self.response.chunk().await;
        piece
            .map(|bytes| bytes.map(|bytes| bytes.to_vec()))
            .map_err(|error| ClientError::of_transport(&self.url, &error, 0))
    }
}
