//! The life of one slot on its machine.

use berth_domain::{DesiredAction, DesiredSlot, FailureReason, Generation, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Action, Health, Seen, World, end};
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
    /// About to be started, or started by an agent that died before it could note the process.
    Planned,
    /// Its process was started.
    Started {
        /// The first of its processes.
        process: ProcessId,
        /// The port that it was given.
        port: Option<u16>,
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
}

impl Kept {
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
        Life::Planned => end::planned(kept, seen, stop),
        Life::Started { ready, .. } => match (&seen.ended, seen.health) {
            _ if seen.tree.is_empty() => {
                Some(Action::TreeGone(id, seen.ended.unwrap_or(End::Failed(FailureReason::Crashed))))
            }
            (Some(why), _) => Some(Action::Term(id, *why)),
            (None, _) if stop => Some(Action::Term(id, End::Asked)),
            (None, Health::Failed(why)) => Some(Action::Term(id, End::Failed(why))),
            (None, Health::Ready) if !ready => Some(Action::Ready(id)),
            (None, _) => None,
        },
        Life::Ending { since, killed, why } => end::ending(world, id, seen, *since, *killed, *why),
        Life::TreeGone { since, .. } => end::tree_gone(world, kept, seen, *since),
        // The server mentions a slot until it knows that it is gone.
        Life::Gone { told_why: true, .. } | Life::Refused if heard && wanted.is_none() => Some(Action::Forget(id)),
        Life::Gone { .. } | Life::Refused => None,
        // A device may come to its senses: what is gone after all is proven gone.
        Life::GivenUp if seen.tree.is_empty() && seen.on_driver.is_empty() => Some(Action::Gone(id)),
        Life::GivenUp => None,
    }
}
