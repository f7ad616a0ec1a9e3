//! `berth gateway`: the same answers from a process that keeps no state.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_tests::gateway::{Behaviour, PlayedEngine, Stage};
use berth_tests::service::{berth, eventually, within};

struct Standalone {
    child: Child,
    address: String,
}

impl Standalone {
    fn start(stage: &Stage, settings: &[&str]) -> Self {
        let mut command = Command::new(berth());
        command.args(["--server", &stage.api.base(), "gateway", "--listen", "127.0.0.1:0"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut child = command.env_remove("BERTH_TOKEN").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.find(|line| line.as_ref().unwrap().contains("berth gateway serves")).unwrap().unwrap();
        let address = line.split_once("url=http://").unwrap().1.split(' ').next().unwrap().to_owned();
        std::thread::spawn(move || lines.count());
        Self { child, address }
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn gateways_beside_each_other_answer_stream_and_let_go() {
    let stage = Stage::with(&["gateway.enabled=false"]);
    stage.model("m", 40);
    let gateways = [Standalone::start(&stage, &["gateway.keep_alive=100ms"]), Standalone::start(&stage, &[])];
    stage.loader.loads_in(Duration::from_millis(400));
    let chat = "/v1/chat/completions";
    let text = Stage::ask_raw_at(&gateways[0].address, chat, &Stage::chat("m", true)).read_to_end();
    assert!(text.contains("\r\n:\n\n\r\n") && text.contains("chat.completion"), "{text}");
    for gateway in &gateways {
        let text = Stage::ask_raw_at(&gateway.address, chat, &Stage::chat("m", false)).read_to_end();
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with(PlayedEngine::whole()), "{text}");
        let text = Stage::ask_raw_at(&gateway.address, chat, &Stage::chat("nobody", false)).read_to_end();
        assert!(text.starts_with("HTTP/1.1 404") && text.contains("model_not_found"), "{text}");
    }
    assert_eq!(stage.loader.started().len(), 1, "they share what runs");
    stage.until_nothing_is_left();
    // A client that goes away ends the lease through the gateway, at once.
    stage.engine.plays(Behaviour::Stream(10_000, Duration::from_millis(20)));
    let raw = Stage::ask_raw_at(&gateways[1].address, chat, &Stage::chat("m", true));
    let running = || stage.api.get("/api/v1/workloads?state=running").is(200).rows().len();
    eventually("it runs", || (running() == 1).then_some(()));
    drop(raw);
    assert!(within(Duration::from_secs(1), || (running() == 0).then_some(())).is_some());
    stage.until_nothing_is_left();
}
