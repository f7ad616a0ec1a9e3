//! Arguments that agree with an estimate, and arguments that do not.

use std::collections::BTreeSet;

use berth_domain::{GpuCount, RuntimeName};
use berth_estimate::launch::{Launched, NotAgreed, Program, agree, arguments, disagreements, options};
use berth_estimate::{CacheType, Estimate, Model, Options, Profile};

use crate::support::Plain;

const SHAPE: Plain =
    Plain { layers: 4, embedding: 1_024, heads: 8, kv_heads: 2, feed_forward: 4_096, vocabulary: 100, context: 32_768 };

fn estimate(options: &Options) -> Estimate {
    let model = Model::Gguf { model: Box::new(SHAPE.metadata("llama").into_model()), projector: None };
    model.estimate(options).expect("an estimate")
}

fn asked() -> Options {
    Options {
        context: Some(8_192),
        parallel: Some(2),
        gpu_counts: Some(BTreeSet::from([GpuCount::new(1)])),
        ..Options::default()
    }
}

/// The program that an estimate is of.
fn program(estimate: &Estimate) -> Program {
    if estimate.inputs.profile == Profile::Vllm { Program::Vllm } else { Program::LlamaServer }
}

fn flags(args: &str, estimate: &Estimate) -> Vec<String> {
    let args: Vec<&str> = args.split_whitespace().collect();
    let found = disagreements(program(estimate), &args, estimate).expect("arguments that can be read");
    found.into_iter().map(|found| found.flag).collect()
}

const AGREED: &str = "--ctx-size 16384 --parallel 2 --flash-attn on";

#[test]
fn arguments_that_say_what_was_estimated_agree() {
    let made = estimate(&asked());
    assert!(flags(AGREED, &made).is_empty());
    assert!(flags("-m x.gguf -c 16384 -np 2 -fa on --host 127.0.0.1 --port 8080 -ngl 99", &made).is_empty());
    assert!(flags("--ctx_size 16384 --parallel 2 -fa 1 -ctk f16 -ctv F16 -ub 512", &made).is_empty());
    assert!(flags("-c 4096 -np 2 -fa on -c 16384", &made).is_empty(), "the last word counts");
}

#[test]
fn every_other_word_is_found() {
    let made = estimate(&asked());
    for (more, flag) in [
        ("--ctx-size 32768", "--ctx-size"),
        ("-c 8192", "--ctx-size"),
        ("-c many", "--ctx-size"),
        ("-np 4", "--parallel"),
        ("--parallel -1", "--parallel"),
        ("--cache-type-k q8_0", "--cache-type-k"),
        ("-ctv f32", "--cache-type-v"),
        ("-ctv nonsense", "--cache-type-v"),
        ("--flash-attn off", "--flash-attn"),
        ("-fa auto", "--flash-attn"),
        ("-ub 2048", "--ubatch-size"),
        ("-kvu", "--kv-unified"),
        ("-sm row", "--split-mode"),
        ("-ts 3,1", "--tensor-split"),
        ("-ngl 2", "--n-gpu-layers"),
        ("-ngl auto", "--n-gpu-layers"),
        ("--mmproj p.gguf", "--mmproj"),
        ("--swa-full", "--swa-full"),
        ("-md draft.gguf", "--model-draft"),
        ("--lora a.gguf", "--lora"),
        ("-ot exps=CPU", "--override-tensor"),
    ] {
        assert_eq!(flags(&format!("{AGREED} {more}"), &made), [flag], "{more}");
    }
}

#[test]
fn a_missing_option_is_a_disagreement_where_versions_differ() {
    let made = estimate(&asked());
    let found = disagreements::<&str>(Program::LlamaServer, &[], &made).unwrap();
    let said: Vec<(&str, &Launched)> = found.iter().map(|found| (found.flag.as_str(), &found.launched)).collect();
    let not_said = &Launched::NotSaid;
    assert_eq!(said, [("--ctx-size", not_said), ("--parallel", not_said), ("--flash-attn", not_said)]);
    assert_eq!(found[0].to_string(), "--ctx-size is not said, and was estimated as 16384");
    let other = disagreements(Program::LlamaServer, &["-c", "1024"], &made).unwrap();
    assert_eq!(other[0].to_string(), "--ctx-size 1024, but was estimated as 16384");
    let whole = estimate(&Options { context: None, parallel: Some(1), ..asked() });
    assert!(!flags("-np 1 -fa on", &whole).contains(&"--ctx-size".to_owned()), "the model's own context");
    assert!(!flags("-np 1 -fa on -c 0", &whole).contains(&"--ctx-size".to_owned()));
    let several = estimate(&Options { gpu_counts: None, ..asked() });
    assert_eq!(flags(AGREED, &several), ["--tensor-split"], "by itself it splits by free memory");
    assert!(flags(&format!("{AGREED} -ts 1,1,1,1,1,1,1,1"), &several).is_empty());
}

