//! Churn: work comes and goes. How much of the demand finds no place? All policies get the same random numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use berth_domain::Placement;

use super::fleet::Fleet;
use super::random::SplitMix;
use super::reference::{Policy, Reference};
use super::trace::{Need, Trace};

/// Lives that pass before it is measured, and while.
const WARM_UP: f64 = 3.0;
const MEASURED: f64 = 5.0;

/// The rejected share of demand, in percent.
#[derive(Clone, Debug)]
pub struct Churn {
    /// By the core.
    pub core: f64,
    /// By best fit.
    pub best_fit: f64,
    /// By tightest device.
    pub tightest: f64,
    /// What the account found wrong.
    pub faults: Vec<String>,
}

/// One piece of work: when it comes, when it would leave, and what it asks for.
struct Visit<'a> {
    comes: f64,
    leaves: f64,
    need: &'a Need,
}

/// Runs a trace at a load: the demand at any time as a share of the capacity.
#[must_use]
pub fn churn(trace: &Trace, placement: Placement, load: f64, seed: u64) -> Churn {
    let visits = visits(trace, load, seed);
    let mut fleet = Fleet::new(trace, placement);
    let core = rejected(&visits, &mut fleet, Fleet::place, |fleet, placed| fleet.leave(&placed));
    let by_policy = |policy| {
        let mut fleet = Reference::new(&trace.nodes, policy);
        rejected(&visits, &mut fleet, Reference::place, |fleet, placed| fleet.leave(&placed))
    };
    let (best_fit, tightest) = (by_policy(Policy::BestFit), by_policy(Policy::TightestDevice));
    Churn { core, best_fit, tightest, faults: fleet.faults().to_vec() }
}

fn visits(trace: &Trace, load: f64, seed: u64) -> Vec<Visit<'_>> {
    let mut random = SplitMix::new(seed);
    let demand: u64 = trace.pods.iter().map(|pod| pod.need.total_milli()).sum();
    let mean = demand as f64 / trace.pods.len() as f64;
    let rate = load * trace.capacity_milli() as f64 / mean;
    let (mut now, mut visits) = (0.0, Vec::new());
    loop {
        now += random.exponential() / rate;
        if now > WARM_UP + MEASURED {
            return visits;
        }
        let need = &trace.pods[random.below(trace.pods.len())].need;
        visits.push(Visit { comes: now, leaves: now + random.exponential(), need });
    }
}

fn rejected<F, P>(
    visits: &[Visit<'_>],
    fleet: &mut F,
    mut place: impl FnMut(&mut F, &Need) -> Option<P>,
    mut leave: impl FnMut(&mut F, P),
) -> f64 {
    let (mut asked, mut lost) = (0, 0);
    let mut placed: Vec<Option<P>> = Vec::with_capacity(visits.len());
    // Times are not negative, so their bits are ordered as they are.
    let mut leaving: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (number, visit) in visits.iter().enumerate() {
        while let Some(Reverse((at, gone))) = leaving.peek().copied()
            && f64::from_bits(at) <= visit.comes
        {
            leaving.pop();
            if let Some(place) = placed[gone].take() {
                leave(fleet, place);
            }
        }
        let found = place(fleet, visit.need);
        if visit.comes >= WARM_UP {
            asked += visit.need.total_milli();
            lost += if found.is_none() { visit.need.total_milli() } else { 0 };
        }
        if found.is_some() {
            leaving.push(Reverse((visit.leaves.to_bits(), number)));
        }
        placed.push(found);
    }
    100.0 * lost as f64 / asked.max(1) as f64
}
