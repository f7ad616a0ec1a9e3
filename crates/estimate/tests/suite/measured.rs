//! The profile `llama.cpp` against what a real llama.cpp printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_domain::GpuCount;
use berth_estimate::gguf::{GgufModel, Header};
use berth_estimate::{CacheType, Estimate, Model, Options, Parts};
use serde::Deserialize;

use crate::support::Plain;

/// What the names of models begin with that stand for an architecture, not for a shape.
const ARCHITECTURE: &str = "architecture-";

/// What `tests/python/measure.py` wrote.
#[derive(Deserialize)]
struct Measured {
    lengths: BTreeMap<String, u64>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    model: String,
    context: u64,
    parallel: u64,
    flash_attention: bool,
    cache: String,
    unified: bool,
    batch: u64,
    /// What llama.cpp said instead of sizes.
    refused: Option<String>,
    #[serde(default)]
    weights_mib: f64,
    #[serde(default)]
    kv_mib: f64,
    #[serde(default)]
    states_mib: f64,
    #[serde(default)]
    compute_mib: f64,
}

impl Case {
    fn setting(&self) -> String {
        let shared = if self.unified { " shared" } else { "" };
        format!("{} x {}{shared}", self.context, self.parallel)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flash = if self.flash_attention { "flash attention" } else { "no flash attention" };
        write!(f, "{}, {}, {}, {flash}, batch {}", self.model, self.setting(), self.cache, self.batch)
    }
}

/// A folder that the script wrote, and what it says.
struct Measurements {
    folder: PathBuf,
    measured: Measured,
}

impl Measurements {
    /// Those of the repository.
    fn kept() -> Self {
        Self::of(tests().join("fixtures/llama_cpp"))
    }

    fn of(folder: PathBuf) -> Self {
        let text = std::fs::read_to_string(folder.join("measured.json")).expect("what was measured");
        Self { measured: serde_json::from_str(&text).expect("as the script writes it"), folder }
    }

