//! What the README shows is what happens.
#![expect(clippy::unwrap_used, reason = "a test that cannot read the README has failed")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

/// Everything on this machine, ended with the test.
struct Dev {
    child: Child,
    url: String,
    _data: tempfile::TempDir,
}

impl Dev {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, url, _data: data }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_command_works() {
    let commands = commands();
    assert!(commands.len() >= 7, "the README lost its commands: {commands:?}");
    let mut dev = None;
    let mut said = String::new();
    for command in commands {
        let words = command.strip_prefix("cargo run --release -- ").or(command.strip_prefix("target/release/berth "));
        match words {
            Some("dev") => dev = Some(Dev::start()),
            Some(words) => {
                let mut shell = shell(words);
                if let Some(dev) = &dev {
                    shell.env("BERTH_SERVER", &dev.url);
                }
                let output = shell.output().unwrap();
                said = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{command}: {said}{}", String::from_utf8_lossy(&output.stderr));
                if words == "ledger" {
                    let shown = blocks("text").into_iter().find(|block| block.contains("GPU-dev-1-0")).unwrap();
                    assert!(said.contains(&shown), "the README shows\n{shown}\nbut it says\n{said}");
                }
            }
            // It runs this test; running it from here would never end.
            None => assert_eq!(command, "tests/run"),
        }
    }
    assert!(!said.is_empty(), "nothing was said");
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
