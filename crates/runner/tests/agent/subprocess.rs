//! The test program also serves as the agent and as the trampoline of slots: both are ignored tests, and other tests
//! start them as processes.

use std::ffi::OsString;

use berth_client::Client;
use berth_runner::agent::{Agent, AgentConfig, AgentParts};
use berth_runner::process::{SpawnOptions, trampoline};
use tokio::sync::watch;

fn words(door: &str) -> Vec<OsString> {
    let program = std::env::current_exe().unwrap().into_os_string();
    let words = ["--exact", door, "--ignored", "--nocapture", "--test-threads=1", "--"];
    [program].into_iter().chain(words.map(Into::into)).collect()
}

fn arguments() -> Vec<OsString> {
    std::env::args_os().skip_while(|arg| arg != "--").skip(1).collect()
}

/// What starts an agent; its configuration file follows.
pub(crate) fn agent() -> Vec<OsString> {
    words("subprocess::agent_door")
}

#[test]
#[ignore = "a door for the trampoline, opened by other tests"]
fn trampoline_door() {
    let args = arguments();
    if !args.is_empty() {
        trampoline(args)
    }
}

#[test]
#[ignore = "a door for agents, opened by other tests"]
fn agent_door() {
    let args = arguments();
    let [file] = args.as_slice() else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let config: AgentConfig = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let (settings, runtimes) = config.check().unwrap();
    let client = Client::builder(&config.agent.server).apart().build().unwrap();
    let spawning = SpawnOptions {
        trampoline: Some(words("subprocess::trampoline_door")),
        on_agent_exit: config.agent.on_agent_exit,
        cgroups: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let ended = runtime.block_on(Agent::run(AgentParts { settings, runtimes, client, spawning }, stopped));
    panic!("the agent ended: {ended:?}");
}
