//! Names and ids of the worlds that tests make: short, and always valid.

use std::str::FromStr;

use berth_domain::{ClusterId, DeviceUuid, MachineId, ModelName, RunnerId, SlotId, WorkloadId};
use uuid::Uuid;

/// A name that is valid because a test wrote it.
#[must_use]
pub fn name<T: FromStr>(text: &str) -> T {
    T::from_str(text).unwrap_or_else(|_| unreachable!("{text:?} is no name"))
}

/// The cluster of every test.
#[must_use]
pub fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u64_pair(0xbe47, 1))
}

/// Another cluster.
#[must_use]
pub fn other_cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u64_pair(0xdead, 2))
}

/// The n-th workload.
#[must_use]
pub fn workload(n: u64) -> WorkloadId {
    WorkloadId::new(Uuid::from_u64_pair(0x3017, n))
}

/// A slot that no server made.
#[must_use]
pub fn stray(n: u64) -> SlotId {
    SlotId::new(Uuid::from_u64_pair(0x57a9, n))
}

/// The n-th machine.
#[must_use]
pub fn machine(n: usize) -> MachineId {
    name(&format!("machine-{n}"))
}

/// The n-th runner.
#[must_use]
pub fn runner(n: usize) -> RunnerId {
    name(&format!("runner-{n}"))
}

/// The n-th model.
#[must_use]
pub fn model(n: usize) -> ModelName {
    name(&format!("model-{n}"))
}

/// A GPU of a machine.
#[must_use]
pub fn gpu(machine: usize, n: usize) -> DeviceUuid {
    name(&format!("GPU-{machine}-{n}"))
}
