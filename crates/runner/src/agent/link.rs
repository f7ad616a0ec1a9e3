//! The connection to the server: one report at a time, and one long poll. Neither delays a round.
//!
//! A server with another protocol version might mean something else by its answers. So the agent ignores them: it logs
//! what has to be upgraded, leaves its slots as they are, and asks again later.

use std::time::{Duration, Instant};

use berth_client::{Client, ClientError};
use berth_domain::{Incarnation, RunnerId};
use berth_wire::{AgentRequest, Desired, DesiredQuery, PROTOCOL, ProblemCode, ReportAnswer, ReportRequest, TimeSpan};
use tokio::task::JoinHandle;

use crate::reconcile::{DesiredState, Version};
use crate::record::ClusterBinding;

/// How long a poll waits for a change.
const POLL: berth_domain::Span = berth_domain::Span::from_secs(25);
/// The pause after a failed request, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often the log says that the server has another protocol.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A message of the server.
pub(super) enum ServerMessage {
    /// The cluster of the server.
    ClusterKnown(ClusterBinding),
    /// The server accepted a report.
    ReportAccepted,
    /// The desired state, and the server's requests.
    Desired(DesiredState, Vec<AgentRequest>),
    /// A desired state that is older than one that arrived before.
    OutdatedDesired,
    /// A newer agent has this runner id.
    Superseded,
    /// The server refuses the agent.
    Refused(Box<ClientError>),
    /// A request failed, and has to be repeated.
    RequestFailed,
}

type VersionTask = JoinHandle<Result<berth_wire::Version, ClientError>>;
type ReportTask = JoinHandle<Result<ReportAnswer, ClientError>>;
/// The desired state, and when it was requested.
type PollTask = JoinHandle<Result<(Desired, Instant), ClientError>>;

/// The connection to the server.
pub(super) struct ServerLink {
    client: Client,
    id: RunnerId,
    incarnation: Option<Incarnation>,
    sequence: u64,
    /// The newest desired state since the agent registered.
    newest: Option<Version>,
    asking: Option<VersionTask>,
    reporting: Option<ReportTask>,
    polling: Option<PollTask>,
    pause: Duration,
    binding: Option<ClusterBinding>,
    /// The last report was answered in the agent's protocol: the desired state may be polled.
    is_protocol_agreed: bool,
    /// When the log last said that the server has another protocol.
    warned_of_protocol: Option<Instant>,
}

