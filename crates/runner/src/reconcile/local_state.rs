//! The states of a slot on its machine, and how actions move it from one to the next.

use berth_domain::{Evidence, FailureReason, SlotEnd, Timestamp};
use serde::{Deserialize, Serialize};

use super::Action;

/// The state of a slot on its machine. Each state is on disk before the agent acts on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalState {
    /// The slot is about to be started. If a round finds it so, an agent died before it could note the process.
    Planned,
    /// The slot's process was started.
    Started {
        /// When the process was started.
        at: Timestamp,
        /// Whether the slot answers.
        ready: bool,
    },
    /// The slot's processes are being ended.
    Ending {
        /// When they were asked to end.
        since: Timestamp,
        /// Whether they did not end in time and are being killed.
        killed: bool,
        /// Why the slot ends.
        why: SlotEnd,
        /// Whether the slot had answered before. A slot that was still loading gets a shorter grace.
        #[serde(default = "was_ready")]
        was_ready: bool,
    },
    /// No process of the slot is left.
    TreeGone {
        /// Since when.
        since: Timestamp,
        /// Why the slot ended.
        why: SlotEnd,
    },
    /// The slot is proven gone. This is reported until the server knows it.
    Gone {
        /// Why the slot ended.
        why: SlotEnd,
        /// What was observed of its end.
        evidence: Evidence,
    },
    /// The slot was never started, because there was too little memory. It holds none.
    Refused,
    /// The slot cannot be killed, or the driver still lists it.
    GivenUp,
}

/// The default for records of earlier agents, which do not say whether a slot was ready: it then gets its whole grace.
fn was_ready() -> bool {
    true
}

impl LocalState {
    /// Returns the state of a slot once `action` is on record. Actions that do not move a slot leave it as it is.
    ///
    /// The agent and a simulator both apply this function, so that the effect of a decision is defined in one place.
    #[must_use]
    pub fn after(self, action: &Action, now: Timestamp) -> Self {
        match (action, self) {
            (Action::NoteProcess(..), _) => Self::Started { at: now, ready: false },
            (Action::Ready(_), Self::Started { at, .. }) => Self::Started { at, ready: true },
            (Action::Term(_, why), state) => state.asked_to_end(now, *why),
            (Action::Kill(_), state) => state.ended_by_force(),
            (Action::TreeGone(_, why), _) => Self::TreeGone { since: now, why: *why },
            (Action::Gone(_, evidence), Self::TreeGone { why, .. } | Self::Ending { why, .. }) => {
                Self::Gone { why, evidence: *evidence }
            }
            (Action::Gone(_, evidence), _) => {
                Self::Gone { why: SlotEnd::Failed(FailureReason::Unkillable), evidence: *evidence }
            }
            (Action::GiveUp(_), _) => Self::GivenUp,
            (
                Action::Ready(_)
                | Action::Start(_)
                | Action::Refuse(_)
                | Action::Search(_)
                | Action::Adopt(_)
                | Action::RecordAbsence(_)
                | Action::NoteDoubt(..)
                | Action::CompleteRecord(_)
                | Action::Forget(_),
                state,
            ) => state,
        }
    }

    /// Returns the state of a slot whose processes are asked to end now.
    #[must_use]
    pub fn asked_to_end(&self, now: Timestamp, why: SlotEnd) -> Self {
        let was_ready = match self {
            Self::Started { ready, .. } => *ready,
            Self::Ending { was_ready, .. } => *was_ready,
            Self::Planned => false,
            Self::TreeGone { .. } | Self::Gone { .. } | Self::Refused | Self::GivenUp => true,
        };
        Self::Ending { since: now, killed: false, why, was_ready }
    }

    /// Returns the state of a slot whose processes are killed. A slot that is not being ended keeps its state.
    #[must_use]
    pub fn ended_by_force(self) -> Self {
        match self {
            Self::Ending { since, why, was_ready, .. } => Self::Ending { since, killed: true, why, was_ready },
            other => other,
        }
    }
}
