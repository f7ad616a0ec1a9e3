//! What slots wrote.

use std::io::IsTerminal;

use berth_client::{ClientError, TextStream, routes};
use berth_domain::{Attempt, Bytes, RunnerId, SlotId, WorkloadId};
use berth_wire::{LogQuery, ProblemCode, TimeSpan, WaitQuery, WorkloadLogQuery, WorkloadState};
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::render::look::TerminalText;
use super::super::session::Session;

/// Show what a workload or a slot wrote
///
/// Output and errors, byte by byte, from the agent that has them. Of work that runs, what its slot writes; of work that
/// ended, what its last attempt wrote; work that waits says why, and shows what its attempt before wrote. Lines that
/// begin with `[berth: ` are not the program's. A terminal is shown control characters as escapes; a file or a pipe gets
/// every byte as it is.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth logs -f 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921\n  berth logs 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921 --attempt 1\n  berth logs 018f3b1c-7c2e-7d41-0000-000000000007 --tail 4KiB"
)]
pub(crate) struct Logs {
    /// The workload, or a slot
    #[arg(value_name = "WORKLOAD|SLOT", value_parser = id)]
    id: SlotId,
    /// Go on as it is written, until the slot is gone; for work that waits, once it has a slot
    #[arg(short, long)]
    follow: bool,
    /// Begin so many bytes before the end; 1MiB unless given
    #[arg(long, value_name = "SIZE")]
    tail: Option<Bytes>,
    /// What this attempt at the workload wrote
    #[arg(long, value_name = "NUMBER", conflicts_with = "runner")]
    attempt: Option<u32>,
    /// Send control characters to the terminal as they are, colours too: the program that wrote them could change what
    /// you see
    #[arg(long)]
    raw: bool,
    /// The runner that has it, for a slot that ended before the server was started
    #[arg(long, value_name = "ID")]
    runner: Option<RunnerId>,
}

fn id(text: &str) -> Result<SlotId, String> {
    text.parse()
        .map(SlotId::new)
        .map_err(|_| format!("{text:?} is no id: `berth slots` and `berth workloads` list them"))
}

/// How long one request waits for work that waits.
const POLL: berth_domain::Span = berth_domain::Span::from_secs(30);

impl Logs {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let mut stream = self.open(session).await?;
        let is_shown = !self.raw && std::io::stdout().is_terminal();
        let mut shown = TerminalText::default();
        while let Some(piece) = stream.next().await? {
            match is_shown {
                true => session.print(&shown.push(&piece))?,
                false => session.write(&piece)?,
            }
        }
        Ok(Ended::Well)
    }

    /// A workload's log, or a slot's where there is no such workload.
    async fn open(&self, session: &Session) -> Result<TextStream, Failure> {
        if self.runner.is_some() {
            return Ok(self.of_slot(session).await?);
        }
        let workload = WorkloadId::new(self.id.uuid());
        if self.follow && self.attempt.is_none() {
            self.wait_for_slot(session, workload).await?;
        }
        let query = WorkloadLogQuery {
            follow: self.follow,
            tail_bytes: self.tail.map(Bytes::get),
            attempt: self.attempt.map(Attempt::new),
        };
        match session.client.workload_logs(workload, &query).await {
            Err(error) if error.is_code(ProblemCode::UnknownWorkload) => match self.of_slot(session).await {
                Err(error) if error.is_code(ProblemCode::UnknownSlot) => Err(self.neither(error)),
                opened => Ok(opened?),
            },
            opened => Ok(opened?),
        }
    }

    async fn of_slot(&self, session: &Session) -> Result<TextStream, ClientError> {
        let query =
            LogQuery { follow: self.follow, tail_bytes: self.tail.map(Bytes::get), runner_id: self.runner.clone() };
        session.client.slot_logs(self.id, &query).await
    }

    /// Whoever follows work that waits wants to read it once there is something to read.
    async fn wait_for_slot(&self, session: &Session, id: WorkloadId) -> Result<(), Failure> {
        let mut wait = WaitQuery::default();
        let mut is_told = false;
        loop {
            let workload = match session.client.ask(&routes::workload(id, wait)).await {
                Ok(answer) => answer.body,
                // It is the id of a slot.
                Err(error) if error.is_code(ProblemCode::UnknownWorkload) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if workload.state != WorkloadState::Queued {
                return Ok(());
            }
            if !is_told {
                let why = workload.reason.map(|reason| format!(": {}", reason.text)).unwrap_or_default();
                session.note(&format!("workload {id} waits{why}"));
                is_told = true;
            }
            wait = WaitQuery { wait: Some(TimeSpan(POLL)), after: Some(workload.revision) };
        }
    }

    fn neither(&self, error: ClientError) -> Failure {
        match error {
            ClientError::Problem(mut problem) => {
                problem.detail = format!("no workload {}, and {}", self.id, problem.detail);
                ClientError::Problem(problem).into()
            }
            error => error.into(),
        }
    }
}
