//! `berth serve` and `berth config`.

use std::path::PathBuf;

use anyhow::Context;
use berth_server::Server;
use berth_server::config::{Config, Sources};
use berth_server::logging;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Run the server
///
/// Without arguments it listens on 127.0.0.1:8080 and keeps its data in ./berth-data. Configuration comes from the
/// file, then from the environment (BERTH_<SECTION>__<NAME>, such as BERTH_LOG__FILTER=debug), then from flags; each
/// overrides the one before it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth serve --listen 127.0.0.1:8080 --data-dir /var/lib/berth\n\n\
    An address that is not loopback needs tokens and TLS:\n  berth token create ops --role admin --data-dir /var/lib/berth\n  \
    berth serve --listen 0.0.0.0:8443 --data-dir /var/lib/berth --set tls.cert=cert.pem --set tls.key=key.pem")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Look at the configuration
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration and print it whole, defaults included
    ///
    /// Exits with 0 if a server would start with it, and says which field is wrong if not.
    Check(ConfigArgs),
}

/// Where the configuration comes from.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "BERTH_CONFIG")]
    config: Option<PathBuf>,
    /// The address to listen on (server.listen)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The directory of the journal, the tokens and the audit log (server.data_dir)
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Any other value, such as scheduler.keep_alive=5m (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    fn load(self) -> anyhow::Result<Config> {
        let mut sources = Sources::default();
        if let Some(path) = &self.config {
            sources = sources.file(path)?;
        }
        sources = sources.environment(std::env::vars()).flag("server.listen", "--listen", self.listen).flag(
            "server.data_dir",
            "--data-dir",
            self.data_dir,
        );
        for pair in self.set {
            let (name, value) = pair.split_once('=').with_context(|| format!("--set {pair}: write NAME=VALUE"))?;
            sources = sources.flag(name, &format!("--set {pair}"), Some(value.to_owned()));
        }
        Ok(sources.load()?)
    }
}

/// Runs the server until it is told to stop.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let log_level = logging::init(&config.log).map_err(anyhow::Error::msg)?;
    berth_server::runtime()?.block_on(async {
        // Whoever is told that the server serves may tell it to stop.
        let stop = StopSignals::listen()?;
        let data_dir = config.server.data_dir.display().to_string();
        let scheme = if config.tls.cert.is_some() { "https" } else { "http" };
        let server = Server::start(config, log_level, |error| {
            // Nobody is answered: what is on the disk is the truth at the next start.
            tracing::error!(%error, "the journal cannot be written: the server ends here");
            std::process::exit(70);
        })
        .await?;
        let url = format!("{scheme}://{}", server.address());
        tracing::info!(%url, data_dir, "berth serves; its API is described at {url}/docs");
        let signal = stop.heard().await;
        tracing::info!(signal, "shutting down: requests in flight are finished");
        server.stop().await;
        anyhow::Ok(())
    })
}

/// The signals that end programs politely.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From now on they do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub(crate) async fn heard(mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

/// `berth config`.
pub(crate) fn config(command: ConfigCommand) -> anyhow::Result<()> {
    let ConfigCommand::Check(args) = command;
    let config = args.load()?;
    let text = toml::to_string_pretty(&config).context("the configuration cannot be printed")?;
    crate::print(&format!("# This configuration is valid. With its defaults it is:\n{text}"))
}
