//! Sending requests, with deadlines and retries.

use berth_wire::ProblemCode;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url};

use crate::client::problem_in;
use crate::{Client, ClientError, Route};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The first pause before a request is sent again; each next one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// How many connections that are too old for a request to be taken are given up for it.
const OLD_CONNECTIONS: u32 = 8;

impl Client {
    /// Returns the address of a route. Segments are encoded, so that a name with `/` stays one segment.
    pub(crate) fn url<T>(&self, route: &Route<T>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&route.path);
        }
        url.set_query((!route.query.is_empty()).then_some(&route.query));
        url
    }

    /// Sends a route and reads what comes back, again if it may be repeated and the connection failed.
    pub(crate) async fn exchange<T>(&self, route: &Route<T>) -> Result<(StatusCode, HeaderMap, String), ClientError> {
        let (mut failed, mut without_certificate) = (0, 0);
        loop {
            let shown = self.authorization.read().clone();
            match self.exchange_once(route).await {
                // The token was rotated while this request was on its way with the old secret.
                Ok((StatusCode::UNAUTHORIZED, ..)) if shown != *self.authorization.read() => {}
                // The connection was made before the server asked for certificates. It refused the request unseen, and
                // closes the connection: the next one is made with the certificate.
                Ok((StatusCode::FORBIDDEN, _, text))
                    if self.has_certificate && without_certificate < OLD_CONNECTIONS && lacks_certificate(&text) =>
                {
                    without_certificate += 1;
                }
                Err(error) if route.repeatable && error.is_passing() && failed < self.retries => {
                    // A wait that was too long once would be too long again.
                    if matches!(error, ClientError::Timeout { .. }) {
                        return Err(error);
                    }
                    tokio::time::sleep(PAUSE * 2u32.pow(failed.min(6))).await;
                    failed += 1;
                }
                done => return done,
            }
        }
    }

    async fn exchange_once<T>(&self, route: &Route<T>) -> Result<(StatusCode, HeaderMap, String), ClientError> {
        let limit = self.timeout.saturating_add(Duration::from_millis(route.wait.millis()));
        let failed = |error: &reqwest::Error| ClientError::of_transport(self.base(), error, limit.as_secs());
        let response = self.request(route).timeout(limit).send().await.map_err(|error| failed(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        self.note_headers(&headers);
        let bytes = response.bytes().await.map_err(|error| failed(&error))?;
        Ok((status, headers, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Sends a route whose answer does not end, and waits for its head only.
    pub(crate) async fn open<T>(
        &self,
        route: &Route<T>,
        more: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        let sent = more(self.request(route)).send();
        let response = match tokio::time::timeout(self.timeout, sent).await {
            Ok(sent) => sent.map_err(|error| ClientError::of_transport(self.base(), &error, self.timeout.as_secs()))?,
            Err(_) => {
                return Err(ClientError::Timeout { url: self.base().to_owned(), seconds: self.timeout.as_secs() });
            }
        };
        self.note_headers(response.headers());
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap_or_default();
        Err(self.refusal(status, &headers, &text))
    }

    fn request<T>(&self, route: &Route<T>) -> RequestBuilder {
        let mut request = self.send_to(route.method.clone(), self.url(route));
        if let Some(body) = &route.body {
            let json = HeaderValue::from_static("application/json");
            request = request.header(CONTENT_TYPE, json).body(body.clone());
        }
        if let Some(key) = &route.key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        request.header(ACCEPT, HeaderValue::from_static(route.accept))
    }
}

/// Whether the server wants a certificate and has seen none that counts on this connection.
fn lacks_certificate(text: &str) -> bool {
    problem_in(text).is_some_and(|error| {
        error.is_code(ProblemCode::CertificateRequired) || error.is_code(ProblemCode::CertificateOutdated)
    })
}
