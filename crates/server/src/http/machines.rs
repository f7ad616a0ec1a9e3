//! Machines that several runners name: an operator's word on who is where.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use berth_core::{Command, Exclusion};
use berth_wire as wire;
use berth_wire::MachineJudgement;

use super::App;
use super::body::Json;
use super::problem::Failure;
use crate::trust::Caller;

/// Say on which machine runners are
///
/// A machine id belongs to the runner that registered it first. Another runner that names it takes nothing before its token
/// or an operator says that both are on one machine, or that it is on another machine with the same id.
#[utoipa::path(post, path = "/api/v1/machines/judge", tag = "runners", request_body = MachineJudgement,
    responses(
        (status = 204, description = "It counts from the runners' next reports on"),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "A runner has slots", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn judge(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<MachineJudgement>,
) -> Result<StatusCode, Failure> {
    let MachineJudgement { runners, all_disputed, same, reason } = request;
    let runners = if all_disputed { disputed(&app).await } else { runners };
    let names: Vec<String> = runners.iter().map(ToString::to_string).collect();
    let action = if same { "same_machine" } else { "another_machine" };
    let command = Command::JudgeMachines { runners, is_same: same, reason: reason.clone() };
    app.operate(&caller, action, &names.join(" "), Some(&reason), command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Every runner whose machine is in dispute now.
async fn disputed(app: &App) -> Vec<berth_domain::RunnerId> {
    app.see_fleet().await;
    let is_disputed = |view: &berth_core::view::RunnerView| view.barred == Some(Exclusion::MachineDisputed);
    app.views.runners().iter().filter(|view| is_disputed(view)).map(|view| view.id.clone()).collect()
}
