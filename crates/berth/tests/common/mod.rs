//! `berth dev` as a process, for the tests of what it does and of what the README shows.
#![allow(dead_code, reason = "each test program uses its part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Everything on this machine, ended with the test.
pub(crate) struct Dev {
    pub(crate) child: Child,
    pub(crate) url: String,
    output: BufReader<ChildStdout>,
    data: tempfile::TempDir,
}

impl Dev {
    pub(crate) fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
            .args(["dev", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, url, output, data }
    }

    /// Reads what `berth dev` prints, up to and including the first line that contains `text`.
    pub(crate) fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "berth dev printed no line with {text:?}");
            if line.contains(text) {
                return line.trim().to_owned();
            }
        }
    }

    /// The admin's token, which `berth dev` prints for curl.
    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.data.path().join("server/admin.token")).unwrap().trim().to_owned()
    }

    pub(crate) fn berth(&self, words: &[&str]) -> (bool, String) {
        let output =
            Command::new(env!("CARGO_BIN_EXE_berth")).env("BERTH_SERVER", &self.url).args(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let (ok, text) = self.berth(&[words, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words:?} ({ok}): {text}"))
    }

    /// Looks until `enough`, for as long as a slow machine may take.
    pub(crate) fn until(&self, words: &[&str], enough: impl Fn(&Value) -> bool) -> Value {
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
