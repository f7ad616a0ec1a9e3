//! The server's history: which starts it knows of, whether it went back, and going on from there.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use berth_core::Command;
use berth_wire as wire;
use berth_wire::ContinueHistory;

use super::App;
use super::body::Json;
use super::problem::Failure;
use crate::present;
use crate::trust::Caller;

/// Which starts of the server are known
///
/// A server that was started on an older copy of its data learns from its agents that its history went back.
#[utoipa::path(get, path = "/api/v1/history", tag = "health",
    responses((status = 200, description = "The history", body = wire::History)))]
pub(super) async fn show(State(app): State<App>) -> Result<Json<wire::History>, Failure> {
    let view = app.writer.read(|state| state.history()).await?;
    Ok(Json(present::history(&view)))
}

/// Go on although the history went back
///
/// The server goes on above everything that its agents have obeyed. Slots that it does not know are charged, and stopped
/// as soon as their agents obey it.
#[utoipa::path(post, path = "/api/v1/history/continue", tag = "admin", request_body = ContinueHistory,
    responses(
        (status = 204, description = "It goes on"),
        (status = 409, description = "The history did not go back", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn go_on(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<ContinueHistory>,
) -> Result<StatusCode, Failure> {
    let ContinueHistory { reason } = request;
    let command = Command::ContinueHistory { reason: reason.clone() };
    app.operate(&caller, "continue_history", &"history", Some(&reason), command).await?;
    Ok(StatusCode::NO_CONTENT)
}
