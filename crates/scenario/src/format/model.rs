//! Models.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::{
    Arg, Bytes, DeviceUuid, Fraction, GpuCount, GpuName, LabelKey, LabelValue, Memory, MemorySource, Millicores,
    ModelName, ModelSpec, Placement, PoolName, RankMemory, RuntimeName,
};
use serde::{Deserialize, Deserializer};

use super::duration::SpanText;
use super::shorthand::{FromText, text_or_table};

/// A catalogue entry.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelText {
    pub(crate) name: ModelName,
    runtime: Option<RuntimeName>,
    memory: Option<MemoryText>,
    gpu_counts: Option<BTreeSet<u16>>,
    #[serde(default)]
    exclusive: bool,
    concurrency: Option<u32>,
    keep_alive: Option<SpanText>,
    min_run: Option<SpanText>,
    #[serde(default)]
    min_replicas: u32,
    max_replicas: Option<u32>,
    #[serde(default)]
    pinned: bool,
    #[serde(default)]
    placement: Placement,
    pool: Option<PoolName>,
    #[serde(default)]
    labels: BTreeMap<LabelKey, LabelValue>,
    #[serde(default)]
    gpu_names: BTreeSet<GpuName>,
    #[serde(default)]
    gpu_uuids: BTreeSet<DeviceUuid>,
    #[serde(default)]
    cpu_millicores: u64,
    #[serde(default)]
    ram: Bytes,
    #[serde(default)]
    args: Vec<Arg>,
}

impl ModelText {
    /// The entry as the core takes it.
    pub(crate) fn spec(&self) -> Result<ModelSpec, String> {
        let usual = RuntimeName::new("vllm").map_err(|error| error.to_string())?;
        let memory = self.memory.clone().map(|text| text.0).unwrap_or_default();
        let mut spec = ModelSpec::new(self.name.clone(), self.runtime.clone().unwrap_or(usual), memory);
        spec.gpu_counts = self.gpu_counts.iter().flatten().map(|count| GpuCount::new(*count)).collect();
        spec.exclusive = self.exclusive;
        spec.concurrency = self.concurrency.unwrap_or(spec.concurrency);
        spec.keep_alive = self.keep_alive.map(Into::into);
        spec.min_run = self.min_run.map(Into::into);
        spec.replicas.min = self.min_replicas;
        spec.replicas.max = self.max_replicas;
        spec.replicas.pinned = self.pinned;
        spec.placement = self.placement;
        if let Some(pool) = &self.pool {
            spec.constraints.pool = pool.clone();
        }
        spec.constraints.labels = self.labels.clone();
        spec.constraints.gpu_names = self.gpu_names.clone();
        spec.constraints.gpu_uuids = self.gpu_uuids.clone();
        spec.cpu = Millicores::new(self.cpu_millicores);
        spec.ram = self.ram;
        spec.args = self.args.clone();
        Ok(spec)
    }
}

/// A model's memory in one of its forms.
#[derive(Debug, Clone)]
struct MemoryText(MemorySource);

/// One number, in one of its forms.
#[derive(Debug, Clone)]
struct OneMemory(Memory);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryTable {
    total: Option<Bytes>,
    per_gpu: Option<BTreeMap<String, RankMemory>>,
    fraction: Option<Fraction>,
    stated: Option<OneMemory>,
    estimated: Option<OneMemory>,
    #[serde(default)]
    prefer_estimate: bool,
    #[serde(default)]
    learn: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneMemoryTable {
    total: Option<Bytes>,
    per_gpu: Option<BTreeMap<String, RankMemory>>,
    fraction: Option<Fraction>,
}

impl OneMemoryTable {
    fn read(self) -> Result<Option<Memory>, String> {
        let per_gpu = self.per_gpu.map(counts).transpose()?.map(Memory::PerGpu);
        let mut forms = self.total.map(Memory::Total).into_iter().chain(per_gpu);
        let first = forms.next().or(self.fraction.map(Memory::Fraction));
        match (forms.next(), self.fraction) {
            (None, None) => Ok(first),
            (None, Some(_)) if matches!(first, Some(Memory::Fraction(_))) => Ok(first),
            _ => Err("memory has one of total, per_gpu and fraction".to_owned()),
        }
    }
}

fn counts(text: BTreeMap<String, RankMemory>) -> Result<BTreeMap<GpuCount, RankMemory>, String> {
    let entry = |(count, memory): (String, RankMemory)| {
        let count = count.parse().map_err(|_| format!("{count:?} is not a number of GPUs"))?;
        Ok((GpuCount::new(count), memory))
    };
    text.into_iter().map(entry).collect()
}

fn total(text: &str) -> Result<Memory, String> {
    text.parse().map(Memory::Total).map_err(|error: berth_domain::ParseBytesError| error.to_string())
}

/// A table that was read but may not make sense yet.
struct Read<T>(Result<T, String>);

impl From<OneMemoryTable> for Read<OneMemory> {
    fn from(table: OneMemoryTable) -> Self {
        Self(table.read().and_then(|memory| memory.map(OneMemory).ok_or_else(|| "memory says nothing".to_owned())))
    }
}

impl From<MemoryTable> for Read<MemoryText> {
    fn from(table: MemoryTable) -> Self {
        let MemoryTable { total, per_gpu, fraction, stated, estimated, prefer_estimate, learn } = table;
        let plain = OneMemoryTable { total, per_gpu, fraction }.read();
        Self(plain.and_then(|plain| match (plain, stated) {
            (Some(_), Some(_)) => Err("memory has a number of its own or a stated one, not both".to_owned()),
            (plain, stated) => Ok(MemoryText(MemorySource {
                stated: plain.or(stated.map(|one| one.0)),
                estimated: estimated.map(|one| one.0),
                prefer_estimate,
                learn,
                estimate: None,
            })),
        }))
    }
}

impl FromText for Read<OneMemory> {
    const EXPECTED: &'static str = "a size such as \"39GiB\", or a table with total, per_gpu or fraction";
    fn from_text(text: &str) -> Result<Self, String> {
        total(text).map(|memory| Self(Ok(OneMemory(memory))))
    }
}

impl FromText for Read<MemoryText> {
    const EXPECTED: &'static str = "a size such as \"39GiB\", or a table with total, per_gpu, fraction or stated";
    fn from_text(text: &str) -> Result<Self, String> {
        total(text).map(|memory| Self(Ok(MemoryText(MemorySource::stated(memory)))))
    }
}

impl<'de> Deserialize<'de> for OneMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::<D, Read<Self>, OneMemoryTable>(deserializer)?.0.map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MemoryText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::<D, Read<Self>, MemoryTable>(deserializer)?.0.map_err(serde::de::Error::custom)
    }
}
