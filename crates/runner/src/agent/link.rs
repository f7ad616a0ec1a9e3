//! The conversation with the server: one report at a time, and one long poll. Neither holds up a round.

use std::time::Duration;

use berth_client::{Client, ClientError};
use berth_domain::{Incarnation, RunnerId, SlotId};
use berth_wire::{AgentRequest, DesiredQuery, ReportAnswer, ReportRequest, TimeSpan};
use tokio::task::JoinHandle;

use crate::reconcile::{Version, Wish};
use crate::record::Obeys;

/// How long a poll waits for a change.
const POLL: berth_domain::Span = berth_domain::Span::from_secs(25);
/// Pauses after a failed request: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What was heard.
pub(super) enum Heard {
    /// Which server this is.
    Server(Obeys),
    /// A report was taken in; these slots were told why they came to their end.
    Answered(Vec<SlotId>),
    /// What should run, and what else the server asks for.
    Wish(Wish, Vec<AgentRequest>),
    /// What should have run once: a newer answer was faster.
    Overtaken,
    /// A newer agent has this id.
    Superseded,
    /// The server will not have it.
    Refused(Box<ClientError>),
    /// The report was not taken in: say it again.
    Again,
}

type Asking = JoinHandle<Result<berth_wire::Version, ClientError>>;
type Reporting = JoinHandle<(Result<ReportAnswer, ClientError>, Vec<SlotId>)>;
type Polling = JoinHandle<Result<(Wish, Vec<AgentRequest>), ClientError>>;

/// The way to the server.
pub(super) struct Link {
    client: Client,
    id: RunnerId,
    incarnation: Option<Incarnation>,
    sequence: u64,
    /// The newest wish that was heard since it registered.
    newest: Option<Version>,
    asking: Option<Asking>,
    reporting: Option<Reporting>,
    polling: Option<Polling>,
    pause: Duration,
    obeys: Option<Obeys>,
}

impl Link {
    pub(super) fn new(client: Client, id: RunnerId, obeys: Option<Obeys>) -> Self {
        Self {
            client,
            id,
            incarnation: None,
            sequence: 0,
            newest: None,
            asking: None,
            reporting: None,
            polling: None,
            pause: Duration::ZERO,
            obeys,
        }
    }

    /// Whether a report is under way, or the question to whom.
    pub(super) fn is_speaking(&self) -> bool {
        self.reporting.is_some() || self.asking.is_some()
    }

    /// Asks which server this is: an agent that obeys none yet has to know before it can tell which slots are its own.
    pub(super) fn ask_who(&mut self) {
        let (client, pause) = (self.client.clone(), self.pause);
        self.asking = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.version().await
        }));
    }

    /// Sends a report, in which `told` learn the server why slots came to their end.
    pub(super) fn report(&mut self, mut report: ReportRequest, told: Vec<SlotId>) {
        self.sequence += 1;
        report.sequence = berth_domain::Sequence::new(self.sequence);
        report.incarnation = self.incarnation;
        report.cluster_id = self.obeys.map(|obeys| obeys.cluster);
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.reporting = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            (client.report(&id, &report).await, told)
        }));
    }

    /// Waits for the next thing the server says. Never, if nothing was asked.
    pub(super) async fn hear(&mut self) -> Heard {
        self.poll();
        tokio::select! {
            done = finished(&mut self.asking) => match done {
                Some(answer) => self.introduced(answer),
                None => Heard::Again,
            },
            done = finished(&mut self.reporting) => match done {
                Some((answer, told)) => self.answered(answer, told),
                None => Heard::Again,
            },
            done = finished(&mut self.polling) => match done {
                Some(Ok((wish, requests))) => self.wished(wish, requests),
                Some(Err(error)) => self.failed(error),
                None => Heard::Again,
            },
        }
    }

    fn poll(&mut self) {
        let (None, Some(incarnation)) = (&self.polling, self.incarnation) else { return };
        let query = DesiredQuery {
            epoch: self.newest.map(|newest| newest.epoch),
            after: self.newest.map(|newest| newest.revision),
            wait: Some(TimeSpan(POLL)),
            incarnation,
        };
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.polling = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let desired = client.desired(&id, query).await?;
            let slots = desired.slots.into_iter().map(Into::into).collect();
            let version = Version { cluster: desired.cluster_id, epoch: desired.epoch, revision: desired.revision };
            Ok((Wish { version, slots }, desired.requests))
        }));
    }

    fn introduced(&mut self, answer: Result<berth_wire::Version, ClientError>) -> Heard {
        match answer.map(|version| version.cluster_id.map(|cluster| Obeys { cluster, epoch: version.epoch })) {
            Ok(Some(server)) => {
                self.obeys = Some(server);
                self.pause = Duration::ZERO;
                Heard::Server(server)
            }
            Ok(None) => {
                tracing::warn!("the server does not say which cluster it serves: asked again");
                self.back_off();
                Heard::Again
            }
            Err(error) => self.failed(error),
        }
    }

    fn wished(&mut self, wish: Wish, requests: Vec<AgentRequest>) -> Heard {
        let version = wish.version;
        if self.newest.is_some_and(|newest| version.is_before(&newest)) {
            tracing::warn!(%version.epoch, %version.revision, "ignored: the server has said something newer already");
            self.back_off();
            return Heard::Overtaken;
        }
        self.newest = Some(version);
        self.pause = Duration::ZERO;
        Heard::Wish(wish, requests)
    }

    fn answered(&mut self, answer: Result<ReportAnswer, ClientError>, told: Vec<SlotId>) -> Heard {
        match answer {
            Ok(answer) => {
                self.pause = Duration::ZERO;
                if self.incarnation.replace(answer.incarnation) != Some(answer.incarnation) {
                    tracing::info!(incarnation = answer.incarnation.get(), cluster = %answer.cluster_id, "registered");
                }
                Heard::Answered(told)
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: ClientError) -> Heard {
        if error.is_code("superseded") {
            return Heard::Superseded;
        }
        if error.is_code("not_registered") || error.is_code("unknown_runner") || error.is_code("old_boot") {
            // The server forgot it, or was replaced: it registers anew.
            self.incarnation = None;
            self.newest = None;
            self.polling.take().inspect(JoinHandle::abort);
        } else if error.is_status(401) || error.is_status(403) || error.is_code("machine_changed") {
            return Heard::Refused(Box::new(error));
        }
        self.back_off();
        if self.pause >= Duration::from_secs(1) {
            tracing::warn!(%error, "the server cannot be reached; slots go on as they are");
        }
        Heard::Again
    }

    fn back_off(&mut self) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

/// Waits for a task, if there is one, and takes it away.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    let Some(running) = task else { return std::future::pending().await };
    let done = running.await.ok();
    *task = None;
    done
}