    /// Those that the script makes now, with the llama.cpp that is installed.
    fn now(folder: &Path, options: &[&str]) -> Self {
        let bin = Command::new(tests().join("../../../tests/python")).args(["xllamacpp", "gguf", "numpy"]).output();
        let bin = bin.expect("a script that runs");
        assert!(bin.status.success(), "{}", String::from_utf8_lossy(&bin.stderr));
        let python = Path::new(String::from_utf8_lossy(&bin.stdout).trim()).join("python");
        let script = tests().join("python/measure.py");
        let output = Command::new(python).arg(script).arg(folder).args(options).output().expect("a script that runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::of(folder.to_owned())
    }

    /// Each case that llama.cpp started with, and its estimate.
    fn cases(&self) -> impl Iterator<Item = (&Case, Estimate)> {
        let started = self.measured.cases.iter().filter(|case| case.refused.is_none());
        started.map(|case| (case, estimate(&self.model(&case.model), case)))
    }

    fn assert_nothing_was_refused(&self) {
        for case in &self.measured.cases {
            assert_eq!(case.refused, None, "{case}");
        }
    }

    fn model(&self, name: &str) -> Model {
        let file = File::open(self.folder.join(format!("{name}.gguf"))).expect("a header");
        let header = Header::read(file, self.measured.lengths[name]).expect("a good header");
        Model::Gguf { model: Box::new(GgufModel::from_header(header)), projector: None }
    }
}

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn one_gpu(estimate: &Estimate) -> Parts {
    estimate.counts[&GpuCount::new(1)][0].parts
}

fn estimate(model: &Model, case: &Case) -> Estimate {
    let cache: CacheType = case.cache.parse().expect("a type");
    let options = Options {
        context: Some(case.context),
        parallel: Some(case.parallel),
        cache_type_k: Some(cache),
        cache_type_v: Some(cache),
        flash_attention: Some(case.flash_attention),
        unified_cache: Some(case.unified),
        batch: Some(case.batch),
        gpu_counts: Some(BTreeSet::from([GpuCount::new(1)])),
        ..Options::default()
    };
    model.estimate(&options).expect("an estimate")
}

#[expect(clippy::cast_precision_loss, reason = "sizes of tiny models")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Whether a number is what was printed, to the last digit printed.
fn prints_as(bytes: u64, printed: f64) -> bool {
    (mib(bytes) - printed).abs() <= 0.005_001
}

/// A CPU keeps the token embedding too; without an output tensor it is the same tensor there.
fn check_weights_and_caches(measurements: &Measurements) {
    for (case, made) in measurements.cases() {
        let weights = made.model.weights.get();
        assert!(prints_as(weights, case.weights_mib), "{case}: weights {} not {}", mib(weights), case.weights_mib);
        // Two or three buffers, each printed to the hundredth.
        let (kv, printed) = (mib(one_gpu(&made).kv.get()), case.kv_mib + case.states_mib);
        assert!((kv - printed).abs() <= 0.015_001, "{case}: kv and states {kv} not {printed}");
    }
}

/// The estimate is never less than what was printed, to the last digit printed.
fn check_that_compute_is_enough(measurements: &Measurements) {
    let short: Vec<String> = measurements
        .cases()
        .map(|(case, made)| (case, mib(one_gpu(&made).compute.get())))
        .filter(|(case, made)| *made < case.compute_mib - 0.005_001)
        .map(|(case, made)| format!("{case}: {made:.3} beside {}", case.compute_mib))
        .collect();
    assert!(short.is_empty(), "less than llama.cpp takes:\n{}", short.join("\n"));
}

/// With a cache of f16 the estimate is little more than what was printed. Other caches are unpacked on a GPU, which a
/// CPU does not show.
fn check_that_compute_is_not_far_more(measurements: &Measurements) {
    let far: Vec<String> = measurements
        .cases()
        .filter(|(case, _)| case.cache == "f16")
        .map(|(case, made)| (case, mib(one_gpu(&made).compute.get())))
        .filter(|(case, made)| *made > case.compute_mib * 1.3 + 0.05)
        .map(|(case, made)| format!("{case}: {made:.3} beside {}", case.compute_mib))
        .collect();
    assert!(far.is_empty(), "far more than llama.cpp takes:\n{}", far.join("\n"));
}

#[test]
fn weights_and_caches_are_exactly_what_llama_cpp_printed() {
    let kept = Measurements::kept();
    kept.assert_nothing_was_refused();
    let architectures: BTreeSet<_> = kept.cases().map(|(_, made)| made.model.architecture).collect();
    assert!(architectures.len() >= 40, "{architectures:?}");
    check_weights_and_caches(&kept);
}

#[test]
fn compute_buffers_are_never_less_than_llama_cpp_printed_and_little_more() {
    check_that_compute_is_enough(&Measurements::kept());
    check_that_compute_is_not_far_more(&Measurements::kept());
}

/// The cases of the documentation once more, with the llama.cpp that is installed: `tests/estimates` prints them.
#[test]
fn the_installed_llama_cpp_takes_no_more_than_estimated() {
    let folder = tempfile::tempdir().expect("a folder");
    let now = Measurements::now(folder.path(), &[]);
    println!("{}\n{}", table_of_shapes(&now), table_of_architectures(&now));
    now.assert_nothing_was_refused();
    check_weights_and_caches(&now);
    check_that_compute_is_enough(&now);
    check_that_compute_is_not_far_more(&now);
}

/// Sizes and settings by chance: `tests/estimates COUNT SEED`.
#[test]
#[ignore = "takes minutes; tests/estimates COUNT SEED runs it"]
fn no_size_and_no_setting_takes_more_than_estimated() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let (count, seed) = (said("BERTH_ESTIMATES_COUNT", "4"), said("BERTH_ESTIMATES_SEED", "1"));
    let now = Measurements::now(folder.path(), &["--random", &count, &seed]);
    for case in &now.measured.cases {
        if let Some(reason) = &case.refused {
            println!("llama.cpp refused {case}: {reason}");
        }
    }
    println!("{}", spread_by_architecture(&now));
    check_weights_and_caches(&now);
    check_that_compute_is_enough(&now);
}

/// The least and the most that an estimate of the compute buffer is above what was printed, where that is 1 MiB or
/// more.
fn spread_by_architecture(measurements: &Measurements) -> String {
    let mut spread: BTreeMap<String, (usize, f64, f64)> = BTreeMap::new();
    for (case, made) in measurements.cases().filter(|(case, _)| case.compute_mib >= 1.0 && case.cache == "f16") {
        let above = (mib(one_gpu(&made).compute.get()) / case.compute_mib - 1.0) * 100.0;
        let (count, least, most) = spread.entry(made.model.architecture).or_insert((0, f64::MAX, f64::MIN));
        (*count, *least, *most) = (*count + 1, least.min(above), most.max(above));
    }
    let row = |(name, (count, least, most)): (&String, &(usize, f64, f64))| {
        format!("| {name} | {count} | {least:+.1} % | {most:+.1} % |\n")
    };
    spread.iter().map(row).collect()
}

