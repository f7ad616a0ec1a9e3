//! The benchmark runs itself once more as the server: `BERTH_BENCH_CHILD` says which.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use berth_server::Server;
use berth_server::config::{Config, Sources};
use berth_server::logging;

use super::null;

const ROLE: &str = "BERTH_BENCH_CHILD";
const DATA_DIR: &str = "BERTH_BENCH_DATA_DIR";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The real one.
    Berth,
    /// The limit: the same stack without scheduling.
    Null,
    /// An engine that streams words.
    Engine,
    /// A bare reverse proxy.
    Proxy,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Berth => "berth",
            Self::Null => "null",
            Self::Engine => "engine",
            Self::Proxy => "proxy",
        }
    }
}

/// If this process was started as a server, runs it and never returns.
pub fn run_if_child() -> anyhow::Result<()> {
    let Ok(role) = std::env::var(ROLE) else { return Ok(()) };
    let data_dir = std::env::var(DATA_DIR)?;
    let flag = |name: &str| (format!("server.{name}"), format!("--{name}"));
    let ((listen, listen_flag), (dir, dir_flag)) = (flag("listen"), flag("data_dir"));
    let config = Sources::default()
        .flag(&listen, &listen_flag, Some("127.0.0.1:0".into()))
        .flag(&dir, &dir_flag, Some(data_dir))
        .flag("limits.requests_per_second", "rate", Some("1000000".into()))
        .flag("limits.burst", "burst", Some("1000000".into()))
        .flag("server.anyone_on_this_machine_is_admin", "open", Some("true".into()))
        .environment(std::env::vars())
        .load()?;
    berth_server::runtime()?.block_on(async {
        match role.as_str() {
            "null" => null::serve(&config).await,
            "engine" => super::gateway::engine().await,
            "proxy" => super::gateway::proxy().await,
            _ => berth(config).await,
        }
    })
}

async fn berth(config: Config) -> anyhow::Result<()> {
    let level = logging::init(&config.log).map_err(anyhow::Error::msg)?;
    let server = Server::start(config, level, |_| std::process::exit(70)).await?;
    announce(server.address());
    std::future::pending().await
}

/// Tells whoever started this process where it listens.
pub fn announce(address: SocketAddr) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{address}");
}

/// A server that runs.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// How long it took until it listened.
    pub start: Duration,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a server on a data directory. Its log goes nowhere, but is made.
    pub fn start(role: Role, data_dir: &Path) -> anyhow::Result<Self> {
        Self::start_with(role, data_dir, &[])
    }

    /// The same with variables of its own.
    pub fn start_with(role: Role, data_dir: &Path, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .env(ROLE, role.name())
            .envs(variables.iter().copied())
            .env(DATA_DIR, data_dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let out = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the server said {line:?}"))?;
        Ok(Self { child, address, start: begun.elapsed() })
    }

    /// The CPU time that it has used.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.child.id())
    }

    /// The CPU time that its present threads have used: exact, where [`Self::cpu`] counts in steps of 10 ms.
    pub fn cpu_of_threads(&self) -> anyhow::Result<Duration> {
        let mut nanos = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split_whitespace().next().context("no schedstat")?.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Its resident memory in MiB.
    pub fn resident_mib(&self) -> anyhow::Result<u64> {
        resident_mib_of(self.child.id())
    }
}

/// The CPU time that a process has used.
pub(super) fn cpu_of(pid: u32) -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = text.rsplit_once(')').context("no stat")?.1;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// The resident memory of a process in MiB.
pub(super) fn resident_mib_of(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<u64>()? / 1024)
}
