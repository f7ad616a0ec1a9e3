//! What gateways do: submit, follow, renew, complete, take back.

use axum::Extension;
use axum::extract::{FromRequestParts, OriginalUri, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_core::{Answer, Command, Refusal};
use berth_domain::{IdempotencyKey, WorkloadId, WorkloadState};
use berth_wire as wire;
use berth_wire::{CompleteRequest, HeartbeatRequest, Invalid, SubmitRequest, WaitQuery, WorkloadFilter};
use uuid::Uuid;

use super::App;
use super::body::{Json, Named, Query};
use super::listing::{Page, rows_after};
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::trust::Caller;
use crate::views::WorkloadRow;
use crate::views::history::Wanted;
use crate::writer::Moment;

const KEY_HEADER: &str = "idempotency-key";

/// Submit a workload
///
/// With `wait`, the answer comes once the workload runs (or has ended), or when the wait is over; then `state` says
/// where it is. The same `Idempotency-Key` with the same body is the same workload.
#[utoipa::path(post, path = "/api/v1/workloads", tag = "workloads",
    params(WaitQuery, ("Idempotency-Key" = Option<String>, Header, description = "The same key is the same workload", max_length = 256)),
    request_body = SubmitRequest,
    responses(
        (status = 201, description = "Taken in", body = wire::Workload),
        (status = 200, description = "Taken in before, under the same key", body = wire::Workload),
        (status = 409, description = "The key was used with another body", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn submit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Key(key): Key,
    Query(wait): Query<WaitQuery>,
    Json(request): Json<SubmitRequest>,
) -> Result<Response, Failure> {
    let submission = request.into_submission(key)?;
    let model = submission.model.clone();
    let command = Command::Submit { workload: WorkloadId::new(Uuid::now_v7()), submission };
    // Where it was just published it is at hand.
    let look = |Moment { views, .. }: Moment<'_>, answer: Result<Answer, Refusal>| {
        let Answer::Submitted { workload, repeated } = answer? else { return Ok(None) };
        Ok(Some((workload, repeated, views.workload(workload).map(|row| views.with_slot(row)))))
    };
    let answer = app.writer.carry_out_and_read(command, look).await?.map_err(refuse_submission);
    app.record_if_admin(&caller, "submit", &model, &answer);
    let Some((workload, repeated, mut seen)) = answer? else {
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "no workload came of it"));
    };
    if let Some(deadline) = app.deadline(wait.wait) {
        // In a box: few wait, and all would carry along what waiting takes.
        let row = Box::pin(wait_until(&app, workload, deadline, is_settled)).await;
        seen = row.map(|row| app.views.with_slot(row));
    }
    let (row, slot) = seen.ok_or_else(|| Failure::unknown("workload", workload))?;
    let status = if repeated { StatusCode::OK } else { StatusCode::CREATED };
    let place = format!("/api/v1/workloads/{workload}");
    let workload = present::workload(&row.view, row.revision, slot.as_deref());
    Ok((status, [(header::LOCATION, place)], Json(workload)).into_response())
}

/// A refusal that is the request's fault names its field.
fn refuse_submission(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::UnknownModel(model) => {
            let detail = format!("no model {model} in the catalogue: add it with `berth models apply`");
            Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_model", detail).field("model")
        }
        Refusal::Unplaceable { .. } => Failure::from(refusal).field("model"),
        other => other.into(),
    }
}

/// The key that a request carries. It belongs to whoever used it: two gateways may choose the same one.
pub(super) struct Key(Option<IdempotencyKey>);

impl FromRequestParts<App> for Key {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Failure> {
        let Some(value) = parts.headers.get(KEY_HEADER) else { return Ok(Self(None)) };
        let refuse = |detail: String| Failure::from(Invalid::new("Idempotency-Key", detail));
        let text = value.to_str().map_err(|_| refuse("only visible ASCII characters".into()))?;
        if text.is_empty() || text.len() > 256 {
            return Err(refuse("1 to 256 characters".into()));
        }
        let token = parts.extensions.get::<Caller>().and_then(|caller| caller.token);
        let owner = token.map_or_else(|| "local".to_owned(), |token| token.to_string());
        let key = IdempotencyKey::new(format!("{owner}:{text}")).map_err(|error| refuse(error.to_string()))?;
        Ok(Self(Some(key)))
    }
}

