//! The life of a slot.

use serde::{Deserialize, Serialize};

/// The state of a slot. Its memory is charged in each of these; a released slot is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// The slot waits for memory that is being released. The runner does not hear of it.
    Promised,
    /// The slot holds its memory and waits for its turn to start on its devices.
    Pending,
    /// The runner was told to start the slot.
    Starting,
    /// The slot serves.
    Ready,
    /// The slot serves the leases that it has and takes no new ones.
    Draining,
    /// The runner was told to stop the slot; its memory is releasing.
    Stopping,
    /// The slot failed; its memory is held until proof.
    Failed,
    /// The server does not know whether the slot exists; its memory is held until proof.
    Unknown,
}

impl SlotState {
    /// Returns the name of the state, as the API, the logs and the command line write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Promised => "promised",
            Self::Pending => "pending",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the slot serves, or will serve without a further decision.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Promised | Self::Pending | Self::Starting | Self::Ready)
    }
}

impl std::fmt::Display for SlotState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
