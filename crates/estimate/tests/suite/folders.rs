//! Hugging Face folders and what vLLM does with them.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use berth_domain::{Bytes, GpuCount, Memory, RankMemory};
use berth_estimate::hf::FolderModel;
use berth_estimate::{CacheType, GRAPHS_BEYOND_SHARE, Model, Note, Options, Profile, utilization};
use serde_json::{Value as Json, json};

/// Writes a safetensors file: a header, and room for data that is never there.
fn write_tensors(path: &Path, tensors: &[(&str, &str, &[u64], u64)]) {
    let mut offset = 0;
    let mut header = serde_json::Map::new();
    for (name, dtype, shape, size) in tensors {
        let end = offset + shape.iter().product::<u64>() * size;
        header.insert((*name).to_owned(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [offset, end] }));
        offset = end;
    }
    let text = serde_json::to_vec(&header).expect("JSON");
    let mut file = File::create(path).expect("a file");
    file.write_all(&(text.len() as u64).to_le_bytes()).expect("room");
    file.write_all(&text).expect("room");
    file.set_len(8 + text.len() as u64 + offset).expect("sparse files");
}

fn eight() -> Json {
    json!({
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256,
        "max_position_embeddings": 8192, "torch_dtype": "bfloat16"
    })
}

fn folder(config: &Json) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.json"), config.to_string()).expect("a file");
    write_tensors(
        &folder.path().join("model.safetensors"),
        &[
            ("model.embed_tokens.weight", "BF16", &[128_256, 4_096], 2),
            ("model.layers.0.self_attn.q_proj.weight", "BF16", &[4_096, 4_096], 2),
            ("model.layers.0.self_attn.k_proj.weight", "BF16", &[1_024, 4_096], 2),
            ("model.layers.0.input_layernorm.weight", "BF16", &[4_096], 2),
        ],
    );
    folder
}

const EMBEDDING: u64 = 128_256 * 4_096 * 2;
const QUERIES: u64 = 4_096 * 4_096 * 2;
const KEYS: u64 = 1_024 * 4_096 * 2;
const NORM: u64 = 4_096 * 2;

#[test]
fn weights_come_from_the_headers_and_are_shared_by_the_gpus() {
    let folder = folder(&eight());
    let model = Model::open(folder.path()).expect("a folder");
    let options = Options { context: Some(1_000), parallel: Some(4), ..Options::default() };
    let made = model.estimate(&options).expect("an estimate");
    assert_eq!(made.inputs.profile, Profile::Vllm);
    assert_eq!(made.inputs.cache_type_k, CacheType::Bf16, "what the model computes in");
    assert_eq!(made.model.weights.get(), EMBEDDING + QUERIES + KEYS + NORM);
    for (count, parts) in [(1, 1), (2, 2), (4, 4), (8, 8)] {
        let device = made.counts[&GpuCount::new(count)][0].parts;
        assert_eq!(device.weights.get(), (EMBEDDING + QUERIES + KEYS) / parts + NORM);
        // Blocks of 16 tokens: 1000 become 1008.
        assert_eq!(device.kv.get(), 2 * 4 * 1_008 * (8 / parts) * 128 * 2 * 2);
    }
    let Memory::PerGpu(memory) = made.memory() else { panic!("a number for each count") };
    assert!(matches!(memory[&GpuCount::new(8)], RankMemory::Even(_)), "all GPUs are alike");
}

#[test]
fn p15_heads_decide_how_many_gpus() {
    let counts = |config: &Json| {
        let folder = folder(config);
        let model = FolderModel::open(folder.path()).expect("a folder");
        model.gpu_counts(GpuCount::new(16)).into_iter().map(GpuCount::get).collect::<Vec<_>>()
    };
    assert_eq!(counts(&eight()), [1, 2, 4, 8, 16], "16 GPUs share 8 heads for keys");
    let mut odd = eight();
    odd["num_attention_heads"] = json!(28);
    odd["num_key_value_heads"] = json!(4);
    odd["head_dim"] = json!(128);
    assert_eq!(counts(&odd), [1, 2, 4], "7, 14 and 28 do not divide 4 heads for keys");
    let mut latent = eight();
    latent["num_attention_heads"] = json!(12);
    latent["kv_lora_rank"] = json!(512);
    latent["intermediate_size"] = json!(12_288);
    assert_eq!(counts(&latent), [1, 2, 3, 4, 6, 12], "a latent row is not split");
    let mut narrow = eight();
    narrow["moe_intermediate_size"] = json!(36);
    narrow["num_experts_per_tok"] = json!(8);
    assert_eq!(counts(&narrow), [1, 2, 4], "experts have columns too");
}