#[test]
fn the_arguments_of_an_estimate_agree_with_it() {
    for wanted in [
        asked(),
        Options::default(),
        Options { flash_attention: Some(false), unified_cache: Some(true), batch: Some(1_024), ..asked() },
        Options { cache_type_k: Some(CacheType::Q8_0), cache_type_v: Some(CacheType::Q4_0), ..asked() },
        Options { profile: Some(Profile::Conservative), gpu_counts: None, ..asked() },
    ] {
        let made = estimate(&wanted);
        assert_eq!(disagreements(Program::LlamaServer, &arguments(&made), &made), Ok(vec![]), "{wanted:?}");
    }
}

#[test]
fn arguments_can_be_taken_as_the_wish_for_another_estimate() {
    let args = ["-c", "16384", "-np", "2", "-ctk", "q8_0", "-fa", "off", "-ub", "256", "-kvu"];
    let wanted = options(Program::LlamaServer, &args, Profile::LlamaCpp, &asked()).expect("a wish");
    assert_eq!((wanted.context, wanted.parallel, wanted.batch), (Some(8_192), Some(2), Some(256)));
    assert_eq!((wanted.cache_type_k, wanted.flash_attention), (Some(CacheType::Q8_0), Some(false)));
    let made = estimate(&wanted);
    assert_eq!(disagreements(Program::LlamaServer, &args, &made), Ok(vec![]));
    for bad in [&["-c", "much"][..], &["-ctk", "q9"], &["-fa", "auto"], &["--swa-full"], &["-ts", "3,1"]] {
        assert!(options(Program::LlamaServer, bad, Profile::LlamaCpp, &asked()).is_err(), "{bad:?}");
    }
}

/// An estimate as vLLM's would be.
fn vllm() -> Estimate {
    let mut made = estimate(&asked());
    made.inputs.profile = Profile::Vllm;
    made.inputs.batch = 2_048;
    made
}

#[test]
fn the_arguments_of_vllm_are_held_against_its_estimate() {
    let made = vllm();
    let agreed = "--max-model-len 8192 --max-num-seqs 2 --max-num-batched-tokens 2048";
    assert!(flags(agreed, &made).is_empty());
    assert!(flags("--max_model_len=8K --max-num-seqs 2 --max-num-batched-tokens 2K -tp 1", &made).is_empty());
    for (more, flag) in [
        ("--max-model-len 32768", "--max-model-len"),
        ("--max-model-len auto", "--max-model-len"),
        ("--max-model-len 8k", "--max-model-len"),
        ("--kv-cache-dtype fp8", "--kv-cache-dtype"),
        ("--tensor-parallel-size 2", "--tensor-parallel-size"),
        ("-tp two", "--tensor-parallel-size"),
        ("--gpu-memory-utilization 0.95", "--gpu-memory-utilization"),
        ("--pipeline-parallel-size 2", "--pipeline-parallel-size"),
        ("--dtype float32", "--dtype"),
        ("--enable-lora", "--enable-lora"),
        ("--device-memory-utilization 0.95", "--gpu-memory-utilization"),
        ("--device-memory-util=0.95", "--gpu-memory-utilization"),
        ("-sc {}", "--speculative-config"),
        ("--speculative-config.model x", "--speculative-config"),
        ("--speculative_config.model=x", "--speculative-config"),
        ("--spec-model x", "--spec-model"),
        ("--mm-ipc-gpu-memory-gb 4", "--mm-ipc-gpu-memory-gb"),
        ("-pcp 2", "--prefill-context-parallel-size"),
        ("--nnodes 2", "--nnodes"),
        ("-n2", "--nnodes"),
        ("--enable-sleep-mode", "--enable-sleep-mode"),
        ("--kv-cache-memory-bytes 8G", "--kv-cache-memory-bytes"),
    ] {
        assert_eq!(flags(&format!("{agreed} {more}"), &made), [flag], "{more}");
    }
    let args = arguments(&made);
    assert_eq!(disagreements(Program::Vllm, &args, &made), Ok(vec![]));
    let args = ["--max-model-len", "1.5K", "--kv-cache-dtype", "fp8_e5m2", "-tp", "4"];
    let wanted = options(Program::Vllm, &args, Profile::Vllm, &asked()).expect("a wish");
    assert_eq!((wanted.context, wanted.cache_type_v), (Some(1_536), Some(CacheType::Fp8)));
    assert_eq!(wanted.gpu_counts, Some(BTreeSet::from([GpuCount::new(4)])));
}

