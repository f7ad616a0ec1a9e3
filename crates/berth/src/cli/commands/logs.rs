//! What slots wrote.

use berth_client::{ClientError, TextStream};
use berth_domain::{Bytes, RunnerId, SlotId, WorkloadId};
use berth_wire::{LogQuery, WaitQuery};
use clap::Args;

use super::super::failure::{Ended, Failure};
use super::super::session::Session;

/// Show what a slot wrote
///
/// Its output and its errors, byte by byte, from the agent that has them: for as long as the slot lives, and for a while
/// after it failed or ended.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  berth logs 018f3b1c-7c2e-7d41-0000-000000000007 --tail 4KiB\n  berth logs -f 01932c07-3a5b-7cc2-b7d1-58a1f7f4a921"
)]
pub(crate) struct Logs {
    /// The slot, or a workload that has one
    #[arg(value_name = "SLOT", value_parser = id)]
    id: SlotId,
    /// Go on as it is written, until the slot is gone
    #[arg(short, long)]
    follow: bool,
    /// Begin so many bytes before the end; 1MiB unless given
    #[arg(long, value_name = "SIZE")]
    tail: Option<Bytes>,
    /// The runner that has it, for a slot that ended before the server was started
    #[arg(long, value_name = "ID")]
    runner: Option<RunnerId>,
}

fn id(text: &str) -> Result<SlotId, String> {
    text.parse()
        .map(SlotId::new)
        .map_err(|_| format!("{text:?} is no id: `berth slots` and `berth workloads` list them"))
}

impl Logs {
    pub(crate) async fn run(self, session: &Session) -> Result<Ended, Failure> {
        let mut stream = self.open(session).await?;
        while let Some(piece) = stream.next().await? {
            session.write(&piece)?;
        }
        Ok(Ended::Well)
    }

    async fn open(&self, session: &Session) -> Result<TextStream, Failure> {
        let query =
            LogQuery { follow: self.follow, tail_bytes: self.tail.map(Bytes::get), runner_id: self.runner.clone() };
        let client = &session.client;
        let unknown = match client.slot_logs(self.id, &query).await {
            Err(error) if error.is_code("unknown_slot") => error,
            opened => return Ok(opened?),
        };
        match client.workload(WorkloadId::new(self.id.uuid()), WaitQuery::default()).await {
            Ok(workload) => {
                let slot = workload.slot.ok_or_else(|| {
                    let id = self.id;
                    Failure::Failed(format!("workload {id} has no slot: `berth explain {id}` says where it is"))
                })?;
                Ok(client.slot_logs(slot.id, &query).await?)
            }
            Err(ClientError::Problem(_)) => Err(unknown.into()),
            Err(error) => Err(error.into()),
        }
    }
}
