//! The whole API: each route with the type of its answer.

use berth_domain::{Attempt, DeviceUuid, ModelName, RunnerId, SlotId, WorkloadId};
use berth_wire::{
    AuditEntry, CompleteRequest, ContinueHistory, Decision, DecisionQuery, Demand, Desired, DesiredQuery, DeviceLedger,
    DrainQuery, Estimate, EstimateRequest, EventQuery, Explanation, Fit, FitQuery, ForceReleaseRequest, ForgetRequest,
    Health, HeartbeatRequest, History, JoinRequest, Ledger, LogLevel, LogQuery, MachineJudgement, Model, ModelRequest,
    NewToken, PageQuery, QueueEntry, Ready, ReportAnswer, ReportRequest, RequestId, Runner, RunnerStatus, Slot,
    SlotQuery, SubmitRequest, TimeSpan, Token, TokenId, TokenRequest, Version, WaitQuery, Workload, WorkloadFilter,
    WorkloadLogQuery,
};
use serde::de::IgnoredAny;

use crate::Route;

/// Makes a path below the prefix that all routes share.
macro_rules! path {
    ($($segment:expr),+) => { &["api", "v1", $($segment),+] };
}

/// `POST /workloads?wait=`. With a key it may be sent again: the same key and body is the same workload.
#[must_use]
pub fn submit(request: &SubmitRequest, key: Option<&str>, wait: Option<TimeSpan>) -> Route<Workload> {
    let query = WaitQuery { wait, after: None };
    Route::post(path!["workloads"]).query(&query).body(request).keyed(key).waiting(wait)
}

/// `GET /workloads`
#[must_use]
pub fn workloads(filter: &WorkloadFilter) -> Route<Vec<Workload>> {
    Route::get(path!["workloads"]).query(filter)
}

/// `GET /workloads/{id}?wait=&after=`
#[must_use]
pub fn workload(id: WorkloadId, wait: WaitQuery) -> Route<Workload> {
    Route::get(path!["workloads", &id.to_string()]).query(&wait).waiting(wait.wait)
}

/// `DELETE /workloads/{id}`
#[must_use]
pub fn cancel(id: WorkloadId) -> Route<Workload> {
    Route::delete(path!["workloads", &id.to_string()])
}

/// `POST /workloads/{id}/heartbeat`
#[must_use]
pub fn heartbeat(id: WorkloadId, attempt: Attempt) -> Route<Workload> {
    Route::post(path!["workloads", &id.to_string(), "heartbeat"]).body(&HeartbeatRequest { attempt })
}

/// `POST /workloads/{id}/complete`
#[must_use]
pub fn complete(id: WorkloadId, request: &CompleteRequest) -> Route<Workload> {
    Route::post(path!["workloads", &id.to_string(), "complete"]).body(request)
}

/// `GET /workloads/{id}/explain`
#[must_use]
pub fn explain(id: WorkloadId) -> Route<Explanation> {
    Route::get(path!["workloads", &id.to_string(), "explain"])
}

/// `GET /workloads/{id}/logs?follow`
#[must_use]
pub fn workload_logs(id: WorkloadId, query: &WorkloadLogQuery) -> Route<String> {
    Route::get(path!["workloads", &id.to_string(), "logs"]).query(query).accept("text/plain")
}

/// `GET /models`
#[must_use]
pub fn models(page: &PageQuery) -> Route<Vec<Model>> {
    Route::get(path!["models"]).query(page)
}

/// `GET /models/{name}`
#[must_use]
pub fn model(name: &ModelName) -> Route<Model> {
    Route::get(path!["models", name.as_str()])
}

/// `PUT /models/{name}`
#[must_use]
pub fn put_model(name: &ModelName, request: &ModelRequest) -> Route<Model> {
    Route::put(path!["models", name.as_str()]).body(request)
}

/// `DELETE /models/{name}`
#[must_use]
pub fn delete_model(name: &ModelName) -> Route<IgnoredAny> {
    Route::delete(path!["models", name.as_str()])
}

/// `POST /models/{name}/fit`: nothing is done, so it may be sent again.
#[must_use]
pub fn fit(name: &ModelName, query: FitQuery) -> Route<Fit> {
    Route::post(path!["models", name.as_str(), "fit"]).query(&query).repeatable()
}

