//! Types of a cache that llama.cpp refuses to start with, refused before it is started.

use std::collections::BTreeSet;

use berth_domain::GpuCount;
use berth_estimate::launch::{NotAgreed, Program, agree};
use berth_estimate::{CacheType, EstimateError, InputError, Model, Options, Profile};

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

fn on(gpus: u16) -> Options {
    Options { gpu_counts: Some(BTreeSet::from([GpuCount::new(gpus)])), ..Options::default() }
}

/// A model whose heads have this length.
fn with_heads_of(length: u32) -> Gguf {
    SHAPE.metadata_with_heads("llama", length, length)
}

fn refusal(file: Gguf, options: &Options) -> Option<EstimateError> {
    let model = Model::Gguf { model: Box::new(file.into_model()), projector: None };
    model.estimate(options).err()
}

#[test]
fn blocks_of_a_cache_that_do_not_divide_a_head_are_refused() {
    for kind in CacheType::ALL.into_iter().filter(|kind| kind.is_quantized()) {
        let keys = Options { cache_type_k: Some(kind), ..on(1) };
        let values = Options { cache_type_v: Some(kind), ..on(1) };
        for (what, options) in [("keys", &keys), ("values", &values)] {
            let refused = |length: u64| Some(InputError::CacheBlocks { what, kind, block: 32, length }.into());
            assert_eq!(refusal(with_heads_of(80), options), refused(80));
            assert_eq!(refusal(with_heads_of(16), options), refused(16), "though a row of two heads is one block");
            assert_eq!(refusal(with_heads_of(96), options), None);
            let conservative = Options { profile: Some(Profile::Conservative), ..options.clone() };
            assert_eq!(refusal(with_heads_of(80), &conservative), refused(80));
        }
        let without = Options { flash_attention: Some(false), ..keys };
        assert!(refusal(with_heads_of(80), &without).is_some(), "llama.cpp ends on it without flash attention");
    }
    for kind in [CacheType::F32, CacheType::F16, CacheType::Bf16] {
        let options = Options { cache_type_k: Some(kind), cache_type_v: Some(kind), ..on(1) };
        assert_eq!(refusal(with_heads_of(80), &options), None);
    }
    let said = refusal(with_heads_of(80), &Options { cache_type_k: Some(CacheType::Q8_0), ..on(1) });
    let said = said.expect("a refusal").to_string();
    assert!(said.contains("q8_0") && said.contains("80") && said.contains("choose f16"), "{said}");
}

#[test]
fn blocks_are_held_against_the_layers_that_cache() {
    let q8 = Options { cache_type_k: Some(CacheType::Q8_0), cache_type_v: Some(CacheType::Q8_0), ..on(1) };
    let windows = |length: u32| {
        let file = SHAPE.metadata("gemma3").u32("gemma3.attention.sliding_window", 512);
        file.u32("gemma3.attention.key_length_swa", length)
    };
    assert_eq!(refusal(windows(64), &q8), None);
    let refused = InputError::CacheBlocks { what: "keys", kind: CacheType::Q8_0, block: 32, length: 72 };
    assert_eq!(refusal(windows(72), &q8), Some(refused.into()), "only in layers with a window");
    let states = SHAPE.metadata_with_heads("mamba2", 80, 80);
    assert_eq!(refusal(states, &q8), None, "states have a type of their own");
}

#[test]
fn a_latent_row_has_one_type() {
    let latent = || {
        let file = SHAPE.metadata_with_heads("deepseek2", 96, 64);
        file.u32("deepseek2.attention.key_length_mla", 96).u32("deepseek2.attention.value_length_mla", 64)
    };
    let options = |keys, values| Options { cache_type_k: Some(keys), cache_type_v: Some(values), ..on(1) };
    let (q8, f16) = (CacheType::Q8_0, CacheType::F16);
    assert_eq!(refusal(latent(), &options(q8, q8)), None);
    let refused = InputError::LatentTypes { keys: q8, values: f16 };
    assert_eq!(refusal(latent(), &options(q8, f16)), Some(refused.into()));
}

#[test]
fn arguments_that_the_engine_refuses_are_no_agreement() {
    let model = Model::Gguf { model: Box::new(with_heads_of(80).into_model()), projector: None };
    let args = ["-c", "4096", "-fa", "on", "-ctk", "q8_0"];
    let refused = agree(&model, Program::LlamaServer, &on(1), &args, 1);
    let blocks = InputError::CacheBlocks { what: "keys", kind: CacheType::Q8_0, block: 32, length: 80 };
    assert_eq!(refused, Err(NotAgreed::Estimate(blocks.into())));
}