#[test]
fn counts_that_cannot_be_are_left_out_and_none_is_refused() {
    let mut config = eight();
    config["num_attention_heads"] = json!(30);
    config["num_key_value_heads"] = json!(30);
    config["head_dim"] = json!(128);
    config["intermediate_size"] = json!(14_400);
    let folder = folder(&config);
    let model = Model::open(folder.path()).expect("a folder");
    let made = model.estimate(&Options::default()).expect("an estimate");
    assert_eq!(made.inputs.gpu_counts.iter().map(|count| count.get()).collect::<Vec<_>>(), [1, 2, 3, 5, 6]);
    let four = Options { gpu_counts: Some([GpuCount::new(4)].into()), ..Options::default() };
    let problem = model.estimate(&four).expect_err("a refusal").to_string();
    assert!(problem.contains("30 and 30 for keys"), "{problem}");
}

#[test]
fn keys_are_copied_where_there_are_more_gpus_than_heads() {
    let mut config = eight();
    config["num_key_value_heads"] = json!(2);
    let folder = folder(&config);
    let model = Model::open(folder.path()).expect("a folder");
    let made = model.estimate(&Options { context: Some(1_024), ..Options::default() }).expect("an estimate");
    let kv = |count| made.counts[&GpuCount::new(count)][0].parts.kv.get();
    assert_eq!(kv(2), kv(1) / 2);
    assert_eq!(kv(8), kv(2), "one head is the least");
    let weights = made.counts[&GpuCount::new(8)][0].parts.weights.get();
    assert_eq!(weights, (EMBEDDING + QUERIES) / 8 + KEYS / 2 + NORM);
}

#[test]
fn windows_latent_rows_and_linear_layers_take_what_they_keep() {
    let kv = |config: &Json, context: u64| {
        let folder = folder(config);
        let model = Model::open(folder.path()).expect("a folder");
        let options = Options { context: Some(context), batch: Some(512), ..Options::default() };
        model.estimate(&options).expect("an estimate").counts[&GpuCount::new(1)][0].parts.kv.get()
    };
    let row = 8 * 128 * 2 * 2;
    assert_eq!(kv(&eight(), 8_192), 2 * 8_192 * row);
    let mut windows = eight();
    windows["sliding_window"] = json!(1_024);
    windows["layer_types"] = json!(["sliding_attention", "full_attention"]);
    assert_eq!(kv(&windows, 8_192), (8_192 + 1_024 + 512 + 16) * row);
    windows["use_sliding_window"] = json!(false);
    assert_eq!(kv(&windows, 8_192), 2 * 8_192 * row);
    let mut latent = eight();
    latent["kv_lora_rank"] = json!(512);
    latent["qk_rope_head_dim"] = json!(64);
    assert_eq!(kv(&latent, 8_192), 2 * 8_192 * 576 * 2);
    let mut linear = eight();
    linear["full_attention_interval"] = json!(2);
    linear["linear_num_key_heads"] = json!(16);
    linear["linear_num_value_heads"] = json!(32);
    linear["linear_key_head_dim"] = json!(128);
    linear["linear_value_head_dim"] = json!(128);
    linear["linear_conv_kernel_dim"] = json!(4);
    let state = 4 * (3 * (2 * 16 * 128 + 32 * 128) + 32 * 128 * 128);
    assert_eq!(kv(&linear, 8_192), 8_192 * row + state);
}

#[test]
fn a_model_that_sees_keeps_its_numbers_inside() {
    let outer = json!({ "model_type": "qwen2_5_vl", "torch_dtype": "float16", "text_config": eight() });
    let folder = folder(&outer);
    let model = FolderModel::open(folder.path()).expect("a folder");
    assert_eq!(model.shape().layers.len(), 2);
    assert_eq!(model.shape().architecture.as_ref(), "qwen2_5_vl");
    assert_eq!(model.cache_type(), CacheType::Bf16, "the inner word counts");
    let mut quantized = eight();
    quantized["quantization_config"] = json!({ "quant_method": "awq", "bits": 4 });
    let folder = self::folder(&quantized);
    assert_eq!(FolderModel::open(folder.path()).expect("a folder").quantization(), Some("awq"));
}

