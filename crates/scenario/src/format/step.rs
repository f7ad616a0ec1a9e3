//! What a step may do.

use std::collections::BTreeMap;

use berth_domain::{
    BootId, Bytes, DeviceUuid, FailureReason, GpuHealth, GpuName, IdempotencyKey, LabelKey, LabelValue, ModelName,
    PoolName, ReasonText, RunnerId, SlotEnd, TenantName, WorkloadKind,
};
use serde::{Deserialize, Deserializer};

use super::ModelText;
use super::duration::SpanText;
use super::expect::Expect;
use super::runner::{Mode, RuntimesText};
use super::shorthand::{FromText, Many, text_or_table};
use super::values::Word;
use crate::vocabulary::RefusalCodes;

macro_rules! verbs {
    ($($name:literal $field:ident: $kind:ty => $verb:ident,)+) => {
        /// One step as it is written: one verb, and what may stand beside it.
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct StepText {
            /// Words for the reader.
            #[serde(default, rename = "note")]
            _note: Option<String>,
            /// The code with which the step must be refused.
            pub(crate) refused: Option<Word<RefusalCodes>>,
            $(#[serde(rename = $name)] $field: Option<$kind>,)+
        }

        /// What a step does.
        #[derive(Debug, Clone)]
        pub(crate) enum Verb {
            $($verb($kind),)+
        }

        impl StepText {
            /// The verbs of the step, as it names them.
            pub(crate) fn verb_names(&self) -> Vec<&'static str> {
                let verbs = [$(($name, self.$field.is_some())),+];
                verbs.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect()
            }

            /// The one verb of the step.
            pub(crate) fn verb(self) -> Result<Verb, String> {
                let names = self.verb_names();
                let mut found: Vec<Verb> = Vec::new();
                $(found.extend(self.$field.map(Verb::$verb));)+
                match (found.pop(), found.len()) {
                    (Some(verb), 0) => Ok(verb),
                    (None, _) => Err(format!("a step does one thing; this one does nothing. Known: {}", [$($name),+].join(", "))),
                    _ => Err(format!("a step does one thing; this one does {}", names.join(" and "))),
                }
            }
        }
    };
}

verbs! {
    "submit" submit: Submit => Submit,
    "cancel" cancel: String => Cancel,
    "heartbeat" heartbeat: Heartbeat => Heartbeat,
    "complete" complete: Complete => Complete,
    "put_model" put_model: ModelText => PutModel,
    "delete_model" delete_model: ModelName => DeleteModel,
    "register" register: Register => Register,
    "report" report: Report => Report,
    "silence" silence: Many<RunnerId> => Silence,
    "return" return_: Many<RunnerId> => Return,
    "join" join: Many<RunnerId> => Join,
    "advance" advance: SpanText => Advance,
    "pause" pause: SpanText => Pause,
    "restart" restart: bool => Restart,
    "wipe" wipe: bool => Wipe,
    "cordon" cordon: RunnerId => Cordon,
    "uncordon" uncordon: RunnerId => Uncordon,
    "drain" drain: Drain => Drain,
    "forget" forget: Forget => Forget,
    "cordon_device" cordon_device: DeviceUuid => CordonDevice,
    "uncordon_device" uncordon_device: DeviceUuid => UncordonDevice,
    "stop_slot" stop_slot: String => StopSlot,
    "force_release" force_release: ForceRelease => ForceRelease,
    "ready" ready: Many<String> => Ready,
    "gone" gone: Gone => Gone,
    "fail" fail: Fail => Fail,
    "exit" exit: Exit => Exit,
    "refuse" refuse: String => Refuse,
    "occupy" occupy: BTreeMap<DeviceUuid, Bytes> => Occupy,
    "expect" expect: Box<Expect> => Expect,
}

impl Verb {
    /// Whether the step says when leases are renewed, or when they expire.
    pub(crate) fn speaks_of_renewal(&self) -> bool {
        match self {
            Self::Heartbeat(_) => true,
            Self::Submit(submit) => submit.renews.is_some() || submit.ttl.is_some(),
            _ => false,
        }
    }
}

