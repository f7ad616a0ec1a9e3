//! Slots.

use axum::Extension;
use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use berth_core::Command;
use berth_core::view::SlotView;
use berth_domain::SlotId;
use berth_wire as wire;
use berth_wire::{ForceReleaseRequest, ProblemCode, SlotQuery};
use uuid::Uuid;

use super::App;
use super::body::{Json, Named, Query};
use super::listing::Page;
use super::problem::Failure;
use crate::present;
use crate::trust::Caller;

fn shown(app: &App, view: &SlotView) -> wire::Slot {
    present::slot(view, |uuid| app.views.device(uuid))
}

/// List slots
///
/// In the order of their creation.
#[utoipa::path(get, path = "/api/v1/scheduler/slots", tag = "scheduler", params(SlotQuery),
    responses((status = 200, description = "Slots", body = Vec<wire::Slot>)))]
pub(super) async fn list(State(app): State<App>, uri: OriginalUri, Query(query): Query<SlotQuery>) -> Page<wire::Slot> {
    app.see_fleet().await;
    let mut rows = app.views.slots();
    rows.retain(|view| {
        query.model.as_ref().is_none_or(|model| view.model.as_ref() == Some(model))
            && query.runner_id.as_ref().is_none_or(|runner| view.runner == *runner)
            && query.state.is_none_or(|state| view.state == state)
            && query.after.is_none_or(|after| view.id > after)
    });
    Page::of(rows, query.limit, &uri, |view| view.id.to_string()).map(|view| shown(&app, &view))
}

/// Look at a slot
#[utoipa::path(get, path = "/api/v1/scheduler/slots/{id}", tag = "scheduler", params(("id" = wire::schema::SlotId, Path)),
    responses(
        (status = 200, description = "The slot", body = wire::Slot),
        (status = 404, description = "No such slot", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(State(app): State<App>, Named(id): Named<Uuid>) -> Result<Json<wire::Slot>, Failure> {
    let id = SlotId::new(id);
    app.see_fleet().await;
    let view = app.views.slot(id).ok_or_else(|| Failure::unknown(ProblemCode::UnknownSlot, id))?;
    Ok(Json(shown(&app, &view)))
}

/// Stop a slot
///
/// Its work goes back to the queue; its memory stays charged until the agent proves that it is back.
#[utoipa::path(delete, path = "/api/v1/scheduler/slots/{id}", tag = "scheduler", params(("id" = wire::schema::SlotId, Path)),
    responses(
        (status = 202, description = "It is being stopped"),
        (status = 404, description = "No such slot", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Not in this state", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
) -> Result<StatusCode, Failure> {
    let slot = SlotId::new(id);
    app.operate(&caller, "stop_slot", &slot, None, Command::StopSlot { slot }).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Free a slot's memory without proof
///
/// The last resort, on your word that its processes are gone. If they are not, the GPU will be given away twice; the
/// reason goes on record.
#[utoipa::path(post, path = "/api/v1/scheduler/slots/{id}/force-release", tag = "scheduler",
    params(("id" = wire::schema::SlotId, Path)), request_body = ForceReleaseRequest,
    responses(
        (status = 204, description = "Its memory is free"),
        (status = 404, description = "No such slot", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Not in this state", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn force_release(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Json(request): Json<ForceReleaseRequest>,
) -> Result<StatusCode, Failure> {
    let slot = SlotId::new(id);
    let command = Command::ForceRelease { slot, reason: request.reason.clone() };
    app.operate(&caller, "force_release", &slot, Some(&request.reason), command).await?;
    Ok(StatusCode::NO_CONTENT)
}
