//! Two published policies to compare with, each by looking at the whole fleet: only GPUs count.

use super::trace::{Need, Node};

/// How a published policy ranks the places for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The machine with the least room left on its GPUs.
    BestFit,
    /// The devices with the least room left, then the machine with the least.
    TightestDevice,
}

/// A fleet that is filled by a published policy.
#[derive(Clone, Debug)]
pub struct Reference {
    policy: Policy,
    /// The name and the free thousandths of each machine's GPUs.
    machines: Vec<(String, Vec<u64>)>,
}

/// Where work went: the machine, its devices, and how much of each.
#[derive(Clone, Debug)]
pub struct ReferencePlace {
    machine: usize,
    devices: Vec<usize>,
    milli: u64,
}

impl Reference {
    /// An empty fleet.
    #[must_use]
    pub fn new(nodes: &[Node], policy: Policy) -> Self {
        let machine = |node: &Node| (node.gpu_name.clone(), vec![1000; usize::from(node.gpus)]);
        Self { policy, machines: nodes.iter().map(machine).collect() }
    }

    /// Places work, or drops it if it does not fit.
    pub fn place(&mut self, need: &Need) -> Option<ReferencePlace> {
        let ranked = self.machines.iter().enumerate().filter_map(|(machine, (name, free))| {
            if !need.gpu_names.is_empty() && !need.gpu_names.contains(name) {
                return None;
            }
            let mut fitting: Vec<usize> = (0..free.len()).filter(|device| free[*device] >= need.milli).collect();
            fitting.sort_by_key(|device| (free[*device], *device));
            let devices: Vec<usize> = fitting.into_iter().take(usize::from(need.gpus)).collect();
            let left: u64 = devices.iter().map(|device| free[*device] - need.milli).sum();
            let room: u64 = free.iter().sum::<u64>();
            let rank = match self.policy {
                Policy::BestFit => (room, left),
                Policy::TightestDevice => (left, room),
            };
            (devices.len() == usize::from(need.gpus)).then_some((rank, machine, devices))
        });
        let (_, machine, devices) = ranked.min()?;
        devices.iter().for_each(|device| self.machines[machine].1[*device] -= need.milli);
        Some(ReferencePlace { machine, devices, milli: need.milli })
    }

    /// Takes back what was placed.
    pub fn leave(&mut self, place: &ReferencePlace) {
        place.devices.iter().for_each(|device| self.machines[place.machine].1[*device] += place.milli);
    }
}