/// `POST /estimate`: nothing is kept, so it may be sent again.
#[must_use]
pub fn estimate(request: &EstimateRequest) -> Route<Estimate> {
    Route::post(path!["estimate"]).body(request).repeatable()
}

/// `GET /runners`
#[must_use]
pub fn runners(page: &PageQuery) -> Route<Vec<Runner>> {
    Route::get(path!["runners"]).query(page)
}

/// `GET /runners/{id}`: the runner as the server holds it.
#[must_use]
pub fn runner(id: &RunnerId) -> Route<Runner> {
    Route::get(path!["runners", id.as_str()])
}

/// `GET /runners/{id}/status`: the last report of the runner.
#[must_use]
pub fn runner_status(id: &RunnerId) -> Route<RunnerStatus> {
    Route::get(path!["runners", id.as_str(), "status"])
}

/// `POST /runners/{id}/cordon`
#[must_use]
pub fn cordon(id: &RunnerId) -> Route<Runner> {
    Route::post(path!["runners", id.as_str(), "cordon"])
}

/// `POST /runners/{id}/uncordon`
#[must_use]
pub fn uncordon(id: &RunnerId) -> Route<Runner> {
    Route::post(path!["runners", id.as_str(), "uncordon"])
}

/// `POST /runners/{id}/drain?deadline=`
#[must_use]
pub fn drain(id: &RunnerId, query: DrainQuery) -> Route<Runner> {
    Route::post(path!["runners", id.as_str(), "drain"]).query(&query)
}

/// `DELETE /runners/{id}`
#[must_use]
pub fn forget(id: &RunnerId, request: &ForgetRequest) -> Route<IgnoredAny> {
    Route::delete(path!["runners", id.as_str()]).body(request)
}

/// `POST /devices/{uuid}/cordon`
#[must_use]
pub fn cordon_device(uuid: &DeviceUuid) -> Route<DeviceLedger> {
    Route::post(path!["devices", uuid.as_str(), "cordon"])
}

/// `POST /devices/{uuid}/uncordon`
#[must_use]
pub fn uncordon_device(uuid: &DeviceUuid) -> Route<DeviceLedger> {
    Route::post(path!["devices", uuid.as_str(), "uncordon"])
}

/// `PUT /runners/{id}/report`. The client does not repeat it: reports are numbered, and the agent sends a newer one
/// instead.
#[must_use]
pub fn report(id: &RunnerId, request: &ReportRequest) -> Route<ReportAnswer> {
    Route::put(path!["runners", id.as_str(), "report"]).body(request).once()
}

/// `GET /runners/{id}/desired?epoch=&after=&wait=`
#[must_use]
pub fn desired(id: &RunnerId, query: &DesiredQuery) -> Route<Desired> {
    Route::get(path!["runners", id.as_str(), "desired"]).query(query).waiting(query.wait)
}

/// `POST /runners/{id}/requests/{request_id}`, with a streamed body
pub(crate) fn answer(id: &RunnerId, request: RequestId) -> Route<IgnoredAny> {
    Route::post(path!["runners", id.as_str(), "requests", &request.to_string()])
}

/// `POST /machines/judge`
#[must_use]
pub fn judge_machines(request: &MachineJudgement) -> Route<()> {
    Route::post(path!["machines", "judge"]).body(request)
}

/// `GET /backup`, with a streamed answer
pub(crate) fn backup() -> Route<IgnoredAny> {
    Route::get(path!["backup"])
}

/// `GET /history`
#[must_use]
pub fn history() -> Route<History> {
    Route::get(path!["history"])
}

/// `POST /history/continue`
#[must_use]
pub fn continue_history(request: &ContinueHistory) -> Route<()> {
    Route::post(path!["history", "continue"]).body(request)
}

/// `GET /scheduler/slots`
#[must_use]
pub fn slots(query: &SlotQuery) -> Route<Vec<Slot>> {
    Route::get(path!["scheduler", "slots"]).query(query)
}

/// `GET /scheduler/slots/{id}`
#[must_use]
pub fn slot(id: SlotId) -> Route<Slot> {
    Route::get(path!["scheduler", "slots", &id.to_string()])
}