/// A table, some of whose forms are a text.
macro_rules! short {
    ($(#[$doc:meta])* $name:ident, $table:ident, $expected:literal, $key:ident: $kind:ty,
        { $($(#[$attr:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name {
            pub(crate) $key: $kind,
            $(pub(crate) $field: $type,)*
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $table {
            $key: $kind,
            $($(#[$attr])* #[serde(default)] $field: $type,)*
        }

        impl From<$table> for $name {
            fn from(table: $table) -> Self {
                Self { $key: table.$key, $($field: table.$field,)* }
            }
        }

        impl FromText for $name {
            const EXPECTED: &'static str = $expected;
            fn from_text(text: &str) -> Result<Self, String> {
                let $key: $kind = Deserialize::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(text))
                    .map_err(|error| error.to_string())?;
                Ok(Self { $key, $($field: Default::default(),)* })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                text_or_table::<D, Self, $table>(deserializer)
            }
        }
    };
}

short! {
    /// A submission, or several of the same kind.
    Submit, SubmitTable, "a model's name, or a table", model: ModelName, {
        name: Option<String>,
        count: Option<u32>,
        kind: WorkloadKind,
        priority: i32,
        tenant: Option<TenantName>,
        ttl: Option<SpanText>,
        queue_timeout: Option<SpanText>,
        restart_on_lost: bool,
        max_run: Option<SpanText>,
        key: Option<IdempotencyKey>,
        same_as: Option<String>,
        renews: Option<bool>,
    }
}

impl Submit {
    /// The name of the first of them, where it is free.
    pub(crate) fn base_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.model.to_string())
    }
}

short! {
    /// A lease is still needed.
    Heartbeat, HeartbeatTable, "a workload's name, or a table", workload: String, { attempt: Option<u32> }
}

short! {
    /// A workload is done.
    Complete, CompleteTable, "a workload's name, or a table", workload: String, {
        attempt: Option<u32>,
        failed: bool,
    }
}

short! {
    /// An agent starts, and registers.
    Register, RegisterTable, "a runner's id, or a table", runner: RunnerId, {
        boot: Option<BootId>,
        loses_record: bool,
        loses_slots: bool,
    }
}

short! {
    /// An agent reports, after something changed.
    Report, ReportTable, "a runner's id, or a table", runner: RunnerId, {
        gpus: BTreeMap<DeviceUuid, GpuChange>,
        slots: BTreeMap<String, SlotChange>,
        strays: Vec<StrayText>,
        pool: Option<PoolName>,
        labels: Option<BTreeMap<LabelKey, LabelValue>>,
        runtimes: Option<RuntimesText>,
        cpu_millicores: Option<u64>,
        ram: Option<Bytes>,
        attributes: Option<bool>,
        starts: Option<Mode>,
        stops: Option<Mode>,
        incarnation: Option<u64>,
        sequence: Option<u64>,
        boot: Option<BootId>,
    }
}

short! {
    /// A runner finishes what it has.
    Drain, DrainTable, "a runner's id, or a table", runner: RunnerId, { deadline: Option<SpanText> }
}

short! {
    /// A runner is no more.
    Forget, ForgetTable, "a runner's id, or a table", runner: RunnerId, { reason: Option<ReasonText> }
}

short! {
    /// A slot's memory is freed on an operator's word.
    ForceRelease, ForceReleaseTable, "a slot, or a table", slot: String, { reason: Option<ReasonText> }
}

short! {
    /// An agent says that a slot is gone.
    Gone, GoneTable, "a slot, or a table", slot: String, {
        tree_gone: Option<bool>,
        driver_clear: Option<bool>,
        leaves: BTreeMap<DeviceUuid, Bytes>,
        generation: Option<u32>,
        reason: Option<FailureReason>,
        code: Option<i32>,
    }
}

impl Gone {
    /// How it came to its end, in the same word.
    pub(crate) fn end(&self) -> SlotEnd {
        match (self.code, self.reason) {
            (Some(code), _) => SlotEnd::Exited(code),
            (None, Some(why)) => SlotEnd::Failed(why),
            (None, None) => SlotEnd::Asked,
        }
    }
}

short! {
    /// A slot comes to a bad end.
    Fail, FailTable, "a slot, or a table", slot: String, { reason: Option<FailureReason> }
}

short! {
    /// A job's process ends by itself.
    Exit, ExitTable, "a slot, or a table", slot: String, { code: i32 }
}

/// What changed about a GPU. One that the runner did not have needs its memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuChange {
    pub(crate) memory: Option<Bytes>,
    pub(crate) reserved: Option<Bytes>,
    pub(crate) foreign: Option<Bytes>,
    pub(crate) health: Option<GpuHealth>,
    pub(crate) index: Option<u16>,
    pub(crate) name: Option<GpuName>,
    pub(crate) replicas: Option<u16>,
    /// A further entry for the same UUID, of this size.
    pub(crate) also: Option<Bytes>,
    /// No longer listed, if false.
    pub(crate) listed: Option<bool>,
}

/// What changed about a slot of the agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlotChange {
    pub(crate) state: Option<SlotWord>,
    pub(crate) uses: Option<BTreeMap<DeviceUuid, Bytes>>,
    /// The generation that this one report names.
    pub(crate) generation: Option<u32>,
    /// No longer on record, if false. Its process lives on.
    pub(crate) mentioned: Option<bool>,
}

/// The states that an agent may report without further words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotWord {
    Starting,
    Ready,
    Stopping,
}

/// A slot that the server does not know.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StrayText {
    pub(crate) name: String,
    /// Whose id it has, if it is a double.
    pub(crate) same_id_as: Option<String>,
    pub(crate) model: Option<ModelName>,
    pub(crate) state: Option<SlotWord>,
    #[serde(default)]
    pub(crate) generation: u32,
    #[serde(default)]
    pub(crate) claims: BTreeMap<DeviceUuid, Bytes>,
    pub(crate) uses: Option<BTreeMap<DeviceUuid, Bytes>>,
}
