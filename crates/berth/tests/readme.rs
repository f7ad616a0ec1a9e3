//! What the README shows is what happens.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::Dev;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let readme = readme();
    let fence = format!("```{language}\n");
    let starts = readme.match_indices(&fence).map(|(at, _)| at + fence.len());
    starts.map(|at| readme[at..].split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Runs the words after `cargo run --release --` as a shell in the repository would, `*` included.
fn run(words: &str) -> Output {
    shell(words).output().unwrap()
}

fn shell(words: &str) -> Command {
    let mut command = Command::new("sh");
    command.current_dir(root()).arg("-c").arg(format!("\"$0\" {words}")).arg(env!("CARGO_BIN_EXE_berth"));
    command
}

fn commands() -> Vec<String> {
    let lines = blocks("sh").join("");
    lines
        .lines()
        .map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// The block of shell lines that has this one in it, as a shell in the repository would run it.
fn block_with(line: &str) -> String {
    blocks("sh").into_iter().find(|block| block.contains(line)).unwrap_or_else(|| panic!("the README lost {line}"))
}

#[test]
fn every_command_is_one_that_is_run_here() {
    let known = [
        "cargo run --release -- dev",
        "tests/run",
        "cargo run --release -- scenario --explain docs/examples/five-jobs.toml",
    ];
    let session = block_with("berth submit chat");
    let others: Vec<String> = commands().into_iter().filter(|command| !session.contains(command.as_str())).collect();
    assert_eq!(others, known);
}

#[test]
fn the_quick_start_works_from_submit_to_eviction() {
    let dev = Dev::start();
    dev.until(&["runners"], |runners| runners.as_array().is_some_and(|list| list.len() == 2));
    let session = block_with("berth submit chat");
    let (setting, session) = session.split_once('\n').unwrap();
    assert_eq!(setting, "export PATH=\"$PWD/target/release:$PATH\"");
    let program = Path::new(env!("CARGO_BIN_EXE_berth")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-e", "-u", "-c", session])
        .env("PATH", path)
        .env("BERTH_SERVER", &dev.url)
        .env("BERTH_TOKEN", dev.token())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("I am a demo. You said: Why is the sky blue?"), "berth chat: {said}");
    assert!(said.contains("\"chat.completion\"") && said.contains("You said: hello"), "curl: {said}");
    let shown = blocks("text").into_iter().find(|block| block.contains("GPU-dev-1-0")).unwrap();
    assert!(said.contains(&shown), "the README shows\n{shown}\nbut it says\n{said}");
    assert!(said.contains("waiting (full_now)") && said.contains("60 GiB needed"), "it explains why: {said}");
    let models: Vec<String> =
        dev.json(&["slots"]).as_array().unwrap().iter().map(|slot| slot["model"].to_string()).collect();
    assert_eq!(models, ["\"vision\""; 4], "chat was evicted for the fourth: {said}");
}

#[test]
fn the_example_says_what_it_shows() {
    let example = root().join("docs/examples/five-jobs.toml");
    assert_eq!(blocks("toml"), [std::fs::read_to_string(example).unwrap()]);
    let output = run("scenario --explain docs/examples/five-jobs.toml");
    let said = String::from_utf8(output.stdout).unwrap();
    let shown = blocks("text").pop().unwrap();
    assert!(said.ends_with(&shown), "the README shows\n{shown}\nbut it says\n{said}");
}

#[test]
fn a_misspelt_file_is_refused_with_its_own_status() {
    let file = std::env::temp_dir().join(format!("berth-readme-{}.toml", std::process::id()));
    std::fs::write(&file, "id = \"x\"\ntitel = \"misspelt\"\n").unwrap();
    let output = run(&format!("scenario {}", file.display()));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("titel"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let output = run("scenario tests/scenarios/*/*.toml | head -n 1");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