/// `DELETE /scheduler/slots/{id}`
#[must_use]
pub fn stop_slot(id: SlotId) -> Route<IgnoredAny> {
    Route::delete(path!["scheduler", "slots", &id.to_string()])
}

/// `POST /scheduler/slots/{id}/force-release`
#[must_use]
pub fn force_release(id: SlotId, request: &ForceReleaseRequest) -> Route<IgnoredAny> {
    Route::post(path!["scheduler", "slots", &id.to_string(), "force-release"]).body(request)
}

/// `GET /scheduler/slots/{id}/logs?follow`
#[must_use]
pub fn slot_logs(id: SlotId, query: &LogQuery) -> Route<String> {
    Route::get(path!["scheduler", "slots", &id.to_string(), "logs"]).query(query).accept("text/plain")
}

/// `GET /scheduler/decisions`
#[must_use]
pub fn decisions(query: &DecisionQuery) -> Route<Vec<Decision>> {
    Route::get(path!["scheduler", "decisions"]).query(query)
}

/// `GET /scheduler/queue`
#[must_use]
pub fn queue(page: &PageQuery) -> Route<Vec<QueueEntry>> {
    Route::get(path!["scheduler", "queue"]).query(page)
}

/// `GET /scheduler/ledger`
#[must_use]
pub fn ledger() -> Route<Ledger> {
    Route::get(path!["scheduler", "ledger"])
}

/// `GET /scheduler/demand`
#[must_use]
pub fn demand() -> Route<Vec<Demand>> {
    Route::get(path!["scheduler", "demand"])
}

/// `GET /scheduler/events`, as server-sent events
#[must_use]
pub fn events(query: EventQuery) -> Route<String> {
    Route::get(path!["scheduler", "events"]).query(&query).accept("text/event-stream")
}

/// `POST /tokens`
#[must_use]
pub fn create_token(request: &TokenRequest) -> Route<NewToken> {
    Route::post(path!["tokens"]).body(request)
}

/// `GET /tokens`
#[must_use]
pub fn tokens() -> Route<Vec<Token>> {
    Route::get(path!["tokens"])
}

/// `DELETE /tokens/{id}`
#[must_use]
pub fn revoke_token(id: TokenId) -> Route<IgnoredAny> {
    Route::delete(path!["tokens", &id.to_string()])
}

/// `POST /tokens/{id}/rotate`
#[must_use]
pub fn rotate_token(id: TokenId) -> Route<NewToken> {
    Route::post(path!["tokens", &id.to_string(), "rotate"])
}

/// `POST /join`
#[must_use]
pub fn join(request: &JoinRequest) -> Route<NewToken> {
    Route::post(path!["join"]).body(request)
}

/// `POST /runners/{id}/token`
#[must_use]
pub fn rotate_own_token(id: &RunnerId) -> Route<NewToken> {
    Route::post(path!["runners", id.as_str(), "token"])
}

/// `GET /audit`
#[must_use]
pub fn audit(page: &PageQuery) -> Route<Vec<AuditEntry>> {
    Route::get(path!["audit"]).query(page)
}

/// `GET /log-level`
#[must_use]
pub fn log_level() -> Route<LogLevel> {
    Route::get(path!["log-level"])
}

/// `PUT /log-level`
#[must_use]
pub fn set_log_level(level: &LogLevel) -> Route<LogLevel> {
    Route::put(path!["log-level"]).body(level)
}

/// `GET /version`
#[must_use]
pub fn version() -> Route<Version> {
    Route::get(path!["version"])
}

/// `GET /healthz`
#[must_use]
pub fn health() -> Route<Health> {
    Route::get(&["healthz"])
}

/// `GET /readyz`
#[must_use]
pub fn ready() -> Route<Ready> {
    Route::get(&["readyz"])
}

/// `GET /metrics`, as text
#[must_use]
pub fn metrics() -> Route<String> {
    Route::get(&["metrics"]).accept("text/plain, application/openmetrics-text")
}

/// `GET /openapi.json`
#[must_use]
pub fn openapi() -> Route<serde_json::Value> {
    Route::get(&["openapi.json"])
}
