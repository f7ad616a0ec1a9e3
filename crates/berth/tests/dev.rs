//! `berth dev` and the quick start that it prints: a server, agents and slots that are real processes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

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

    fn berth(&self, words: &[&str]) -> (bool, String) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_berth")).env("BERTH_SERVER", &self.url).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    fn json(&self, words: &[&str]) -> Value {
        let (ok, text) = self.berth(&[words, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words:?} ({ok}): {text}"))
    }

    /// Looks until `enough`, for as long as a slow machine may take.
    fn until(&self, words: &[&str], enough: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let seen = self.json(words);
            if enough(&seen) {
                return seen;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{words:?} says {seen:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(endpoint: &str) -> String {
    let address = endpoint.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_quick_start_works_from_submit_to_eviction() {
    let dev = Dev::start();
    dev.until(&["runners"], |runners| runners.as_array().is_some_and(|list| list.len() == 2));

    let chat = dev.json(&["submit", "chat", "--wait", "30s"]);
    assert_eq!(chat["state"], "running", "{chat:#}");
    let endpoint = chat["slot"]["endpoint"].as_str().unwrap();
    assert!(ask(endpoint).contains("This is chat"), "the slot answers where the workload says");
    assert_eq!(dev.json(&["slots"]).as_array().unwrap().len(), 1);
    let (_, bars) = dev.berth(&["ledger"]);
    assert!(bars.contains("held 45 GiB, free 35 GiB of 80 GiB"), "{bars}");

    // Three more fill the other GPUs; a fifth model needs the memory of an idle one.
    for _ in 0..3 {
        let vision = dev.json(&["submit", "vision", "--wait", "30s"]);
        assert_eq!(vision["state"], "running", "{vision:#}");
    }
    let waiting = dev.json(&["submit", "vision"]);
    assert_eq!(waiting["state"], "queued", "{waiting:#}");
    let (_, why) = dev.berth(&["explain", waiting["id"].as_str().unwrap()]);
    assert!(why.contains("full_now") && why.contains("60 GiB needed"), "{why}");

    // The chat lease ends: its slot is idle, is evicted, and only then does the fifth run on its GPU.
    let id = chat["id"].as_str().unwrap();
    assert!(dev.berth(&["complete", id]).0);
    let ran = dev.until(&["workloads", waiting["id"].as_str().unwrap()], |row| row["state"] == "running");
    assert_eq!(ran["slot"]["gpus"], chat["slot"]["gpus"], "{ran:#}");
    assert!(std::net::TcpStream::connect(endpoint.trim_start_matches("http://")).is_err(), "the evicted slot is gone");
}

#[test]
fn everything_ends_with_it() {
    let mut dev = Dev::start();
    dev.until(&["runners"], |runners| runners.as_array().is_some_and(|list| list.len() == 2));
    let chat = dev.json(&["submit", "chat", "--wait", "30s"]);
    let endpoint = chat["slot"]["endpoint"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let pid = dev.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(dev.child.wait().unwrap().success(), "it ends well");
    let begun = Instant::now();
    while std::net::TcpStream::connect(&endpoint).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the slot outlived it");
        std::thread::sleep(Duration::from_millis(20));
    }
}
