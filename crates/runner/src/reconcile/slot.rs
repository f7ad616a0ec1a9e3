//! The life of one slot on its machine.

use std::collections::BTreeSet;

use berth_domain::{DesiredAction, DesiredSlot, FailureReason, Generation, SlotId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Action, Health, Seen, TreeSeen, World, end};
use crate::process::ProcessId;

/// Why a slot comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The server asked for it.
    Asked,
    /// It came to a bad end.
    Failed(FailureReason),
    /// Its process ended by itself with this code: a job that is done.
    Exited(i32),
}

/// Where a slot is. Each is on the disk before it is acted upon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// About to be started. Found in a round, it is of an agent that died before it could note the process.
    Planned,
    /// Its process was started.
    Started {
        /// When.
        at: Timestamp,
        /// It answers.
        ready: bool,
    },
    /// Its tree is being ended.
    Ending {
        /// Since when.
        since: Timestamp,
        /// It was asked and did not; it is being ended by force.
        killed: bool,
        /// Why.
        why: End,
    },
    /// Nobody of its tree is left.
    TreeGone {
        /// Since when.
        since: Timestamp,
        /// Why.
        why: End,
    },
    /// Gone, and proven so. Said again until the server has heard it.
    Gone {
        /// Why.
        why: End,
        /// The server has heard why; now it hears that it is gone.
        told_why: bool,
    },
    /// Never started: there was too little memory. Proof that it holds none.
    Refused,
    /// It cannot be ended, or the driver will not let go of it.
    GivenUp,
}

/// What the agent keeps of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// As it was asked for.
    pub slot: DesiredSlot,
    /// Where it is.
    pub life: Life,
    /// The first of its processes, once it was started.
    pub process: Option<ProcessId>,
    /// The port that it was given.
    pub port: Option<u16>,
    /// Pids that its tree had: the driver must list none of them before it is gone. As of the last change of its life.
    pub pids: BTreeSet<u32>,
}

impl Kept {
    /// A slot of which there is no process yet.
    #[must_use]
    pub fn new(slot: DesiredSlot, life: Life) -> Self {
        Self { slot, life, process: None, port: None, pids: BTreeSet::new() }
    }

    /// The generation on record.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.slot.generation
    }

    /// Whether nothing of it is left that could hold memory.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.life, Life::Gone { .. } | Life::Refused)
    }

    /// Whether it is on its way to be ready: others wait for their turn on its devices.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.life, Life::Planned | Life::Started { ready: false, .. })
    }

    /// Whether nothing is about to change by itself.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self.life,
            Life::Started { ready: true, .. } | Life::Gone { told_why: true, .. } | Life::Refused | Life::GivenUp
        )
    }

    /// Whether `slot` is a newer start of this one, and this one is over.
    #[must_use]
    pub fn is_replaced_by(&self, slot: &DesiredSlot) -> bool {
        slot.generation > self.generation() && self.is_over()
    }
}

/// What a slot on record needs next, if anything.
pub(super) fn next(
    world: &World<'_>,
    kept: &Kept,
    seen: &Seen,
    wanted: Option<&DesiredSlot>,
    heard: bool,
) -> Option<Action> {
    let id = kept.slot.id;
    // Words about an older generation change nothing.
    let wanted = wanted.filter(|slot| slot.generation >= kept.generation());
    let stop = wanted.is_some_and(|slot| slot.action == DesiredAction::Stop || slot.generation > kept.generation());
    match &kept.life {
        // The server mentions a slot until it knows that it is gone.
        Life::Gone { told_why: true, .. } | Life::Refused if heard && wanted.is_none() => Some(Action::Forget(id)),
        Life::Gone { .. } | Life::Refused => None,
        _ if seen.tree == TreeSeen::Unknown => None,
        Life::Planned => planned(id, seen, stop),
        Life::Started { ready, .. } => match (&seen.tree, &seen.ended, seen.health) {
            (TreeSeen::Empty, ended, _) => {
                Some(Action::TreeGone(id, ended.unwrap_or(End::Failed(FailureReason::Crashed))))
            }
            (_, Some(why), _) => Some(Action::Term(id, *why)),
            (_, None, _) if stop => Some(Action::Term(id, End::Asked)),
            (_, None, Health::Failed(why)) => Some(Action::Term(id, End::Failed(why))),
            (_, None, Health::Ready) if !ready => Some(Action::Ready(id)),
            (_, None, _) => None,
        },
        Life::Ending { since, killed, why } => end::ending(world, id, seen, *since, *killed, *why),
        Life::TreeGone { since, why } => end::tree_gone(world, id, seen, *since, *why),
        // A device may come to its senses: what is gone after all is proven gone.
        Life::GivenUp if seen.tree == TreeSeen::Empty && seen.on_driver.is_empty() => Some(Action::Gone(id)),
        Life::GivenUp => None,
    }
}

/// On record, but no process was noted: the agent died in between. If it had started nobody, nothing has happened yet.
fn planned(id: SlotId, seen: &Seen, stop: bool) -> Option<Action> {
    match &seen.tree {
        TreeSeen::Alive(process) => Some(Action::Found(id, process.clone())),
        TreeSeen::Empty if stop => Some(Action::TreeGone(id, End::Asked)),
        TreeSeen::Empty => Some(Action::Forget(id)),
        TreeSeen::Unknown => None,
    }
}
