//! Requests that were refused with 401 or 403 go into the audit log.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;

use super::authentication::address_of;
use crate::http::App;
use crate::http::problem::Failure;
use crate::trust::Caller;

/// What the audit log says of a request, kept until its answer is known.
pub(in crate::http) struct AuditedRequest {
    address: IpAddr,
    method: Method,
    uri: Uri,
    pub(super) caller: Option<Caller>,
}

impl AuditedRequest {
    pub(in crate::http) fn new(parts: &Parts) -> Self {
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        Self { address: address_of(parts), method, uri, caller: None }
    }

    /// Records the request if it was refused. The audit log takes as many refusals as its configuration says.
    pub(in crate::http) fn record_refusal(&self, app: &App, response: &Response) {
        if !is_refusal(response.status()) {
            return;
        }
        let failure = response.extensions().get::<Failure>();
        let code = failure.map_or("refused", |failure| failure.0.code.as_str());
        app.record_refusal(self.caller.as_ref(), self.address, &self.method, self.uri.path(), code);
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_the_caller_are_audited() {
        assert!(is_refusal(StatusCode::UNAUTHORIZED) && is_refusal(StatusCode::FORBIDDEN));
        assert!(!is_refusal(StatusCode::OK) && !is_refusal(StatusCode::NOT_FOUND));
        assert!(!is_refusal(StatusCode::TOO_MANY_REQUESTS));
    }
}
