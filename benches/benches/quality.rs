//! How well the core places and evicts: one table, a goal and a verdict beside each number.
//!
//! `cargo bench -p berth-benches --bench quality -- --traces DIR` measures published traces; without `--traces` it
//! measures small generated ones. `--seeds 42-51` (or `42,43`) chooses the random numbers, `--only fill|gpu|churn|eviction`
//! one part, `--json FILE` and `--svg FILE` write what was measured, as data and as a picture.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use berth_benches::quality::caches::{CachePolicy, bound, serve_by};
use berth_benches::quality::churn::churn;
use berth_benches::quality::eviction::{Sizing, StartCost, generated_requests, read_requests, serve};
use berth_benches::quality::fill::fill;
use berth_benches::quality::picture;
use berth_benches::quality::scores::{Limit, Scores};
use berth_benches::quality::trace::{Trace, generated};
use berth_domain::Placement;

/// The unallocated percent that each trace may come to when it is packed.
const FILL_GOALS: [(&str, f64); 8] = [
    ("default", 4.5),
    ("cpu050", 4.5),
    ("cpu250", 6.8),
    ("gpushare40", 5.9),
    ("gpushare100", 13.3),
    ("gpuspec33", 6.5),
    ("multigpu20", 4.1),
    ("multigpu50", 2.8),
];
/// The same without CPU and RAM.
const GPU_GOALS: [(&str, f64); 3] = [("default", 4.2), ("multigpu20", 3.65), ("multigpu50", 2.35)];
/// How far churn may be above tightest device.
const CHURN_MARGIN: f64 = 0.3;
/// GPUs and the least hit ratio, for models of one size and of several.
const UNIT_GOALS: [(u16, f64); 3] = [(4, 0.690), (8, 0.865), (16, 0.958)];
const SIZED_GOALS: [(u16, f64); 3] = [(2, 0.835), (4, 0.938), (8, 0.976)];

fn main() -> Result<()> {
    let options = Options::read()?;
    // `cargo test --all-targets` runs this too, without the word.
    let Some(options) = options else { return Ok(()) };
    let mut bench = Bench::new(options)?;
    bench.fills()?;
    bench.gpu_fills();
    bench.churns();
    bench.evictions();
    eprintln!();
    print!("{}", bench.scores);
    println!("{} goals missed", bench.scores.missed());
    if let Some(path) = &bench.options.json {
        std::fs::write(path, format!("{:#}\n", bench.scores.to_json()))?;
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Options {
    traces: Option<PathBuf>,
    seeds: Vec<u64>,
    only: Option<String>,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
}

impl Options {
    fn read() -> Result<Option<Self>> {
        let mut options = Self { seeds: (42..=51).collect(), ..Self::default() };
        let mut is_bench = false;
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => is_bench = true,
                "--traces" => options.traces = Some(value()?.into()),
                "--seeds" => options.seeds = seeds(&value()?)?,
                "--only" => options.only = Some(value()?),
                "--json" => options.json = Some(value()?.into()),
                "--svg" => options.svg = Some(value()?.into()),
                other => bail!("{other:?} is not an option: --traces --seeds --only --json --svg"),
            }
        }
        Ok(is_bench.then_some(options))
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == part)
    }
}

/// Seeds such as `42-51` or `42,43`.
fn seeds(text: &str) -> Result<Vec<u64>> {
    match text.split_once('-') {
        Some((first, last)) => Ok((first.parse()?..=last.parse()?).collect()),
        None => text.split(',').map(|seed| Ok(seed.parse()?)).collect(),
    }
}

struct Bench {
    options: Options,
    traces: Vec<Trace>,
    requests: Vec<usize>,
    scores: Scores,
    done: usize,
    parts: usize,
}

impl Bench {
    fn new(options: Options) -> Result<Self> {
        let (traces, requests) = match &options.traces {
            Some(directory) => (Trace::read_all(directory)?, read_requests(directory)?),
            None => (generated(), generated_requests(4000)),
        };
        let fills = traces.len() * options.seeds.len();
        let parts = [("fill", 2 * fills), ("gpu", fills), ("churn", 2 * traces.len()), ("eviction", 9)];
        let parts = parts.iter().filter(|(name, _)| options.wants(name)).map(|(_, parts)| parts).sum();
        Ok(Self { options, traces, requests, scores: Scores::default(), done: 0, parts })
    }

    /// Shows how far it is.
    fn progress(&mut self, what: &str) {
        self.done += 1;
        let wide = 40;
        let full = (self.done * wide / self.parts.max(1)).min(wide);
        let bar: String = (0..wide).map(|place| if place < full { '#' } else { '.' }).collect();
        eprint!("\r[{bar}] {}/{} {what:40}", self.done, self.parts);
        let _ = std::io::stderr().flush();
    }

