//! Ids and counters. Each is its own type, so that a revision cannot be taken for a generation.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID.
            #[must_use]
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a number.
            #[must_use]
            pub const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// Returns the plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// Returns the number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

uuid_id! {
    /// The identity of one data directory. A server with another cluster id is another server.
    ClusterId
}
uuid_id! {
    /// The id of a slot. It is made of the cluster's id and a number, so it is unique across clusters without
    /// randomness.
    SlotId
}
uuid_id! {
    /// The id of a workload. The sender of the submit command chooses it.
    WorkloadId
}

impl SlotId {
    /// Makes the id of the `number`-th slot of a cluster: the first half of the cluster's id, then the number.
    #[must_use]
    pub const fn numbered(cluster: ClusterId, number: u64) -> Self {
        let (cluster_half, _) = cluster.0.as_u64_pair();
        Self(Uuid::from_u64_pair(cluster_half, number))
    }

    /// Returns whether this is a slot of the cluster.
    #[must_use]
    pub const fn is_of(self, cluster: ClusterId) -> bool {
        self.0.as_u64_pair().0 == cluster.0.as_u64_pair().0
    }

    /// Returns the number of the slot in its cluster.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.as_u64_pair().1
    }
}

counter! {
    /// The number of the last event in the journal.
    Revision(u64)
}
counter! {
    /// The number of a decision.
    DecisionId(u64)
}
counter! {
    /// One start of the server on its data directory.
    Epoch(u64)
}
counter! {
    /// One start of an agent, numbered by the server as it registers.
    Incarnation(u64)
}
counter! {
    /// The order of an agent's reports within one incarnation.
    Sequence(u64)
}
counter! {
    /// How often a slot was started anew in its place. Reports about an older generation change nothing.
    Generation(u32)
}
counter! {
    /// Which try at a workload this is, from 1. Heartbeats and completions name it.
    Attempt(u32)
}
counter! {
    /// Which version of a catalogue entry this is, from 1.
    ModelRevision(u32)
}
counter! {
    /// A number of GPUs.
    GpuCount(u16)
}

/// The priority of work. Work of a higher priority goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(i32);

impl Priority {
    /// Wraps a number.
    #[must_use]
    pub const fn new(priority: i32) -> Self {
        Self(priority)
    }

    /// Returns the plain number.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
