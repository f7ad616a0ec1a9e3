//! Errors as RFC 9457 problems. The only place that knows which status an error has; `docs/API.md` lists the codes.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_core::Refusal;
use berth_engines::ArgumentSource;
use berth_wire::{BodyError, Invalid, PROBLEM_MEDIA_TYPE, Problem, Time};

use crate::estimator::EstimatorError;
use crate::requests::{AskError, NotOpen};
use crate::trust::NotAllowed;
use crate::trust::grant::NotTaken;
use crate::trust::runner_certificate::CertificateRefusal;
use crate::trust::tokens::{Rejection, TokenError};
use crate::writer::Unavailable;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Box<Problem>);

impl Failure {
    /// A status, a stable code and what to do about it.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self(Box::new(Problem::new(status.as_u16(), code, title, detail)))
    }

    /// With the field that is wrong.
    #[must_use]
    pub fn field(self, field: impl Into<String>) -> Self {
        Self(Box::new(self.0.with_field(field)))
    }

    /// With a time to try again.
    #[must_use]
    pub fn retry_after(self, millis: u64) -> Self {
        Self(Box::new(self.0.with_retry_after_ms(millis)))
    }

    /// Nothing of that name.
    #[must_use]
    pub fn unknown(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, &format!("unknown_{what}"), format!("no {what} {id}"))
    }

    /// Nobody knows who asks.
    #[must_use]
    pub fn unauthenticated() -> Self {
        let detail = "send a token: Authorization: Bearer berth_...; an admin makes one with `berth token create`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// The token was worth something once.
    #[must_use]
    pub fn expired(since: Time) -> Self {
        let detail = format!(
            "this token expired at {since}: an admin makes another one (`berth token create`), and an agent joins again \
             (`berth join-token create`)"
        );
        Self::new(StatusCode::UNAUTHORIZED, "token_expired", detail)
    }

    /// The token counted when the request came, and does not any more.
    #[must_use]
    pub fn revoked() -> Self {
        let detail = "the token was revoked while this request was under way; an admin makes another one with `berth \
                      token create`";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
    }

    /// Too many requests at once on a connection that has not authenticated.
    #[must_use]
    pub fn too_many_streams(limit: usize) -> Self {
        let detail =
            format!("{limit} requests without a token are under way on this connection: wait for their answers");
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail).retry_after(1000)
    }

    /// Whether this is a [`CertificateRefusal`].
    #[must_use]
    pub fn is_about_certificate(&self) -> bool {
        self.0.code.starts_with("certificate_")
    }

    /// Whether this is [`Failure::too_many_streams`].
    #[must_use]
    pub fn is_too_many_streams(&self) -> bool {
        self.0.code == "too_many_streams"
    }

    /// A body that broke off.
    #[must_use]
    pub fn cut_off() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "body_cut_off", "the body ended before it was complete")
    }

    /// A handler that panicked.
    #[must_use]
    pub fn bug() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a bug in the server: its log says more")
    }

    /// They may not.
    #[must_use]
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Too many requests.
    #[must_use]
    pub fn rate_limited(wait: std::time::Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let detail =
            "this client sends more requests than it may; slow down, or ask for a higher limits.requests_per_second";
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(millis)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if let Some(millis) = self.0.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000).max(1)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For those on the way out who want to know what went wrong without reading the body.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::UnknownModel(_)
            | Refusal::UnknownWorkload(_)
            | Refusal::UnknownRunner(_)
            | Refusal::UnknownDevice(_)
            | Refusal::UnknownSlot(_) => StatusCode::NOT_FOUND,
            Refusal::Unplaceable { .. }
            | Refusal::InvalidModel(_)
            | Refusal::UnfitModel { .. }
            | Refusal::ForbiddenArgument { .. }
            | Refusal::Implausible(_)
            | Refusal::TooMany { .. }
            | Refusal::ReasonMissing => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::QueueFull(_) | Refusal::OwnerLimit { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::NotStarted => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::WorkloadIdTaken(_)
            | Refusal::KeyReused(_)
            | Refusal::WorkloadEnded(_)
            | Refusal::StaleAttempt { .. }
            | Refusal::NotRunning(_)
            | Refusal::Superseded { .. }
            | Refusal::NotRegistered { .. }
            | Refusal::OldBoot { .. }
            | Refusal::OldReport { .. }
            | Refusal::MachineChanged { .. }
            | Refusal::RunnerInUse(_)
            | Refusal::HasSlots { .. }
            | Refusal::WrongSlotState { .. }
            | Refusal::HistoryIsWhole
            | Refusal::OtherCluster(_) => StatusCode::CONFLICT,
        };
        let failure = Self::new(status, refusal.code(), refusal.to_string());
        match refusal {
            Refusal::QueueFull(_) | Refusal::OwnerLimit { .. } => failure.retry_after(1000),
            Refusal::ReasonMissing => failure.field("reason"),
            Refusal::ForbiddenArgument { of: ArgumentSource::Job, .. } => failure.field("job.args"),
            Refusal::ForbiddenArgument { of: ArgumentSource::Model, .. } => failure.field("args"),
            _ => failure,
        }
    }
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Self {
        let (code, retry) = match unavailable {
            Unavailable::NoRoom => ("no_space", 5000),
            Unavailable::Busy => ("busy", 100),
            Unavailable::Stopping => ("stopping", 1000),
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, unavailable.to_string()).retry_after(retry)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", invalid.to_string()).field(invalid.field)
    }
}

