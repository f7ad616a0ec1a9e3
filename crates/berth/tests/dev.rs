//! `berth dev` and the quick start that it prints: a server, agents and slots that are real processes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;

use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use common::Dev;

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
    let (_, written) = dev.berth(&["logs", chat["id"].as_str().unwrap()]);
    assert!(written.starts_with("serving chat on port "), "{written}");
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

#[test]
fn the_export_line_is_all_that_curl_needs() {
    let mut dev = Dev::start();
    let export = dev.line_with("export BERTH_SERVER=");
    let ask = "curl -s -o /dev/null -w '%{http_code}' -H \"Authorization: Bearer $BERTH_TOKEN\" $BERTH_SERVER/scheduler/slots";
    let status = |script: &str| {
        let output = Command::new("sh").args(["-c", script]).env_remove("BERTH_TOKEN").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(status(&format!("{export}; {ask}")), "200", "{export}");
    assert_eq!(status(&format!("{export}; unset BERTH_TOKEN; {ask}")), "401", "without the token nothing is shown");
}
