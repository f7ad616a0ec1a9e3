//! Runners and devices, as operators see and steer them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{OriginalUri, State};
use axum::http::StatusCode;
use berth_core::Command;
use berth_core::view::RunnerView;
use berth_domain::{DeviceUuid, RunnerId};
use berth_wire as wire;
use berth_wire::{DrainQuery, ForgetRequest, PageQuery, ProblemCode};

use super::App;
use super::body::{Json, Named, Query};
use super::listing::Page;
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::trust::Caller;

/// List runners
#[utoipa::path(get, path = "/api/v1/runners", tag = "runners", params(PageQuery),
    responses((status = 200, description = "Runners by id", body = Vec<wire::Runner>)))]
pub(super) async fn list(
    State(app): State<App>,
    uri: OriginalUri,
    Query(page): Query<PageQuery>,
) -> Page<wire::Runner> {
    app.see_fleet().await;
    let is_new = |view: &Arc<RunnerView>| page.after.as_deref().is_none_or(|after| view.id.as_str() > after);
    let mut slots = app.views.slots_by_runner();
    Page::of(app.views.runners().into_iter().filter(is_new), page.limit, &uri, |view| view.id.to_string())
        .map(|view| present::runner(&view, slots.remove(&view.id).unwrap_or_default()))
}

/// What the server holds of a runner
#[utoipa::path(get, path = "/api/v1/runners/{id}", tag = "runners", params(("id" = wire::schema::RunnerId, Path)),
    responses(
        (status = 200, description = "The runner", body = wire::Runner),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(State(app): State<App>, Named(id): Named<RunnerId>) -> Result<Json<wire::Runner>, Failure> {
    app.see_fleet().await;
    let view = find(&app, &id)?;
    let slots = app.writer.read(move |state| state.slots_of(&id)).await?;
    Ok(Json(present::runner(&view, slots)))
}

/// What a runner last reported
///
/// With the server's ledger of each of its GPUs beside it.
#[utoipa::path(get, path = "/api/v1/runners/{id}/status", tag = "runners", params(("id" = wire::schema::RunnerId, Path)),
    responses(
        (status = 200, description = "Its last report", body = wire::RunnerStatus),
        (status = 404, description = "No such runner, or no report since the server started", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn status(
    State(app): State<App>,
    Named(id): Named<RunnerId>,
) -> Result<Json<wire::RunnerStatus>, Failure> {
    app.see_fleet().await;
    let view = find(&app, &id)?;
    let silent = || {
        let detail = format!("runner {id} has not reported since the server started");
        Failure::new(ProblemCode::NotReported, detail)
    };
    let last = app.views.last_report(&id).ok_or_else(silent)?;
    Ok(Json(present::status(
        &view,
        &last,
        |uuid| app.views.device(uuid),
        |runner| app.views.is_open(runner),
        clock::now(),
    )))
}

fn find(app: &App, id: &RunnerId) -> Result<Arc<RunnerView>, Failure> {
    app.views.runner(id).ok_or_else(|| Failure::unknown(ProblemCode::UnknownRunner, id))
}

/// Give a runner nothing new
#[utoipa::path(post, path = "/api/v1/runners/{id}/cordon", tag = "runners", params(("id" = wire::schema::RunnerId, Path)),
    responses(
        (status = 200, description = "The runner", body = wire::Runner),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn cordon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(runner): Named<RunnerId>,
) -> Result<Json<wire::Runner>, Failure> {
    app.operate(&caller, "cordon", &runner, None, Command::CordonRunner { runner: runner.clone() }).await?;
    show(State(app), Named(runner)).await
}

/// Give a runner work again
///
/// It ends a cordon and a drain.
#[utoipa::path(post, path = "/api/v1/runners/{id}/uncordon", tag = "runners", params(("id" = wire::schema::RunnerId, Path)),
    responses(
        (status = 200, description = "The runner", body = wire::Runner),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn uncordon(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(runner): Named<RunnerId>,
) -> Result<Json<wire::Runner>, Failure> {
    app.operate(&caller, "uncordon", &runner, None, Command::UncordonRunner { runner: runner.clone() }).await?;
    show(State(app), Named(runner)).await
}

/// Empty a runner
///
/// Nothing new; leases finish, or the deadline passes; slots stop; then its `admission` is `drained`.
#[utoipa::path(post, path = "/api/v1/runners/{id}/drain", tag = "runners",
    params(("id" = wire::schema::RunnerId, Path), DrainQuery),
    responses(
        (status = 200, description = "The runner", body = wire::Runner),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn drain(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(runner): Named<RunnerId>,
    Query(query): Query<DrainQuery>,
) -> Result<Json<wire::Runner>, Failure> {
    let deadline = query.deadline.map(|deadline| deadline.0);
    app.operate(&caller, "drain", &runner, None, Command::DrainRunner { runner: runner.clone(), deadline }).await?;
    show(State(app), Named(runner)).await
}

/// Forget a runner
///
/// For a machine that is no more. A runner that is heard of and in use is not forgotten: drain it first. Memory on a
/// device that another runner shares is not freed by it.
#[utoipa::path(delete, path = "/api/v1/runners/{id}", tag = "runners", params(("id" = wire::schema::RunnerId, Path)),
    request_body = ForgetRequest,
    responses(
        (status = 204, description = "Forgotten"),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is in use", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn forget(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(runner): Named<RunnerId>,
    Json(request): Json<ForgetRequest>,
) -> Result<StatusCode, Failure> {
    let command = Command::ForgetRunner { runner: runner.clone(), reason: request.reason.clone() };
    app.operate(&caller, "forget_runner", &runner, Some(&request.reason), command).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a device nothing new
#[utoipa::path(post, path = "/api/v1/devices/{uuid}/cordon", tag = "devices", params(("uuid" = wire::schema::DeviceUuid, Path)),
    responses(
        (status = 200, description = "The device", body = wire::DeviceLedger),
        (status = 404, description = "No such device", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn cordon_device(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(uuid): Named<DeviceUuid>,
) -> Result<Json<wire::DeviceLedger>, Failure> {
    app.operate(&caller, "cordon_device", &uuid, None, Command::CordonDevice { uuid: uuid.clone() }).await?;
    device(&app, &uuid).await
}

/// Give a device work again
#[utoipa::path(post, path = "/api/v1/devices/{uuid}/uncordon", tag = "devices", params(("uuid" = wire::schema::DeviceUuid, Path)),
    responses(
        (status = 200, description = "The device", body = wire::DeviceLedger),
        (status = 404, description = "No such device", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn uncordon_device(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(uuid): Named<DeviceUuid>,
) -> Result<Json<wire::DeviceLedger>, Failure> {
    app.operate(&caller, "uncordon_device", &uuid, None, Command::UncordonDevice { uuid: uuid.clone() }).await?;
    device(&app, &uuid).await
}

async fn device(app: &App, uuid: &DeviceUuid) -> Result<Json<wire::DeviceLedger>, Failure> {
    app.see_fleet().await;
    let view = app.views.device(uuid).ok_or_else(|| Failure::unknown(ProblemCode::UnknownDevice, uuid))?;
    Ok(Json(present::device(&view, |runner| app.views.is_open(runner))))
}