fn is_settled(row: &WorkloadRow) -> bool {
    matches!(row.view.state, WorkloadState::Running | WorkloadState::Ended(_))
}

/// The workload once `enough` holds, or as it is when the wait is over.
async fn wait_until(
    app: &App,
    id: WorkloadId,
    deadline: tokio::time::Instant,
    enough: impl Fn(&WorkloadRow) -> bool,
) -> Option<WorkloadRow> {
    let look = || match app.views.workload(id) {
        Some(row) if !enough(&row) => None,
        there_or_gone => Some(there_or_gone),
    };
    let waiting = app.views.workload_waiters.wait_until(&id, deadline, look);
    app.unless_stopping(waiting).await.unwrap_or_else(|| app.views.workload(id))
}

fn shown(app: &App, row: &WorkloadRow) -> wire::Workload {
    let slot = row.view.slot.and_then(|slot| app.views.slot(slot));
    present::workload(&row.view, row.revision, slot.as_deref())
}

/// List workloads
///
/// In the order of their submission.
#[utoipa::path(get, path = "/api/v1/workloads", tag = "workloads", params(WorkloadFilter),
    responses((status = 200, description = "Workloads", body = Vec<wire::Workload>)))]
pub(super) async fn list(
    State(app): State<App>,
    uri: OriginalUri,
    Query(filter): Query<WorkloadFilter>,
) -> Result<Page<wire::Workload>, Failure> {
    let mut rows = app.views.workloads();
    rows.retain(|row| {
        let view = &row.view;
        filter.state.is_none_or(|state| wire::WorkloadState::from(view.state) == state)
            && filter.model.as_ref().is_none_or(|model| view.model == *model)
            && filter.tenant.as_ref().is_none_or(|tenant| view.tenant.as_ref() == Some(tenant))
            && filter.kind.is_none_or(|kind| view.kind == kind)
    });
    let seen = filter.after.map(|after| move |row: &WorkloadRow| row.view.id == after);
    let page = Page::of(rows_after(rows, seen)?, filter.limit, &uri, |row| row.view.id.to_string());
    // Positions are a matter of everybody who waits: the writer knows them.
    let order = app.writer.read(berth_core::State::queue).await?;
    let places: std::collections::HashMap<WorkloadId, usize> = order.into_iter().zip(1..).collect();
    Ok(page.map(|row| {
        let position = places.get(&row.view.id).map(|place| *place as u64);
        wire::Workload { position, ..shown(&app, &row) }
    }))
}

