//! The models that are submitted and those that fleets are filled with.

use std::collections::BTreeSet;

use berth_domain::{
    Bytes, GpuCount, GpuName, Memory, MemorySource, Millicores, ModelName, ModelSpec, NameError, PoolName, RuntimeName,
    Span,
};

/// The pools of a fleet: nearly all runners are in the first.
pub const POOLS: [&str; 2] = ["default", "batch"];
/// The GPUs of a fleet: two runners in three have the first.
pub const GPUS: [&str; 2] = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"];
/// The runtime of everything.
pub const RUNTIME: &str = "vllm";
/// Sizes, in GiB, of the jobs that a fleet is filled with: they can fill a GPU of 80 GiB to the last byte.
pub const FILLING: [u64; 5] = [48, 40, 24, 16, 8];

/// A name that is known to be one.
pub fn known<T>(name: Result<T, NameError>) -> T {
    name.unwrap_or_else(|error| unreachable!("{error}"))
}

/// A model of so many GiB in all on one of these GPU counts, with a core and 2 GiB of RAM.
#[must_use]
pub fn model(name: &str, gib: u64, counts: &[u16]) -> ModelSpec {
    let memory = MemorySource::stated(Memory::Total(Bytes::gib(gib)));
    ModelSpec {
        gpu_counts: counts.iter().copied().map(GpuCount::new).collect(),
        cpu: Millicores::new(1000),
        ram: Bytes::gib(2),
        ..ModelSpec::new(known(ModelName::new(name)), known(RuntimeName::new(RUNTIME)), memory)
    }
}

/// The same in another pool.
#[must_use]
pub fn in_pool(mut spec: ModelSpec, pool: &str) -> ModelSpec {
    spec.constraints.pool = known(PoolName::new(pool));
    spec
}

fn on_gpu(mut spec: ModelSpec, gpu: &str) -> ModelSpec {
    spec.constraints.gpu_names = BTreeSet::from([known(GpuName::new(gpu))]);
    spec
}

/// A dozen models from 8 to 70 GiB as a gateway would submit them.
#[must_use]
pub fn submitted() -> Vec<ModelSpec> {
    vec![
        model("qwen/8g", 8, &[1]),
        model("llama/12g", 12, &[1]),
        model("llama/16g", 16, &[1]),
        on_gpu(model("mistral/20g", 20, &[1]), GPUS[0]),
        on_gpu(model("mistral/24g", 24, &[1]), GPUS[1]),
        model("qwen/32g", 32, &[1, 2]),
        in_pool(model("batch/40g", 40, &[1]), POOLS[1]),
        model("qwen/48g", 48, &[1, 2]),
        model("llama/64g", 64, &[1, 2, 4]),
        model("mixtral/64g", 64, &[2, 4]),
        model("llama/70g", 70, &[4, 8]),
        model("deepseek/64g", 64, &[8]),
    ]
}

/// What the jobs that fill a pool run.
#[must_use]
pub fn filling(pool: &str, gib: u64) -> ModelSpec {
    in_pool(model(&format!("fill/{pool}/{gib}g"), gib, &[1]), pool)
}

/// A model whose slots stay when idle, and may be evicted after 30 s.
#[must_use]
pub fn staying(name: &str, gib: u64) -> ModelSpec {
    ModelSpec {
        keep_alive: Some(Span::from_secs(30 * 24 * 3600)),
        min_run: Some(Span::from_secs(30)),
        ..model(name, gib, &[1])
    }
}
