//! What goes wrong, as clients of OpenAI's and of Anthropic's API understand it.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_domain::{EngineRoute, WorkloadId};
use berth_wire::Problem;
use bytes::Bytes;
use serde_json::{Value, json};

/// The header that leads from an answer to its explanation.
pub(crate) const WORKLOAD: HeaderName = HeaderName::from_static("berth-workload");
/// The longest time after which a caller is told to come back.
const LONGEST_RETRY_SECS: u64 = 120;

/// Whose shape errors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
}

impl Shape {
    /// The shape of a route.
    #[must_use]
    pub fn of(route: EngineRoute) -> Self {
        if route == EngineRoute::Messages { Self::Anthropic } else { Self::OpenAi }
    }

    /// The shape of a path below `/v1`.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        let is_messages = path.trim_end_matches('/').ends_with("/messages");
        if is_messages { Self::Anthropic } else { Self::OpenAi }
    }
}

/// Why a request was not answered by an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    status: StatusCode,
    code: String,
    message: String,
    param: Option<String>,
    retry_after_secs: Option<u64>,
    workload: Option<WorkloadId>,
}

impl Trouble {
    fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { status, code, message, param: None, retry_after_secs: None, workload: None }
    }

    /// A request that cannot be read.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// A request that names no model, or no good name.
    pub(crate) fn bad_model(message: impl Into<String>) -> Self {
        Self { param: Some("model".into()), ..Self::invalid(message) }
    }

    /// No such model.
    pub(crate) fn model_not_found(name: &str) -> Self {
        let shown: String = name.chars().take(100).collect();
        let message = format!("the model {shown:?} is not in the catalogue: GET /v1/models lists what is");
        Self { param: Some("model".into()), ..Self::new(StatusCode::NOT_FOUND, "model_not_found", message) }
    }

    /// A model that does not answer this route.
    pub(crate) fn route_not_served(name: &str, route: EngineRoute, routes: &[EngineRoute]) -> Self {
        let served: Vec<&str> = routes.iter().map(|route| route.as_str()).collect();
        let message = format!("the model {name} does not serve /v1/{route}: it serves {}", served.join(", "));
        Self { param: Some("model".into()), ..Self::new(StatusCode::NOT_FOUND, "route_not_served", message) }
    }

    /// A path that is none.
    pub(crate) fn unknown_route(path: &str) -> Self {
        let shown: String = path.chars().take(200).collect();
        Self::new(StatusCode::NOT_FOUND, "unknown_route", format!("there is nothing at {shown}"))
    }

    /// A method that the path does not have.
    pub(crate) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", "not with this method: ask with POST")
    }

    /// A body that is too large.
    pub(crate) fn body_too_large(limit: u64) -> Self {
        let message = format!("a body here has at most {limit} bytes (gateway.body)");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    }

    /// A body that does not arrive.
    pub(crate) fn body_timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time")
    }

    /// Too many wait already.
    pub(crate) fn full(model: &str, retry_secs: u64) -> Self {
        let message = format!("as many requests wait for {model} as may: come back later");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_held", message).retry_after(retry_secs)
    }

    /// The model loads for longer than a request is held.
    pub(crate) fn loading(explanation: String, retry_secs: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "model_loading", explanation).retry_after(retry_secs)
    }

    /// The model could not be loaded.
    pub(crate) fn load_failed(explanation: String) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "load_failed", explanation)
    }

    /// The slot broke.
    pub(crate) fn slot_failed(why: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "slot_failed", format!("the model's slot failed: {why}"))
    }

    /// The slot wants the caller to go elsewhere.
    pub(crate) fn slot_redirects() -> Self {
        let message = "the model's slot answered with a redirect, which is not followed";
        Self::new(StatusCode::BAD_GATEWAY, "slot_redirects", message)
    }

    /// With the workload that it happened to.
    #[must_use]
    pub(crate) fn of_workload(self, workload: Option<WorkloadId>) -> Self {
        Self { workload: self.workload.or(workload), ..self }
    }

    fn retry_after(self, secs: u64) -> Self {
        Self { retry_after_secs: Some(secs.clamp(1, LONGEST_RETRY_SECS)), ..self }
    }

    fn kind(&self, shape: Shape) -> &'static str {
        match (shape, self.status.as_u16()) {
            (Shape::Anthropic, 404) => "not_found_error",
            (Shape::Anthropic, 413) => "request_too_large",
            (Shape::Anthropic, 503 | 529) => "overloaded_error",
            (Shape::Anthropic, 500..) => "api_error",
            (Shape::OpenAi, 500..) => "server_error",
            (_, 401) => "authentication_error",
            (_, 403) => "permission_error",
            (_, 429) => "rate_limit_error",
            _ => "invalid_request_error",
        }
    }

    fn to_json(&self, shape: Shape) -> Value {
        let mut error = match shape {
            Shape::OpenAi => json!({
                "message": self.message, "type": self.kind(shape), "param": self.param, "code": self.code,
            }),
            Shape::Anthropic => json!({ "type": self.kind(shape), "message": self.message, "code": self.code }),
        };
        if let Some(workload) = self.workload {
            error["workload"] = json!(workload);
        }
        match shape {
            Shape::OpenAi => json!({ "error": error }),
            Shape::Anthropic => json!({ "type": "error", "error": error }),
        }
    }

    /// The last event of a stream.
    pub(crate) fn to_event(&self, shape: Shape) -> Bytes {
        let data = self.to_json(shape);
        match shape {
            Shape::OpenAi => format!("data: {data}\n\n").into(),
            Shape::Anthropic => format!("event: error\ndata: {data}\n\n").into(),
        }
    }

    /// The whole answer to a request.
    #[must_use]
    pub fn into_response(self, shape: Shape) -> Response {
        let body = Body::from(self.to_json(shape).to_string());
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(workload) = self.workload {
            note_workload(headers, workload);
        }
        response
    }
}

/// Puts the workload on an answer.
pub(crate) fn note_workload(headers: &mut axum::http::HeaderMap, workload: WorkloadId) {
    if let Ok(value) = HeaderValue::from_str(&workload.to_string()) {
        headers.insert(WORKLOAD, value);
    }
}

/// The lease API said no, with a status, a code and words that are good enough to pass on.
impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        // To clients of these APIs a model that is not there is not found, whatever a submission calls it.
        if problem.code == "unknown_model" {
            return Self { message: problem.detail, ..Self::model_not_found("") };
        }
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let trouble = Self { param: problem.field, ..Self::new(status, &problem.code, problem.detail) };
        match problem.retry_after_ms {
            Some(millis) => trouble.retry_after(millis.div_ceil(1000)),
            None => trouble,
        }
    }
}
