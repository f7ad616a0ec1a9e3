//! What slots wrote, read through the agents that have it.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use berth_domain::{Generation, RunnerId, SlotId, SlotState};
use berth_wire as wire;
use berth_wire::{LogQuery, ProblemCode, RequestKind};
use futures_util::{StreamExt, stream};
use uuid::Uuid;

use super::App;
use super::body::{Named, Query};
use super::problem::Failure;
use crate::requests::Pieces;
use crate::trust::Caller;
use crate::views::WorkloadRow;

/// What is read of a log unless its reader says.
const TAIL: u64 = 1 << 20;

/// Read what a slot wrote
///
/// Its output and its errors, byte by byte as its program wrote them, from the agent that has them. A slot that failed
/// or ended can be read for as long as its agent keeps its log. If the stream breaks off before its end, the connection
/// does too.
#[utoipa::path(get, path = "/api/v1/scheduler/slots/{id}/logs", tag = "scheduler",
    params(("id" = wire::schema::SlotId, Path), LogQuery),
    responses(
        (status = 200, description = "What it wrote", body = String, content_type = "text/plain; charset=utf-8"),
        (status = 404, description = "No such slot, or no log of it", body = wire::Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many read from this runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 502, description = "The agent answered with something else", body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The runner is lost", body = wire::Problem, content_type = "application/problem+json"),
        (status = 504, description = "The agent did not answer", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Query(query): Query<LogQuery>,
) -> Result<Response, Failure> {
    let slot = SlotId::new(id);
    let (runner, generation) = find(&app, slot, query.runner_id).await?;
    check_reader(&app, &caller, slot)?;
    let part = Part { tail_bytes: query.tail_bytes, follow: query.follow };
    Ok(text(body(ask(&app, &runner, slot, generation, part).await?)))
}

/// Refuses a submitter that has, and had, no workload on this slot: a log may hold what others asked.
fn check_reader(app: &App, caller: &Caller, slot: SlotId) -> Result<(), Failure> {
    if caller.role != wire::Role::Submitter {
        return Ok(());
    }
    let was_on_it =
        |row: &WorkloadRow| row.view.slot == Some(slot) || row.view.attempts.iter().any(|attempt| attempt.slot == slot);
    let owns = |row: &WorkloadRow| caller.may_see(row.view.owner.as_ref()) && was_on_it(row);
    match app.views.workloads().iter().any(owns) {
        true => Ok(()),
        false => {
            Err(Failure::forbidden("the log of a slot is for those who have work on it, and for admins and viewers"))
        }
    }
}

/// Which part of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Begin so many bytes before the end.
    pub(super) tail_bytes: Option<u64>,
    /// Go on as it is written.
    pub(super) follow: bool,
}

/// Asks a runner for a part of a slot's log.
pub(super) async fn ask(
    app: &App,
    runner: &RunnerId,
    slot: SlotId,
    generation: Option<Generation>,
    part: Part,
) -> Result<Pieces, Failure> {
    let limit = app.limits.current().log.get();
    let tail_bytes = part.tail_bytes.unwrap_or(TAIL).min(limit);
    let kind = RequestKind::Logs { slot_id: slot, generation, tail_bytes, follow: part.follow };
    // While it is read more may be written; the agent ends where the end was.
    let limit = (!part.follow).then_some(limit.saturating_mul(2));
    let asked = async { Some(app.requests.ask_for_bytes(runner, kind, limit).await) };
    Ok(app.unless_stopping(asked).await.ok_or(crate::writer::Unavailable::Stopping)??)
}

/// An answer that is text.
pub(super) fn text(body: Body) -> Response {
    let mut response = Response::new(body);
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

fn body(pieces: Pieces) -> Body {
    body_after(None, pieces)
}

/// The pieces of a log, after some words of the server's own.
pub(super) fn body_after(first: Option<String>, pieces: Pieces) -> Body {
    let first = stream::iter(first.map(|words| Ok(words.into())));
    let rest = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.next().await?;
        Some((piece, pieces))
    });
    Body::from_stream(first.chain(rest))
}

/// Which runner has the log, and which start of the slot is meant; typed answers where nobody can have it.
async fn find(app: &App, slot: SlotId, named: Option<RunnerId>) -> Result<(RunnerId, Option<Generation>), Failure> {
    app.see_fleet().await;
    let (runner, generation) = match (app.views.slot(slot), named) {
        (Some(view), _) if view.state == SlotState::Promised => {
            let detail = format!("slot {slot} was not started yet: it waits for memory that is being released");
            return Err(Failure::new(ProblemCode::NoLog, detail));
        }
        (Some(view), None) => (view.runner.clone(), Some(view.generation)),
        (_, Some(named)) => (named, None),
        (None, None) => {
            let was = app.views.past_slot(slot).ok_or_else(|| {
                let detail = format!("no slot {slot}; if it ended before the server was started, name its runner_id");
                Failure::new(ProblemCode::UnknownSlot, detail)
            })?;
            (was.runner, Some(was.generation))
        }
    };
    app.expect_answers_of(&runner)?;
    Ok((runner, generation))
}
