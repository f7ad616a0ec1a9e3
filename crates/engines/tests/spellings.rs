//! Spellings that the engines take, and those that they refuse. Each was tried on the real parser.

use berth_engines::{Engine, Misread};

/// What an engine reads: the option's name in the table with its values, one after the other.
fn read(engine: Engine, args: &str) -> Result<String, Misread> {
    let args: Vec<&str> = args.split(' ').collect();
    let option = engine.read(&args)?;
    let one = |option: &berth_engines::ParsedOption<'_>| {
        let unknown = if option.known.is_none() { "?" } else { "" };
        format!("{unknown}{}[{}]", option.canonical(), option.values.join(","))
    };
    Ok(option.iter().map(one).collect::<Vec<_>>().join(" "))
}

#[test]
fn llama_server_takes_exact_names_and_underscores() {
    for (args, expected) in [
        ("-c 1024", "--ctx-size[1024]"),
        ("--ctx-size 1024", "--ctx-size[1024]"),
        ("--ctx_size 1024", "--ctx-size[1024]"),
        ("--flash_attn on", "--flash-attn[on]"),
        ("-np -1", "--parallel[-1]"),
        ("--control-vector-layer-range 1 2 -c 5", "--control-vector-layer-range[1,2] --ctx-size[5]"),
        ("-nkvo -c 5", "--kv-offload[] --ctx-size[5]"),
        ("--reverse-prompt -stop-", "--reverse-prompt[-stop-]"),
        ("--new-thing 5", "?--new-thing[5]"),
        ("--new-thing -c 5", "?--new-thing[] --ctx-size[5]"),
    ] {
        assert_eq!(read(Engine::LlamaServer, args).as_deref(), Ok(expected), "{args}");
    }
}

#[test]
fn llama_server_refuses_what_it_does_not_take() {
    for args in ["--ctx-size=1024", "-c=1024", "-fa", "-fa -c 64", "word", "-c 64 word", "--lora a b", "-c --port"] {
        assert!(read(Engine::LlamaServer, args).is_err(), "{args}: {:?}", read(Engine::LlamaServer, args));
    }
    // An option that it does not have is read, and refused by the table.
    for args in ["--ctx-si 64", "-c64", "-no_kvu"] {
        assert!(read(Engine::LlamaServer, args).unwrap().starts_with('?'), "{args}");
    }
}

#[test]
fn vllm_takes_what_argparse_takes() {
    for (args, expected) in [
        ("--max-model-len 8k", "--max-model-len[8k]"),
        ("--max_model_len=8k", "--max-model-len[8k]"),
        ("--max-model 8k", "--max-model-len[8k]"),
        ("--max_model=8k", "--max-model-len[8k]"),
        ("--device-memory-util 0.9", "--gpu-memory-utilization[0.9]"),
        ("-tp 2", "--tensor-parallel-size[2]"),
        ("-tp=2", "--tensor-parallel-size[2]"),
        ("-qfp8", "--quantization[fp8]"),
        ("-n2", "--nnodes[2]"),
        ("-pc 2", "--prefill-context-parallel-size[2]"),
        ("-sc.model x", "--speculative-config[x]"),
        ("--speculative-config.model=x", "--speculative-config[x]"),
        ("--speculative_config.num_speculative_tokens 3", "--speculative-config[3]"),
        ("--speculative-conf.model x", "--speculative-config[x]"),
        ("--enable-sleep", "--enable-sleep-mode[]"),
        ("--no-enable-sleep-mode --seed -1", "--enable-sleep-mode[] --seed[-1]"),
        ("--collect-detailed-traces a b --seed 1", "--collect-detailed-traces[a,b] --seed[1]"),
        ("-O3", "--optimization-level[3]"),
        ("-O 3", "--optimization-level[3]"),
        ("-O=3 --seed 1", "--optimization-level[3] --seed[1]"),
        ("--hf-token --seed 1", "--hf-token[] --seed[1]"),
        ("--seed=1.5", "--seed[1.5]"),
    ] {
        assert_eq!(read(Engine::Vllm, args).as_deref(), Ok(expected), "{args}");
    }
}

#[test]
fn vllm_refuses_what_argparse_refuses() {
    for args in [
        "--s 1",
        "--enable-sleep-mode=1",
        "--seed",
        "--seed --max-model-len 8",
        "word",
        "--seed 1 word",
        "--seed 1 -1",
        "--max-num-seqs.x",
    ] {
        assert!(read(Engine::Vllm, args).is_err(), "{args}: {:?}", read(Engine::Vllm, args));
    }
    for args in ["-tp2", "-- x", "-O"] {
        let found = read(Engine::Vllm, args);
        assert!(
            found.as_ref().is_err() || found.as_ref().is_ok_and(|option| option.contains('?')),
            "{args}: {found:?}"
        );
    }
}

#[test]
fn words_of_ollama_may_be_joined_to_their_values() {
    assert_eq!(read(Engine::Ollama, "--num-ctx=5 --kv-cache-type q8_0").unwrap(), "--num-ctx[5] --kv-cache-type[q8_0]");
    assert_eq!(read(Engine::Ollama, "--context-length 5").unwrap(), "--num-ctx[5]");
    assert!(read(Engine::Ollama, "--num-ctx").is_err());
    assert!(read(Engine::Ollama, "--num 5").unwrap().starts_with('?'));
}
