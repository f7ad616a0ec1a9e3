//! Listings: plain arrays, whole unless a limit is given; a `Link` header says how to go on.

use std::num::NonZeroU32;

use axum::extract::OriginalUri;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use berth_wire::Invalid;
use serde::Serialize;

use super::body::Json;
use super::problem::Failure;

/// A page of a listing.
#[derive(Debug)]
pub(super) struct Page<T> {
    rows: Vec<T>,
    next: Option<String>,
}

impl<T> Page<T> {
    /// Those rows that were not seen yet, at most `limit`.
    pub(super) fn of(
        rows: impl IntoIterator<Item = T>,
        limit: Option<NonZeroU32>,
        uri: &OriginalUri,
        name: impl Fn(&T) -> String,
    ) -> Self {
        let mut rows: Vec<T> = rows.into_iter().collect();
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit.get()).unwrap_or(usize::MAX));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|last| next_link(uri, &name(last)));
        Self { rows, next }
    }

    /// The same page with rows made of rows.
    pub(super) fn map<U>(self, row: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(row).collect(), next: self.next }
    }
}

/// The rows after the one that was seen last. If that one is gone nobody can tell where it stood.
pub(super) fn rows_after<T>(mut rows: Vec<T>, after: Option<impl Fn(&T) -> bool>) -> Result<Vec<T>, Failure> {
    let Some(is_last_seen) = after else { return Ok(rows) };
    let gone = || Failure::from(Invalid::new("after", "that row is no longer there: begin the listing anew"));
    let place = rows.iter().position(is_last_seen).ok_or_else(gone)?;
    rows.drain(..=place);
    Ok(rows)
}

/// The same request, but after `last`.
fn next_link(uri: &OriginalUri, last: &str) -> String {
    let kept = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).filter(|(name, _)| name != "after");
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).append_pair("after", last).finish();
    format!("<{}?{query}>; rel=\"next\"", uri.path())
}

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.rows).into_response();
        if let Some(link) = self.next.and_then(|link| HeaderValue::try_from(link).ok()) {
            response.headers_mut().insert(header::LINK, link);
        }
        response
    }
}
