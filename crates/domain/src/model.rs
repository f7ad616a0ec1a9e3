//! The catalogue entry of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::estimate::FileEstimate;
use crate::{
    Arg, Bytes, DeviceUuid, EngineRoute, Fraction, GpuCount, GpuName, LabelKey, LabelValue, Millicores, ModelName,
    PoolName, RuntimeName, Span,
};

/// The memory of a model, as its entry states it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// One number, split evenly over the GPUs of a slot and rounded up.
    Total(Bytes),
    /// A number for each GPU count.
    PerGpu(BTreeMap<GpuCount, RankMemory>),
    /// A fraction of each device it runs on.
    Fraction(Fraction),
}

impl Memory {
    /// Returns what each GPU must give, in rank order, or `None` for a count without a number. Zero is unknown.
    #[must_use]
    pub fn on(&self, count: GpuCount) -> Option<Vec<GpuMemory>> {
        let times = usize::from(count.get());
        let ranks = match self {
            Self::Total(total) => vec![total.split(count.get()); times],
            Self::Fraction(fraction) => return Some(vec![GpuMemory::Fraction(*fraction); times]),
            Self::PerGpu(per_gpu) => match per_gpu.get(&count)? {
                RankMemory::Even(bytes) => vec![*bytes; times],
                RankMemory::Ranks(list) => list.clone(),
            },
        };
        ranks.into_iter().map(|bytes| (!bytes.is_zero()).then_some(GpuMemory::Bytes(bytes))).collect()
    }

    /// Returns the bytes that each GPU must give, or `None` where that is not a number of bytes.
    #[must_use]
    pub fn bytes_on(&self, count: GpuCount) -> Option<Vec<Bytes>> {
        self.on(count)?.into_iter().map(GpuMemory::bytes).collect()
    }
}

/// Memory on each GPU of a slot with one GPU count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RankMemory {
    /// The same amount on each GPU.
    Even(Bytes),
    /// The amounts in rank order, where they differ.
    Ranks(Vec<Bytes>),
}

/// What the operator stated and what was estimated, and which of them is charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MemorySource {
    /// The operator's number.
    pub stated: Option<Memory>,
    /// The number made from the model's files.
    pub estimated: Option<Memory>,
    /// Whether the estimate is charged even where a number was stated.
    pub prefer_estimate: bool,
    /// Whether the observed use is charged, once it is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learn: bool,
    /// What the estimate was made of and for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Arc<FileEstimate>>,
}

impl MemorySource {
    /// Makes a source with the memory that the operator stated.
    #[must_use]
    pub fn stated(memory: Memory) -> Self {
        Self { stated: Some(memory), ..Self::default() }
    }

    /// Returns whether the estimate is charged.
    #[must_use]
    pub fn charges_estimate(&self) -> bool {
        self.estimated.is_some() && (self.prefer_estimate || self.stated.is_none())
    }

    /// Returns the number that is charged. A stated number wins unless the model says otherwise.
    #[must_use]
    pub fn charged(&self) -> Option<&Memory> {
        let (first, second) =
            if self.prefer_estimate { (&self.estimated, &self.stated) } else { (&self.stated, &self.estimated) };
        first.as_ref().or(second.as_ref())
    }
}

/// What one GPU of a slot must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuMemory {
    /// This number of bytes.
    Bytes(Bytes),
    /// A fraction of the device's capacity.
    Fraction(Fraction),
    /// The device to itself, if it has at least so many bytes. Zero: any device.
    Whole(Bytes),
}

impl GpuMemory {
    /// Returns the bytes, or `None` for a fraction or a whole device.
    #[must_use]
    pub const fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Fraction(_) | Self::Whole(_) => None,
        }
    }
}

/// Where a model may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Constraints {
    /// The one pool it runs in.
    pub pool: PoolName,
    /// Labels that a runner must have.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// GPU names, any of which will do; any at all when empty.
    pub gpu_names: BTreeSet<GpuName>,
    /// Devices, any of which will do; any at all when empty.
    pub gpu_uuids: BTreeSet<DeviceUuid>,
    /// What must be able to start it.
    pub runtime: RuntimeName,
}

/// How candidates are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The device with the least claimed share first.
    #[default]
    Spread,
    /// The tightest fit first.
    Pack,
}

/// How many slots a model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replicas {
    /// How many slots are kept running without demand.
    pub min: u32,
    /// The largest number of slots.
    pub max: Option<u32>,
    /// Whether slots are neither evicted nor stopped for being idle.
    pub pinned: bool,
}