#[test]
fn parts_are_found_through_the_index_and_the_index_is_believed_without_them() {
    let folder = folder(&eight());
    std::fs::remove_file(folder.path().join("model.safetensors")).expect("a file to remove");
    let parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let index = json!({
        "metadata": { "total_size": 123_456 },
        "weight_map": { "a": parts[0], "b": parts[1], "c": parts[0] }
    });
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).expect("a file");
    let model = Model::open(folder.path()).expect("an index");
    let made = model.estimate(&Options::default()).expect("an estimate");
    assert_eq!(made.model.weights.get(), 123_456);
    assert_eq!(made.notes, [Note::WeightsFromIndex]);
    write_tensors(&folder.path().join(parts[0]), &[("a", "F16", &[64, 64], 2), ("c", "F8_E4M3", &[64], 1)]);
    write_tensors(&folder.path().join(parts[1]), &[("b", "I32", &[64, 8], 4)]);
    let made = Model::open(folder.path()).expect("two parts").estimate(&Options::default()).expect("an estimate");
    assert_eq!(made.model.weights.get(), 64 * 64 * 2 + 64 + 64 * 8 * 4);
    assert_eq!((made.model.files, made.notes.len()), (2, 0));
}

#[test]
fn folders_that_lie_are_refused() {
    let refused = |prepare: &dyn Fn(&Path)| {
        let folder = folder(&eight());
        prepare(folder.path());
        FolderModel::open(folder.path()).err().map(|problem| problem.to_string()).expect("a refusal")
    };
    for outside in ["../elsewhere.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b"] {
        let index = json!({ "weight_map": { "a": outside } }).to_string();
        let problem = refused(&|path| {
            std::fs::write(path.join("model.safetensors.index.json"), &index).expect("a file");
        });
        assert!(problem.contains("not a file of its folder"), "{outside:?}: {problem}");
    }
    let overwrite = |bytes: Vec<u8>| {
        refused(&move |path: &Path| std::fs::write(path.join("model.safetensors"), &bytes).expect("a file"))
    };
    assert!(overwrite(u64::MAX.to_le_bytes().to_vec()).contains("larger than"));
    assert!(overwrite([100u64.to_le_bytes().to_vec(), b"{}".to_vec()].concat()).contains("has 10 bytes"));
    assert!(overwrite(vec![1, 2, 3]).contains("cannot be read"));
    let beyond = br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#;
    let beyond = [(beyond.len() as u64).to_le_bytes().to_vec(), beyond.to_vec()].concat();
    assert!(overwrite(beyond).contains("its header speaks of"));
    let wrong = br#"{"a":{"dtype":"F32","shape":[18446744073709551615,4],"data_offsets":[0,16]}}"#;
    let wrong = [(wrong.len() as u64).to_le_bytes().to_vec(), wrong.to_vec()].concat();
    assert!(overwrite(wrong).contains("is not as expected"));
    let config = |text: &'static str| {
        refused(&move |path: &Path| std::fs::write(path.join("config.json"), text).expect("a file"))
    };
    assert!(config("7").contains("is not as expected"));
    assert!(config("{}").contains("hidden_size"));
    assert!(config(r#"{"hidden_size": 99999999999}"#).contains("at most"));
    assert!(config(r#"{"hidden_size": -1}"#).contains("is not as expected"));
    let nothing = tempfile::tempdir().expect("a folder");
    std::fs::write(nothing.path().join("config.json"), eight().to_string()).expect("a file");
    assert!(FolderModel::open(nothing.path()).is_err_and(|problem| problem.to_string().contains("neither")));
}

#[test]
fn p20_vllm_gets_no_more_than_its_claim() {
    let told = |claim, total, beyond| utilization(Bytes::gib(claim), Bytes::gib(total), beyond).map(|u| u.to_string());
    assert_eq!(told(8, 80, Bytes::ZERO).as_deref(), Ok("0.1000"));
    assert_eq!(told(16, 24, Bytes::ZERO).as_deref(), Ok("0.6666"));
    assert!(told(16, 12, Bytes::ZERO).is_err(), "refused, not cut");
    assert_eq!(told(50, 80, Bytes::ZERO).as_deref(), Ok("0.6250"));
    assert_eq!(told(9, 80, GRAPHS_BEYOND_SHARE).as_deref(), Ok("0.1000"), "what it does not count is not given");
    assert!(told(13, 12, GRAPHS_BEYOND_SHARE).is_err());
}

#[test]
fn a_model_in_single_precision_is_loaded_in_half() {
    let mut config = eight();
    config["torch_dtype"] = json!("float32");
    let folder = folder(&config);
    write_tensors(&folder.path().join("model.safetensors"), &[("a.weight", "F32", &[1_024, 1_024], 4)]);
    let made = Model::open(folder.path()).expect("a folder").estimate(&Options::default()).expect("an estimate");
    assert_eq!(made.counts[&GpuCount::new(1)][0].parts.weights, Bytes::mib(2));
    assert_eq!(made.inputs.cache_type_k, CacheType::F16);
}
