//! The real core with a fleet of a trace, and an independent account of every placement that it makes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use berth_core::{Event, PlacedSlot};
use berth_domain::{
    Bytes, DeviceUuid, GpuCount, GpuName, HostReport, Memory, MemorySource, Millicores, ModelName, ModelSpec,
    Placement, RunnerId, RunnerReport, RuntimeName, Submission, WorkloadId,
};

use super::trace::{GPU_MIB, MILLI_MIB, Need, Node, Trace};
use crate::catalogue::{POOLS, RUNTIME, known};
use crate::measure::Samples;
use crate::world::{Hardware, World, registration};

/// A core that places the work of a trace.
#[derive(Debug)]
pub struct Fleet {
    world: World,
    models: BTreeMap<Need, ModelName>,
    account: Account,
    /// How long the decisions took that placed something.
    pub samples: Samples,
}

/// What was placed: to take it back.
#[derive(Clone, Debug)]
pub struct Placed {
    workload: WorkloadId,
    slot: PlacedSlot,
}

impl Fleet {
    /// The machines of a trace in a new core, and a model for each kind of work.
    #[must_use]
    pub fn new(trace: &Trace, placement: Placement) -> Self {
        let mut world =
            World::of_registrations(trace.nodes.iter().enumerate().map(|(number, node)| register(number, node)));
        let needs: BTreeSet<&Need> = trace.pods.iter().map(|pod| &pod.need).collect();
        let name = |number: usize| known(ModelName::new(format!("work/{number}")));
        let models: BTreeMap<Need, ModelName> =
            needs.into_iter().enumerate().map(|(number, need)| (need.clone(), name(number))).collect();
        world.put(models.iter().map(|(need, name)| model(name, need, placement)));
        let account = Account::new(&trace.nodes);
        Self { world, models, account, samples: Samples::default() }
    }

    /// Submits one piece of work. What does not fit is dropped.
    pub fn place(&mut self, need: &Need) -> Option<Placed> {
        let model = self.models.get(need)?;
        let (workload, command) = self.world.submit(Submission::job(model.clone()));
        let (time, step) = self.world.timed(&command);
        let placed = step.events.iter().find_map(|event| match event {
            Event::SlotPlaced(placed) => Some(PlacedSlot::clone(placed)),
            _ => None,
        });
        let Some(slot) = placed else {
            self.world.cancel(workload);
            return None;
        };
        self.samples.add(time, &step);
        self.account.take(&slot, need);
        Some(Placed { workload, slot })
    }

    /// Takes back what was placed, with the proof of its runner.
    pub fn leave(&mut self, placed: &Placed) {
        self.world.cancel(placed.workload);
        self.world.calm();
        self.account.release(&placed.slot);
    }

    /// What the account found wrong.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.account.faults
    }

    /// The mean and the 99th percentile of the decisions that placed something.
    #[must_use]
    pub fn speed(&self) -> (Duration, Duration) {
        (self.samples.mean(), self.samples.percentile(99))
    }
}

fn register(number: usize, node: &Node) -> RunnerReport {
    let host = HostReport { cpu: Millicores::new(node.cpu), ram: Bytes::mib(node.ram_mib) };
    let mut report = registration(number, Hardware { gpus: node.gpus, name: "GPU", pool: POOLS[0], host });
    for gpu in &mut report.gpus {
        gpu.name = known(GpuName::new(&node.gpu_name));
        gpu.memory_total = Bytes::mib(GPU_MIB);
    }
    report
}

fn model(name: &ModelName, need: &Need, placement: Placement) -> ModelSpec {
    let bytes = Bytes::mib((need.total_milli() * MILLI_MIB).max(1));
    let memory = MemorySource::stated(Memory::Total(bytes));
    let mut spec = ModelSpec {
        gpu_counts: BTreeSet::from([GpuCount::new(need.gpus)]),
        cpu: Millicores::new(need.cpu),
        ram: Bytes::mib(need.ram_mib),
        placement,
        ..ModelSpec::new(name.clone(), known(RuntimeName::new(RUNTIME)), memory)
    };
    spec.constraints.gpu_names = need.gpu_names.iter().map(|name| known(GpuName::new(name))).collect();
    spec
}

/// An account of the fleet that shares nothing with the core's own.
#[derive(Debug, Default)]
struct Account {
    hosts: HashMap<RunnerId, (u64, u64)>,
    devices: HashMap<DeviceUuid, (RunnerId, String, u64)>,
    faults: Vec<String>,
}

impl Account {
    fn new(nodes: &[Node]) -> Self {
        let mut account = Self::default();
        for (number, node) in nodes.iter().enumerate() {
            let report = register(number, node);
            account.hosts.insert(report.runner.clone(), (report.host.cpu.get(), report.host.ram.get()));
            for gpu in report.gpus {
                let device = (report.runner.clone(), node.gpu_name.clone(), gpu.memory_total.get());
                account.devices.insert(gpu.uuid, device);
            }
        }
        account
    }

    fn take(&mut self, slot: &PlacedSlot, need: &Need) {
        let wanted = need.milli * MILLI_MIB * 1024 * 1024;
        let distinct: BTreeSet<&DeviceUuid> = slot.claims.iter().map(|claim| &claim.uuid).collect();
        let mut fits = distinct.len() == usize::from(need.gpus) && slot.claims.len() == distinct.len();
        for claim in &slot.claims {
            let Some((runner, name, free)) = self.devices.get_mut(&claim.uuid) else { continue };
            fits &= *runner == slot.runner && *free >= claim.bytes.get() && claim.bytes.get() == wanted;
            fits &= need.gpu_names.is_empty() || need.gpu_names.contains(name);
            *free = free.saturating_sub(claim.bytes.get());
        }
        if let Some((cpu, ram)) = self.hosts.get_mut(&slot.runner) {
            fits &= *cpu >= slot.cpu.get() && *ram >= slot.ram.get() && slot.cpu.get() == need.cpu;
            (*cpu, *ram) = (cpu.saturating_sub(slot.cpu.get()), ram.saturating_sub(slot.ram.get()));
        }
        if !fits || slot.promised {
            self.faults.push(format!("{slot:?} does not hold {need:?}"));
        }
    }

    fn release(&mut self, slot: &PlacedSlot) {
        for claim in &slot.claims {
            self.devices.entry(claim.uuid.clone()).and_modify(|(.., free)| *free += claim.bytes.get());
        }
        self.hosts.entry(slot.runner.clone()).and_modify(|(cpu, ram)| {
            *cpu += slot.cpu.get();
            *ram += slot.ram.get();
        });
    }
}
