//! What may be expected. What is not mentioned is not looked at.

use std::collections::BTreeMap;

use berth_domain::{DeviceUuid, MachineId, ModelName, RunnerId, WorkloadKind};
use serde::Deserialize;

use super::duration::SpanText;
use super::values::{Name, NameList, NameSet, Size, Word};
use super::wanted::Wanted;
use crate::vocabulary::{
    AdmissionWords, CausesOrNone, ClosedReasonsOrNo, CorrectionsOrNo, CountVerdicts, DeviceVerdicts, Exclusions,
    LivenessWords, MemoryVerdicts, OutcomeCodes, Outcomes, SlotStates, SlotStatesOrNone, StopReasons, WaitReasonsOrNo,
    WorkloadStates, WorkloadStatesAndForgotten,
};

/// A table of expectations.
pub(crate) trait Expectations {
    /// The keys that the file has here.
    fn keys(&self) -> Vec<&'static str>;
}

/// Makes a table of expectations, each of which may be left out.
macro_rules! expectation {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: Option<$kind>,)+
        }

        impl Expectations for $name {
            fn keys(&self) -> Vec<&'static str> {
                let keys = [$((stringify!($field), self.$field.is_some())),+];
                keys.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect()
            }
        }
    };
}

expectation! {
    /// What must be true.
    Expect {
        workloads: BTreeMap<String, WorkloadExpect>,
        devices: BTreeMap<DeviceUuid, DeviceExpect>,
        hosts: BTreeMap<MachineId, HostExpect>,
        slots: Vec<SlotExpect>,
        models: BTreeMap<ModelName, ModelExpect>,
        runners: BTreeMap<RunnerId, RunnerExpect>,
        /// All that wait, first in order first.
        queue: Wanted<NameList>,
        queue_length: Wanted<u64>,
        /// How many workloads are in each state.
        states: BTreeMap<Word<WorkloadStates>, Wanted<u64>>,
        /// How many devices there are.
        device_count: Wanted<u64>,
        /// How many slots were evicted since the start.
        evictions: Wanted<u64>,
        /// What each runner is asked: `"run MODEL"` and `"stop MODEL"`, all of it.
        desired: BTreeMap<RunnerId, Wanted<NameSet>>,
        /// Models of slots that each runner is asked to account for, all of them.
        accounts: BTreeMap<RunnerId, Wanted<NameSet>>,
        decision: ReportExpect,
        explain: ReportExpect,
        fit: ReportExpect,
    }
}

expectation! {
    /// A workload.
    WorkloadExpect {
        state: Wanted<Word<WorkloadStatesAndForgotten>>,
        on: Wanted<NameSet>,
        memory: BTreeMap<DeviceUuid, Wanted<Size>>,
        runner: Wanted<Name>,
        slot_state: Wanted<Word<SlotStatesOrNone>>,
        same_slot_as: String,
        position: Wanted<u64>,
        waits: Wanted<Word<WaitReasonsOrNo>>,
        /// How long it waited for its memory so far, over all attempts.
        waited: Wanted<SpanText>,
        cause: Wanted<Word<CausesOrNone>>,
        attempt: Wanted<u64>,
        reserved: Wanted<NameSet>,
        may_run_twice: bool,
    }
}

expectation! {
    /// A device's ledger.
    DeviceExpect {
        known: bool,
        capacity: Wanted<Size>,
        held: Wanted<Size>,
        releasing: Wanted<Size>,
        promised: Wanted<Size>,
        foreign: Wanted<Size>,
        free: Wanted<Size>,
        closed: Wanted<Word<ClosedReasonsOrNo>>,
        overcommitted: bool,
        sizes_differ: bool,
        attributed: bool,
        claims: Wanted<u64>,
        replicas: Wanted<u64>,
        runners: Wanted<NameSet>,
    }
}

expectation! {
    /// A machine's ledgers.
    HostExpect {
        cpu_capacity: Wanted<u64>,
        cpu_held: Wanted<u64>,
        cpu_releasing: Wanted<u64>,
        cpu_promised: Wanted<u64>,
        cpu_free: Wanted<u64>,
        ram_capacity: Wanted<Size>,
        ram_held: Wanted<Size>,
        ram_releasing: Wanted<Size>,
        ram_promised: Wanted<Size>,
        ram_free: Wanted<Size>,
    }
}

expectation! {
    /// How many slots there are of a kind.
    SlotExpect {
        model: Wanted<Name>,
        state: Wanted<Word<SlotStates>>,
        runner: Wanted<Name>,
        device: Wanted<Name>,
        revision: Wanted<u64>,
        generation: Wanted<u64>,
        active: Wanted<u64>,
        stop_reason: Wanted<Word<StopReasons>>,
        stalled: bool,
        /// Not made by the server.
        stray: bool,
        /// One, unless it says otherwise.
        count: Wanted<u64>,
    }
}

expectation! {
    /// A model.
    ModelExpect {
        known: bool,
        live: Wanted<u64>,
        waiting: Wanted<u64>,
        evictions: Wanted<u64>,
        revision: Wanted<u64>,
        deleted: bool,
        /// What is known of its memory, by GPU count.
        memory: BTreeMap<String, MemoryExpect>,
    }
}

expectation! {
    /// What one GPU count of a model is charged beside what its slots use; sizes are sums over its GPUs.
    MemoryExpect {
        charged: Wanted<Size>,
        corrected: Wanted<Word<CorrectionsOrNo>>,
        peak: Wanted<Size>,
        verdict: Wanted<Word<MemoryVerdicts>>,
        offered: Wanted<Size>,
    }
}

expectation! {
    /// A runner.
    RunnerExpect {
        known: bool,
        liveness: Wanted<Word<LivenessWords>>,
        admission: Wanted<Word<AdmissionWords>>,
        reported: bool,
        incarnation: Wanted<u64>,
        devices: Wanted<NameSet>,
        disputed: Wanted<NameSet>,
        slots: Wanted<u64>,
    }
}

expectation! {
    /// A decision, an explanation or a dry run: all are the same kind of report.
    ReportExpect {
        /// The workload whose it is; for `fit`, see `model`.
        workload: String,
        /// The model that is tried, for `fit`.
        model: ModelName,
        /// The kind of workload that is tried, for `fit`.
        kind: WorkloadKind,
        outcome: Wanted<Word<Outcomes>>,
        code: Wanted<Word<OutcomeCodes>>,
        runner: Wanted<Name>,
        on: Wanted<NameSet>,
        gpu_counts: BTreeMap<String, Wanted<Word<CountVerdicts>>>,
        devices: BTreeMap<DeviceUuid, RowExpect>,
        /// Models of the slots that go for it.
        evictions: Wanted<NameSet>,
        /// Runners that were not used, by reason: all of them.
        excluded: BTreeMap<Word<Exclusions>, Wanted<u64>>,
        runners: Wanted<u64>,
        examined_at_most: u32,
        /// Parts of its text.
        text: Vec<String>,
    }
}

expectation! {
    /// One device's row of a report.
    RowExpect {
        verdict: Wanted<Word<DeviceVerdicts>>,
        capacity: Wanted<Size>,
        held: Wanted<Size>,
        releasing: Wanted<Size>,
        promised: Wanted<Size>,
        foreign: Wanted<Size>,
        free: Wanted<Size>,
        needed: Wanted<Size>,
        missing: Wanted<Size>,
        after_held: Wanted<Size>,
        after_promised: Wanted<Size>,
        after_free: Wanted<Size>,
    }
}
