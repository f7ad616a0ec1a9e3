//! The tables against the recorded option names of the real programs.

#![expect(clippy::expect_used, reason = "a test says so when it fails")]

use berth_engines::{Allow, ArgumentSource, Engine, Meaning, Takes, check};

/// Each recorded option: what follows it (`0`, `1`, `2`, `+` or `?`), and its names.
fn recorded(text: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let mut words = line.split_whitespace();
        (words.next().expect("how many values follow"), words.collect())
    });
    rows.collect()
}

const RECORDS: [(Engine, &str); 2] = [
    (Engine::LlamaServer, include_str!("recorded/llama-server-0.7.0.txt")),
    (Engine::Vllm, include_str!("recorded/vllm-0.32.0.txt")),
];

fn takes(word: &str) -> &'static [Takes] {
    match word {
        "0" => &[Takes::Nothing, Takes::Switch],
        "1" => &[Takes::One],
        "2" => &[Takes::Two],
        "?" => &[Takes::Maybe],
        _ => &[Takes::Several],
    }
}

#[test]
fn every_option_of_the_real_programs_is_in_the_table_under_all_its_names() {
    for (engine, text) in RECORDS {
        let rows = recorded(text);
        assert!(rows.len() > 200, "{engine:?} has {} options", rows.len());
        for (values, names) in rows {
            let rows: Vec<_> = engine.options().filter(|known| names.iter().any(|name| known.has_name(name))).collect();
            let [known] = rows.as_slice() else { panic!("{names:?} of {engine:?} are {} rows: {rows:?}", rows.len()) };
            for name in &names {
                assert!(known.has_name(name), "{name} of {engine:?} is not in the row of {}", known.name());
            }
            assert!(
                takes(values).contains(&known.takes),
                "{names:?} of {engine:?} takes {values}, not {:?}",
                known.takes
            );
        }
    }
}

#[test]
fn no_name_stands_for_two_options() {
    for engine in Engine::ALL {
        for known in engine.options() {
            for name in known.names() {
                let rows = engine.options().filter(|other| other.has_name(name)).count();
                assert_eq!(rows, 1, "{name} of {engine:?}");
            }
        }
    }
}

/// The options that the real programs have, passed as they are: what the table calls harmless passes, the rest needs the
/// agent's leave, and a job never states what its model is charged for.
#[test]
fn every_option_of_the_real_programs_is_passed_or_refused_by_its_meaning() {
    for (engine, text) in RECORDS {
        for (values, names) in recorded(text) {
            for name in names {
                let known = engine.options().find(|known| known.has_name(name)).unwrap();
                let count = match values {
                    "0" => 0,
                    "2" => 2,
                    _ => 1,
                };
                let args: Vec<&str> = std::iter::once(name).chain(std::iter::repeat_n("x", count)).collect();
                let may = |owner, allow: &Allow| check(Some(engine), owner, &args, allow).is_ok();
                let by_name = Allow::new(&[known.name()], true).unwrap();
                let free = matches!(known.means, Meaning::Harmless | Meaning::Model | Meaning::Memory);
                assert_eq!(may(ArgumentSource::Model, &Allow::default()), free, "{name} in a model of {engine:?}");
                assert!(may(ArgumentSource::Model, &by_name), "{name} in a model of {engine:?}, allowed");
                let harmless = known.means == Meaning::Harmless;
                assert_eq!(may(ArgumentSource::Job, &Allow::default()), harmless, "{name} in a job of {engine:?}");
                let claim = known.means.changes_claim();
                assert_eq!(may(ArgumentSource::Job, &by_name), !claim, "{name} in a job of {engine:?}, allowed");
            }
        }
    }
}

#[test]
fn options_that_were_used_against_a_runner_are_what_they_are() {
    for (engine, means, options) in [
        (
            Engine::LlamaServer,
            Meaning::Code,
            "--mcp-servers-json --mcp-servers-config --tools --tools-runtime --ui-mcp-proxy --webui-mcp-proxy --agent -ag",
        ),
        (Engine::LlamaServer, Meaning::Network, "--rpc --host --port"),
        (Engine::LlamaServer, Meaning::Placement, "-dev -mg -fit --numa"),
        (
            Engine::Vllm,
            Meaning::Code,
            "--trust-remote-code --tool-parser-plugin --reasoning-parser-plugin --io-processor-plugin --middleware \
             --worker-cls --worker-extension-cls --scheduler-cls --logits-processors --kv-transfer-config -cc \
             --structured-outputs-config --model-class-overrides -sc --speculative-config --spec-model",
        ),
        (
            Engine::Vllm,
            Meaning::Placement,
            "--gpu-memory-utilization --device-memory-utilization --mm-ipc-gpu-memory-gb -pcp --nnodes -n -tp -pp -dp \
             --enable-sleep-mode --no-enable-sleep-mode --kv-cache-memory-bytes --num-gpu-blocks-override --device-ids",
        ),
        (Engine::Vllm, Meaning::Unusable, "--headless --config --grpc"),
        (Engine::Vllm, Meaning::Network, "--uds --host --port --master-addr"),
    ] {
        for option in options.split_whitespace() {
            let known = engine.options().find(|known| known.has_name(option)).unwrap();
            assert_eq!(known.means, means, "{option} of {engine:?}");
        }
    }
}

/// `ollama serve` takes no options: what a model states becomes a variable, and each word stands for a real one.
#[test]
fn every_word_of_ollama_is_a_variable_of_the_real_program() {
    let variables: Vec<&str> =
        include_str!("recorded/ollama-0.17.4.txt").lines().filter(|line| !line.starts_with('#')).collect();
    for (word, variable) in [
        ("--num-ctx", "OLLAMA_CONTEXT_LENGTH"),
        ("--kv-cache-type", "OLLAMA_KV_CACHE_TYPE"),
        ("--flash-attention", "OLLAMA_FLASH_ATTENTION"),
    ] {
        assert!(Engine::Ollama.options().any(|known| known.name() == word), "{word}");
        assert!(variables.contains(&variable), "{variable}");
    }
    assert_eq!(Engine::Ollama.options().count(), 3, "every word is looked at here");
}
