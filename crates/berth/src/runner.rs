//! `berth runner`: the agent on a machine with GPUs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use berth_client::{Client, ClientCertificateFiles};
use berth_runner::agent::{Agent, AgentConfig, AgentParts, AgentSettings, log_slot_users};
use berth_runner::membership::Membership;
use berth_runner::process::{Cgroups, SpawnOptions};
use berth_server::config::LogConfig;
use berth_server::logging;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::cli::Connection;
use crate::serve::StopSignals;

/// Run the agent on a machine with GPUs
///
/// It reports the machine's GPUs to the server, starts and stops the slots that it is told to, and proves when their
/// memory is back. What it can start is in its own configuration file; nothing that comes over the network is run by a
/// shell. When it ends, slots live on and are adopted by the next one.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  berth runner --config config/runner.toml\n  \
    berth runner --config /etc/berth/runner.toml --server https://berth.example:8080 --join berth_...")]
pub(crate) struct Args {
    /// The agent's configuration file; without it the agent has the built-in runtimes that the machine has programs for
    #[arg(long, value_name = "FILE", env = "BERTH_RUNNER_CONFIG", required_unless_present = "join")]
    config: Option<PathBuf>,
    /// A join token, which the agent exchanges for a token of its own and keeps that in its data directory
    ///
    /// An admin makes it with `berth join-token create`. An agent that joined already does not use it.
    #[arg(long, value_name = "TOKEN", env = "BERTH_JOIN_TOKEN", hide_env_values = true, value_parser = secret)]
    join: Option<SecretString>,
    /// The agent's client certificate (PEM), for a server that asks runners for one; goes before client_cert of the file
    #[arg(long, value_name = "FILE", env = "BERTH_CLIENT_CERT", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", env = "BERTH_CLIENT_KEY", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// What is logged: a level, or levels by target
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text.trim()))
}

/// Reads the file, if there is one; a server and certificates that were said go before it.
fn read_config(connection: &Connection, args: &Args) -> anyhow::Result<AgentConfig> {
    let mut config: AgentConfig = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            toml::from_str(&text).with_context(|| path.display().to_string())?
        }
        None => AgentConfig::default(),
    };
    if let Some(server) = connection.server() {
        server.clone_into(&mut config.agent.server);
    }
    if let Some(ca) = connection.ca() {
        config.agent.ca = Some(ca.clone());
    }
    if let (Some(cert), Some(key)) = (&args.client_cert, &args.client_key) {
        (config.agent.client_cert, config.agent.client_key) = (Some(cert.clone()), Some(key.clone()));
    }
    config.agent.allow_token_over_http |= connection.allow_token_over_http();
    Ok(config)
}

/// Joins the fleet, and asks with the agent's own token from then on.
async fn enter(settings: &AgentSettings, client: &Client) -> anyhow::Result<Membership> {
    let membership = Membership::join(&settings.data_dir, &settings.id, client).await?;
    if let Some(token) = membership.token() {
        client.set_token(&token)?;
    }
    tracing::info!(runner = %settings.id, server = client.base(), "joined the fleet; the agent has a token of its own now");
    Ok(membership)
}

/// Runs the agent until it is told to stop.
pub(crate) fn run(connection: &Connection, args: Args) -> anyhow::Result<()> {
    let config = read_config(connection, &args)?;
    let (settings, runtimes) = config.check()?;
    logging::init(&LogConfig { filter: args.log, ..LogConfig::default() }).map_err(anyhow::Error::msg)?;
    let membership = match &config.agent.token_file {
        Some(_) => None,
        None => Membership::load(&settings.data_dir, &settings.id)?.filter(|known| known.token().is_some()),
    };
    let join = args.join.filter(|_| membership.is_none() && config.agent.token_file.is_none());
    let token = match (&config.agent.token_file, &membership, &join) {
        (Some(path), ..) => {
            berth_files::warn_if_loose(path, "the agent's token");
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Some(SecretString::from(text.trim()))
        }
        (None, Some(known), _) => known.token(),
        (None, None, join) => join.clone(),
    };
    let certificate = match (&config.agent.client_cert, &config.agent.client_key) {
        (Some(cert), Some(key)) => {
            berth_files::warn_if_loose(key, "the key of the agent's certificate");
            Some(ClientCertificateFiles { cert: cert.clone(), key: key.clone() })
        }
        _ => None,
    };
    let client = Client::builder(&config.agent.server)
        .token(token)
        .ca(config.agent.ca.clone())
        .certificate(certificate)
        .allow_token_over_http(config.agent.allow_token_over_http)
        .apart()
        .build()?;
    let trampoline = vec![std::env::current_exe()?.into_os_string(), OsString::from("runner-exec")];
    let cgroups = config.agent.cgroup.as_deref().map(Cgroups::open).transpose().context("agent.cgroup")?;
    let spawning = SpawnOptions { trampoline: Some(trampoline), on_agent_exit: config.agent.on_agent_exit, cgroups };
    // One thread is enough: whatever may hang has one of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let membership = match join {
            Some(_) => Some(enter(&settings, &client).await?),
            None => membership,
        };
        if let Some(membership) = membership {
            tokio::spawn(membership.rotate_before_expiry(client.clone()));
        }
        let (stop, stopped) = watch::channel(false);
        tracing::info!(runner = %settings.id, server = config.agent.server, "the agent begins");
        log_slot_users(&settings, &runtimes);
        let agent = Agent::run(AgentParts { settings, runtimes, client, spawning }, stopped);
        tokio::pin!(agent);
        tokio::select! {
            ended = &mut agent => return Ok(ended?),
            signal = signals.heard() => tracing::info!(signal, "the agent ends"),
        }
        stop.send_replace(true);
        Ok(agent.await?)
    })
}
