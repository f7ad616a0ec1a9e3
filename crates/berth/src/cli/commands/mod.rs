//! Commands, a file for each kind of thing that they are about.

pub(super) mod admin;
pub(super) mod backup;
pub(super) mod chat;
pub(super) mod fleet;
pub(super) mod history;
pub(super) mod join_token;
pub(super) mod logs;
pub(super) mod machines;
pub(super) mod models;
pub(super) mod scheduler;
mod secret_file;
pub(super) mod token;
mod unsettled;
pub(super) mod work;

use berth_domain::{SlotId, WorkloadId};

/// A workload's id, as it is printed.
fn workload_id(text: &str) -> Result<WorkloadId, String> {
    text.parse()
        .map(WorkloadId::new)
        .map_err(|_| format!("{text:?} is no id of a workload: `berth workloads` lists them"))
}

/// A slot's id, as it is printed.
fn slot_id(text: &str) -> Result<SlotId, String> {
    text.parse().map(SlotId::new).map_err(|_| format!("{text:?} is no id of a slot: `berth slots` lists them"))
}
