//! Failed requests as RFC 9457 problems.
//!
//! Every failure is made from a [`ProblemCode`], which knows its HTTP status. The conversions below choose the code of
//! each error of the core, the writer and the trust layer.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_core::{Refusal, Unplaceable};
use berth_engines::ArgumentSource;
use berth_wire::{BodyError, Invalid, PROBLEM_MEDIA_TYPE, Problem, ProblemCode, Time};

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
    /// Makes a failure of this code; `detail` says what happened and what to do about it.
    #[must_use]
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code.status(), code.as_str(), title_of(code.status()), detail)))
    }

    /// Changes the status to 422, for a name in a body: the path was found, what the body names was not.
    #[must_use]
    pub fn unprocessable(mut self) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY.as_u16();
        (self.0.status, self.0.title) = (status, title_of(status).to_owned());
        self
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

    /// Makes a failure of one of the `unknown_...` codes: there is nothing of that kind under this id.
    #[must_use]
    pub fn unknown(code: ProblemCode, id: impl std::fmt::Display) -> Self {
        let kind = code.as_str().trim_start_matches("unknown_");
        Self::new(code, format!("no {kind} {id}"))
    }

    /// Nobody knows who asks.
    #[must_use]
    pub fn unauthenticated() -> Self {
        let detail = "send a token: Authorization: Bearer berth_...; an admin makes one with `berth token create`";
        Self::new(ProblemCode::Unauthenticated, detail)
    }

    /// The token was worth something once.
    #[must_use]
    pub fn expired(since: Time) -> Self {
        let detail = format!(
            "this token expired at {since}: an admin makes another one (`berth token create`), and an agent joins again \
             (`berth join-token create`)"
        );
        Self::new(ProblemCode::TokenExpired, detail)
    }

    /// The token counted when the request came, and does not any more.
    #[must_use]
    pub fn revoked() -> Self {
        let detail = "the token was revoked while this request was under way; an admin makes another one with `berth \
                      token create`";
        Self::new(ProblemCode::Unauthenticated, detail)
    }

    /// Too many requests at once on a connection that has not authenticated.
    #[must_use]
    pub fn too_many_streams(limit: usize) -> Self {
        let detail =
            format!("{limit} requests without a token are under way on this connection: wait for their answers");
        Self::new(ProblemCode::TooManyStreams, detail).retry_after(1000)
    }

    /// Whether this is a [`CertificateRefusal`].
    #[must_use]
    pub fn is_about_certificate(&self) -> bool {
        self.0.code.starts_with("certificate_")
    }

    /// Whether this is [`Failure::too_many_streams`].
    #[must_use]
    pub fn is_too_many_streams(&self) -> bool {
        self.0.code == ProblemCode::TooManyStreams.as_str()
    }

    /// A body that broke off.
    #[must_use]
    pub fn cut_off() -> Self {
        Self::new(ProblemCode::BodyCutOff, "the body ended before it was complete")
    }

    /// A handler that panicked.
    #[must_use]
    pub fn bug() -> Self {
        Self::new(ProblemCode::Internal, "a bug in the server: its log says more")
    }

    /// They may not.
    #[must_use]
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::Forbidden, detail)
    }

    /// Too many requests.
    #[must_use]
    pub fn rate_limited(wait: std::time::Duration) -> Self {
        let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        let detail =
            "this client sends more requests than it may; slow down, or ask for a higher limits.requests_per_second";
        Self::new(ProblemCode::RateLimited, detail).retry_after(millis)
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

/// Returns the title of an HTTP status: the words that HTTP itself has for it.
fn title_of(status: u16) -> &'static str {
    StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error")
}

