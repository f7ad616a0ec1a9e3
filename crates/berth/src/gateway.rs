//! `berth gateway`: the gateway as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use berth_client::Client;
use berth_server::config::Sources;
use berth_server::{StandaloneGateway, logging};

use crate::cli::Connection;
use crate::serve::StopSignals;

/// Answer OpenAI's and Anthropic's routes for a server elsewhere
///
/// It keeps no state, so that several can stand beside each other. It has no token of its own: callers' keys are tokens
/// of the server (--server), which decides what each may do. Settings are those of [gateway], [limits], [tls] and [log].
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth gateway --server https://berth.example.org --listen 127.0.0.1:8090")]
pub(crate) struct Args {
    /// The address to listen on; anything but loopback needs TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, such as gateway.hold=30s (repeatable)
    #[arg(long = "set", value_name = "SECTION.NAME=VALUE")]
    settings: Vec<String>,
}

/// Runs until it is told to stop.
pub(crate) fn run(connection: &Connection, args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut sources = Sources::default();
    if let Some(file) = &args.config {
        sources = sources.file(file)?;
    }
    sources = sources.environment(std::env::vars());
    for setting in &args.settings {
        let (name, value) = setting.split_once('=').context("--set wants SECTION.NAME=VALUE")?;
        sources = sources.flag(name, "--set", Some(value.to_owned()));
    }
    let config = sources.flag("server.listen", "--listen", Some(args.listen.to_string())).load()?;
    runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let _level = logging::init(&config.log).map_err(anyhow::Error::msg)?;
        let server = connection.server().unwrap_or("http://127.0.0.1:8080");
        let client = Client::builder(server)
            .ca(connection.ca().cloned())
            .allow_token_over_http(connection.allow_token_over_http())
            .build()?;
        let gateway = StandaloneGateway::start(&config, client).await?;
        tracing::info!(url = %gateway.url(), server, "berth gateway serves");
        signals.heard().await;
        gateway.stop().await;
        anyhow::Ok(())
    })
}
