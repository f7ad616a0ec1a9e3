//! What agents do: report what is, and ask what should be.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use berth_core::{Answer, Command, Refusal};
use berth_domain::{ClusterId, DesiredSlot, DeviceUuid, HistoryPoint, Incarnation, LogTail, ObeyedAnswer, RunnerId};
use berth_wire as wire;
use berth_wire::{DesiredQuery, ProblemCode, ReportRequest};
use tokio::time::Instant;

use super::App;
use super::body::{Json, LargeBody, Named, Query};
use super::layers::authentication::Peer;
use super::problem::Failure;
use crate::clock;
use crate::requests::Due;
use crate::trust::Caller;
use crate::trust::grant::confine;
use crate::views::{LastReport, Telemetry};
use crate::writer::{Committed, Unavailable};

/// Report what a runner has
///
/// Without an `incarnation` it registers; the answer numbers it. What the server does not know in a report is ignored.
#[utoipa::path(put, path = "/api/v1/runners/{id}/report", tag = "agents", params(("id" = wire::schema::RunnerId, Path)),
    request_body = ReportRequest,
    responses(
        (status = 200, description = "Taken in", body = wire::ReportAnswer),
        (status = 409, description = "Superseded, not registered, or older than what is known", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn report(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    Named(runner): Named<RunnerId>,
    LargeBody(body): LargeBody,
) -> Result<Json<wire::ReportAnswer>, Failure> {
    check_protocol(&runner, &body)?;
    let request: ReportRequest = wire::body::read(&body)?;
    let telemetry = Arc::new(telemetry_of(&request));
    let obeyed = check_obeyed(&app, request.cluster_id, request.obeyed.as_deref());
    // Before the end itself is published: whoever hears of it finds the last lines with it.
    for slot in request.slots.iter().filter(|slot| !slot.last_lines.is_empty()) {
        let tail = LogTail::of_lines(slot.last_lines.iter().map(String::as_str));
        app.views.keep_tail(&runner, slot.id, slot.generation, tail);
    }
    let says_pool = request.pool.is_some();
    let mut report = request.into_report(runner.clone())?;
    report.obeyed = obeyed;
    // On a server without tokens there is no grant, and whoever reaches it may say anything.
    let grant = caller.token.is_some().then(|| caller.grant.as_deref().cloned().unwrap_or_default());
    confine(&mut report, grant.as_ref(), says_pool, peer.0.ip())?;
    let report = Arc::new(report);
    let command = Command::Report(Box::new((*report).clone()));
    let (answer, point) =
        app.writer.execute_and_read(command, |committed, answer| (answer, committed.state.point())).await?;
    let revision = point.revision;
    let Answer::Reported { incarnation } = answer? else { return Err(Unavailable::Stopping.into()) };
    app.views.note_report(runner, LastReport { received: clock::now(), report, telemetry });
    let cluster_id = app.views.cluster().ok_or(Unavailable::Stopping)?;
    let (epoch, protocol) = (point.epoch, wire::PROTOCOL);
    Ok(Json(wire::ReportAnswer { cluster_id, epoch, revision, protocol, incarnation }))
}

/// Refuses what an agent of another protocol says, before it is read any further: the two could misunderstand each
/// other, and nothing that runs may be stopped for that.
fn check_protocol(runner: &RunnerId, report: &[u8]) -> Result<(), Failure> {
    #[derive(serde::Deserialize)]
    struct Spoken {
        protocol: Option<u64>,
        #[serde(default)]
        version: String,
    }
    let Ok(Spoken { protocol: Some(spoken), version }) = serde_json::from_slice(report) else { return Ok(()) };
    let own = u64::from(wire::PROTOCOL);
    if spoken == own {
        return Ok(());
    }
    let older = if spoken < own { "the agent" } else { "the server" };
    let detail = format!(
        "the agent of runner {runner} (version {version:?}) speaks protocol {spoken}, this server ({}) protocol {own}: \
         upgrade {older}. Nothing is started or stopped there until then",
        env!("CARGO_PKG_VERSION")
    );
    Err(Failure::new(ProblemCode::ProtocolMismatch, detail))
}

/// Checks the code of the newest answer that an agent says it obeyed. An agent of another cluster has other codes.
fn check_obeyed(app: &App, cluster: Option<ClusterId>, code: Option<&str>) -> Option<ObeyedAnswer> {
    let own = app.views.cluster()?;
    cluster.is_none_or(|cluster| cluster == own).then_some(code)?.map(|code| app.key.check(own, code))
}

/// What is shown to people and decides nothing.
fn telemetry_of(request: &ReportRequest) -> Telemetry {
    let gpu = |gpu: &wire::ReportedGpu| {
        let percent = gpu.utilization_percent.map(|percent| percent.min(100));
        Some((DeviceUuid::physical(&gpu.uuid).ok()?, (percent, gpu.telemetry.clone())))
    };
    Telemetry {
        gpus: request.gpus.iter().filter_map(gpu).collect(),
        links: request.links.clone(),
        pids: request.slots.iter().filter_map(|slot| Some((slot.id, slot.pid?))).collect(),
    }
}

/// What a runner should run
///
/// A long poll: the answer comes once there is something newer than `after`, or a request to answer, or when the wait is
/// over. A slot that is not mentioned is kept.
#[utoipa::path(get, path = "/api/v1/runners/{id}/desired", tag = "agents",
    params(("id" = wire::schema::RunnerId, Path), DesiredQuery),
    responses(
        (status = 200, description = "What it should run and stop", body = wire::Desired),
        (status = 404, description = "No such runner", body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, description = "Superseded, or not registered", body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn desired(
    State(app): State<App>,
    Named(runner): Named<RunnerId>,
    Query(query): Query<DesiredQuery>,
) -> Result<Json<wire::Desired>, Failure> {
    let obeyed = check_obeyed(&app, None, query.obeyed.as_deref());
    let poll = Poll { runner, incarnation: query.incarnation, obeyed };
    let known = query.after.filter(|_| query.epoch.is_none_or(|epoch| epoch == app.views.epoch()));
    let (Some(after), Some(deadline)) = (known, app.deadline(query.wait)) else {
        return poll.answer(&app, poll.ask(&app).await?);
    };
    let waiting = app.views.runner_waiters.enter(&poll.runner);
    loop {
        // The ear is open before the question: a change in between is not missed.
        let mut ear = std::pin::pin!(waiting.ear());
        ear.as_mut().enable();
        let wish = poll.ask(&app).await?;
        let again = match app.requests.due(&poll.runner) {
            Due::Now => return poll.answer(&app, wish),
            Due::At(again) => Some(Instant::from_std(again)).filter(|again| *again < deadline),
            Due::Never => None,
        };
        // Another epoch begins while the server runs when its history is continued.
        if wish.point.revision > after || query.epoch.is_some_and(|epoch| epoch != wish.point.epoch) {
            return poll.answer(&app, wish);
        }
        let called = async { tokio::time::timeout_at(again.unwrap_or(deadline), ear).await.ok() };
        if app.unless_stopping(called).await.is_none() && (again.is_none() || *app.stopping.borrow()) {
            return poll.answer(&app, wish);
        }
    }
}

/// An agent that asks.
struct Poll {
    runner: RunnerId,
    incarnation: Incarnation,
    obeyed: Option<ObeyedAnswer>,
}

/// What a runner should run, as of a point of the server's history.
struct Wish {
    point: HistoryPoint,
    slots: Vec<DesiredSlot>,
}

impl Poll {
    /// Says that the agent lives, and reads what it should run.
    async fn ask(&self, app: &App) -> Result<Wish, Failure> {
        let Self { incarnation, obeyed, .. } = *self;
        let command = Command::Poll { runner: self.runner.clone(), incarnation, obeyed };
        let runner = self.runner.clone();
        let look = move |Committed { state, .. }: Committed<'_>, answer: Result<Answer, Refusal>| {
            answer?;
            let revision = state.runner(&runner).map(|view| view.desired).unwrap_or_default();
            let point = HistoryPoint { revision, ..state.point() };
            Ok::<Wish, Refusal>(Wish { point, slots: state.desired(&runner) })
        };
        Ok(app.writer.execute_and_read(command, look).await??)
    }

    fn answer(&self, app: &App, wish: Wish) -> Result<Json<wire::Desired>, Failure> {
        let cluster_id = app.views.cluster().ok_or(Unavailable::Stopping)?;
        Ok(Json(wire::Desired {
            cluster_id,
            epoch: wish.point.epoch,
            revision: wish.point.revision,
            code: Some(app.key.sign(cluster_id, wish.point)),
            protocol: wire::PROTOCOL,
            slots: wish.slots.into_iter().map(Into::into).collect(),
            requests: app.requests.hand_out(&self.runner),
        }))
    }
}
