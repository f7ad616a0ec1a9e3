//! What the slot of a workload wrote, wherever the workload is: it waits, it runs, or it has ended.
//!
//! A log is read from the agent that has it. Where the agent cannot be reached, the last lines that the server kept are
//! shown instead. Lines of the server's own stand in brackets and begin with `[berth: `.

use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use berth_core::PastAttempt;
use berth_core::view::{SlotView, WorkloadView};
use berth_domain::{Attempt, Generation, RunnerId, SlotId, SlotState, WorkloadId, WorkloadState};
use berth_wire as wire;
use berth_wire::ProblemCode;
use berth_wire::WorkloadLogQuery;
use futures_util::FutureExt;
use uuid::Uuid;

use super::App;
use super::body::{Named, Query};
use super::logs::{Part, ask, body_after, text};
use super::problem::Failure;
use crate::clock;
use crate::present::{self, Judged};
use crate::trust::Caller;

/// How long whoever follows a slot waits for its agent to begin with it.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// How often the agent is asked meanwhile.
const AGAIN: Duration = Duration::from_millis(200);

/// Read what a workload's slot wrote
///
/// Of work that runs, what its slot writes; of work that ended, what the slot of its last attempt wrote. Work that waits
/// says why in a line in brackets, and then what its attempt before wrote. Where the agent that has the log cannot be
/// reached, a line in brackets says so, and the last lines that the server kept follow.
#[utoipa::path(get, path = "/api/v1/workloads/{id}/logs", tag = "workloads",
    params(("id" = wire::schema::WorkloadId, Path), WorkloadLogQuery),
    responses(
        (status = 200, description = "What it wrote", body = String, content_type = "text/plain; charset=utf-8"),
        (status = 404, description = "No such workload, or no log of it", body = wire::Problem, content_type = "application/problem+json"),
        (status = 429, description = "Too many read from this runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 502, description = "The agent answered with something else", body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, description = "The runner is lost", body = wire::Problem, content_type = "application/problem+json"),
        (status = 504, description = "The agent did not answer", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
    Query(query): Query<WorkloadLogQuery>,
) -> Result<Response, Failure> {
    let id = WorkloadId::new(id);
    let row = app.visible_workload(&caller, id)?;
    let slot = row.view.slot.and_then(|slot| app.views.slot(slot));
    let part = Part { tail_bytes: query.tail_bytes, follow: query.follow };
    let body = match choose(&row.view, slot.as_deref(), query.attempt)? {
        Chosen::Present(start) => start.read_present(&app, part).await?,
        Chosen::Past { start, waits: true } => {
            let words = waiting(&app, &row.view, slot.as_deref(), Some(start.attempt)).await?;
            start.read_past(&app, part, Some(words)).await?
        }
        Chosen::Past { start, waits: false } => start.read_past(&app, part, None).await?,
        Chosen::Nothing => Body::from(waiting(&app, &row.view, slot.as_deref(), None).await?),
    };
    Ok(text(body))
}

/// Which log is meant.
enum Chosen {
    /// That of the slot which the workload has.
    Present(Start),
    /// That of an attempt that is over; the workload `waits` for the next one.
    Past { start: Start, waits: bool },
    /// None: nothing was started for it yet, or ever.
    Nothing,
}

/// One start of a slot, for one attempt at a workload.
struct Start {
    attempt: Attempt,
    slot: SlotId,
    generation: Generation,
    runner: RunnerId,
}

impl From<&PastAttempt> for Start {
    fn from(past: &PastAttempt) -> Self {
        let PastAttempt { attempt, slot, generation, ref runner, .. } = *past;
        Self { attempt, slot, generation, runner: runner.clone() }
    }
}

fn choose(view: &WorkloadView, slot: Option<&SlotView>, wanted: Option<Attempt>) -> Result<Chosen, Failure> {
    // Nothing was started for a slot that waits for memory or for its turn.
    let started = slot.filter(|slot| !matches!(slot.state, SlotState::Promised | SlotState::Pending));
    let present = started.map(|slot| Start {
        attempt: view.attempt,
        slot: slot.id,
        generation: slot.generation,
        runner: slot.runner.clone(),
    });
    let Some(wanted) = wanted else {
        let waits = !matches!(view.state, WorkloadState::Ended(_));
        let past = || view.attempts.last().map(|last| Chosen::Past { start: last.into(), waits });
        return Ok(present.map(Chosen::Present).or_else(past).unwrap_or(Chosen::Nothing));
    };
    let past = view.attempts.iter().find(|past| past.attempt == wanted);
    let past = past.map(|past| Chosen::Past { start: past.into(), waits: false });
    present.filter(|_| wanted == view.attempt).map(Chosen::Present).or(past).ok_or_else(|| {
        let kept: Vec<String> = view.attempts.iter().map(|past| past.attempt.to_string()).collect();
        let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
        let detail = format!("attempt {wanted} of workload {} has no log; attempts that are known: {kept}", view.id);
        Failure::new(ProblemCode::NoLog, detail)
    })
}

/// Says why there is no log of the present, and what comes instead.
async fn waiting(
    app: &App,
    view: &WorkloadView,
    slot: Option<&SlotView>,
    shown: Option<Attempt>,
) -> Result<String, Failure> {
    let (id, at) = (view.id, clock::now());
    let judged = app.writer.read(move |state| Judged::of(state, id, at)).await?;
    let now = present::now(view, slot, &judged).text;
    Ok(match shown {
        Some(attempt) => format!("[berth: {now}. This is what attempt {attempt} wrote:]\n"),
        None => format!("[berth: {now}. It has written nothing]\n"),
    })
}

impl Start {
    /// The log of a slot that the workload has. Its agent may have yet to begin with it: whoever follows waits for that.
    async fn read_present(&self, app: &App, part: Part) -> Result<Body, Failure> {
        let deadline = Instant::now() + BEGINS_WITHIN;
        loop {
            match self.ask(app, part).await {
                Ok(pieces) => return Ok(body_after(None, pieces)),
                Err(failure) if failure.0.code != "no_log" => return Err(failure),
                Err(_) if part.follow && self.is_starting(app) && Instant::now() < deadline => {}
                Err(_) => {
                    let Self { slot, runner, .. } = self;
                    return Ok(format!("[berth: slot {slot} on runner {runner} has written nothing yet]\n").into());
                }
            }
            let pause = tokio::time::sleep(AGAIN).map(Some);
            app.unless_stopping(pause).await.ok_or(crate::writer::Unavailable::Stopping)?;
        }
    }

    fn is_starting(&self, app: &App) -> bool {
        app.views.slot(self.slot).is_some_and(|slot| slot.state == SlotState::Starting)
    }

    /// The log of an attempt that is over, after some words; what the server kept of it where nobody else has it.
    async fn read_past(&self, app: &App, part: Part, words: Option<String>) -> Result<Body, Failure> {
        let failure = match self.ask(app, Part { follow: false, ..part }).await {
            Ok(pieces) => return Ok(body_after(words, pieces)),
            Err(failure) => failure,
        };
        let Some(tail) = app.views.tail(self.slot, self.generation) else {
            // Why it waits is an answer all the same.
            let words = words.ok_or_else(|| failure.clone())?;
            return Ok(format!("{words}[berth: it cannot be read: {}]\n", failure.0.detail).into());
        };
        let (words, attempt) = (words.unwrap_or_default(), self.attempt);
        let lines: String = tail.lines().iter().map(|line| format!("{line}\n")).collect();
        let why = &failure.0.detail;
        Ok(format!("{words}[berth: {why}. The server kept the last lines of attempt {attempt}:]\n{lines}").into())
    }

    async fn ask(&self, app: &App, part: Part) -> Result<crate::requests::Pieces, Failure> {
        app.see_fleet().await;
        app.expect_answers_of(&self.runner)?;
        ask(app, &self.runner, self.slot, Some(self.generation), part).await
    }
}
