//! Why no runner is large enough, even an empty one: by which number, and which GPU count comes nearest.

use std::cmp::Reverse;

use berth_domain::{Bytes, GpuCount, GpuMemory, Millicores};
use smallvec::SmallVec;

use super::Demand;
use super::admit::{Gpus, each_size, fits_empty};
use crate::lack::{Lack, TooSmall};
use crate::state::State;

/// What one runner has when it is empty.
struct Size {
    gpus: Gpus,
    cpu: u64,
    ram: u64,
}

/// What each runner that matches a demand has when it is empty, runners of one size once.
pub(crate) struct Sizes(Vec<Size>);

/// The GPU count that comes nearest to fitting, and what is too small for it.
pub(super) fn nearest_size(state: &State, demand: &Demand<'_>) -> Option<Lack> {
    let sizes = Sizes::of(state, demand);
    let tried = demand.shape.counts.iter().filter_map(|(count, needs)| Some((*count, sizes.too_small(demand, needs)?)));
    let (count, what) = tried.min_by_key(|(count, what)| (distance(*count, *what), *count))?;
    Some(Lack::Size { count, choices: demand.shape.counts.len(), what })
}

impl Sizes {
    pub(crate) fn of(state: &State, demand: &Demand<'_>) -> Self {
        let mut sizes = Vec::new();
        each_size(state, demand, |gpus, cpu, ram| {
            sizes.push(Size { gpus, cpu, ram });
            false
        });
        Self(sizes)
    }

    /// Why no runner that matches could hold a slot with these needs, or `None` if one could or none matches.
    pub(crate) fn too_small(&self, demand: &Demand<'_>, needs: &[GpuMemory]) -> Option<TooSmall> {
        too_small_on(&self.0, demand, needs)
    }
}

/// How far a GPU count is from fitting. One whose GPUs are there is nearer than one whose GPUs are too small, and that
/// is nearer than one that needs more GPUs than there are.
fn distance(count: GpuCount, what: TooSmall) -> (u8, u64) {
    match what {
        TooSmall::Cpu { .. } | TooSmall::Ram { .. } | TooSmall::Together => (0, 0),
        TooSmall::Memory { needed, largest, .. } => (1, least(needed).saturating_sub(largest).get()),
        TooSmall::Gpus { most, .. } => (2, u64::from(count.get().saturating_sub(most))),
    }
}

fn too_small_on(sizes: &[Size], demand: &Demand<'_>, needs: &[GpuMemory]) -> Option<TooSmall> {
    let (cpu, ram) = (demand.shape.cpu, demand.shape.ram);
    let has_host = |size: &Size| size.cpu >= cpu.get() && size.ram >= ram.get();
    let has_gpus = |size: &Size| size.gpus.could_hold(needs);
    if sizes.is_empty() || sizes.iter().any(|size| has_host(size) && has_gpus(size)) {
        return None;
    }
    if !sizes.iter().any(has_gpus) {
        return Some(too_small_gpus(sizes, demand, needs));
    }
    let most_cpu = sizes.iter().map(|size| size.cpu).max().unwrap_or_default();
    let most_ram = sizes.iter().map(|size| size.ram).max().unwrap_or_default();
    Some(if cpu.get() > most_cpu {
        TooSmall::Cpu { needed: cpu, largest: Millicores::new(most_cpu) }
    } else if ram.get() > most_ram {
        TooSmall::Ram { needed: ram, largest: Bytes::new(most_ram) }
    } else {
        TooSmall::Together
    })
}

fn too_small_gpus(sizes: &[Size], demand: &Demand<'_>, needs: &[GpuMemory]) -> TooSmall {
    let constraints = &demand.shape.constraints;
    let restricted = !constraints.gpu_names.is_empty() || !constraints.gpu_uuids.is_empty();
    let mut largest_first: SmallVec<[GpuMemory; 8]> = needs.iter().copied().collect();
    largest_first.sort_unstable_by_key(|need| Reverse(*need));
    let short = sizes.iter().filter_map(|size| worst_rank(&size.gpus, &largest_first));
    let nearest = short.min_by_key(|(needed, largest)| least(*needed).saturating_sub(*largest));
    match nearest {
        Some((needed, largest)) => {
            let ranks = needs.iter().filter(|need| **need == needed).count();
            TooSmall::Memory { needed, ranks: u16::try_from(ranks).unwrap_or(u16::MAX), largest, restricted }
        }
        None => {
            let most = sizes.iter().map(|size| size.gpus.most_together()).max().unwrap_or_default();
            TooSmall::Gpus { most: u16::try_from(most).unwrap_or(u16::MAX), restricted }
        }
    }
}

/// The rank for which a runner is too small by the most, with what it has there. Nothing if it has too few GPUs.
fn worst_rank(gpus: &Gpus, largest_first: &[GpuMemory]) -> Option<(GpuMemory, Bytes)> {
    let sizes = gpus.largest(largest_first.len())?;
    let short = largest_first.iter().zip(sizes).filter(|(need, size)| !fits_empty(**need, *size));
    let short = short.map(|(need, size)| (*need, Bytes::new(size)));
    short.max_by_key(|(need, size)| least(*need).saturating_sub(*size))
}

/// The bytes that a GPU must have at least.
fn least(need: GpuMemory) -> Bytes {
    match need {
        GpuMemory::Bytes(bytes) | GpuMemory::Whole(bytes) => bytes,
        GpuMemory::Fraction(_) => Bytes::ZERO,
    }
}
