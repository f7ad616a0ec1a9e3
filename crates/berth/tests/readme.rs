//! What the README shows is what happens.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the README has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    let mut command = Command::new("sh");
    command.current_dir(root()).arg("-c").arg(format!("\"$0\" {words}")).arg(env!("CARGO_BIN_EXE_berth"));
    command.output().unwrap()
}

fn commands() -> Vec<String> {
    let lines = blocks("sh").join("");
    lines
        .lines()
        .map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn every_command_works() {
    let commands = commands();
    assert!(commands.len() >= 3, "the README lost its commands: {commands:?}");
    for command in commands {
        match command.strip_prefix("cargo run --release -- ") {
            Some(words) => {
                let output = run(words);
                assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
            }
            // It runs this test; running it from here would never end.
            None => assert_eq!(command, "tests/run"),
        }
    }
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
    let output = run("scenario tests/scenarios/*.toml | head -n 1");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
