//! Who may pass what.

#![expect(clippy::expect_used, reason = "a test says so when it fails")]

use berth_engines::{Allow, AllowError, ArgumentSource, Engine, Unfit, Why, check, check_job_memory, check_model};

fn words(args: &str) -> Vec<&str> {
    args.split_whitespace().collect()
}

fn allow(entries: &[&str]) -> Allow {
    Allow::new(entries, false).expect("a list")
}

#[test]
fn an_option_that_the_agent_allows_is_allowed_in_every_spelling() {
    for args in ["--trust-remote-code", "--trust_remote_code", "--trust-remote"] {
        let args = words(args);
        let refused = check(Some(Engine::Vllm), ArgumentSource::Model, &args, &Allow::default()).unwrap_err();
        assert!(refused.could_be_allowed() && refused.to_string().contains("loads code"), "{refused}");
        assert_eq!(check(Some(Engine::Vllm), ArgumentSource::Model, &args, &allow(&["--trust-remote-code"])), Ok(()));
    }
    let alias = allow(&["-tp"]);
    assert_eq!(check(Some(Engine::Vllm), ArgumentSource::Model, &words("--tensor-parallel-size 2"), &alias), Ok(()));
    let unknown = words("--brand-new 5");
    let refused = check(Some(Engine::Vllm), ArgumentSource::Model, &unknown, &Allow::default()).unwrap_err();
    assert_eq!(refused.why, Why::Unknown(Engine::Vllm));
    assert_eq!(check(Some(Engine::Vllm), ArgumentSource::Model, &unknown, &allow(&["--brand-new"])), Ok(()));
}

#[test]
fn a_job_never_changes_what_its_model_was_charged_for() {
    let everything = allow(&["--ctx-size", "--model", "--device"]);
    for args in ["--ctx-size 65536", "-c 65536", "--ctx_size 65536", "-m other.gguf", "-dev CUDA1"] {
        let refused = check(Some(Engine::LlamaServer), ArgumentSource::Job, &words(args), &everything).unwrap_err();
        assert!(matches!(refused.why, Why::ChangesClaim(_)), "{args}: {refused}");
        assert!(!refused.could_be_allowed());
    }
    assert_eq!(check(Some(Engine::LlamaServer), ArgumentSource::Job, &words("--temp 0.2"), &Allow::default()), Ok(()));
}

#[test]
fn a_job_of_a_command_without_a_table_passes_what_is_listed() {
    let listed = allow(&["--epochs", "-v", "train"]);
    for args in ["--epochs 3", "--epochs=3", "--epochs -1", "train --epochs 3 -v", ""] {
        assert_eq!(check(None, ArgumentSource::Job, &words(args), &listed), Ok(()), "{args}");
    }
    for args in
        ["--epoch 3", "--epochs 3 4", "--epochs --evil", "--evil", "--evil=--epochs", "script.sh", "--epochs=3 x"]
    {
        let refused = check(None, ArgumentSource::Job, &words(args), &listed).unwrap_err();
        assert_eq!(refused.why, Why::NotListed, "{args}");
    }
    assert_eq!(check(None, ArgumentSource::Job, &words("--anything at all"), &allow(&["*"])), Ok(()));
    assert_eq!(check(None, ArgumentSource::Model, &words("--anything at all"), &Allow::default()), Ok(()));
    assert!(check(None, ArgumentSource::Job, &words("--epochs 3"), &Allow::default()).is_err(), "nothing is listed");
}

#[test]
fn a_command_without_a_table_whose_memory_was_estimated_keeps_it() {
    for args in ["--ctx-size 65536", "--ctx-size=65536", "--ctx_size=65536", "-c 65536", "--epochs 3 -ngl 5"] {
        assert!(check_job_memory(Engine::LlamaServer, &words(args)).is_err(), "{args}");
    }
    assert_eq!(check_job_memory(Engine::LlamaServer, &words("--epochs 3 --temp 1")), Ok(()));
}

#[test]
fn a_list_that_cannot_be_meant_is_refused() {
    assert_eq!(Allow::new(&["*"], true), Err(AllowError::Everything));
    for entry in ["", "-", "--", "--x=1", "--x y", "--ü"] {
        assert_eq!(Allow::new(&[entry], false), Err(AllowError::Entry(entry.to_owned())));
    }
    let many: Vec<String> = (0..=Allow::MOST).map(|number| format!("--x{number}")).collect();
    assert_eq!(Allow::new(&many, false), Err(AllowError::TooMany(Allow::MOST + 1)));
}

#[test]
fn llama_server_needs_a_model_and_not_too_many_gpus() {
    let check = |args: &str, gpus| check_model(Engine::LlamaServer, &words(args), gpus);
    assert_eq!(check("-c 10", 1), Err(Unfit::NoModel));
    for args in ["-m a.gguf", "--model a.gguf", "-hf a/b", "-mu http://x/y.gguf", "--gpt-oss-20b-default"] {
        assert_eq!(check(args, 16), Ok(()), "{args}");
    }
    assert_eq!(check("--spec-default", 1), Err(Unfit::NoModel));
    assert_eq!(check("-m a -ts 1,1", 15), Ok(()));
    assert!(matches!(check("-m a -ts 1,1", 16), Err(Unfit::TooManyGpus { most: 15, .. })));
    assert!(matches!(check("-m a", 17), Err(Unfit::TooManyGpus { most: 16, .. })));
}

#[test]
fn ollama_takes_no_value_that_it_would_ignore() {
    let check = |args: &str| check_model(Engine::Ollama, &words(args), 1);
    for args in [
        "",
        "--num-ctx 4096",
        "--kv-cache-type q8_0",
        "--kv-cache-type q4_0 --flash-attention 1",
        "--flash-attention 0",
    ] {
        assert_eq!(check(args), Ok(()), "{args}");
    }
    for args in [
        "--num-ctx many",
        "--num-ctx 0",
        "--num-ctx 10 --num-ctx x",
        "--kv-cache-type q5_0",
        "--flash-attention off",
        "--kv-cache-type q8_0 --flash-attention 0",
        "--kv-cache-type q8_0 --flash-attention false",
    ] {
        assert!(check(args).is_err(), "{args}");
    }
}