    /// The mean over all seeds of what is left unallocated, with the mean curve.
    fn fill(&mut self, trace: &Trace, placement: Placement, what: &str) -> (f64, Vec<f64>, f64, f64) {
        let (mut sum, mut curve, mut mean, mut p99) = (0.0, vec![0.0; 131], f64::MAX, 0.0);
        let seeds = self.options.seeds.clone();
        for seed in &seeds {
            self.progress(what);
            let filled = fill(trace, placement, *seed);
            assert!(filled.faults.is_empty(), "the account disagrees: {:?}", filled.faults);
            sum += filled.unallocated;
            curve.iter_mut().zip(&filled.curve).for_each(|(sum, value)| *sum += value / seeds.len() as f64);
            mean = f64::min(mean, filled.samples.mean().as_secs_f64() * 1e6);
            p99 += filled.samples.percentile(99).as_secs_f64() * 1e6 / seeds.len() as f64;
        }
        (sum / seeds.len() as f64, curve, mean, p99)
    }

    fn fills(&mut self) -> Result<()> {
        if !self.options.wants("fill") {
            return Ok(());
        }
        let mut curves = Vec::new();
        for trace in self.traces.clone() {
            let what = format!("fill {}", trace.name);
            let (spread, spread_curve, ..) = self.fill(&trace, Placement::Spread, &what);
            let (pack, pack_curve, mean, p99) = self.fill(&trace, Placement::Pack, &what);
            let limit = goal(&FILL_GOALS, &trace.name).map_or(Limit::None, Limit::AtMost);
            self.scores.add(format!("{what}: unallocated GPU %, pack"), pack, limit, &[("spread", spread)]);
            let limit = if trace.nodes.len() == 1213 { Limit::AtMost(8.0) } else { Limit::None };
            self.scores.add(format!("{what}: us to place, least mean"), mean, limit, &[("p99", p99)]);
            if trace.name.ends_with("default") {
                curves.extend([("pack".to_owned(), pack_curve), ("spread".to_owned(), spread_curve)]);
            }
        }
        if let Some(path) = &self.options.svg {
            curves.push((
                "all of it, if nothing were lost".to_owned(),
                (0..=130).map(|at| f64::from(at.min(100))).collect(),
            ));
            let title = "GPU memory that is allocated, as demand arrives";
            std::fs::write(path, picture::draw(title, &curves))?;
        }
        Ok(())
    }

    fn gpu_fills(&mut self) {
        if !self.options.wants("gpu") {
            return;
        }
        for trace in self.traces.clone() {
            let what = format!("fill {}, GPU only", trace.name);
            let (pack, ..) = self.fill(&trace.gpu_only(), Placement::Pack, &what);
            let limit = goal(&GPU_GOALS, &trace.name).map_or(Limit::None, Limit::AtMost);
            self.scores.add(format!("{what}: unallocated GPU %, pack"), pack, limit, &[]);
        }
    }

    fn churns(&mut self) {
        if !self.options.wants("churn") {
            return;
        }
        let seed = self.options.seeds.first().copied().unwrap_or(42);
        for trace in self.traces.clone() {
            for load in [1.0, 0.9] {
                let what = format!("churn {}, load {load}", trace.name);
                self.progress(&what);
                let run = churn(&trace.gpu_only(), Placement::Pack, load, seed);
                assert!(run.faults.is_empty(), "the account disagrees: {:?}", run.faults);
                let limit = Limit::AtMost(run.tightest + if load < 1.0 { 0.005 } else { CHURN_MARGIN });
                let beside = [("best fit", run.best_fit), ("tightest device", run.tightest)];
                self.scores.add(format!("{what}: rejected demand %, pack"), run.core, limit, &beside);
            }
        }
    }

    fn evictions(&mut self) {
        if !self.options.wants("eviction") {
            return;
        }
        let requests = self.requests.clone();
        let rows = [(Sizing::Unit, UNIT_GOALS, "equal models"), (Sizing::Sized, SIZED_GOALS, "sized models")];
        for (sizing, goals, name) in rows {
            for (gpus, least) in goals {
                let what = format!("eviction, {name}, {gpus} GPUs");
                self.progress(&what);
                let core = serve(&requests, gpus, sizing, StartCost::Equal);
                let by = |policy| serve_by(policy, &requests, gpus, sizing);
                let (lru, lfu) = (by(CachePolicy::Lru), by(CachePolicy::Lfu));
                let best = match sizing {
                    Sizing::Unit => by(CachePolicy::Belady).hit_ratio(),
                    Sizing::Sized => bound(&requests, gpus, sizing),
                };
                let beside = [("LRU", lru.hit_ratio()), ("LFU", lfu.hit_ratio()), ("bound", best)];
                let limit = if self.options.traces.is_some() { Limit::AtLeast(least) } else { Limit::None };
                self.scores.add(format!("{what}: hit ratio"), core.hit_ratio(), limit, &beside);
                if sizing == Sizing::Sized {
                    self.progress(&what);
                    let core = serve(&requests, gpus, sizing, StartCost::ByGib);
                    let ratio = core.gib_loaded as f64 / lfu.gib_loaded.max(1) as f64;
                    let limit = if self.options.traces.is_some() { Limit::AtMost(1.05) } else { Limit::None };
                    let beside = [("hit ratio", core.hit_ratio()), ("GiB", core.gib_loaded as f64)];
                    self.scores.add(format!("{what}: GiB loaded against LFU, bytes as cost"), ratio, limit, &beside);
                }
            }
        }
    }
}

fn goal(goals: &[(&str, f64)], name: &str) -> Option<f64> {
    goals.iter().find(|(known, _)| *known == name).map(|(_, goal)| *goal)
}
