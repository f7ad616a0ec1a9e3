//! The benchmark runs itself once more as an agent, and as what its slots run: words of the command line say which.
//! (The environment will not do: a slot has only what the agent gives it.)

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use berth_client::Client;
use berth_runner::agent::{Agent, AgentConfig, AgentParts};
use berth_runner::process::{SpawnOptions, trampoline};
use berth_server::config::LogConfig;
use berth_server::logging;

use super::child::{cpu_of, resident_mib_of};

const AGENT: &str = "as-agent";
const SLOT: &str = "as-slot";
const EXEC: &str = "as-trampoline";
/// What a slot says at its start: as much as the agent keeps of it in memory.
const SAID: usize = 64 << 10;

/// If this process was started as an agent or as a slot, runs it and never returns.
pub fn run_if_agent() -> anyhow::Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let word = |at: usize| words.get(at).and_then(|word| word.to_str());
    match word(0) {
        Some(EXEC) => trampoline(words.into_iter().skip(1)),
        Some(SLOT) => slot(word(1).context("no port")?.parse()?),
        Some(AGENT) => agent(Path::new(word(1).context("no configuration")?)),
        _ => Ok(()),
    }
}

/// A program that does nothing but to answer that it is well.
fn slot(port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    std::io::stdout().write_all(&[b'x'; SAID])?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut request = [0; 1024];
        if stream.read(&mut request)? > 0 {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
        }
    }
    Ok(())
}

fn agent(config: &Path) -> anyhow::Result<()> {
    let config: AgentConfig = toml::from_str(&std::fs::read_to_string(config)?)?;
    let (settings, runtimes) = config.check()?;
    let filter = "warn,berth_runner::agent=debug".to_owned();
    logging::init(&LogConfig { filter, ..LogConfig::default() }).map_err(anyhow::Error::msg)?;
    let spawning = SpawnOptions {
        trampoline: Some(vec![std::env::current_exe()?.into_os_string(), EXEC.into()]),
        ..SpawnOptions::default()
    };
    let client = Client::builder(&config.agent.server).build()?;
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(Agent::run(AgentParts { settings, runtimes, client, spawning }, stopped))?)
}

/// Starts what slots run, by itself.
pub fn start_slot(port: u16) -> anyhow::Result<Child> {
    Ok(Command::new(std::env::current_exe()?).args([SLOT, &port.to_string()]).stdout(Stdio::null()).spawn()?)
}

/// An agent that runs, with simulated GPUs. Its slots end with it.
#[derive(Debug)]
pub struct AgentProcess {
    child: Child,
    log: PathBuf,
}

impl AgentProcess {
    /// Starts an agent for `server` below a directory.
    pub fn start(server: SocketAddr, directory: &Path, gpus: usize) -> anyhow::Result<Self> {
        let quoted = |text: String| toml::Value::from(text).to_string();
        let program = quoted(std::env::current_exe()?.display().to_string());
        let data_dir = quoted(directory.join("agent").display().to_string());
        let mut config = format!(
            "[agent]\nid = \"bench\"\nserver = \"http://{server}\"\ndata_dir = {data_dir}\n\n\
             [runtime.bench]\ncommand = [{program}, \"{SLOT}\", \"{{port}}\"]\n\
             ready = {{ path = \"/health\", every = \"200ms\", deadline = \"30s\" }}\n\
             live = {{ path = \"/health\", every = \"10s\", failures = 3 }}\n\
             endpoint = \"http://{{address}}:{{port}}\"\n"
        );
        for gpu in 0..gpus {
            config +=
                &format!("\n[[inventory.simulated]]\nuuid = \"GPU-{gpu}\"\nname = \"simulated\"\nmemory = \"80GiB\"\n");
        }
        let (path, log) = (directory.join("agent.toml"), directory.join("agent.log"));
        std::fs::write(&path, config)?;
        let child = Command::new(std::env::current_exe()?)
            .arg(AGENT)
            .arg(path)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        Ok(Self { child, log })
    }

    /// The CPU time that it has used.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.child.id())
    }

    /// Its resident memory in MiB.
    pub fn resident_mib(&self) -> anyhow::Result<u64> {
        resident_mib_of(self.child.id())
    }

    /// How long its passes took (a look at everything and what follows from it), with at least so many slots.
    pub fn passes(&self, slots: usize) -> anyhow::Result<Vec<Duration>> {
        let log = std::fs::read_to_string(&self.log)?;
        let number = |line: &str, name: &str| -> Option<u64> {
            line.split_once(&format!(" {name}="))?.1.split(' ').next()?.parse().ok()
        };
        let pass = |line: &str| {
            (number(line, "slots")? >= slots as u64).then_some(Duration::from_micros(number(line, "micros")?))
        };
        Ok(log.lines().filter_map(pass).collect())
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its slots live on, as they should; here nobody adopts them.
        let table = berth_runner::process::ProcessTable::read().unwrap_or_default();
        let runner = berth_domain::RunnerId::new("bench").ok();
        let users = std::collections::BTreeSet::from([berth_runner::runtime::UserId::own()]);
        let marked =
            runner.and_then(|runner| berth_runner::process::find_marked_processes(&table, &runner, &users).ok());
        for process in marked.into_iter().flatten().flat_map(|(_, processes)| processes) {
            let _ = Command::new("kill").args(["-9", &process.pid.to_string()]).status();
        }
    }
}
