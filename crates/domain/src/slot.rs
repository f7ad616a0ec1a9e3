//! The life of a slot.

use serde::{Deserialize, Serialize};

/// Where a slot is in its life. Its memory is charged in every one of these; a released slot is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// Waits for memory that is being released. The runner does not hear of it.
    Promised,
    /// Holds its memory and waits for its turn to start on its devices.
    Pending,
    /// The runner was told to start it.
    Starting,
    /// Serves.
    Ready,
    /// Serves what it has, takes nothing new.
    Draining,
    /// The runner was told to stop it; its memory is releasing.
    Stopping,
    /// Came to a bad end; its memory is held until proof.
    Failed,
    /// Nobody can say; its memory is held until proof.
    Unknown,
}

impl SlotState {
    /// The word used everywhere.
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

    /// Whether the slot serves or will serve without anyone doing more about it.
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
