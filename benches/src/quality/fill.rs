//! Fill: work arrives and nothing leaves. How much of the GPUs is left unallocated once the demand would fill them?

use berth_domain::Placement;

use super::fleet::Fleet;
use super::trace::Trace;
use crate::measure::Samples;

/// What a fill came to.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The unallocated share of GPUs in percent, averaged over the arrivals at which the demand rounds to the capacity.
    pub unallocated: f64,
    /// For each percent of arrived demand, the percent of the capacity that was allocated then.
    pub curve: Vec<f64>,
    /// How long the decisions took.
    pub samples: Samples,
    /// What the account found wrong.
    pub faults: Vec<String>,
}

/// Fills the fleet of a trace with the arrivals of a seed.
#[must_use]
pub fn fill(trace: &Trace, placement: Placement, seed: u64) -> Fill {
    let mut fleet = Fleet::new(trace, placement);
    let capacity = trace.capacity_milli();
    let (mut arrived, mut used, mut sum, mut events) = (0, 0, 0.0, 0u32);
    let mut curve = vec![0.0];
    for need in trace.arrivals(seed, 130) {
        arrived += need.total_milli();
        if fleet.place(need).is_some() {
            used += need.total_milli();
        }
        let percent = (arrived * 100 + capacity / 2) / capacity;
        if percent == 100 {
            sum += 100.0 * (capacity - used) as f64 / capacity as f64;
            events += 1;
        }
        while curve.len() as u64 <= percent {
            curve.push(100.0 * used as f64 / capacity as f64);
        }
    }
    let faults = fleet.faults().to_vec();
    // In a small fleet one piece of work may carry the demand past the percent that is looked at.
    let unallocated = if events > 0 { sum / f64::from(events) } else { 100.0 - curve[100] };
    Fill { unallocated, curve, samples: fleet.samples, faults }
}
