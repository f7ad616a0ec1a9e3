//! What the scheduler holds, decided and does.

use std::num::NonZeroU32;
use std::time::Duration;

use berth_client::{EventStream, Received, routes};
use berth_domain::{ModelName, ReasonText, Revision, RunnerId, SlotId, SlotState, WorkloadId};
use berth_wire::{DecisionQuery, EventQuery, ForceReleaseRequest, PageQuery, SlotQuery};
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::render;
use super::super::session::{Output, Session};
use super::{slot_id, workload_id};

/// List slots, or look at one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  berth slots --runner gpu-box-1\n  berth slots --state stopping")]
pub(crate) struct Slots {
    /// Only this one, with everything about it
    #[arg(value_parser = slot_id)]
    id: Option<SlotId>,
    /// Only those of this model
    #[arg(long)]
    model: Option<ModelName>,
    /// Only those on this runner
    #[arg(long, value_name = "ID")]
    runner: Option<RunnerId>,
    /// Only those in this state
    #[arg(long, value_parser = state)]
    state: Option<SlotState>,
}

fn state(word: &str) -> Result<SlotState, String> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
        .map_err(|_| "promised, pending, starting, ready, draining, stopping, failed or unknown".to_owned())
}

impl Slots {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        if let Some(id) = self.id {
            session.show(&routes::slot(id), render::fleet::slot).await?;
            return Ok(Ended::Well);
        }
        let query = SlotQuery { model: self.model, runner_id: self.runner, state: self.state, ..SlotQuery::default() };
        session.show(&routes::slots(&query), |rows, look| render::fleet::slots(rows, look)).await?;
        Ok(Ended::Well)
    }
}

/// Stop a slot
///
/// Its memory stays charged until its agent proves that it is back.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth stop 018f3b1c-7c2e-7d41-0000-000000000007")]
pub(crate) struct Stop {
    /// The slot
    #[arg(value_parser = slot_id)]
    slot: SlotId,
}

impl Stop {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let slot = self.slot;
        session.show(&routes::stop_slot(slot), |_, _| format!("slot {slot} is being stopped\n")).await?;
        Ok(Ended::Well)
    }
}

/// Free a slot's memory without proof
///
/// The last resort, on your word that its processes are gone: if they are not, the GPU will be given away twice. The
/// reason goes on record.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  berth force-release 018f3b1c-7c2e-7d41-0000-000000000007 --reason \"killed by hand\""
)]
pub(crate) struct ForceRelease {
    /// The slot
    #[arg(value_parser = slot_id)]
    slot: SlotId,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: ReasonText,
}

impl ForceRelease {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let Self { slot, reason } = self;
        let route = routes::force_release(slot, &ForceReleaseRequest { reason });
        session.show(&route, |_, _| format!("the memory of slot {slot} is free\n")).await?;
        Ok(Ended::Well)
    }
}

/// Draw every GPU as a bar of its capacity
///
/// Held memory belongs to slots that run; releasing memory to slots that are being stopped, and is not free before that
/// is proven; promised memory will be somebody's then; foreign memory is used by others.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  berth ledger\n  berth ledger -v")]
pub(crate) struct Ledger {
    /// Show every claim, too
    #[arg(short, long)]
    verbose: bool,
}

impl Ledger {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let render = |ledger: &berth_wire::Ledger, look| render::ledger::ledger(ledger, self.verbose, look);
        session.show(&routes::ledger(), render).await?;
        Ok(Ended::Well)
    }
}

/// List what was decided, and why
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth decisions --model qwen3:8b -v\n  berth decisions --runner gpu-box-1 --limit 5"
)]
pub(crate) struct Decisions {
    /// Only those about this model
    #[arg(long)]
    model: Option<ModelName>,
    /// Only those that chose this runner
    #[arg(long, value_name = "ID")]
    runner: Option<RunnerId>,
    /// Only those about this workload
    #[arg(long, value_name = "ID", value_parser = workload_id)]
    workload: Option<WorkloadId>,
    /// At most so many, the newest
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    limit: NonZeroU32,
    /// Show the numbers of every GPU that mattered
    #[arg(short, long)]
    verbose: bool,
}

impl Decisions {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let query = DecisionQuery {
            workload_id: self.workload,
            model: self.model,
            runner_id: self.runner,
            limit: Some(self.limit),
            after: None,
        };
        let render = |rows: &Vec<berth_wire::Decision>, look| match self.verbose {
            true => render::records::decisions_in_full(rows),
            false => render::records::decisions(rows, look),
        };
        session.show(&routes::decisions(&query), render).await?;
        Ok(Ended::Well)
    }
}

/// List what waits, first in order first
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth queue")]
pub(crate) struct Queue {
    /// At most so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroU32>,
}

impl Queue {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let page = PageQuery { limit: self.limit, after: None };
        session.show(&routes::queue(&page), |rows, look| render::work::queue(rows, look)).await?;
        Ok(Ended::Well)
    }
}

/// List what the fleet lacks, by model and reason
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  berth demand")]
pub(crate) struct Demand {}

impl Demand {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        session.show(&routes::demand(), |rows, look| render::work::demand(rows, look)).await?;
        Ok(Ended::Well)
    }
}

/// Show what happened last, and what happens
///
/// With --follow it goes on until it is stopped, over broken connections and restarts of the server. With --output json
/// each event is one line.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  berth events\n  berth events -f\n  berth events --after 4711")]
pub(crate) struct Events {
    /// Go on with what happens
    #[arg(short, long)]
    follow: bool,
    /// Begin so many events ago
    #[arg(long, value_name = "NUMBER", default_value = "20", conflicts_with = "after")]
    last: u64,
    /// Begin after this revision
    #[arg(long, value_name = "REVISION")]
    after: Option<u64>,
}

/// Silence after which there is nothing more to come for whoever does not follow.
const QUIET: Duration = Duration::from_secs(2);

impl Events {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let after = match self.after {
            Some(after) => Revision::new(after),
            None => {
                let known = session.client.ask(&routes::health()).await?.revision;
                Revision::new(known.get().saturating_sub(self.last))
            }
        };
        let mut stream = session.client.events(EventQuery { after: Some(after) }).await?;
        let end = (!self.follow).then(|| stream.revision_at_start());
        if end.is_some_and(|end| after >= end) {
            return Ok(Ended::Well);
        }
        while let Some(received) = next(&mut stream, self.follow).await? {
            let revision = match &received {
                Received::Event(event) => {
                    session.print(&line(session, event))?;
                    event.revision
                }
                Received::Reset(revision) => {
                    session.note(&format!("what happened before revision {revision} is no longer known in full"));
                    *revision
                }
            };
            if end.is_some_and(|end| revision >= end) {
                break;
            }
        }
        Ok(Ended::Well)
    }
}

async fn next(stream: &mut EventStream, follow: bool) -> Result<Option<Received>, Failure> {
    if follow {
        return Ok(Some(stream.next().await?));
    }
    match tokio::time::timeout(QUIET, stream.next()).await {
        Ok(received) => Ok(Some(received?)),
        Err(_) => Ok(None),
    }
}

fn line(session: &Session, event: &berth_wire::StreamEvent) -> String {
    match session.output {
        Output::Table => render::records::event(event),
        Output::Json => {
            format!("{}\n", render::look::clean_json(&serde_json::to_string(event).unwrap_or_default()))
        }
    }
}
