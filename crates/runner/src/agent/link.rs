//! The conversation with the server: one report at a time, and one long poll. Neither holds up a round.
//!
//! A server that speaks another protocol might mean something else by what it says. So nothing that it says is taken in:
//! the agent says what has to be upgraded, leaves its slots as they are, and asks again later.

use std::time::{Duration, Instant};

use berth_client::{Client, ClientError};
use berth_domain::{Incarnation, RunnerId};
use berth_wire::{AgentRequest, Desired, DesiredQuery, PROTOCOL, ProblemCode, ReportAnswer, ReportRequest, TimeSpan};
use tokio::task::JoinHandle;

use crate::reconcile::{Version, Wish};
use crate::record::Obeys;

/// How long a poll waits for a change.
const POLL: berth_domain::Span = berth_domain::Span::from_secs(25);
/// Pauses after a failed request: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often it is said that the server speaks another protocol.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// The code of a server that refuses an agent because it speaks another protocol.

/// What was heard.
pub(super) enum Heard {
    /// Which server this is.
    Server(Obeys),
    /// A report was taken in.
    Answered,
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
type Reporting = JoinHandle<Result<ReportAnswer, ClientError>>;
/// What is desired, and when it was asked for.
type Polling = JoinHandle<Result<(Desired, Instant), ClientError>>;

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
    /// The last report was answered in the agent's protocol: what the server wants may be asked for.
    is_understood: bool,
    /// When it was last said that the server speaks another protocol.
    said_protocol: Option<Instant>,
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
            is_understood: false,
            said_protocol: None,
        }
    }

    /// Notes what was obeyed last: the server is shown it from now on.
    pub(super) fn note_obeyed(&mut self, obeys: Option<Obeys>) {
        self.obeys = obeys;
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

    /// Sends a report.
    pub(super) fn report(&mut self, mut report: ReportRequest) {
        self.sequence += 1;
        report.sequence = berth_domain::Sequence::new(self.sequence);
        report.incarnation = self.incarnation;
        report.cluster_id = self.obeys.as_ref().map(|obeys| obeys.cluster);
        report.obeyed = self.obeys.as_ref().and_then(|obeys| obeys.code.clone());
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.reporting = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.report(&id, &report).await
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
                Some(answer) => self.answered(answer),
                None => Heard::Again,
            },
            done = finished(&mut self.polling) => match done {
                Some(Ok((desired, sent))) => self.wished(desired, sent),
                Some(Err(error)) => self.failed(error),
                None => Heard::Again,
            },
        }
    }

    fn poll(&mut self) {
        let (None, Some(incarnation), true) = (&self.polling, self.incarnation, self.is_understood) else { return };
        let query = DesiredQuery {
            epoch: self.newest.map(|newest| newest.epoch),
            after: self.newest.map(|newest| newest.revision),
            wait: Some(TimeSpan(POLL)),
            incarnation,
            obeyed: self.obeys.as_ref().and_then(|obeys| obeys.code.clone()),
        };
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.polling = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let sent = Instant::now();
            Ok((client.desired(&id, &query).await?, sent))
        }));
    }

    fn introduced(&mut self, answer: Result<berth_wire::Version, ClientError>) -> Heard {
        let version = match answer {
            Ok(version) if version.protocol != PROTOCOL => return self.misunderstood(version.protocol),
            Ok(version) => version,
            Err(error) => return self.failed(error),
        };
        let Some(cluster) = version.cluster_id else {
            tracing::warn!("the server does not say which cluster it serves: asked again");
            self.back_off();
            return Heard::Again;
        };
        let server = Obeys::introduced(cluster, version.epoch);
        self.obeys = Some(server.clone());
        self.pause = Duration::ZERO;
        Heard::Server(server)
    }

    fn wished(&mut self, desired: Desired, sent: Instant) -> Heard {
        if desired.protocol != PROTOCOL {
            return self.misunderstood(desired.protocol);
        }
        let version = Version { cluster: desired.cluster_id, epoch: desired.epoch, revision: desired.revision };
        if self.newest.is_some_and(|newest| version.is_before(&newest)) {
            tracing::warn!(%version.epoch, %version.revision, "ignored: the server has said something newer already");
            self.back_off();
            return Heard::Overtaken;
        }
        self.newest = Some(version);
        self.pause = Duration::ZERO;
        let slots = desired.slots.into_iter().map(Into::into).collect();
        Heard::Wish(Wish { version, code: desired.code, sent, slots }, desired.requests)
    }

    fn answered(&mut self, answer: Result<ReportAnswer, ClientError>) -> Heard {
        match answer {
            Ok(answer) if answer.protocol != PROTOCOL => {
                // Its number is kept, so that it does not register anew with every report.
                self.incarnation = Some(answer.incarnation);
                self.misunderstood(answer.protocol)
            }
            Ok(answer) => {
                self.pause = Duration::ZERO;
                self.is_understood = true;
                if self.incarnation.replace(answer.incarnation) != Some(answer.incarnation) {
                    tracing::info!(incarnation = answer.incarnation.get(), cluster = %answer.cluster_id, "registered");
                }
                Heard::Answered
            }
            Err(error) => self.failed(error),
        }
    }

    /// The server speaks another protocol: nothing that it says counts.
    fn misunderstood(&mut self, theirs: u32) -> Heard {
        let upgrade = if theirs > PROTOCOL { "this agent" } else { "the server" };
        self.cannot_understand(&format!(
            "the server speaks protocol {theirs} and this agent protocol {PROTOCOL}: upgrade {upgrade}"
        ))
    }

    fn cannot_understand(&mut self, why: &str) -> Heard {
        if self.said_protocol.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            tracing::error!("{why}. Until then nothing is started or stopped for it, and slots go on as they are");
            self.said_protocol = Some(Instant::now());
        }
        self.is_understood = false;
        self.polling.take().inspect(JoinHandle::abort);
        self.back_off();
        Heard::Again
    }

    fn failed(&mut self, error: ClientError) -> Heard {
        if error.is_code(ProblemCode::ProtocolMismatch) {
            let detail = error.problem().map(|problem| problem.detail.as_str()).unwrap_or_default();
            return self.cannot_understand(&format!(
                "the server refuses this agent, which speaks protocol {PROTOCOL}, because it speaks another one: {detail}"
            ));
        }
        if error.is_code(ProblemCode::Superseded) {
            return Heard::Superseded;
        }
        if error.is_code(ProblemCode::NotRegistered)
            || error.is_code(ProblemCode::UnknownRunner)
            || error.is_code(ProblemCode::OldBoot)
        {
            // The server forgot it, or was replaced: it registers anew.
            self.incarnation = None;
            self.newest = None;
            self.polling.take().inspect(JoinHandle::abort);
        } else if error.is_status(401) || error.is_status(403) || error.is_code(ProblemCode::MachineChanged) {
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
