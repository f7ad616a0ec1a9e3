//! What agents do: report what is, and ask what should be.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use berth_core::{Answer, Command, Refusal};
use berth_domain::{DesiredSlot, DeviceUuid, Incarnation, Revision, RunnerId};
use berth_wire as wire;
use berth_wire::{DesiredQuery, ReportRequest};
use tokio::time::Instant;

use super::App;
use super::body::{Json, LargeBody, Named, Query};
use super::problem::Failure;
use crate::clock;
use crate::requests::Due;
use crate::views::{Aside, LastReport};
use crate::writer::{Moment, Unavailable};

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
    Named(runner): Named<RunnerId>,
    LargeBody(body): LargeBody,
) -> Result<Json<wire::ReportAnswer>, Failure> {
    check_protocol(&runner, &body)?;
    let request: ReportRequest = wire::body::read(&body)?;
    let aside = Arc::new(aside(&request));
    let report = Arc::new(request.into_report(runner.clone())?);
    let command = Command::Report(Box::new((*report).clone()));
    let (answer, revision) =
        app.writer.carry_out_and_read(command, |moment, answer| (answer, moment.state.revision())).await?;
    let Answer::Reported { incarnation } = answer? else { return Err(Unavailable::Stopping.into()) };
    app.views.note_report(runner, LastReport { received: clock::now(), report, aside });
    let cluster_id = app.views.cluster().ok_or(Unavailable::Stopping)?;
    let (epoch, protocol) = (app.views.epoch(), wire::PROTOCOL);
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
    tracing::warn!(%runner, spoken, own, "{detail}");
    Err(Failure::new(StatusCode::CONFLICT, "protocol_mismatch", detail))
}

/// What is shown to people and decides nothing.
fn aside(request: &ReportRequest) -> Aside {
    let gpu = |gpu: &wire::ReportedGpu| {
        let percent = gpu.utilization_percent.map(|percent| percent.min(100));
        Some((DeviceUuid::physical(&gpu.uuid).ok()?, (percent, gpu.telemetry.clone())))
    };
    Aside {
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
    let poll = Poll { runner, incarnation: query.incarnation };
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
        if wish.revision > after {
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
}

/// What a runner should run, as of a revision.
struct Wish {
    revision: Revision,
    slots: Vec<DesiredSlot>,
}

impl Poll {
    /// Says that the agent lives, and reads what it should run.
    async fn ask(&self, app: &App) -> Result<Wish, Failure> {
        let command = Command::Poll { runner: self.runner.clone(), incarnation: self.incarnation };
        let runner = self.runner.clone();
        let look = move |Moment { state, .. }: Moment<'_>, answer: Result<Answer, Refusal>| {
            answer?;
            let revision = state.runner(&runner).map(|view| view.desired).unwrap_or_default();
            Ok::<Wish, Refusal>(Wish { revision, slots: state.desired(&runner) })
        };
        Ok(app.writer.carry_out_and_read(command, look).await??)
    }

    fn answer(&self, app: &App, wish: Wish) -> Result<Json<wire::Desired>, Failure> {
        let cluster_id = app.views.cluster().ok_or(Unavailable::Stopping)?;
        Ok(Json(wire::Desired {
            cluster_id,
            epoch: app.views.epoch(),
            revision: wish.revision,
            protocol: wire::PROTOCOL,
            slots: wish.slots.into_iter().map(Into::into).collect(),
            requests: app.requests.hand_out(&self.runner),
        }))
    }
}