impl ServerLink {
    pub(super) fn new(client: Client, id: RunnerId, binding: Option<ClusterBinding>) -> Self {
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
            binding,
            is_protocol_agreed: false,
            warned_of_protocol: None,
        }
    }

    /// Sets the binding, which the server is shown from now on.
    pub(super) fn set_binding(&mut self, binding: Option<ClusterBinding>) {
        self.binding = binding;
    }

    /// Returns whether a report is under way, or the question for the cluster.
    pub(super) fn is_sending(&self) -> bool {
        self.reporting.is_some() || self.asking.is_some()
    }

    /// Asks for the server's cluster: an agent without a binding needs it to know which slots are its own.
    pub(super) fn ask_for_cluster(&mut self) {
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
        report.cluster_id = self.binding.as_ref().map(|binding| binding.cluster);
        report.obeyed = self.binding.as_ref().and_then(|binding| binding.code.clone());
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.reporting = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.report(&id, &report).await
        }));
    }

    /// Waits for the next message of the server. Waits for ever if no request is under way.
    pub(super) async fn next_message(&mut self) -> ServerMessage {
        self.start_poll();
        tokio::select! {
            done = finished(&mut self.asking) => match done {
                Some(answer) => self.handle_version(answer),
                None => ServerMessage::RequestFailed,
            },
            done = finished(&mut self.reporting) => match done {
                Some(answer) => self.handle_report_answer(answer),
                None => ServerMessage::RequestFailed,
            },
            done = finished(&mut self.polling) => match done {
                Some(Ok((desired, sent))) => self.handle_desired(desired, sent),
                Some(Err(error)) => self.handle_error(error),
                None => ServerMessage::RequestFailed,
            },
        }
    }

    fn start_poll(&mut self) {
        let (None, Some(incarnation), true) = (&self.polling, self.incarnation, self.is_protocol_agreed) else {
            return;
        };
        let query = DesiredQuery {
            epoch: self.newest.map(|newest| newest.epoch),
            after: self.newest.map(|newest| newest.revision),
            wait: Some(TimeSpan(POLL)),
            incarnation,
            obeyed: self.binding.as_ref().and_then(|binding| binding.code.clone()),
        };
        let (client, id, pause) = (self.client.clone(), self.id.clone(), self.pause);
        self.polling = Some(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let sent = Instant::now();
            Ok((client.desired(&id, &query).await?, sent))
        }));
    }

    fn handle_version(&mut self, answer: Result<berth_wire::Version, ClientError>) -> ServerMessage {
        let version = match answer {
            Ok(version) if version.protocol != PROTOCOL => return self.handle_protocol_mismatch(version.protocol),
            Ok(version) => version,
            Err(error) => return self.handle_error(error),
        };
        let Some(cluster) = version.cluster_id else {
            tracing::warn!("the server does not say which cluster it serves: asked again");
            self.back_off();
            return ServerMessage::RequestFailed;
        };
        let server = ClusterBinding::without_answer(cluster, version.epoch);
        self.binding = Some(server.clone());
        self.pause = Duration::ZERO;
        ServerMessage::ClusterKnown(server)
    }

    fn handle_desired(&mut self, desired: Desired, sent: Instant) -> ServerMessage {
        if desired.protocol != PROTOCOL {
            return self.handle_protocol_mismatch(desired.protocol);
        }
        let version = Version { cluster: desired.cluster_id, epoch: desired.epoch, revision: desired.revision };
        if self.newest.is_some_and(|newest| version.is_before(&newest)) {
            tracing::warn!(%version.epoch, %version.revision, "ignored: the server has said something newer already");
            self.back_off();
            return ServerMessage::OutdatedDesired;
        }
        self.newest = Some(version);
        self.pause = Duration::ZERO;
        let slots = desired.slots.into_iter().map(Into::into).collect();
        ServerMessage::Desired(DesiredState { version, code: desired.code, sent, slots }, desired.requests)
    }

    fn handle_report_answer(&mut self, answer: Result<ReportAnswer, ClientError>) -> ServerMessage {
        match answer {
            Ok(answer) if answer.protocol != PROTOCOL => {
                // The incarnation is kept, so that the agent does not register again with each report.
                self.incarnation = Some(answer.incarnation);
                self.handle_protocol_mismatch(answer.protocol)
            }
            Ok(answer) => {
                self.pause = Duration::ZERO;
                self.is_protocol_agreed = true;
                if self.incarnation.replace(answer.incarnation) != Some(answer.incarnation) {
                    tracing::info!(incarnation = answer.incarnation.get(), cluster = %answer.cluster_id, "registered");
                }
                ServerMessage::ReportAccepted
            }
            Err(error) => self.handle_error(error),
        }
    }

    /// Handles a server of another protocol: its answers are ignored.
    fn handle_protocol_mismatch(&mut self, theirs: u32) -> ServerMessage {
        let upgrade = if theirs > PROTOCOL { "this agent" } else { "the server" };
        self.suspend(&format!(
            "the server speaks protocol {theirs} and this agent protocol {PROTOCOL}: upgrade {upgrade}"
        ))
    }

    fn suspend(&mut self, why: &str) -> ServerMessage {
        if self.warned_of_protocol.is_none_or(|said| said.elapsed() >= WARN_EVERY) {
            tracing::error!("{why}. Until then nothing is started or stopped for it, and slots go on as they are");
            self.warned_of_protocol = Some(Instant::now());
        }
        self.is_protocol_agreed = false;
        self.polling.take().inspect(JoinHandle::abort);
        self.back_off();
        ServerMessage::RequestFailed
    }

    fn handle_error(&mut self, error: ClientError) -> ServerMessage {
        if error.is_code(ProblemCode::ProtocolMismatch) {
            let detail = error.problem().map(|problem| problem.detail.as_str()).unwrap_or_default();
            return self.suspend(&format!(
                "the server refuses this agent, which speaks protocol {PROTOCOL}, because it speaks another one: {detail}"
            ));
        }
        if error.is_code(ProblemCode::Superseded) {
            return ServerMessage::Superseded;
        }
        if error.is_code(ProblemCode::NotRegistered)
            || error.is_code(ProblemCode::UnknownRunner)
            || error.is_code(ProblemCode::OldBoot)
        {
            // The server forgot the agent, or was replaced: the agent registers again.
            self.incarnation = None;
            self.newest = None;
            self.polling.take().inspect(JoinHandle::abort);
        } else if error.is_status(401) || error.is_status(403) || error.is_code(ProblemCode::MachineChanged) {
            return ServerMessage::Refused(Box::new(error));
        }
        self.back_off();
        if self.pause >= Duration::from_secs(1) {
            tracing::warn!(%error, "the server cannot be reached; slots go on as they are");
        }
        ServerMessage::RequestFailed
    }

    fn back_off(&mut self) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
    }
}

/// Waits for a task, if there is one, and removes it.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    let Some(running) = task else { return std::future::pending().await };
    let done = running.await.ok();
    *task = None;
    done
}