/// One version of a model in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Its name.
    pub name: ModelName,
    /// Its memory, where it is known.
    pub memory: MemorySource,
    /// GPU counts that it can run on, smallest first. Only 0: it needs no GPU. Empty: powers of two.
    pub gpu_counts: BTreeSet<GpuCount>,
    /// Whole GPUs, each at least as large as its memory asks for.
    pub exclusive: bool,
    /// How many leases one slot serves at once.
    pub concurrency: u32,
    /// How long an idle slot stays.
    pub keep_alive: Option<Span>,
    /// How long a slot is safe from eviction after it became ready.
    pub min_run: Option<Span>,
    /// How many slots.
    pub replicas: Replicas,
    /// Its strategy.
    pub placement: Placement,
    /// Where it may run.
    pub constraints: Constraints,
    /// CPU of one slot.
    pub cpu: Millicores,
    /// RAM of one slot.
    pub ram: Bytes,
    /// Arguments of its runtime.
    pub args: Vec<Arg>,
    /// Other names that callers of the gateway may use for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub aliases: BTreeSet<ModelName>,
    /// Routes that its engine answers. Empty: those that its runtime is known for.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub routes: BTreeSet<EngineRoute>,
}

/// Why a catalogue entry is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelSpecError {
    /// The concurrency is zero.
    #[error("concurrency must be at least 1")]
    NoConcurrency,
    /// The smallest number of replicas is above the largest.
    #[error("min_replicas {min} is more than max_replicas {max}")]
    ReplicasCrossed {
        /// The smallest number.
        min: u32,
        /// The largest number.
        max: u32,
    },
    /// A value is larger than allowed.
    #[error("{field} is at most {limit}, not {value}")]
    TooLarge {
        /// The name of the field.
        field: &'static str,
        /// The largest value that is allowed.
        limit: u64,
        /// The value that was given.
        value: u64,
    },
    /// The GPU counts contain zero and others.
    #[error("gpu_counts is [0] for a model without GPUs, or has no 0 at all")]
    MixedCounts,
    /// The number of ranks is not the GPU count.
    #[error("memory for {count} GPUs lists {ranks} numbers")]
    RankCount {
        /// The GPU count.
        count: u16,
        /// The number of ranks that were given.
        ranks: usize,
    },
    /// A GPU count is allowed, but has no memory number.
    #[error("gpu_counts allows {0}, but memory.per_gpu has no number for it")]
    CountWithoutMemory(u16),
    /// Two models under one name.
    #[error("{name} is already a name of model {taken_by}: a name belongs to one model")]
    NameTaken {
        /// The name or alias.
        name: ModelName,
        /// Who has it.
        taken_by: ModelName,
    },
    /// A memory number is zero.
    #[error("memory on a GPU must be more than zero")]
    ZeroMemory,
}

impl ModelSpec {
    /// GPU counts tried when a model names none.
    const POWERS_OF_TWO: [u16; 5] = [1, 2, 4, 8, 16];
    /// The largest number of GPUs of one slot.
    const MOST_GPUS: u16 = 64;
    /// The largest number of leases of one slot, of replicas and of pinned devices.
    const MOST: u64 = 65_536;

    /// Makes a model with `memory` that runs on `runtime`, and the defaults of everything else.
    #[must_use]
    pub fn new(name: ModelName, runtime: RuntimeName, memory: MemorySource) -> Self {
        Self {
            name,
            memory,
            gpu_counts: BTreeSet::new(),
            exclusive: false,
            concurrency: 1,
            keep_alive: None,
            min_run: None,
            replicas: Replicas::default(),
            placement: Placement::Spread,
            constraints: Constraints {
                pool: PoolName::default_pool(),
                labels: BTreeMap::new(),
                gpu_names: BTreeSet::new(),
                gpu_uuids: BTreeSet::new(),
                runtime,
            },
            cpu: Millicores::ZERO,
            ram: Bytes::ZERO,
            args: Vec::new(),
            aliases: BTreeSet::new(),
            routes: BTreeSet::new(),
        }
    }

    /// Refuses an entry that contradicts itself. Unknown or zero memory is not refused here: it is refused by name when
    /// the model is scheduled, so that a catalogue can be filled before its numbers are known.
    pub fn validate(&self) -> Result<(), ModelSpecError> {
        let at_most = |field, value: u64, limit: u64| match value {
            v if v > limit => Err(ModelSpecError::TooLarge { field, limit, value }),
            _ => Ok(()),
        };
        if self.concurrency == 0 {
            return Err(ModelSpecError::NoConcurrency);
        }
        at_most("concurrency", u64::from(self.concurrency), Self::MOST)?;
        at_most("min_replicas", u64::from(self.replicas.min), Self::MOST)?;
        at_most("gpu_uuids", self.constraints.gpu_uuids.len() as u64, 64)?;
        at_most("args", self.args.len() as u64, 1024)?;
        at_most("aliases", self.aliases.len() as u64, 64)?;
        if self.aliases.contains(&self.name) {
            return Err(ModelSpecError::NameTaken { name: self.name.clone(), taken_by: self.name.clone() });
        }
        if let Some(max) = self.replicas.max.filter(|max| *max < self.replicas.min || *max == 0) {
            return Err(ModelSpecError::ReplicasCrossed { min: self.replicas.min, max });
        }
        let no_gpu = self.gpu_counts.contains(&GpuCount::new(0));
        if no_gpu && self.gpu_counts.len() > 1 {
            return Err(ModelSpecError::MixedCounts);
        }
        if let Some(count) = self.gpu_counts.last() {
            at_most("gpu_counts", u64::from(count.get()), u64::from(Self::MOST_GPUS))?;
        }
        [&self.memory.stated, &self.memory.estimated]
            .into_iter()
            .flatten()
            .try_for_each(|memory| self.validate_memory(memory))
    }

