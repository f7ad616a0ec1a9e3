//! What gateways do: submit, follow, renew, complete, take back.

use axum::Extension;
use axum::extract::{FromRequestParts, OriginalUri, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use berth_core::{Answer, Command, Refusal, WaitReason};
use berth_domain::{IdempotencyKey, WorkloadId, WorkloadState};
use berth_wire as wire;
use berth_wire::{CompleteRequest, HeartbeatRequest, Invalid, ProblemCode, SubmitRequest, WaitQuery, WorkloadFilter};
use uuid::Uuid;

use super::App;
use super::body::{Json, Named, Query};
use super::listing::{Page, rows_after};
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::trust::Caller;
use crate::views::WorkloadRow;
use crate::writer::Committed;

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
    let mut submission = request.into_submission(key)?;
    let limits = caller.sign(&mut submission, &app.token_rules)?;
    let model = submission.model.clone();
    let command = Command::Submit { workload: WorkloadId::new(Uuid::now_v7()), submission, limits };
    // Where it was just published it is at hand.
    let look = |Committed { views, .. }: Committed<'_>, answer: Result<Answer, Refusal>| {
        let Answer::Submitted { workload, repeated } = answer? else { return Ok(None) };
        Ok(Some((workload, repeated, views.workload(workload).map(|row| views.with_slot(row)))))
    };
    let answer = app.writer.execute_and_read(command, look).await?.map_err(refuse_submission);
    app.record_if_admin(&caller, "submit", &model, &answer);
    let Some((workload, repeated, mut seen)) = answer? else {
        return Err(Failure::new(ProblemCode::Internal, "no workload came of it"));
    };
    if let Some(deadline) = app.deadline(wait.wait) {
        // In a box: few wait, and all would carry along what waiting takes.
        let waiting = Box::pin(wait_until(&app, workload, deadline, is_settled));
        let row = app.unless_revoked(&caller, waiting).await?;
        seen = row.map(|row| app.views.with_slot(row));
    }
    let (row, slot) = seen.ok_or_else(|| Failure::unknown(ProblemCode::UnknownWorkload, workload))?;
    let status = if repeated { StatusCode::OK } else { StatusCode::CREATED };
    let place = format!("/api/v1/workloads/{workload}");
    let workload = with_last_lines(&app, present::workload(&row.view, row.revision, slot.as_deref()));
    Ok((status, [(header::LOCATION, place)], Json(workload)).into_response())
}

/// A refusal that is the request's fault names its field.
pub(super) fn refuse_submission(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::UnknownModel(model) => {
            let detail = format!("no model {model} in the catalogue: add it with `berth models apply`");
            Failure::new(ProblemCode::UnknownModel, detail).unprocessable().field("model")
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
pub(super) async fn wait_until(
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

impl App {
    /// A workload that this caller may know of. To others it is not there, so that nobody learns which ids exist.
    pub(super) fn visible_workload(&self, caller: &Caller, id: WorkloadId) -> Result<WorkloadRow, Failure> {
        let row = self.views.workload(id).filter(|row| caller.may_see(row.view.owner.as_ref()));
        row.ok_or_else(|| Failure::unknown(ProblemCode::UnknownWorkload, id))
    }
}

/// A workload with everything about it.
pub(super) fn shown(app: &App, row: &WorkloadRow) -> wire::Workload {
    with_last_lines(app, listed(app, row))
}

fn listed(app: &App, row: &WorkloadRow) -> wire::Workload {
    let slot = row.view.slot.and_then(|slot| app.views.slot(slot));
    present::workload(&row.view, row.revision, slot.as_deref())
}

fn with_last_lines(app: &App, mut workload: wire::Workload) -> wire::Workload {
    add_last_lines(app, &mut workload.attempts);
    workload
}

/// Adds what the server keeps of what the slots of these attempts wrote last.
pub(super) fn add_last_lines(app: &App, attempts: &mut [wire::PastAttempt]) {
    for attempt in attempts {
        let tail = app.views.tail(attempt.slot_id, attempt.generation);
        attempt.last_lines = tail.map(|tail| tail.lines().to_vec()).unwrap_or_default();
    }
}

/// List workloads
///
/// In the order of their submission.
#[utoipa::path(get, path = "/api/v1/workloads", tag = "workloads", params(WorkloadFilter),
    responses((status = 200, description = "Workloads", body = Vec<wire::Workload>)))]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    uri: OriginalUri,
    Query(filter): Query<WorkloadFilter>,
) -> Result<Page<wire::Workload>, Failure> {
    let mut rows = app.views.workloads();
    rows.retain(|row| {
        let view = &row.view;
        caller.may_see(view.owner.as_ref())
            && filter.state.is_none_or(|state| wire::WorkloadState::from(view.state) == state)
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
        wire::Workload { position, ..listed(&app, &row) }
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
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Query(wait): Query<WaitQuery>,
) -> Result<Json<wire::Workload>, Failure> {
    let id = WorkloadId::new(id);
    app.visible_workload(&caller, id)?;
    let row = match (app.deadline(wait.wait), wait.after) {
        (Some(deadline), Some(after)) => wait_until(&app, id, deadline, |row| row.revision > after).await,
        (Some(deadline), None) => wait_until(&app, id, deadline, is_settled).await,
        (None, _) => app.views.workload(id),
    };
    let row = row.ok_or_else(|| Failure::unknown(ProblemCode::UnknownWorkload, id))?;
    let mut workload = shown(&app, &row);
    if workload.position.is_some() {
        // The noted reason says that something is missing; what it is depends on who is there now.
        let is_missing = row.view.waits == Some(WaitReason::NoLongerFits);
        let at = clock::now();
        let look =
            move |state: &berth_core::State| (state.workload(id), is_missing.then(|| state.explain(id, at)).flatten());
        let (view, judged) = app.writer.read(look).await?;
        workload.position = view.and_then(|view| view.position).map(|position| position as u64);
        workload.reason = judged.as_ref().and_then(present::no_longer_fits).or(workload.reason);
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
    let done = change(&app, &caller, workload, Command::Cancel { workload }).await;
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
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Json(request): Json<HeartbeatRequest>,
) -> Result<Json<wire::Workload>, Failure> {
    let workload = WorkloadId::new(id);
    change(&app, &caller, workload, Command::Heartbeat { workload, attempt: request.attempt }).await
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
    let done = change(&app, &caller, workload, command).await;
    app.record_if_admin(&caller, "complete", &workload, &done);
    done
}

async fn change(
    app: &App,
    caller: &Caller,
    workload: WorkloadId,
    command: Command,
) -> Result<Json<wire::Workload>, Failure> {
    app.visible_workload(caller, workload)?;
    app.execute(command).await?;
    let row = app.views.workload(workload).ok_or_else(|| Failure::unknown(ProblemCode::UnknownWorkload, workload))?;
    Ok(Json(shown(app, &row)))
}