/// Look at a workload
///
/// With `wait` and `after`, the answer comes as soon as anything about it changed after that revision; with `wait`
/// alone, once it runs or has ended.
#[utoipa::path(get, path = "/api/v1/workloads/{id}", tag = "workloads",
    params(("id" = wire::schema::WorkloadId, Path), WaitQuery),
    responses(
        (status = 200, description = "The workload", body = wire::Workload),
        (status = 404, description = "No such workload, or no longer remembered", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn show(
    State(app): State<App>,
    Named(id): Named<Uuid>,
    Query(wait): Query<WaitQuery>,
) -> Result<Json<wire::Workload>, Failure> {
    let id = WorkloadId::new(id);
    let row = match (app.deadline(wait.wait), wait.after) {
        (Some(deadline), Some(after)) => wait_until(&app, id, deadline, |row| row.revision > after).await,
        (Some(deadline), None) => wait_until(&app, id, deadline, is_settled).await,
        (None, _) => app.views.workload(id),
    };
    let row = row.ok_or_else(|| Failure::unknown("workload", id))?;
    let mut workload = shown(&app, &row);
    if workload.position.is_some() {
        let view = app.writer.read(move |state| state.workload(id)).await?;
        workload.position = view.and_then(|view| view.position).map(|position| position as u64);
    }
    Ok(Json(workload))
}

/// Take a workload back
#[utoipa::path(delete, path = "/api/v1/workloads/{id}", tag = "workloads", params(("id" = wire::schema::WorkloadId, Path)),
    responses(
        (status = 200, description = "The workload as it ended", body = wire::Workload),
        (status = 404, description = "No such workload", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has ended otherwise", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
) -> Result<Json<wire::Workload>, Failure> {
    let workload = WorkloadId::new(id);
    let done = change(&app, workload, Command::Cancel { workload }).await;
    app.record_if_admin(&caller, "cancel", &workload, &done);
    done
}

/// Say that a lease is still needed
#[utoipa::path(post, path = "/api/v1/workloads/{id}/heartbeat", tag = "workloads",
    params(("id" = wire::schema::WorkloadId, Path)), request_body = HeartbeatRequest,
    responses(
        (status = 200, description = "The workload", body = wire::Workload),
        (status = 404, description = "No such workload", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Another attempt, or it does not run", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn heartbeat(
    State(app): State<App>,
    Named(id): Named<Uuid>,
    Json(request): Json<HeartbeatRequest>,
) -> Result<Json<wire::Workload>, Failure> {
    let workload = WorkloadId::new(id);
    change(&app, workload, Command::Heartbeat { workload, attempt: request.attempt }).await
}

/// Say that a workload is done
///
/// Saying it twice gets the first answer.
#[utoipa::path(post, path = "/api/v1/workloads/{id}/complete", tag = "workloads",
    params(("id" = wire::schema::WorkloadId, Path)), request_body = CompleteRequest,
    responses(
        (status = 200, description = "The workload as it ended", body = wire::Workload),
        (status = 404, description = "No such workload", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Another attempt, or it has ended otherwise", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn complete(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Json(request): Json<CompleteRequest>,
) -> Result<Json<wire::Workload>, Failure> {
    let workload = WorkloadId::new(id);
    let command = Command::Complete { workload, attempt: request.attempt, succeeded: request.succeeded };
    let done = change(&app, workload, command).await;
    app.record_if_admin(&caller, "complete", &workload, &done);
    done
}

async fn change(app: &App, workload: WorkloadId, command: Command) -> Result<Json<wire::Workload>, Failure> {
    app.carry_out(command).await?;
    let row = app.views.workload(workload).ok_or_else(|| Failure::unknown("workload", workload))?;
    Ok(Json(shown(app, &row)))
}

/// Why a workload is where it is
///
/// For one that waits, judged on the state of this instant: the nearest devices with their numbers, who is on them,
/// and what would help.
#[utoipa::path(get, path = "/api/v1/workloads/{id}/explain", tag = "workloads", params(("id" = wire::schema::WorkloadId, Path)),
    responses(
        (status = 200, description = "Why", body = wire::Explanation),
        (status = 404, description = "No such workload, or nothing on record about it", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn explain(
    State(app): State<App>,
    Named(id): Named<Uuid>,
) -> Result<Json<wire::Explanation>, Failure> {
    let id = WorkloadId::new(id);
    let now = clock::now();
    let judged = app.writer.read(move |state| Some((state.workload(id)?, state.explain(id, now)))).await?;
    let (view, judged) = judged.ok_or_else(|| Failure::unknown("workload", id))?;
    let decisions = app.views.history.list(&Wanted { workload: Some(id), ..Wanted::default() });
    // What was decided says more of one that has its slot than what would be decided now.
    let waits = view.state == WorkloadState::Queued;
    let report = match (waits, decisions.last()) {
        (false, Some(last)) => Some(last.report.clone()),
        _ => judged,
    };
    let nothing = || {
        let detail = format!("workload {id} is {}, and the decisions about it are no longer kept", view.state);
        Failure::new(StatusCode::NOT_FOUND, "nothing_on_record", detail)
    };
    let report = report.ok_or_else(nothing)?;
    let decisions = decisions.iter().map(|decided| present::decision(decided)).collect();
    Ok(Json(present::explanation(&view, &report, decisions)))
}
