//! `berth runner`: the agent on a machine with GPUs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use berth_client::Client;
use berth_runner::agent::{Agent, AgentConfig, Parts};
use berth_runner::process::{Cgroups, SpawnOptions};
use berth_server::config::LogConfig;
use berth_server::logging;
use tokio::sync::watch;

use crate::serve::StopSignals;

/// Run the agent on a machine with GPUs
///
/// It reports the machine's GPUs to the server, starts and stops the slots that it is told to, and proves when their
/// memory is back. What it can start is in its own configuration file; nothing that comes over the network is run by a
/// shell. When it ends, slots live on and are adopted by the next one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth runner --config config/runner.toml")]
pub(crate) struct Args {
    /// The agent's configuration file
    #[arg(long, value_name = "FILE", env = "BERTH_RUNNER_CONFIG")]
    config: PathBuf,
    /// What is logged: a level, or levels by target
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Runs the agent until it is told to stop.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&args.config).with_context(|| args.config.display().to_string())?;
    let config: AgentConfig = toml::from_str(&text).with_context(|| args.config.display().to_string())?;
    let (settings, runtimes) = config.check()?;
    logging::init(&LogConfig { filter: args.log, ..LogConfig::default() }).map_err(anyhow::Error::msg)?;
    let token = config.agent.token_file.as_ref().map(|path| {
        std::fs::read_to_string(path).with_context(|| path.display().to_string()).map(|text| text.trim().to_owned())
    });
    let client = Client::builder(&config.agent.server)
        .token(token.transpose()?.map(Into::into))
        .ca(config.agent.ca.clone())
        .apart()
        .build()?;
    let trampoline = vec![std::env::current_exe()?.into_os_string(), OsString::from("runner-exec")];
    let cgroups = config.agent.cgroup.as_deref().map(Cgroups::open).transpose().context("agent.cgroup")?;
    let spawning = SpawnOptions { trampoline: Some(trampoline), on_agent_exit: config.agent.on_agent_exit, cgroups };
    // One thread is enough: whatever may hang has one of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = StopSignals::listen()?;
        let (stop, stopped) = watch::channel(false);
        tracing::info!(runner = %settings.id, server = config.agent.server, "the agent begins");
        let agent = Agent::run(Parts { settings, runtimes, client, spawning }, stopped);
        tokio::pin!(agent);
        tokio::select! {
            ended = &mut agent => return Ok(ended?),
            signal = signals.heard() => tracing::info!(signal, "the agent ends"),
        }
        stop.send_replace(true);
        Ok(agent.await?)
    })
}
