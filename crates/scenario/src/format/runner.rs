//! Runners and their GPUs.

use std::collections::BTreeMap;

use berth_domain::{
    BootId, Bytes, DeviceUuid, GpuHealth, GpuName, LabelKey, LabelValue, MachineId, PoolName, RunnerId, RuntimeKind,
    RuntimeName,
};
use serde::{Deserialize, Deserializer};

use super::shorthand::{FromText, text_or_table};

/// Whether an agent gets on with it by itself, or waits for a step that says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    #[default]
    Auto,
    Manual,
}

/// One runner, or several of the same kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunnerText {
    pub(crate) id: String,
    /// So many, named by the id and a number from 1.
    pub(crate) count: Option<u32>,
    pub(crate) machine: Option<MachineId>,
    #[serde(default = "first_boot")]
    pub(crate) boot: BootId,
    #[serde(default = "PoolName::default_pool")]
    pub(crate) pool: PoolName,
    #[serde(default)]
    pub(crate) labels: BTreeMap<LabelKey, LabelValue>,
    pub(crate) runtimes: Option<RuntimesText>,
    #[serde(default = "many_cores")]
    pub(crate) cpu_millicores: u64,
    #[serde(default = "much_ram")]
    pub(crate) ram: Bytes,
    #[serde(default)]
    pub(crate) gpus: Gpus,
    #[serde(default)]
    pub(crate) starts: Mode,
    #[serde(default)]
    pub(crate) stops: Mode,
    /// The driver tells which process uses how much.
    #[serde(default = "yes")]
    pub(crate) attributes: bool,
    /// How much of what a slot was given it uses.
    #[serde(default = "all")]
    pub(crate) uses_percent: u64,
    /// It registers before the first step.
    #[serde(default = "yes")]
    pub(crate) registered: bool,
}

/// What a runner can start: names, or tables that say what each is for. A name alone serves leases and jobs.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RuntimesText(Vec<RuntimeText>);

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a runtime's name, or { name = ..., kind = \"server\" | \"job\" | \"both\" }")]
enum RuntimeText {
    Name(RuntimeName),
    Kind(RuntimeTable),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuntimeTable {
    name: RuntimeName,
    kind: RuntimeKind,
}

impl RuntimesText {
    pub(crate) fn kinds(&self) -> BTreeMap<RuntimeName, RuntimeKind> {
        let kind = |text: &RuntimeText| match text {
            RuntimeText::Name(name) => (name.clone(), RuntimeKind::Both),
            RuntimeText::Kind(table) => (table.name.clone(), table.kind),
        };
        self.0.iter().map(kind).collect()
    }
}

fn first_boot() -> BootId {
    BootId::new("boot-1").unwrap_or_else(|error| unreachable!("{error}"))
}

fn many_cores() -> u64 {
    1_000_000
}

fn much_ram() -> Bytes {
    Bytes::gib(16 * 1024)
}

fn all() -> u64 {
    100
}

fn yes() -> bool {
    true
}

/// The GPUs of a runner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gpus(pub(crate) Vec<GpuText>);

impl<'de> Deserialize<'de> for Gpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Gpus;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"2x80GiB\", or a list of sizes and tables")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Gpus, E> {
                alike(text).map(Gpus).map_err(E::custom)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> Result<Gpus, A::Error> {
                Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(list)).map(Gpus)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// `"2x80GiB"`: so many of one size.
fn alike(text: &str) -> Result<Vec<GpuText>, String> {
    let (times, size) = text.split_once('x').unwrap_or(("1", text));
    let times: usize = times.trim().parse().map_err(|_| format!("{text:?} is not like \"2x80GiB\""))?;
    GpuText::from_text(size).map(|gpu| vec![gpu; times])
}

/// One GPU.
#[derive(Debug, Clone)]
pub(crate) struct GpuText {
    pub(crate) uuid: Option<DeviceUuid>,
    pub(crate) index: Option<u16>,
    pub(crate) name: Option<GpuName>,
    pub(crate) memory: Bytes,
    pub(crate) reserved: Bytes,
    /// What others use of it, where the file says so here.
    pub(crate) foreign: Option<Bytes>,
    pub(crate) replicas: u16,
    pub(crate) parent: Option<DeviceUuid>,
    pub(crate) health: GpuHealth,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuTable {
    uuid: Option<DeviceUuid>,
    index: Option<u16>,
    name: Option<GpuName>,
    memory: Bytes,
    #[serde(default)]
    reserved: Bytes,
    foreign: Option<Bytes>,
    replicas: Option<u16>,
    parent: Option<DeviceUuid>,
    #[serde(default)]
    health: GpuHealth,
}

impl From<GpuTable> for GpuText {
    fn from(table: GpuTable) -> Self {
        let GpuTable { uuid, index, name, memory, reserved, foreign, replicas, parent, health } = table;
        Self { uuid, index, name, memory, reserved, foreign, replicas: replicas.unwrap_or(1), parent, health }
    }
}

impl FromText for GpuText {
    const EXPECTED: &'static str = "a size such as \"80GiB\", or a table with its memory";
    fn from_text(text: &str) -> Result<Self, String> {
        let memory = text.parse().map_err(|error: berth_domain::ParseBytesError| error.to_string())?;
        Ok(GpuTable {
            uuid: None,
            index: None,
            name: None,
            memory,
            reserved: Bytes::ZERO,
            foreign: None,
            replicas: None,
            parent: None,
            health: GpuHealth::Ok,
        }
        .into())
    }
}

impl<'de> Deserialize<'de> for GpuText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::<D, Self, GpuTable>(deserializer)
    }
}

impl RunnerText {
    /// The runners it stands for.
    pub(crate) fn all(&self) -> Vec<(String, &Self)> {
        match self.count {
            None => vec![(self.id.clone(), self)],
            Some(count) => (1..=count).map(|number| (format!("{}{number}", self.id), self)).collect(),
        }
    }

    /// The id as a type, once it is known.
    pub(crate) fn runner_id(name: &str) -> Result<RunnerId, String> {
        RunnerId::new(name).map_err(|error| error.to_string())
    }
}
