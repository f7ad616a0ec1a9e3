//! What is read of different architectures, and what llama.cpp keeps for them.

use std::collections::BTreeSet;

use berth_domain::{Bytes, GpuCount};
use berth_estimate::{CacheType, Model, ModelShape, Options, Parts, Profile, Weights};

use crate::support::{Gguf, Plain};

const SHAPE: Plain = Plain {
    layers: 12,
    embedding: 1_024,
    heads: 8,
    kv_heads: 2,
    feed_forward: 4_096,
    vocabulary: 1_000,
    context: 8_192,
};

fn shape(file: Gguf) -> ModelShape {
    file.into_model().shape().expect("a shape")
}

fn windowed(shape: &ModelShape) -> Vec<bool> {
    shape.layers.iter().map(|layer| layer.window.is_some()).collect()
}

fn parts(file: Gguf, options: &Options) -> Vec<Parts> {
    let model = Model::Gguf { model: Box::new(file.into_model()), projector: None };
    let made = model.estimate(options).expect("an estimate");
    let (_, devices) = made.counts.first_key_value().expect("a count");
    devices.iter().map(|device| device.parts).collect()
}

fn on(gpus: u16) -> Options {
    Options { gpu_counts: Some(BTreeSet::from([GpuCount::new(gpus)])), ..Options::default() }
}

#[test]
fn windows_follow_the_architecture_or_the_file() {
    let with = |architecture: &str| {
        let window = format!("{architecture}.attention.sliding_window");
        SHAPE.metadata(architecture).u32(&window, 512)
    };
    assert!(windowed(&shape(with("llama"))).iter().all(|windowed| !windowed), "llama.cpp has none there");
    let gemma = windowed(&shape(with("gemma3")));
    let sixth_is_dense: Vec<bool> = (1..=12).map(|layer| layer % 6 != 0).collect();
    assert_eq!(gemma, sixth_is_dense);
    let dense_first: Vec<bool> = (0..12).map(|layer| layer % 4 != 0).collect();
    assert_eq!(windowed(&shape(with("cohere2moe"))), dense_first);
    let listed: Vec<bool> = (0..12).map(|layer| layer < 5).collect();
    let file = with("gemma4").bools("gemma4.attention.sliding_window_pattern", &listed);
    assert_eq!(windowed(&shape(file)), listed);
    let every_third = with("gemma3").u32("gemma3.attention.sliding_window_pattern", 3);
    assert_eq!(windowed(&shape(every_third)).iter().filter(|windowed| !**windowed).count(), 4);
    let fixed = shape(with("llama4"));
    assert_eq!(fixed.layers[0].window, Some(8_192), "whatever the file says");
    let none = SHAPE.metadata("llama4").u32("llama4.attention.sliding_window", 0);
    assert!(windowed(&shape(none)).iter().all(|windowed| !windowed));
    let default = shape(SHAPE.metadata("gemma2"));
    assert_eq!(default.layers[0].window, Some(4_096), "though the file does not say");
}

#[test]
fn layers_with_windows_may_have_heads_of_their_own_length() {
    let file = SHAPE
        .metadata("gemma3")
        .u32("gemma3.attention.sliding_window", 512)
        .u32("gemma3.attention.key_length_swa", 64)
        .u32("gemma3.attention.value_length_swa", 32);
    let shape = shape(file);
    assert_eq!((shape.layers[0].key_length, shape.layers[0].value_length), (64, 32));
    assert_eq!((shape.layers[5].key_length, shape.layers[5].value_length), (128, 128));
}

