//! The profile `llama.cpp` against what a real llama.cpp printed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use berth_domain::GpuCount;
use berth_estimate::gguf::{GgufModel, Header};
use berth_estimate::{CacheType, Estimate, Model, Options, Parts};
use serde::Deserialize;

use crate::support::Plain;

/// What `tests/python/measure.py` wrote.
#[derive(Deserialize)]
struct Measured {
    lengths: std::collections::BTreeMap<String, u64>,
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
    weights_mib: f64,
    kv_mib: f64,
    states_mib: f64,
    compute_mib: f64,
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

    /// Each case with its estimate.
    fn cases(&self) -> impl Iterator<Item = (&Case, Estimate)> {
        self.measured.cases.iter().map(|case| (case, estimate(&self.model(&case.model), case)))
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
    assert!(measurements.measured.cases.len() >= 30);
    for (case, made) in measurements.cases() {
        let what = format!("{} context {} x {}", case.model, case.context, case.parallel);
        let weights = made.model.weights.get();
        assert!(prints_as(weights, case.weights_mib), "{what}: weights {} not {}", mib(weights), case.weights_mib);
        // Two buffers, each printed to the hundredth.
        let kv = mib(one_gpu(&made).kv.get());
        assert!((kv - case.kv_mib - case.states_mib).abs() <= 0.010_001, "{what}: kv {kv} not {}", case.kv_mib);
    }
}

fn check_compute(measurements: &Measurements) {
    for (case, made) in measurements.cases() {
        let made = mib(one_gpu(&made).compute.get());
        let what = format!("{} context {}: {made} beside {}", case.model, case.context, case.compute_mib);
        assert!(made >= case.compute_mib - 0.02, "{what}");
        assert!(made <= case.compute_mib * 1.25, "{what}");
    }
}

#[test]
fn weights_and_caches_are_exactly_what_llama_cpp_printed() {
    check_weights_and_caches(&Measurements::kept());
}

#[test]
fn compute_buffers_are_never_less_than_llama_cpp_printed_and_little_more() {
    check_compute(&Measurements::kept());
}

#[test]
#[ignore = "takes a minute and needs the Python packages gguf and xllamacpp (BERTH_TEST_PYTHON)"]
fn the_installed_llama_cpp_prints_the_same() {
    let python = std::env::var("BERTH_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let folder = tempfile::tempdir().expect("a folder");
    let script = tests().join("python/measure.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().expect("a script that runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let afresh = Measurements::of(folder.path().to_owned());
    check_weights_and_caches(&afresh);
    check_compute(&afresh);
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

/// The table of docs/ESTIMATION.md is what the tests see.
#[test]
fn the_table_in_the_documentation_is_true() {
    let mut table = String::new();
    for (case, made) in Measurements::kept().cases() {
        let parts = one_gpu(&made);
        let _ = writeln!(
            table,
            "| {} | {} x {}{} | {} | {} | {:.2} / {:.2} | {:.2} / {:.2} | {:.2} / {:.2} |",
            case.model,
            case.context,
            case.parallel,
            if case.unified { " shared" } else { "" },
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
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/ESTIMATION.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let missing: Vec<&str> = table.lines().filter(|line| !page.contains(line)).collect();
    assert!(missing.is_empty(), "docs/ESTIMATION.md should have\n{table}");
}
