//! What the scheduler did and what it sees: decisions, the queue, the ledgers, unmet demand.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{OriginalUri, State};
use berth_core::view::WorkloadView;
use berth_wire as wire;
use berth_wire::{DecisionQuery, PageQuery};

use super::App;
use super::body::{Json, Query};
use super::listing::{Page, rows_after};
use super::problem::Failure;
use crate::clock;
use crate::present;
use crate::trust::Caller;
use crate::views::history::Wanted;

/// List decisions
///
/// The last ones since the server started, oldest first, with the numbers of every ledger that mattered. With `limit`
/// alone, the newest.
#[utoipa::path(get, path = "/api/v1/scheduler/decisions", tag = "scheduler", params(DecisionQuery),
    responses((status = 200, description = "Decisions", body = Vec<wire::Decision>)))]
pub(super) async fn decisions(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    uri: OriginalUri,
    Query(query): Query<DecisionQuery>,
) -> Page<wire::Decision> {
    let wanted = Wanted {
        workload: query.workload_id,
        model: query.model,
        runner: query.runner_id,
        after: query.after,
        limit: None,
    };
    let mut rows = app.views.history.list(&wanted);
    // A decision about nobody's workload (a replica, a drain) is a fact of the fleet.
    rows.retain(|decided| decided.report.workload.is_none_or(|id| app.visible_workload(&caller, id).is_ok()));
    if let (Some(limit), None) = (query.limit, query.after) {
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
        rows.drain(..rows.len().saturating_sub(limit));
    }
    Page::of(rows, query.limit, &uri, |decided| decided.id.to_string()).map(|decided| present::decision(&decided))
}

/// What waits
///
/// In order: priority, then age.
#[utoipa::path(get, path = "/api/v1/scheduler/queue", tag = "scheduler", params(PageQuery),
    responses((status = 200, description = "The queue", body = Vec<wire::QueueEntry>)))]
pub(super) async fn queue(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    uri: OriginalUri,
    Query(page): Query<PageQuery>,
) -> Result<Page<wire::QueueEntry>, Failure> {
    let order = app.writer.read(berth_core::State::queue).await?;
    let now = clock::now();
    let there = order
        .into_iter()
        .zip(1usize..)
        .filter_map(|(id, place)| Some((app.visible_workload(&caller, id).ok()?.view, place)));
    let seen = page.after.map(|after| move |row: &(Arc<WorkloadView>, usize)| row.0.id.to_string() == after);
    let page = Page::of(rows_after(there.collect(), seen)?, page.limit, &uri, |(view, _)| view.id.to_string());
    Ok(page.map(|(view, place)| present::queue_entry(&view, place, now)))
}

/// Every ledger
///
/// One for each physical GPU and one for each machine. For each device `held + releasing + foreign <= capacity` now,
/// and `held + foreign + promised <= capacity` once what is releasing is gone; `overcommitted` says where reality broke
/// a line.
#[utoipa::path(get, path = "/api/v1/scheduler/ledger", tag = "scheduler",
    responses((status = 200, description = "The ledgers", body = wire::Ledger)))]
pub(super) async fn ledger(State(app): State<App>) -> Json<wire::Ledger> {
    app.see_fleet().await;
    let (revision, devices, hosts) = app.views.ledgers();
    Json(wire::Ledger {
        revision,
        devices: devices.iter().map(|view| present::device(view, |runner| app.views.is_open(runner))).collect(),
        hosts: hosts.iter().map(|view| present::host(view)).collect(),
    })
}

/// What the fleet lacks
///
/// What waits, by model and reason, oldest first: for whoever provides machines.
#[utoipa::path(get, path = "/api/v1/scheduler/demand", tag = "scheduler",
    responses((status = 200, description = "Unmet demand", body = Vec<wire::Demand>)))]
pub(super) async fn demand(State(app): State<App>) -> Result<Json<Vec<wire::Demand>>, Failure> {
    let rows = app.writer.read(berth_core::State::demand).await?;
    let now = clock::now();
    Ok(Json(rows.iter().map(|view| present::demand(view, now)).collect()))
}
