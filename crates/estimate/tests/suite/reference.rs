//! The profile `conservative` against the numbers that describe it, through files and the reader.

use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount, Memory, RankMemory};
use berth_estimate::{CacheType, Estimate, Model, Options, Profile};

use crate::support::{Plain, hundredths_of_gib};

const SEVEN: Plain = plain(28, 3_584, 28, 4, 18_944, 152_064);
const SEVENTY_TWO: Plain = plain(80, 8_192, 64, 8, 29_568, 152_064);
const SEVENTY: Plain = plain(80, 8_192, 64, 8, 28_672, 128_256);
const EIGHT: Plain = plain(32, 4_096, 32, 8, 14_336, 128_256);
const FOUR_HUNDRED: Plain = plain(126, 16_384, 128, 16, 53_248, 128_256);

const fn plain(layers: u64, embedding: u64, heads: u64, kv_heads: u64, feed_forward: u64, vocabulary: u64) -> Plain {
    Plain { layers, embedding, heads, kv_heads, feed_forward, vocabulary, context: 131_072 }
}

/// One reference point: W and the whole in hundredths of a GiB.
struct Point {
    shape: Plain,
    kind: &'static str,
    weights: u64,
    context: u64,
    flash: bool,
    whole: u64,
}

const fn point(shape: Plain, kind: &'static str, weights: u64, context: u64, whole: u64) -> Point {
    Point { shape, kind, weights, context, flash: false, whole }
}

// The types are those that leave room below W. A small rest fills it up.
const POINTS: [Point; 10] = [
    point(SEVEN, "Q3_K", 407, 131_072, 1_889),
    point(SEVEN, "Q4_K", 700, 131_072, 2_182),
    point(SEVEN, "Q8_0", 1_317, 131_072, 2_799),
    point(SEVENTY_TWO, "Q4_0", 4_350, 32_768, 5_818),
    point(SEVENTY, "Q4_K", 3_904, 131_072, 9_586),
    point(SEVENTY, "Q4_K", 3_904, 2_048, 4_049),
    point(SEVENTY, "Q3_K", 3_680, 131_072, 9_362),
    point(EIGHT, "Q4_K", 499, 8_192, 704),
    point(FOUR_HUNDRED, "IQ1_S", 8_796, 131_072, 24_686),
    Point { flash: true, ..point(FOUR_HUNDRED, "IQ1_S", 8_796, 131_072, 21_598) },
];

fn estimate(point: &Point, counts: &[u16]) -> Estimate {
    let folder = tempfile::tempdir().expect("a folder");
    let file = point.shape.with_weights("llama", point.kind, hundredths_of_gib(point.weights));
    let path = file.write(folder.path(), "model.gguf");
    let options = Options {
        profile: Some(Profile::Conservative),
        context: Some(point.context),
        flash_attention: Some(point.flash),
        gpu_counts: Some(counts.iter().copied().map(GpuCount::new).collect()),
        ..Options::default()
    };
    Model::open(&path).expect("a good file").estimate(&options).expect("an estimate")
}

#[test]
fn every_reference_point_is_met_within_a_hundredth() {
    for point in &POINTS {
        let made = estimate(point, &[1]).total(GpuCount::new(1)).expect("a number for one GPU").get();
        let said = hundredths_of_gib(point.whole);
        let off = made.abs_diff(said);
        assert!(
            off * 100 <= said,
            "{} layers, context {}: {} instead of {}",
            point.shape.layers,
            point.context,
            Bytes::new(made),
            Bytes::new(said)
        );
        // The reference points are given in hundredths: this is as near as they allow.
        assert!(off <= hundredths_of_gib(2), "{} instead of {}", Bytes::new(made), Bytes::new(said));
    }
}

#[test]
fn the_weights_are_all_tensors_but_the_token_embedding() {
    let made = estimate(&POINTS[7], &[1]);
    let parts = made.counts[&GpuCount::new(1)][0].parts;
    let off = parts.weights.get().abs_diff(hundredths_of_gib(499));
    assert!(off < 64, "{off} bytes: no more than rounding at the ends of tensors");
    assert_eq!(parts.overhead, Bytes::mib(250));
    assert_eq!(parts.kv, Bytes::gib(1));
}

#[test]
fn a_model_without_an_output_tensor_counts_its_token_embedding_once_more() {
    let shape = Plain { layers: 1, ..EIGHT };
    let tied = shape.metadata("llama").tensor("token_embd.weight", "F16", &[shape.embedding, shape.vocabulary]);
    let folder = tempfile::tempdir().expect("a folder");
    let tied = tied.write(folder.path(), "tied.gguf");
    let options = Options { profile: Some(Profile::Conservative), context: Some(2_048), ..Options::default() };
    let made = Model::open(&tied).expect("a good file").estimate(&options).expect("an estimate");
    let embedding = 2 * shape.embedding * shape.vocabulary;
    assert_eq!(made.counts[&GpuCount::new(1)][0].parts.weights.get(), embedding);
    assert_eq!(made.model.weights.get(), embedding, "in the file it is there once");
}

#[test]
fn several_gpus_have_their_layers_and_the_first_and_the_last_more() {
    let made = estimate(&POINTS[4], &[1, 2, 4, 8]);
    let Memory::PerGpu(memory) = made.memory() else { panic!("a number for each count") };
    assert_eq!(memory.keys().map(|count| count.get()).collect::<Vec<_>>(), [1, 2, 4, 8]);
    assert!(matches!(memory[&GpuCount::new(1)], RankMemory::Even(_)));
    for count in [2, 4, 8] {
        let RankMemory::Ranks(ranks) = &memory[&GpuCount::new(count)] else { panic!("GPUs that differ") };
        let devices = &made.counts[&GpuCount::new(count)];
        assert_eq!(ranks.len(), usize::from(count));
        let layers: usize = devices.iter().map(|device| device.layers.count).sum();
        assert_eq!(layers, 80, "each layer once");
        let (first, last) = (ranks[0], ranks[ranks.len() - 1]);
        let between = &ranks[1..ranks.len() - 1];
        assert!(between.iter().all(|rank| *rank <= first.max(last)), "{ranks:?}");
        assert!(devices[devices.len() - 1].layers.output);
        let kv: u64 = devices.iter().map(|device| device.parts.kv.get()).sum();
        assert_eq!(kv, 40 << 30, "the cache is split, not copied");
    }
}

#[test]
fn a_cache_of_other_types_takes_their_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = Plain { layers: 2, ..EIGHT }.metadata("llama").write(folder.path(), "model.gguf");
    let model = Model::open(&path).expect("a good file");
    let kv = |kind: CacheType, flash: bool| {
        let options = Options {
            profile: Some(Profile::Conservative),
            context: Some(1_024),
            cache_type_k: Some(kind),
            cache_type_v: Some(kind),
            flash_attention: Some(flash),
            gpu_counts: Some(BTreeSet::from([GpuCount::new(1)])),
            ..Options::default()
        };
        let made = model.estimate(&options).expect("an estimate");
        made.counts[&GpuCount::new(1)][0].parts.kv.get()
    };
    let values = 2 * 1_024 * 8 * 256;
    assert_eq!(kv(CacheType::F32, false), values * 4);
    assert_eq!(kv(CacheType::F16, false), values * 2);
    assert_eq!(kv(CacheType::Q8_0, true), values / 32 * 34);
    assert_eq!(kv(CacheType::Q4_0, true), values / 32 * 18);
}