fn model() -> Model {
    Model::Gguf { model: Box::new(SHAPE.metadata("llama").into_model()), projector: None }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn what_arguments_leave_out_is_added_and_then_they_agree() {
    let made = agree(&model(), Program::LlamaServer, &asked(), &words("-m x.gguf"), 1).expect("an agreement");
    assert_eq!(made.estimate.inputs.context, 8_192);
    assert_eq!(made.missing.join(" "), "--ctx-size 16384 --parallel 2 --flash-attn on");
    let all: Vec<String> = words("-m x.gguf").into_iter().map(str::to_owned).chain(made.missing).collect();
    let again = agree(&model(), Program::LlamaServer, &asked(), &all, 1).expect("an agreement");
    assert_eq!(again.missing, Vec::<String>::new(), "the same again changes nothing");
    assert_eq!(again.estimate, made.estimate);
}

#[test]
fn open_inputs_are_taken_from_the_arguments() {
    let open = Options { gpu_counts: asked().gpu_counts, ..Options::default() };
    let said = words("-c 4096 -np 4 -ctk q8_0 -ctv q8_0 -fa on");
    let made = agree(&model(), Program::LlamaServer, &open, &said, 1).expect("an agreement");
    let inputs = &made.estimate.inputs;
    assert_eq!((inputs.context, inputs.parallel, inputs.cache_type_k), (1_024, 4, CacheType::Q8_0));
    assert!(made.missing.is_empty(), "{:?}", made.missing);
    // Whoever says nothing at all is estimated for as many as one slot serves.
    let made = agree(&model(), Program::LlamaServer, &open, &words("-c 4096"), 8).expect("an agreement");
    assert_eq!((made.estimate.inputs.context, made.estimate.inputs.parallel), (512, 8));
}

#[test]
fn arguments_that_say_something_else_are_refused() {
    for (args, flag) in [
        ("-c 32768", "--ctx-size"),
        ("-np 4", "--parallel"),
        ("-ctk q8_0", "--cache-type-k"),
        ("--mmproj p.gguf", "--mmproj"),
    ] {
        let asked = Options { cache_type_k: Some(CacheType::F16), ..asked() };
        let refused = agree(&model(), Program::LlamaServer, &asked, &words(args), 1).expect_err(args);
        assert!(matches!(refused, NotAgreed::Differ(_)) && refused.to_string().contains(flag), "{args}: {refused}");
        assert!(agree(&model(), Program::Other, &asked, &words(args), 1).is_err(), "whoever starts it: {args}");
    }
    let draft = agree(&model(), Program::LlamaServer, &asked(), &words("-md d.gguf"), 1).expect_err("a draft");
    assert!(draft.to_string().contains("--model-draft"), "{draft}");
}

#[test]
fn another_program_gets_no_options_that_it_may_not_have() {
    let made = agree(&model(), Program::Other, &asked(), &words("run me"), 1).expect("an agreement");
    assert!(made.missing.is_empty(), "{:?}", made.missing);
    let wrong = agree(&model(), Program::Vllm, &asked(), &words(""), 1).expect_err("a GGUF file for vLLM");
    assert_eq!(wrong, NotAgreed::OtherProgram(Profile::LlamaCpp));
    let of = |name: &str| Program::of(&RuntimeName::new(name).expect("a name"));
    assert_eq!([of("llama-server"), of("vllm"), of("whisper")], [Program::LlamaServer, Program::Vllm, Program::Other]);
    assert_eq!(of("ollama"), Program::Ollama);
}

#[test]
fn spellings_that_the_engine_does_not_take_are_refused() {
    for args in ["--ctx-size=16384", "-fa", "-fa -c 16384", "-c", "word"] {
        let refused = agree(&model(), Program::LlamaServer, &asked(), &words(args), 1).expect_err(args);
        assert!(matches!(refused, NotAgreed::Args(_)), "{args}: {refused}");
    }
    // Nobody knows what another program takes.
    assert!(agree(&model(), Program::Other, &asked(), &words("--ctx-size=16384 word"), 1).is_ok());
    assert!(agree(&model(), Program::Other, &asked(), &words("--ctx-size=1024"), 1).is_err());
}

#[test]
fn options_that_leave_the_gpu_as_it_is_are_no_disagreement() {
    let made = estimate(&asked());
    for more in ["-b 4096", "--cache-ram 1024", "--embedding", "--no-mmproj", "-kvo", "-no-kvu", "--threads 4"] {
        assert!(flags(&format!("{AGREED} {more}"), &made).is_empty(), "{more}");
    }
    for (more, flag) in
        [("-nkvo", "--kv-offload"), ("--moe-cache-mib 100", "--moe-cache-mib"), ("--mmproj-url u", "--mmproj-url")]
    {
        assert_eq!(flags(&format!("{AGREED} {more}"), &made), [flag], "{more}");
    }
    let vllm = vllm();
    let agreed = "--max-model-len 8192 --max-num-seqs 2 --max-num-batched-tokens 2048";
    assert!(flags(&format!("{agreed} --enforce-eager --seed 1 --pipeline-parallel-size 1"), &vllm).is_empty());
}

fn ollama(asked: &Options, args: &str, concurrency: u64) -> Result<String, NotAgreed> {
    let made = agree(&model(), Program::Ollama, asked, &words(args), concurrency)?;
    let (context, parallel) = (made.estimate.inputs.context, made.estimate.inputs.parallel);
    Ok(format!("{context}x{parallel} {}", made.missing.join(" ")))
}

#[test]
fn ollama_gets_the_context_and_the_cache_of_its_estimate() {
    let one = Options { parallel: Some(1), ..asked() };
    assert_eq!(ollama(&one, "", 1).as_deref(), Ok("8192x1 --num-ctx 8192 --flash-attention 1"));
    let quantised = Options { cache_type_k: Some(CacheType::Q8_0), cache_type_v: Some(CacheType::Q8_0), ..one.clone() };
    let told = "8192x1 --num-ctx 8192 --kv-cache-type q8_0 --flash-attention 1";
    assert_eq!(ollama(&quantised, "", 1).as_deref(), Ok(told));
    let open = Options { context: None, parallel: None, ..one };
    let said = "--context-length 4096 --kv-cache-type q4_0 --flash-attention 1";
    assert_eq!(ollama(&open, said, 3).as_deref(), Ok("4096x3 "), "what the arguments say is estimated");
    let made = agree(&model(), Program::Ollama, &open, &words(said), 3).expect("an agreement");
    assert_eq!(made.estimate.inputs.cache_type_v, CacheType::Q4_0);
}

#[test]
fn ollama_with_another_context_than_estimated_is_refused() {
    let one = Options { parallel: Some(1), cache_type_k: Some(CacheType::F16), ..asked() };
    for (args, says) in [
        ("--num-ctx 4096", "--num-ctx"),
        ("--context-length=4096", "--num-ctx"),
        ("--num-ctx many", "--num-ctx"),
        ("--kv-cache-type q8_0", "--kv-cache-type"),
    ] {
        let asked = Options { flash_attention: Some(true), ..one.clone() };
        let refused = ollama(&asked, args, 1);
        assert!(refused.as_ref().is_err_and(|why| why.to_string().contains(says)), "{args}: {refused:?}");
    }
    let two = ollama(&one, "", 2).expect_err("another concurrency");
    assert!(two.to_string().contains("concurrency"), "{two}");
    let mixed = Options { cache_type_k: Some(CacheType::Q8_0), cache_type_v: Some(CacheType::F16), ..one };
    assert!(ollama(&mixed, "", 1).is_err(), "one type for keys and values");
}
