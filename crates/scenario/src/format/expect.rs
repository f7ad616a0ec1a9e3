//! What may be expected. What is not mentioned is not looked at.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::{Bytes, DeviceUuid, MachineId, ModelName, RunnerId, WorkloadKind};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A size, exact to the byte. A list is the sum of its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) Bytes);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sum;
        impl<'de> Visitor<'de> for Sum {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes, a text such as \"39GiB\", or a list of them to be added up")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Size, E> {
                u64::try_from(value).map(|bytes| Size(Bytes::new(bytes))).map_err(E::custom)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map(Size).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Size, A::Error> {
                let mut sum = Bytes::ZERO;
                while let Some(Size(part)) = list.next_element()? {
                    sum = sum.saturating_add(part);
                }
                Ok(Size(sum))
            }
        }
        deserializer.deserialize_any(Sum)
    }
}

/// What must be true.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expect {
    pub(crate) workloads: BTreeMap<String, WorkloadExpect>,
    pub(crate) devices: BTreeMap<DeviceUuid, DeviceExpect>,
    pub(crate) hosts: BTreeMap<MachineId, HostExpect>,
    pub(crate) slots: Vec<SlotExpect>,
    pub(crate) models: BTreeMap<ModelName, ModelExpect>,
    pub(crate) runners: BTreeMap<RunnerId, RunnerExpect>,
    /// All that wait, first in order first.
    pub(crate) queue: Option<Vec<String>>,
    pub(crate) queue_length: Option<usize>,
    /// How many workloads are in each state.
    pub(crate) states: BTreeMap<String, usize>,
    /// How many devices there are.
    pub(crate) device_count: Option<usize>,
    /// How many slots were evicted since the start.
    pub(crate) evictions: Option<u64>,
    /// What each runner is asked: `"run MODEL"` and `"stop MODEL"`, all of it.
    pub(crate) desired: BTreeMap<RunnerId, Vec<String>>,
    /// Models of slots that each runner is asked to account for, all of them.
    pub(crate) accounts: BTreeMap<RunnerId, Vec<String>>,
    pub(crate) decision: Option<ReportExpect>,
    pub(crate) explain: Option<ReportExpect>,
    pub(crate) fit: Option<ReportExpect>,
}

/// A workload.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkloadExpect {
    pub(crate) state: Option<String>,
    pub(crate) on: Option<Vec<String>>,
    pub(crate) memory: Option<BTreeMap<DeviceUuid, Size>>,
    pub(crate) runner: Option<String>,
    pub(crate) slot_state: Option<String>,
    pub(crate) same_slot_as: Option<String>,
    pub(crate) position: Option<usize>,
    pub(crate) waits: Option<String>,
    pub(crate) cause: Option<String>,
    pub(crate) attempt: Option<u32>,
    pub(crate) reserved: Option<Vec<String>>,
    pub(crate) may_run_twice: Option<bool>,
}

/// A device's ledger.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeviceExpect {
    pub(crate) known: Option<bool>,
    pub(crate) capacity: Option<Size>,
    pub(crate) held: Option<Size>,
    pub(crate) releasing: Option<Size>,
    pub(crate) promised: Option<Size>,
    pub(crate) foreign: Option<Size>,
    pub(crate) free: Option<Size>,
    pub(crate) closed: Option<String>,
    pub(crate) overcommitted: Option<bool>,
    pub(crate) sizes_differ: Option<bool>,
    pub(crate) attributed: Option<bool>,
    pub(crate) claims: Option<usize>,
    pub(crate) replicas: Option<u16>,
    pub(crate) runners: Option<Vec<String>>,
}

/// A machine's ledgers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostExpect {
    pub(crate) cpu_capacity: Option<u64>,
    pub(crate) cpu_held: Option<u64>,
    pub(crate) cpu_releasing: Option<u64>,
    pub(crate) cpu_promised: Option<u64>,
    pub(crate) cpu_free: Option<u64>,
    pub(crate) ram_capacity: Option<Size>,
    pub(crate) ram_held: Option<Size>,
    pub(crate) ram_releasing: Option<Size>,
    pub(crate) ram_promised: Option<Size>,
    pub(crate) ram_free: Option<Size>,
}

/// How many slots there are of a kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SlotExpect {
    pub(crate) model: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) runner: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) revision: Option<u32>,
    pub(crate) generation: Option<u32>,
    pub(crate) active: Option<u32>,
    pub(crate) stop_reason: Option<String>,
    pub(crate) stalled: Option<bool>,
    /// Not made by the server.
    pub(crate) stray: Option<bool>,
    /// One, unless it says otherwise.
    pub(crate) count: Option<usize>,
}

/// A model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelExpect {
    pub(crate) known: Option<bool>,
    pub(crate) live: Option<u32>,
    pub(crate) waiting: Option<usize>,
    pub(crate) evictions: Option<u64>,
    pub(crate) revision: Option<u32>,
    pub(crate) deleted: Option<bool>,
    /// What is known of its memory, by GPU count.
    pub(crate) memory: BTreeMap<String, MemoryExpect>,
}

/// What one GPU count of a model is charged beside what its slots use; sizes are sums over its GPUs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MemoryExpect {
    pub(crate) charged: Option<Size>,
    pub(crate) corrected: Option<String>,
    pub(crate) peak: Option<Size>,
    pub(crate) verdict: Option<String>,
    pub(crate) offered: Option<Size>,
}

/// A runner.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunnerExpect {
    pub(crate) known: Option<bool>,
    pub(crate) liveness: Option<String>,
    pub(crate) admission: Option<String>,
    pub(crate) reported: Option<bool>,
    pub(crate) incarnation: Option<u64>,
    pub(crate) devices: Option<Vec<String>>,
    pub(crate) disputed: Option<Vec<String>>,
    pub(crate) slots: Option<usize>,
}

/// A decision, an explanation or a dry run: all are the same kind of report.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReportExpect {
    /// The workload whose it is; for `fit`, see `model`.
    pub(crate) workload: Option<String>,
    /// The model that is tried, for `fit`.
    pub(crate) model: Option<ModelName>,
    /// The kind of workload that is tried, for `fit`.
    pub(crate) kind: WorkloadKind,
    pub(crate) outcome: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) runner: Option<String>,
    pub(crate) on: Option<Vec<String>>,
    pub(crate) gpu_counts: Option<BTreeMap<String, String>>,
    pub(crate) devices: BTreeMap<DeviceUuid, RowExpect>,
    /// Models of the slots that go for it.
    pub(crate) evictions: Option<Vec<String>>,
    /// Runners that were not used, by reason: all of them.
    pub(crate) excluded: Option<BTreeMap<String, u32>>,
    pub(crate) runners: Option<u32>,
    pub(crate) examined_at_most: Option<u32>,
    /// Parts of its text.
    pub(crate) text: Vec<String>,
}

/// One device's row of a report.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RowExpect {
    pub(crate) verdict: Option<String>,
    pub(crate) capacity: Option<Size>,
    pub(crate) held: Option<Size>,
    pub(crate) releasing: Option<Size>,
    pub(crate) promised: Option<Size>,
    pub(crate) foreign: Option<Size>,
    pub(crate) free: Option<Size>,
    pub(crate) needed: Option<Size>,
    pub(crate) missing: Option<Size>,
    pub(crate) after_held: Option<Size>,
    pub(crate) after_promised: Option<Size>,
    pub(crate) after_free: Option<Size>,
}
