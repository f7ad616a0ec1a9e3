//! Placement and eviction on small generated worlds must not get worse. Seeds and arithmetic are the same everywhere, so
//! the numbers are too; the limits leave room for a better policy that loses a little in one place.

use berth_benches::quality::caches::{CachePolicy, serve_by};
use berth_benches::quality::churn::churn;
use berth_benches::quality::eviction::{Sizing, StartCost, generated_requests, serve};
use berth_benches::quality::fill::fill;
use berth_benches::quality::trace::{Trace, generated};
use berth_domain::Placement;

const SEEDS: [u64; 4] = [42, 43, 44, 45];

fn trace(name: &str) -> Trace {
    generated().into_iter().find(|trace| trace.name.ends_with(name)).unwrap_or_else(|| unreachable!("{name}"))
}

/// What a fill leaves unallocated, in percent, on average.
fn unallocated(name: &str, placement: Placement) -> f64 {
    let trace = trace(name);
    let of_seed = |seed: &u64| {
        let filled = fill(&trace, placement, *seed);
        assert!(filled.faults.is_empty(), "the account disagrees: {:?}", filled.faults);
        assert!(filled.samples.most_examined() <= 64, "{} devices were examined", filled.samples.most_examined());
        filled.unallocated
    };
    SEEDS.iter().map(of_seed).sum::<f64>() / SEEDS.len() as f64
}

#[test]
fn pack_fills_the_fleet() {
    for (name, most) in [("default", 8.0), ("multigpu", 10.0), ("gpuspec", 20.0)] {
        let (pack, spread) = (unallocated(name, Placement::Pack), unallocated(name, Placement::Spread));
        assert!(pack <= most, "{name}: {pack:.2} % unallocated");
        assert!(pack <= spread, "{name}: pack leaves {pack:.2} %, spread {spread:.2} %");
    }
}

#[test]
fn churn_rejects_no_more_than_the_tightest_device() {
    for name in ["default", "multigpu", "gpuspec"] {
        let run = churn(&trace(name).gpu_only(), Placement::Pack, 1.0, 42);
        assert!(run.faults.is_empty(), "the account disagrees: {:?}", run.faults);
        assert!(run.core <= run.tightest + 0.3, "{name}: {:.2} % against {:.2} %", run.core, run.tightest);
    }
}

#[test]
fn eviction_is_better_than_lru_and_lfu() {
    let requests = generated_requests(3000);
    for (gpus, sizing) in [(4, Sizing::Unit), (8, Sizing::Unit), (2, Sizing::Sized), (4, Sizing::Sized)] {
        let core = serve(&requests, gpus, sizing, StartCost::Equal).hit_ratio();
        for policy in [CachePolicy::Lru, CachePolicy::Lfu] {
            let other = serve_by(policy, &requests, gpus, sizing).hit_ratio();
            assert!(core >= other, "{gpus} GPUs, {sizing:?}: {core:.3} against {policy:?} {other:.3}");
        }
    }
}