    fn validate_memory(&self, memory: &Memory) -> Result<(), ModelSpecError> {
        let Memory::PerGpu(per_gpu) = memory else { return Ok(()) };
        for (count, ranks) in per_gpu {
            if let RankMemory::Ranks(list) = ranks
                && list.len() != usize::from(count.get())
            {
                return Err(ModelSpecError::RankCount { count: count.get(), ranks: list.len() });
            }
            if count.get() == 0 || count.get() > Self::MOST_GPUS {
                let (limit, value) = (u64::from(Self::MOST_GPUS), u64::from(count.get()));
                return Err(ModelSpecError::TooLarge { field: "memory.per_gpu", limit, value });
            }
        }
        match self.gpu_counts.iter().find(|count| count.get() > 0 && !per_gpu.contains_key(count)) {
            Some(count) => Err(ModelSpecError::CountWithoutMemory(count.get())),
            None => Ok(()),
        }
    }

    /// Whether slots of `other` serve this entry as well: they differ in how callers reach the model, and in nothing else.
    #[must_use]
    pub fn runs_like(&self, other: &Self) -> bool {
        let alike = Self { aliases: other.aliases.clone(), routes: other.routes.clone(), ..self.clone() };
        alike == *other
    }

    /// Whether callers may use this name for it.
    #[must_use]
    pub fn is_called(&self, name: &ModelName) -> bool {
        self.name == *name || self.aliases.contains(name)
    }

    /// Returns whether the model needs no GPU.
    #[must_use]
    pub fn is_cpu_only(&self) -> bool {
        self.gpu_counts.first() == Some(&GpuCount::new(0))
    }

    /// Returns the GPU counts that the model may run on, smallest first: those stated, else those with a number, else
    /// powers of two.
    #[must_use]
    pub fn allowed_counts(&self) -> Vec<GpuCount> {
        match self.memory.charged() {
            _ if !self.gpu_counts.is_empty() => self.gpu_counts.iter().copied().collect(),
            Some(Memory::PerGpu(per_gpu)) => per_gpu.keys().copied().collect(),
            Some(Memory::Fraction(_)) => vec![GpuCount::new(1)],
            None if self.exclusive => vec![GpuCount::new(1)],
            _ => Self::POWERS_OF_TWO.map(GpuCount::new).to_vec(),
        }
    }

    /// Returns what each GPU must give, in rank order, or `None` where that is not known. Zero is unknown.
    #[must_use]
    pub fn memory_on(&self, count: GpuCount) -> Option<Vec<GpuMemory>> {
        let times = usize::from(count.get());
        if times == 0 {
            return Some(Vec::new());
        }
        let stated = self.memory.charged().and_then(|memory| memory.on(count));
        if self.exclusive {
            // A whole GPU must also be large enough, where anybody said how large that is.
            let least = |rank: &GpuMemory| GpuMemory::Whole(rank.bytes().unwrap_or_default());
            return Some(stated.map_or_else(
                || vec![GpuMemory::Whole(Bytes::ZERO); times],
                |ranks| ranks.iter().map(least).collect(),
            ));
        }
        stated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(memory: Memory) -> ModelSpec {
        let name = ModelName::new("m").unwrap_or_else(|e| unreachable!("{e}"));
        let runtime = RuntimeName::new("vllm").unwrap_or_else(|e| unreachable!("{e}"));
        ModelSpec::new(name, runtime, MemorySource::stated(memory))
    }

    #[test]
    fn p22_a_total_is_split_and_rounded_up() {
        let model = model(Memory::Total(Bytes::new(79_982_566_401)));
        let share = GpuMemory::Bytes(Bytes::new(39_991_283_201));
        assert_eq!(model.memory_on(GpuCount::new(2)), Some(vec![share, share]));
    }

    #[test]
    fn p4_zero_is_unknown() {
        assert_eq!(model(Memory::Total(Bytes::ZERO)).memory_on(GpuCount::new(1)), None);
    }

    #[test]
    fn a_count_without_a_number_is_refused() {
        let per_gpu = BTreeMap::from([(GpuCount::new(1), RankMemory::Even(Bytes::gib(74)))]);
        let spec = ModelSpec { gpu_counts: BTreeSet::from([GpuCount::new(2)]), ..model(Memory::PerGpu(per_gpu)) };
        assert_eq!(spec.validate(), Err(ModelSpecError::CountWithoutMemory(2)));
    }

    #[test]
    fn p3_a_stated_number_wins_unless_the_model_says_otherwise() {
        let both = MemorySource {
            stated: Some(Memory::Total(Bytes::gib(42))),
            estimated: Some(Memory::Total(Bytes::gib(74))),
            ..MemorySource::default()
        };
        assert_eq!(both.charged(), Some(&Memory::Total(Bytes::gib(42))));
        let preferred = MemorySource { prefer_estimate: true, ..both };
        assert_eq!(preferred.charged(), Some(&Memory::Total(Bytes::gib(74))));
    }
}
