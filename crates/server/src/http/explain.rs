//! Why a workload is where it is: the present first, then the history.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use berth_core::view::WorkloadView;
use berth_core::{Outcome, Report};
use berth_domain::{WorkloadId, WorkloadState};
use berth_wire as wire;
use berth_wire::ProblemCode;
use uuid::Uuid;

use super::App;
use super::body::{Json, Named};
use super::problem::Failure;
use super::workloads::add_last_lines;
use crate::clock;
use crate::present::{self, Judged};
use crate::trust::Caller;
use crate::views::history::{RecordedDecision, Wanted};

/// Why a workload is where it is
///
/// `now` says where it is at this instant. For one that waits, the rest is judged on the state of this instant: the
/// nearest devices with their numbers, who is on them, and what would help. `attempts` and `decisions` are its history.
#[utoipa::path(get, path = "/api/v1/workloads/{id}/explain", tag = "workloads", params(("id" = wire::schema::WorkloadId, Path)),
    responses(
        (status = 200, description = "Why", body = wire::Explanation),
        (status = 404, description = "No such workload", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn explain(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Named(id): Named<Uuid>,
) -> Result<Json<wire::Explanation>, Failure> {
    explanation(&app, &caller, WorkloadId::new(id)).await.map(Json)
}

/// Why a workload of this caller's is where it is.
pub(super) async fn explanation(app: &App, caller: &Caller, id: WorkloadId) -> Result<wire::Explanation, Failure> {
    app.visible_workload(caller, id)?;
    let at = clock::now();
    let judged = app.writer.read(move |state| Some((state.workload(id)?, Judged::of(state, id, at)))).await?;
    let (view, judged) = judged.ok_or_else(|| Failure::unknown(ProblemCode::UnknownWorkload, id))?;
    let slot = view.slot.and_then(|slot| app.views.slot(slot));
    let now = present::now(&view, slot.as_deref(), &judged);
    let decisions = app.views.history.list(&Wanted { workload: Some(id), ..Wanted::default() });
    let judgement = match holds_now(&view, judged.report.as_ref(), &decisions) {
        Some(report) => present::judgement(report),
        None => present::ended(&view, &now),
    };
    let decisions = decisions.iter().map(|decided| present::decision(decided)).collect();
    let mut explanation = present::explanation(&view, now, judgement, decisions);
    add_last_lines(app, &mut explanation.attempts);
    Ok(explanation)
}

/// What holds now: for one that waits, what is judged now; for one that has a slot, the decision that gave it this slot.
/// Nothing, for one that has ended. A decision of before, of waiting or of another slot, is history.
fn holds_now<'a>(
    view: &WorkloadView,
    judged: Option<&'a Report>,
    decisions: &'a [Arc<RecordedDecision>],
) -> Option<&'a Report> {
    let gave_its_slot =
        |report: &&Report| report.slot == view.slot && matches!(report.outcome, Outcome::Placed | Outcome::Reused);
    match view.state {
        WorkloadState::Queued => judged,
        WorkloadState::Assigned | WorkloadState::Running => {
            let last = decisions.last().map(|decided| &decided.report);
            last.filter(gave_its_slot).or(judged)
        }
        WorkloadState::Ended(_) => None,
    }
}
