//! Every scenario file, and every whole scenario in the documentation, passes; a misspelt key does not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use berth_scenario::{Failed, Passed, run_file, run_text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn scenario_files() -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![repository().join("tests/scenarios")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reports all failures, not only the first.
fn assert_all_pass(results: &[Result<Passed, Failed>]) {
    let all = results.len();
    assert!(all > 0, "nothing to run");
    let failures: Vec<String> =
        results.iter().filter_map(|result| result.as_ref().err()).map(Failed::to_string).collect();
    assert!(failures.is_empty(), "{} of {all} scenarios failed\n\n{}", failures.len(), failures.join("\n\n"));
    let ids: BTreeSet<&str> = results.iter().flatten().map(|passed| passed.id.as_str()).collect();
    assert_eq!(ids.len(), all, "two scenarios have one id");
    let empty: Vec<&str> = results.iter().flatten().filter(|passed| passed.steps == 0).map(|p| p.id.as_str()).collect();
    assert!(empty.is_empty(), "scenarios without a step: {empty:?}");
}

#[test]
fn every_scenario_passes() {
    let files = scenario_files().expect("the folder of scenarios");
    assert_all_pass(&files.iter().map(run_file).collect::<Vec<_>>());
}

#[test]
fn every_whole_scenario_of_the_documentation_passes() {
    let text = std::fs::read_to_string(repository().join("docs/SCENARIOS.md")).expect("docs/SCENARIOS.md");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let whole = blocks.filter(|block| block.starts_with("id ="));
    assert_all_pass(&whole.map(|block| run_text("docs/SCENARIOS.md", block)).collect::<Vec<_>>());
}

#[test]
fn a_misspelt_key_is_refused_with_its_line_and_the_known_keys() {
    for (text, line, key, known) in [
        ("id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\ngpuss = \"80GiB\"\n", "line 5", "gpuss", "`gpus`"),
        ("id = \"x\"\ntitle = \"x\"\n[settings]\nagelimit = \"1s\"\n", "line 4", "agelimit", "`age_limit`"),
        ("id = \"x\"\ntitle = \"x\"\n[[model]]\nname = \"m\"\nmemory = { totl = 1 }\n", "line 5", "totl", "`total`"),
        ("id = \"x\"\ntitle = \"x\"\n[[step]]\nsubmit = { model = \"m\", prio = 1 }\n", "line 4", "prio", "`priority`"),
        ("id = \"x\"\ntitle = \"x\"\n[[step]]\nexpects.queue = []\n", "line 4", "expects", "`expect`"),
        ("id = \"x\"\ntitle = \"x\"\n[[step]]\nexpect.devices.a = { hold = 1 }\n", "line 4", "hold", "`held`"),
    ] {
        let failed = run_text("case.toml", text).expect_err("it was taken");
        let message = failed.to_string();
        assert!(failed.is_bad_file(), "{message}");
        for part in ["case.toml", line, key, known] {
            assert!(message.contains(part), "{part:?} is not in {message}");
        }
    }
}

#[test]
fn a_step_does_exactly_one_thing() {
    for step in ["note = \"nothing\"", "restart = true\nwipe = true"] {
        let text = format!("id = \"x\"\ntitle = \"x\"\n[[step]]\n{step}\n");
        let message = run_text("case.toml", &text).expect_err("it was taken").to_string();
        assert!(message.contains("line 3") && message.contains("one thing"), "{message}");
    }
}

#[test]
fn a_failed_expectation_names_step_line_both_values_and_the_reason() {
    let text = "id = \"x\"\ntitle = \"wrong\"\n[[runner]]\nid = \"r1\"\ngpus = \"80GiB\"\n[[model]]\nname = \"m\"\n\
                memory = \"60GiB\"\n[[step]]\nsubmit = { model = \"m\", count = 2 }\n[[step]]\n\
                expect.workloads.\"m#2\" = { state = \"running\" }\n";
    let failed = run_text("case.toml", text).expect_err("it passed");
    let message = failed.to_string();
    assert!(!failed.is_bad_file());
    for part in ["case.toml:11", "step 2", "expected running, found queued", "60 GiB needed", "20 GiB free"] {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

#[test]
fn an_unexpected_refusal_and_a_missing_one_fail() {
    let world = "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\ngpus = \"80GiB\"\n[[model]]\nname = \"m\"\n\
                 memory = \"500GiB\"\n[[model]]\nname = \"n\"\nmemory = \"5GiB\"\n[[step]]\n";
    for step in
        ["submit = \"m\"", "submit = \"n\"\nrefused = \"never_fits\"", "submit = \"m\"\nrefused = \"queue_full\""]
    {
        let failed = run_text("case.toml", &format!("{world}{step}\n")).expect_err("it passed");
        assert!(matches!(&failed, Failed::Step(failed) if failed.step == 1), "{failed}");
    }
}