#[test]
fn recurrent_layers_keep_a_state_and_no_tokens() {
    let kv: Vec<u32> = (1..=12).map(|layer| if layer % 4 == 0 { 2 } else { 0 }).collect();
    let hybrid = Gguf::model("jamba")
        .u32("jamba.block_count", 12)
        .u32("jamba.embedding_length", 1_024)
        .u32("jamba.context_length", 8_192)
        .u32("jamba.attention.head_count", 8)
        .list("jamba.attention.head_count_kv", &kv)
        .u32("jamba.ssm.conv_kernel", 4)
        .u32("jamba.ssm.inner_size", 2_048)
        .u32("jamba.ssm.state_size", 16);
    let read = shape(hybrid.clone());
    assert_eq!(read.layers.iter().filter(|layer| layer.caches).count(), 3);
    let state = read.layers[0].state.expect("a state");
    assert_eq!((state.convolution, state.recurrence), (3 * 2_048, 16 * 2_048));
    let made = parts(hybrid, &Options { parallel: Some(4), context: Some(1_024), ..on(1) });
    let states = 9 * 4 * 4 * (3 + 16) * 2_048;
    assert_eq!(made[0].kv.get(), 3 * 4 * 1_024 * 2 * 256 * 2 + states);
    let next = SHAPE.metadata("qwen3next").u32("qwen3next.ssm.conv_kernel", 4);
    let caching: Vec<bool> = shape(next).layers.iter().map(|layer| layer.caches).collect();
    assert_eq!(caching, (1..=12).map(|layer| layer % 4 == 0).collect::<Vec<_>>());
    let both = shape(SHAPE.metadata("falcon-h1").u32("falcon-h1.ssm.inner_size", 64));
    assert!(both.layers.iter().all(|layer| layer.caches && layer.state.is_some()));
}

#[test]
fn a_latent_cache_has_no_values() {
    let mla = Plain { heads: 128, kv_heads: 1, ..SHAPE }
        .metadata("deepseek2")
        .u32("deepseek2.attention.key_length_mla", 192)
        .u32("deepseek2.attention.value_length_mla", 128);
    assert!(shape(mla.clone()).latent);
    let options = Options { context: Some(4_096), ..on(1) };
    assert_eq!(parts(mla.clone(), &options)[0].kv.get(), 12 * 4_096 * 128 * 2);
    let both = Options { profile: Some(Profile::Conservative), ..options };
    assert_eq!(parts(mla, &both)[0].kv.get(), 12 * 4_096 * 256 * 2, "a program that saves nothing");
}

#[test]
fn layers_that_share_a_cache_or_only_draft_have_none() {
    let shared = SHAPE.metadata("gemma4").u32("gemma4.attention.shared_kv_layers", 5);
    assert_eq!(shape(shared).layers.iter().filter(|layer| layer.caches).count(), 7);
    let drafting = SHAPE.metadata("glm4moe").u32("glm4moe.nextn_predict_layers", 1);
    let caching: Vec<bool> = shape(drafting).layers.iter().map(|layer| layer.caches).collect();
    assert_eq!(caching, [vec![true; 11], vec![false]].concat());
    assert!(shape(SHAPE.metadata("bert")).layers.iter().all(|layer| !layer.caches));
}

#[test]
fn contexts_are_rounded_up_for_each_sequence_or_for_all() {
    let row = 12 * 2 * 256 * 2;
    let kv = |context, parallel, unified| {
        let options =
            Options { context: Some(context), parallel: Some(parallel), unified_cache: Some(unified), ..on(1) };
        parts(SHAPE.metadata("llama"), &options)[0].kv.get() / row
    };
    assert_eq!(kv(1_000, 1, false), 1_024);
    assert_eq!(kv(1_000, 3, false), 3 * 1_024);
    assert_eq!(kv(1_000, 3, true), 3_072);
    assert_eq!(kv(300, 3, false), 3 * 512);
    assert_eq!(kv(300, 3, true), 1_024);
}

#[test]
fn quantized_values_need_flash_attention() {
    let options = Options { cache_type_v: Some(CacheType::Q8_0), flash_attention: Some(false), ..on(1) };
    let model = Model::Gguf { model: Box::new(SHAPE.metadata("llama").into_model()), projector: None };
    let problem = model.estimate(&options).expect_err("a refusal").to_string();
    assert_eq!(problem, "values stored as q8_0 need flash attention");
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let model = Model::Gguf { model: Box::new(SHAPE.metadata("llama").into_model()), projector: None };
    for options in [
        Options { context: Some(0), ..on(1) },
        Options { context: Some(u64::MAX), ..on(1) },
        Options { parallel: Some(0), ..on(1) },
        Options { parallel: Some(u64::MAX), ..on(1) },
        Options { batch: Some(0), ..on(1) },
        Options { profile: Some(Profile::Vllm), ..on(1) },
        Options { cache_type_k: Some(CacheType::Fp8), ..on(1) },
        on(0),
        on(65),
        Options { gpu_counts: Some(BTreeSet::new()), ..Options::default() },
    ] {
        assert!(model.estimate(&options).is_err(), "{options:?}");
    }
}

