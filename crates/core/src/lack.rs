//! What the fleet lacks for work that it can never run, as data. The text is made in `explain`.

use berth_domain::{
    Bytes, DeviceUuid, GpuCount, GpuMemory, GpuName, LabelKey, LabelValue, Millicores, PoolName, RunnerId, RuntimeName,
    WorkloadKind,
};

use crate::reason::Exclusion;

/// One thing that work asks for and no runner has, with what runners have instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Nobody knows how much memory it needs.
    KnownMemory,
    /// A runner in its pool.
    Pool {
        /// The pool that it asks for.
        wanted: PoolName,
        /// The pools that there are.
        there: Offers<PoolName>,
    },
    /// A runner with one of its labels.
    Label {
        /// The label's key.
        key: LabelKey,
        /// The value that it asks for.
        wanted: LabelValue,
        /// The values that runners have for the key.
        there: Offers<LabelValue>,
    },
    /// A runner with its runtime.
    Runtime {
        /// The runtime that it asks for.
        wanted: RuntimeName,
        /// The runtimes that runners have.
        there: Offers<RuntimeName>,
    },
    /// A runner whose runtime is for this kind of work.
    RuntimeKind {
        /// The runtime.
        runtime: RuntimeName,
        /// The kind of the work.
        kind: WorkloadKind,
        /// How many runners have the runtime for the other kind.
        runners: u32,
    },
    /// A runner with a GPU of one of its names.
    GpuName {
        /// The names that it asks for.
        wanted: Vec<GpuName>,
        /// The names that there are.
        there: Offers<GpuName>,
    },
    /// A runner with one of the GPUs that it is pinned to.
    GpuUuid {
        /// The GPUs that it is pinned to.
        wanted: Vec<DeviceUuid>,
        /// Those that are on runners that it may not use.
        elsewhere: Vec<PinnedElsewhere>,
    },
    /// A runner that is large enough.
    Size {
        /// The GPU count that comes nearest.
        count: GpuCount,
        /// How many GPU counts the model allows.
        choices: usize,
        /// What is too small.
        what: TooSmall,
    },
}

impl Lack {
    /// The stable word for what is lacking.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::KnownMemory => "known_memory",
            Self::Pool { .. } => "pool",
            Self::Label { .. } => "label",
            Self::Runtime { .. } => "runtime",
            Self::RuntimeKind { .. } => "runtime_kind",
            Self::GpuName { .. } => "gpu_name",
            Self::GpuUuid { .. } => "gpu_uuid",
            Self::Size { what, .. } => what.code(),
        }
    }
}

/// What runners have instead of what is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers<N> {
    /// Names with the number of runners that have each, the most common first.
    pub names: Vec<(N, u32)>,
    /// How many names were left out to keep the list short.
    pub left_out: usize,
    /// How many runners were looked at: all of them, or those that have everything else so far.
    pub among: u32,
    /// How many runners have what is asked for, but not all the rest, by what excludes them.
    pub elsewhere: Vec<(Exclusion, u32)>,
}

/// A GPU that work is pinned to, on a runner that it may not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedElsewhere {
    /// Which GPU.
    pub uuid: DeviceUuid,
    /// The runner that has it.
    pub runner: RunnerId,
    /// What excludes the runner.
    pub excluded_by: Exclusion,
}

/// Why no runner could hold a slot on some number of GPUs, even if the runner were empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TooSmall {
    /// No runner has so many GPUs that may be used.
    #[strum(serialize = "gpu_count")]
    Gpus {
        /// The most that one runner has.
        most: u16,
        /// Not every GPU may be used: the model names some.
        restricted: bool,
    },
    /// A GPU must give more than the best runner has on it.
    #[strum(serialize = "gpu_memory")]
    Memory {
        /// What it must give.
        needed: GpuMemory,
        /// How many GPUs of the slot must give as much.
        ranks: u16,
        /// What the best runner has there.
        largest: Bytes,
        /// Not every GPU may be used: the model names some.
        restricted: bool,
    },
    /// No machine has so much CPU.
    Cpu {
        /// What a slot needs.
        needed: Millicores,
        /// The most that a machine has.
        largest: Millicores,
    },
    /// No machine has so much RAM.
    Ram {
        /// What a slot needs.
        needed: Bytes,
        /// The most that a machine has.
        largest: Bytes,
    },
    /// Some runner has each part of it, and none has all parts.
    #[strum(serialize = "one_runner")]
    Together,
}

impl TooSmall {
    /// The stable word.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.into()
    }
}