/// Returns the code of a refusal. A refusal that is added to the core does not compile before it has one.
fn code_of(refusal: &Refusal) -> ProblemCode {
    match refusal {
        Refusal::UnknownModel(_) => ProblemCode::UnknownModel,
        Refusal::UnknownWorkload(_) => ProblemCode::UnknownWorkload,
        Refusal::UnknownRunner(_) => ProblemCode::UnknownRunner,
        Refusal::UnknownDevice(_) => ProblemCode::UnknownDevice,
        Refusal::UnknownSlot(_) => ProblemCode::UnknownSlot,
        Refusal::Unplaceable { why, .. } => match why {
            Unplaceable::NeverFits => ProblemCode::NeverFits,
            Unplaceable::UnknownMemory => ProblemCode::UnknownMemory,
            Unplaceable::NoMatchingRunner => ProblemCode::NoMatchingRunner,
            Unplaceable::RuntimeMissing => ProblemCode::RuntimeMissing,
            Unplaceable::RuntimeNotForJobs => ProblemCode::RuntimeNotForJobs,
            Unplaceable::RuntimeOnlyForJobs => ProblemCode::RuntimeOnlyForJobs,
        },
        Refusal::QueueFull(_) => ProblemCode::QueueFull,
        Refusal::OwnerLimit { .. } => ProblemCode::OwnerLimit,
        Refusal::WorkloadIdTaken(_) => ProblemCode::WorkloadIdTaken,
        Refusal::KeyReused(_) => ProblemCode::KeyReused,
        Refusal::WorkloadEnded(_) => ProblemCode::WorkloadEnded,
        Refusal::StaleAttempt { .. } => ProblemCode::StaleAttempt,
        Refusal::NotRunning(_) => ProblemCode::NotRunning,
        Refusal::InvalidModel(_) => ProblemCode::InvalidModel,
        Refusal::UnfitModel { .. } => ProblemCode::UnfitModel,
        Refusal::ForbiddenArgument { .. } => ProblemCode::ForbiddenArgument,
        Refusal::Superseded { .. } => ProblemCode::Superseded,
        Refusal::NotRegistered { .. } => ProblemCode::NotRegistered,
        Refusal::OldBoot { .. } => ProblemCode::OldBoot,
        Refusal::OldReport { .. } => ProblemCode::OldReport,
        Refusal::MachineChanged { .. } => ProblemCode::MachineChanged,
        Refusal::HasSlots { .. } => ProblemCode::HasSlots,
        Refusal::TooMany { .. } => ProblemCode::ReportTooLarge,
        Refusal::Implausible(_) => ProblemCode::ImplausibleReport,
        Refusal::RunnerInUse(_) => ProblemCode::RunnerInUse,
        Refusal::WrongSlotState { .. } => ProblemCode::WrongSlotState,
        Refusal::ReasonMissing => ProblemCode::ReasonMissing,
        Refusal::OtherCluster(_) => ProblemCode::OtherCluster,
        Refusal::NotStarted => ProblemCode::NotStarted,
        Refusal::HistoryIsWhole => ProblemCode::HistoryIsWhole,
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let failure = Self::new(code_of(&refusal), refusal.to_string());
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
            Unavailable::NoRoom => (ProblemCode::NoSpace, 5000),
            Unavailable::Busy => (ProblemCode::Busy, 100),
            Unavailable::Stopping => (ProblemCode::Stopping, 1000),
        };
        Self::new(code, unavailable.to_string()).retry_after(retry)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(ProblemCode::InvalidField, invalid.to_string()).field(invalid.field)
    }
}

impl From<EstimatorError> for Failure {
    fn from(error: EstimatorError) -> Self {
        match error {
            EstimatorError::Invalid(invalid) => invalid.into(),
            EstimatorError::Ask(error) => error.into(),
            EstimatorError::Slow => Self::new(ProblemCode::FilesUnavailable, error.to_string()).retry_after(5000),
        }
    }
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Malformed(_) => Self::new(ProblemCode::MalformedJson, error.to_string()),
            BodyError::Invalid(invalid) => invalid.into(),
        }
    }
}

impl From<NotOpen> for Failure {
    fn from(not_open: NotOpen) -> Self {
        let code = match not_open {
            NotOpen::Unknown => ProblemCode::UnknownRequest,
            NotOpen::Taken => ProblemCode::RequestTaken,
        };
        Self::new(code, not_open.to_string())
    }
}

/// What an agent says is untrusted: of its codes only those count that mean something here.
impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let code = match &error {
            AskError::Full(_) => ProblemCode::RunnerBusy,
            AskError::Silent { .. } => ProblemCode::RunnerSilent,
            AskError::Refused { problem, .. } if problem.code == ProblemCode::NoLog.as_str() => ProblemCode::NoLog,
            AskError::Refused { .. } => ProblemCode::RunnerRefused,
            AskError::Unreadable { .. } => ProblemCode::BadAnswer,
        };
        let failure = Self::new(code, error.to_string());
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
        let code = match &refusal {
            CertificateRefusal::Missing { .. } => ProblemCode::CertificateRequired,
            CertificateRefusal::OtherRunner { .. } => ProblemCode::CertificateOfAnother,
            CertificateRefusal::Outdated { .. } => ProblemCode::CertificateOutdated,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<NotAllowed> for Failure {
    fn from(why: NotAllowed) -> Self {
        Self::new(ProblemCode::OverLimit, why.to_string()).field(why.field())
    }
}

impl From<NotTaken> for Failure {
    fn from(why: NotTaken) -> Self {
        match why {
            NotTaken::Invalid(invalid) => invalid.into(),
            NotTaken::Outside(outside) => Self::new(ProblemCode::OutsideGrant, outside.to_string()),
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let code = match &error {
            TokenError::Unknown(_) => ProblemCode::UnknownToken,
            TokenError::NoAdmin => ProblemCode::NoAdminLeft,
            TokenError::NameTaken(_) => ProblemCode::NameTaken,
            TokenError::UsedUp => ProblemCode::JoinTokenUsedUp,
            TokenError::OtherRunner(_) => ProblemCode::OutsideGrant,
            TokenError::RunnerKnown(_) => ProblemCode::RunnerKnown,
            TokenError::File { .. } | TokenError::Damaged { .. } | TokenError::Random(_) => {
                ProblemCode::TokensUnavailable
            }
        };
        Self::new(code, error.to_string())
    }
}