/// Shapes of real models, as llama.cpp planned them without loading anything (its `fit` step).
#[test]
fn compute_buffers_of_real_shapes_are_what_llama_cpp_planned() {
    let seven = Plain {
        layers: 28,
        embedding: 3_584,
        heads: 28,
        kv_heads: 4,
        feed_forward: 18_944,
        vocabulary: 152_064,
        context: 131_072,
    };
    let eight = Plain {
        layers: 32,
        embedding: 4_096,
        heads: 32,
        kv_heads: 8,
        feed_forward: 14_336,
        vocabulary: 128_256,
        context: 8_192,
    };
    let seventy = Plain {
        layers: 80,
        embedding: 8_192,
        heads: 64,
        kv_heads: 8,
        feed_forward: 28_672,
        vocabulary: 128_256,
        context: 131_072,
    };
    let four_hundred =
        Plain { layers: 126, embedding: 16_384, heads: 128, kv_heads: 16, feed_forward: 53_248, ..seventy };
    for (shape, context, flash, kv_mib, compute_mib) in [
        (seven, 131_072, false, 7_168, 7_468.01),
        (seven, 131_072, true, 7_168, 274.02),
        (eight, 8_192, false, 1_024, 580.01),
        (eight, 8_192, true, 1_024, 132.02),
        (seventy, 131_072, false, 40_960, 16_740.01),
        (seventy, 2_048, false, 640, 360.01),
        (four_hundred, 131_072, false, 129_024, 33_224.01),
        (four_hundred, 131_072, true, 129_024, 600.02),
    ] {
        let model = Model::Gguf { model: Box::new(shape.metadata("llama").into_model()), projector: None };
        let options = Options {
            context: Some(context),
            flash_attention: Some(flash),
            gpu_counts: Some(BTreeSet::from([GpuCount::new(1)])),
            ..Options::default()
        };
        let parts = one_gpu(&model.estimate(&options).expect("an estimate"));
        assert_eq!(parts.kv.get(), kv_mib << 20);
        let made = mib(parts.compute.get());
        assert!(made >= compute_mib - 0.02 && made <= compute_mib * 1.06, "{made} beside {compute_mib}");
    }
}

/// A row for each case of a shape.
fn table_of_shapes(measurements: &Measurements) -> String {
    let mut table = String::new();
    for (case, made) in measurements.cases().filter(|(case, _)| !case.model.starts_with(ARCHITECTURE)) {
        let parts = one_gpu(&made);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {:.2} / {:.2} | {:.2} / {:.2} | {:.2} / {:.2} |",
            case.model,
            case.setting(),
            case.batch,
            case.cache,
            if case.flash_attention { "yes" } else { "no" },
            case.weights_mib,
            mib(made.model.weights.get()),
            case.kv_mib + case.states_mib,
            mib(parts.kv.get()),
            case.compute_mib,
            mib(parts.compute.get()),
        );
    }
    table
}

/// A row for each architecture: its weights and its cache in the first case, and its compute buffer in each.
fn table_of_architectures(measurements: &Measurements) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for (case, made) in measurements.cases() {
        let Some(name) = case.model.strip_prefix(ARCHITECTURE) else { continue };
        let parts = one_gpu(&made);
        if rows.last().is_none_or(|(last, _)| *last != name) {
            let (weights, kv) = (mib(made.model.weights.get()), mib(parts.kv.get()));
            let printed = case.kv_mib + case.states_mib;
            let begun = format!("| {name} | {:.2} / {weights:.2} | {printed:.2} / {kv:.2} |", case.weights_mib);
            rows.push((name, begun));
        }
        if let Some((_, row)) = rows.last_mut() {
            let _ = write!(row, " {:.2} / {:.2} |", case.compute_mib, mib(parts.compute.get()));
        }
    }
    rows.into_iter().map(|(_, row)| row + "\n").collect()
}

/// The tables of docs/ESTIMATION.md are what the tests see.
#[test]
fn the_tables_in_the_documentation_are_true() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/ESTIMATION.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let kept = Measurements::kept();
    for table in [table_of_shapes(&kept), table_of_architectures(&kept)] {
        let missing: Vec<&str> = table.lines().filter(|line| !page.contains(line)).collect();
        assert!(missing.is_empty(), "docs/ESTIMATION.md should have\n{table}");
    }
}
