//! Tokens, the audit log and the log level.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use berth_core::Command;
use berth_domain::ReasonText;
use berth_wire as wire;
use berth_wire::{AuditEntry, Invalid, LogLevel, Time, TokenId, TokenRequest};

use super::App;
use super::body::{Json, Named};
use super::problem::Failure;
use crate::clock;
use crate::trust::Caller;

impl App {
    /// Carries out what a person asked for, and puts it on record, whatever came of it.
    pub(super) async fn operate(
        &self,
        caller: &Caller,
        action: &str,
        target: &impl std::fmt::Display,
        reason: Option<&ReasonText>,
        command: Command,
    ) -> Result<(), Failure> {
        let done = self.execute(command).await.map(|_| ());
        self.put_on_record(caller, action, target, reason, &done);
        done
    }

    /// Puts on record what a person with an admin's token did to a workload. What gateways do is no person's doing.
    pub(super) fn record_if_admin<T>(
        &self,
        caller: &Caller,
        action: &str,
        target: &impl std::fmt::Display,
        done: &Result<T, Failure>,
    ) {
        if caller.token.is_some() && caller.role == wire::Role::Admin {
            self.audit.record(self.entry(caller, action, target, None, done), true);
        }
    }

    /// Puts on record what a person asked for, whatever came of it.
    pub(super) fn put_on_record<T>(
        &self,
        caller: &Caller,
        action: &str,
        target: &impl std::fmt::Display,
        reason: Option<&ReasonText>,
        done: &Result<T, Failure>,
    ) {
        self.audit.record(self.entry(caller, action, target, reason, done), false);
    }

    fn entry<T>(
        &self,
        caller: &Caller,
        action: &str,
        target: &impl std::fmt::Display,
        reason: Option<&ReasonText>,
        done: &Result<T, Failure>,
    ) -> AuditEntry {
        AuditEntry {
            time: Time(clock::now()),
            by: caller.name.to_string(),
            role: Some(caller.role),
            action: action.to_owned(),
            target: target.to_string(),
            outcome: done.as_ref().map_or_else(|failure| failure.0.code.clone(), |_| "done".to_owned()),
            revision: done.is_ok().then(|| self.views.revision()),
            reason: reason.map(ToString::to_string),
        }
    }
}

/// Make a token
///
/// Its secret is in the answer, once. The first token must be an admin's; from then on every request needs one.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "admin", request_body = TokenRequest,
    responses(
        (status = 201, description = "The token and its secret", body = wire::NewToken),
        (status = 409, description = "The name is taken, or there would be no admin", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn create_token(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<TokenRequest>,
) -> Result<Response, Failure> {
    request.validate()?;
    let target = format!("{} {}", request.role, request.name);
    let made = app.tokens.create(request, clock::now()).map_err(Failure::from);
    app.put_on_record(&caller, "create_token", &target, None, &made);
    Ok((StatusCode::CREATED, Json(made?)).into_response())
}

/// List tokens
///
/// Without their secrets: nobody has those but who was given them.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "admin",
    responses((status = 200, description = "Tokens, oldest first", body = Vec<wire::Token>)))]
pub(super) async fn list_tokens(State(app): State<App>) -> Json<Vec<wire::Token>> {
    Json(app.tokens.list())
}

/// Revoke a token
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "admin", params(("id" = TokenId, Path)),
    responses(
        (status = 204, description = "Nobody gets in with it any more"),
        (status = 404, description = "No such token", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is the last admin's", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn revoke_token(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<TokenId>,
) -> Result<StatusCode, Failure> {
    let revoked = app.tokens.revoke(id).map_err(Failure::from);
    app.put_on_record(&caller, "revoke_token", &id, None, &revoked);
    revoked.map(|_| StatusCode::NO_CONTENT)
}

/// Rotate a token
///
/// Makes another secret for it. The old one is good until the new one is first used.
#[utoipa::path(post, path = "/api/v1/tokens/{id}/rotate", tag = "admin", params(("id" = TokenId, Path)),
    responses(
        (status = 200, description = "The token and its new secret", body = wire::NewToken),
        (status = 404, description = "No such token", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn rotate_token(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<TokenId>,
) -> Result<Json<wire::NewToken>, Failure> {
    let rotated = app.tokens.rotate(id, clock::now()).map_err(Failure::from);
    app.put_on_record(&caller, "rotate_token", &id, None, &rotated);
    Ok(Json(rotated?))
}

/// Who did what
///
/// The last thousand changes by people, oldest first; the whole record is in the data directory.
#[utoipa::path(get, path = "/api/v1/audit", tag = "admin",
    responses((status = 200, description = "The record", body = Vec<AuditEntry>)))]
pub(super) async fn audit(State(app): State<App>) -> Json<Vec<AuditEntry>> {
    Json(app.audit.list())
}

/// What is logged
#[utoipa::path(get, path = "/api/v1/log-level", tag = "admin",
    responses((status = 200, description = "The filter", body = LogLevel)))]
pub(super) async fn log_level(State(app): State<App>) -> Json<LogLevel> {
    Json(LogLevel { filter: app.log_level.get() })
}

/// Change what is logged
///
/// From now on, until the server ends.
#[utoipa::path(put, path = "/api/v1/log-level", tag = "admin", request_body = LogLevel,
    responses((status = 200, description = "The filter", body = LogLevel)))]
pub(super) async fn set_log_level(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<LogLevel>,
) -> Result<Json<LogLevel>, Failure> {
    let set = app.log_level.set(&request.filter).map_err(|why| Failure::from(Invalid::new("filter", why)));
    app.put_on_record(&caller, "set_log_level", &request.filter, None, &set);
    set?;
    Ok(Json(LogLevel { filter: app.log_level.get() }))
}