#[test]
fn the_largest_of_everything_is_an_answer_or_a_refusal_but_no_panic() {
    let file = Gguf::model("deepseek2")
        .u32("deepseek2.block_count", 1_024)
        .u32("deepseek2.embedding_length", 1 << 26)
        .u32("deepseek2.context_length", u32::MAX)
        .u32("deepseek2.attention.head_count", 1 << 16)
        .u32("deepseek2.attention.key_length", 1 << 16)
        .u32("deepseek2.feed_forward_length", 1 << 26)
        .u32("deepseek2.expert_used_count", 1 << 16)
        .u32("deepseek2.attention.indexer.key_length", 1 << 16);
    let model = Model::Gguf { model: Box::new(file.into_model()), projector: None };
    for profile in [Profile::LlamaCpp, Profile::Conservative] {
        for flash_attention in [Some(true), Some(false)] {
            let (profile, parallel) = (Some(profile), Some(65_536));
            let options = Options { profile, parallel, flash_attention, batch: Some(1 << 20), ..Options::default() };
            let problem = model.estimate(&options).expect_err("more than any memory").to_string();
            assert_eq!(problem, "the estimate is larger than any memory");
        }
    }
}

#[test]
fn each_gpu_has_its_layers_and_the_last_the_output() {
    let file = SHAPE.with_weights("llama", "Q4_K", 1 << 28);
    let model = file.clone().into_model();
    let weights = Weights::of(&model, 12);
    let all: u64 = model.tensors().iter().map(|tensor| tensor.bytes()).sum();
    assert_eq!(weights.total(), all);
    let made = parts(file, &on(4));
    let sum: u64 = made.iter().map(|parts| parts.weights.get()).sum();
    assert!(sum.abs_diff(all - weights.token_embedding) < 128 * 200, "rounding at the ends of tensors");
    let layers = [4, 3, 3, 2];
    for (rank, (parts, count)) in made.iter().zip(layers).enumerate() {
        let output = if rank == 3 { weights.output } else { 0 };
        let expected = weights.layers[0] * count + output;
        assert!(parts.weights.get().abs_diff(expected) < 128 * 40, "GPU {rank}: {:?}, not {expected}", parts.weights);
        assert_eq!(parts.overhead, Bytes::mib(640));
    }
    let alone = parts(SHAPE.with_weights("llama", "Q4_K", 1 << 28), &on(1));
    assert!(made[0].compute > alone[0].compute, "several GPUs keep copies of their inputs");
}

#[test]
fn a_projector_is_on_the_first_gpu() {
    let projector = Gguf::model("clip")
        .u32("clip.vision.embedding_length", 1_024)
        .u32("clip.vision.feed_forward_length", 4_096)
        .u32("clip.vision.attention.head_count", 16)
        .u32("clip.vision.image_size", 336)
        .u32("clip.vision.patch_size", 14)
        .tensor("v.blk.0.attn_q.weight", "F16", &[1_024, 1_024]);
    let folder = tempfile::tempdir().expect("a folder");
    let model = SHAPE.metadata("llama").write(folder.path(), "model.gguf");
    let path = projector.write(folder.path(), "mmproj.gguf");
    let opened = Model::open(&model).and_then(|model| model.with_projector(&path)).expect("both files");
    let made = opened.estimate(&on(2)).expect("an estimate");
    assert!(made.inputs.projector);
    let devices = &made.counts[&GpuCount::new(2)];
    let positions = 24 * 24;
    assert_eq!(devices[0].parts.projector.get(), 2 * 1_024 * 1_024 + 4 * positions * (5 * 1_024 + 3 * 4_096));
    assert_eq!(devices[1].parts.projector, Bytes::ZERO);
    let alone = Model::open(&path).map(|model| model.estimate(&on(1)));
    assert!(alone.expect("a readable file").is_err_and(|problem| problem.to_string().contains("a projector")));
    let problem = Model::open(&model).and_then(|opened| opened.with_projector(&model)).expect_err("no projector");
    assert!(problem.to_string().contains("llama"), "{problem}");
}
