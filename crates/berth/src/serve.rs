//! `berth serve` and `berth config`.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Context;
use berth_server::Server;
use berth_server::config::{Config, ConfigError, Sources};
use berth_server::logging;
use berth_server::trust::first_token;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::local_token::{self, Announced};

/// Run the server
///
/// Without arguments it listens on 127.0.0.1:8080 and keeps its data in ./berth-data. Configuration comes from the
/// file, then from the environment (BERTH_<SECTION>__<NAME>, such as BERTH_LOG__FILTER=debug), then from flags; each
/// overrides the one before it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  berth serve --listen 127.0.0.1:8080 --data-dir /var/lib/berth\n\n\
    The first start makes an admin's token in the data directory. An address that is not loopback needs TLS:\n  \
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
    /// Make no token at the first start: whoever is on this machine may do everything
    /// (server.anyone_on_this_machine_is_admin)
    #[arg(long)]
    anyone_on_this_machine_is_admin: bool,
    /// Any other value, such as scheduler.keep_alive=5m (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

impl ConfigArgs {
    fn load(self) -> Result<Config, ConfigError> {
        let mut sources = Sources::default();
        if let Some(path) = &self.config {
            sources = sources.file(path)?;
        }
        let is_open = self.anyone_on_this_machine_is_admin.then(|| "true".to_owned());
        sources = sources
            .environment(std::env::vars())
            .flag("server.listen", "--listen", self.listen)
            .flag("server.data_dir", "--data-dir", self.data_dir)
            .flag("server.anyone_on_this_machine_is_admin", "--anyone-on-this-machine-is-admin", is_open);
        for pair in self.set {
            let (name, value) = pair.split_once('=').ok_or_else(|| ConfigError::Value {
                origin: "flags".into(),
                field: format!("--set {pair}"),
                why: "write NAME=VALUE".into(),
            })?;
            sources = sources.flag(name, &format!("--set {pair}"), Some(value.to_owned()));
        }
        sources.load()
    }
}

/// Runs the server until it is told to stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    berth_server::runtime()?.block_on(async {
        // The signals are heard before anything else is done: whoever sends one early must not end the server by it, and
        // whoever is told that the server serves may tell it to stop.
        let (mut stop, mut reload) = (StopSignals::listen()?, signal(SignalKind::hangup())?);
        let config = args.config.clone().load()?;
        let log_level = logging::init(&config.log).map_err(anyhow::Error::msg)?;
        let data_dir = config.server.data_dir.display().to_string();
        let scheme = if config.tls.cert.is_some() { "https" } else { "http" };
        let mut server = Server::start(config, log_level, |error| {
            // Nobody is answered: what is on the disk is the truth at the next start.
            tracing::error!(%error, "the journal cannot be written: the server ends here");
            std::process::exit(70);
        })
        .await?;
        let url = format!("{scheme}://{}", server.address());
        // Whoever reads that the server serves may ask it at once, and finds the token then.
        let _announced = welcome_admin(&server, &data_dir)?;
        tracing::info!(%url, data_dir, "berth serves; its API is described at {url}/docs");
        let signal = loop {
            tokio::select! {
                signal = stop.heard() => break signal,
                _ = reload.recv() => {
                    tracing::info!(signal = "SIGHUP", "reading configuration, certificate and tokens again");
                    server.reload(args.config.clone().load());
                }
            }
        };
        tracing::info!(signal, "shutting down: requests in flight are finished");
        // A hangup meanwhile changes nothing: its handler stays until the process ends.
        server.stop().await;
        anyhow::Ok(())
    })
}

/// Says where the admin's token is, shows a new one once to whoever sits at the terminal, and lets commands of the same
/// user find it.
fn welcome_admin(server: &Server, data_dir: &str) -> anyhow::Result<Option<Announced>> {
    let Some(admin) = server.local_admin() else { return Ok(None) };
    if admin.is_new {
        tracing::info!(
            "made the first token, an admin's: it is in {data_dir}/{}, readable by its user alone",
            first_token::FILE
        );
        // A log keeps what it is told, so the secret itself is for people only.
        if std::io::stdout().is_terminal() {
            crate::print(&format!("The admin's token, shown this once:\n  {}\n", admin.secret))?;
        }
    }
    Ok(announce_or_warn(server, &admin.secret))
}

/// Lets commands of the same user find a token. Without that they need to be given one, which is no reason not to serve.
pub(crate) fn announce_or_warn(server: &Server, secret: &str) -> Option<Announced> {
    local_token::announce(server.address(), secret)
        .inspect_err(|error| tracing::warn!(%error, "commands of this user need --token-file"))
        .ok()
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
    pub(crate) async fn heard(&mut self) -> &'static str {
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