impl From<EstimatorError> for Failure {
    fn from(error: EstimatorError) -> Self {
        match error {
            EstimatorError::Invalid(invalid) => invalid.into(),
            EstimatorError::Ask(error) => error.into(),
            EstimatorError::Slow => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "files_unavailable", error.to_string()).retry_after(5000)
            }
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Malformed(_) => Self::new(StatusCode::BAD_REQUEST, "malformed_json", error.to_string()),
            BodyError::Invalid(invalid) => invalid.into(),
        }
    }
}

impl From<NotOpen> for Failure {
    fn from(not_open: NotOpen) -> Self {
        let (status, code) = match not_open {
            NotOpen::Unknown => (StatusCode::NOT_FOUND, "unknown_request"),
            NotOpen::Taken => (StatusCode::CONFLICT, "request_taken"),
        };
        Self::new(status, code, not_open.to_string())
    }
}

/// What an agent says is untrusted: of its codes only those count that mean something here.
impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let (status, code) = match &error {
            AskError::Full(_) => (StatusCode::TOO_MANY_REQUESTS, "runner_busy"),
            AskError::Silent { .. } => (StatusCode::GATEWAY_TIMEOUT, "runner_silent"),
            AskError::Refused { problem, .. } if problem.code == "no_log" => (StatusCode::NOT_FOUND, "no_log"),
            AskError::Refused { .. } => (StatusCode::BAD_GATEWAY, "runner_refused"),
            AskError::Unreadable { .. } => (StatusCode::BAD_GATEWAY, "bad_answer"),
        };
        let failure = Self::new(status, code, error.to_string());
        match error {
            AskError::Full(_) | AskError::Silent { .. } => failure.retry_after(1000),
            _ => failure,
        }
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Unknown => Self::unauthenticated(),
            Rejection::Expired(since) => Self::expired(since),
        }
    }
}

impl From<CertificateRefusal> for Failure {
    fn from(refusal: CertificateRefusal) -> Self {
        let (status, code) = match &refusal {
            CertificateRefusal::Missing { .. } => (StatusCode::FORBIDDEN, "certificate_required"),
            CertificateRefusal::OtherRunner { .. } => (StatusCode::FORBIDDEN, "certificate_of_another"),
            CertificateRefusal::Outdated { .. } => (StatusCode::FORBIDDEN, "certificate_outdated"),
        };
        Self::new(status, code, refusal.to_string())
    }
}

impl From<NotAllowed> for Failure {
    fn from(why: NotAllowed) -> Self {
        Self::new(StatusCode::FORBIDDEN, "over_limit", why.to_string()).field(why.field())
    }
}

impl From<NotTaken> for Failure {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Invalid(invalid) => invalid.into(),
            NotTaken::Outside(outside) => Self::new(StatusCode::FORBIDDEN, "outside_grant", outside.to_string()),
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let (status, code) = match &error {
            TokenError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_token"),
            TokenError::NoAdmin => (StatusCode::CONFLICT, "no_admin_left"),
            TokenError::NameTaken(_) => (StatusCode::CONFLICT, "name_taken"),
            TokenError::UsedUp => (StatusCode::FORBIDDEN, "join_token_used_up"),
            TokenError::OtherRunner(_) => (StatusCode::FORBIDDEN, "outside_grant"),
            TokenError::RunnerKnown(_) => (StatusCode::CONFLICT, "runner_known"),
            TokenError::File { .. } | TokenError::Damaged { .. } | TokenError::Random(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "tokens_unavailable")
            }
        };
        Self::new(status, code, error.to_string())
    }
}
