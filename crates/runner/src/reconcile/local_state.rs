//! The states of a slot on its machine, and how actions move it from one to the next.

use berth_domain::{Evidence, FailureReason, SlotEnd, Timestamp};
use serde::{Deserialize, Serialize};

use super::Action;

/// Where a slot is. Each is on the disk before it is acted upon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalState {
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
        why: SlotEnd,
        /// Whether it had answered before it was asked to end. A slot that was still loading gets a shorter grace.
        #[serde(default = "was_ready")]
        was_ready: bool,
    },
    /// Nobody of its tree is left.
    TreeGone {
        /// Since when.
        since: Timestamp,
        /// Why.
        why: SlotEnd,
    },
    /// Gone, and proven so. Said again until the server has heard it.
    Gone {
        /// How it came to its end.
        why: SlotEnd,
        /// What was seen of its end.
        evidence: Evidence,
    },
    /// Never started: there was too little memory. Proof that it holds none.
    Refused,
    /// It cannot be ended, or the driver will not let go of it.
    GivenUp,
}

/// Records of earlier agents do not say whether a slot that is being ended was ready: it then gets its whole grace.
fn was_ready() -> bool {
    true
}

impl LocalState {
    /// Returns the state of a slot once `action` is on record. Actions that do not move a slot leave it as it is.
    ///
    /// This is the only transition function: the agent and a simulator both apply it, so that what is decided and what
    /// follows from it stay in one place.
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

    /// The life of a slot whose tree is asked to end now.
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

    /// The life of a slot whose tree is ended by force. Anything that is not being ended stays as it is.
    #[must_use]
    pub fn ended_by_force(self) -> Self {
        match self {
            Self::Ending { since, why, was_ready, .. } => Self::Ending { since, killed: true, why, was_ready },
            other => other,
        }
    }
}
