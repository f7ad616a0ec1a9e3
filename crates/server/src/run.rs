//! Starting and stopping: the data directory is opened, the state put together, the writer started, the door opened;
//! and the other way round.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use berth_domain::{ClusterId, EpochTag, Revision};
use berth_store::{AppendError, OpenError, Options, ReadError};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::backup;
use crate::clock;
use crate::compact::{self, Compaction};
use crate::config::{Config, ConfigError, JournalConfig};
use crate::decision_log::DecisionLog;
use crate::engine::{BootError, Engine, Recovery};
use crate::estimator::Estimator;
use crate::http::gateway::OwnGateway;
use crate::http::refused_reports::RefusedReports;
use crate::http::{App, Tools, router};
use crate::limits::Limits;
use crate::logging::LogLevel;
use crate::reload::Reloader;
use crate::requests::Requests;
use crate::serve;
use crate::tls::{Tls, TlsError};
use crate::trust::audit::Audit;
use crate::trust::cluster_key::{ClusterKey, KeyError};
use crate::trust::first_token::{self, LocalAdmin};
use crate::trust::rates::Rates;
use crate::trust::tokens::{TokenError, Tokens};
use crate::views::Views;
use crate::writer::{self, StartError, Writer, WriterLoop};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The data directory cannot be made, or is no place for secrets.
    #[error("the data directory {0} cannot be used: {1}")]
    DataDir(String, #[source] std::io::Error),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal gives no state.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The writer cannot start.
    #[error(transparent)]
    Writer(#[from] StartError),
    /// The cluster's key cannot be read or made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A restore into the data directory was not finished.
    #[error("a backup was being restored into {0} and that was not finished: run `berth restore` again")]
    Unrestored(String),
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The audit log cannot be opened.
    #[error("the audit log cannot be opened: {0}")]
    Audit(#[source] std::io::Error),
    /// The address cannot be had.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// No encryption.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No client for slots.
    #[error("the gateway cannot start: {0}")]
    Gateway(String),
    /// No thread.
    #[error("the operating system gives no thread: {0}")]
    Thread(#[source] std::io::Error),
    /// Open to the world.
    #[error("{listen} is not a loopback address: {missing}. Everybody who can reach it could do everything")]
    OpenBind {
        /// The address.
        listen: SocketAddr,
        /// What is missing.
        missing: &'static str,
    },
}

/// A server that runs.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    reloader: Reloader,
    writer: (Writer, JoinHandle<()>),
    decision_log: (DecisionLog, JoinHandle<()>),
    compaction: Compaction,
    local_admin: Option<LocalAdmin>,
    gateway: Option<OwnGateway>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server on {}", self.address)
    }
}

/// What a server runs on. The writer has a thread of its own, and everybody waits for it: it gets a core, and requests
/// are served on the others.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = cores.saturating_sub(1).max(1);
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

impl Server {
    /// Starts a server. `fatal` is called when an append fails and must not return to business.
    pub async fn start(
        config: Config,
        log_level: LogLevel,
        fatal: impl Fn(&AppendError) + Send + 'static,
    ) -> Result<Self, RunError> {
        let data_dir = &config.server.data_dir;
        make_data_dir(data_dir)?;
        refuse_unfinished_restore(data_dir)?;
        let key = ClusterKey::open(data_dir)?;
        let tokens = Tokens::open(data_dir)?;
        let tls = Tls::open(&config.tls)?;
        let is_open = config.server.anyone_on_this_machine_is_admin && tokens.is_empty();
        refuse_open_bind(config.server.listen, is_open, tls.is_none())?;
        let local_admin = match is_open {
            true => None,
            false => first_token::provide(&tokens, data_dir, clock::now())?,
        };
        let audit = Audit::open(data_dir, &config.audit).map_err(RunError::Audit)?;

        let (decision_log, decision_log_thread) = DecisionLog::start().map_err(RunError::Thread)?;
        let views = Arc::new(Views::new(config.history.decisions, config.history.events, decision_log.clone()));
        let kept = open_journal(&config)?;
        let writer_loop = WriterLoop::new(kept.engine, kept.journal, views.clone(), fatal);
        let (writer, writer_thread) = writer::start(writer_loop, kept.cluster, draw_tag()?)?;
        let compaction = compact::start(kept.compactor, writer.clone(), config.journal.snapshot_after, kept.snapshot)
            .map_err(RunError::Thread)?;

        let listen = |error| RunError::Listen(config.server.listen, error);
        let listener = TcpListener::bind(config.server.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopping) = watch::channel(false);
        let limits = Limits::new(config.limits.clone());
        let requests = Requests::new(views.clone(), limits.clone());
        let app = App::from(Tools {
            writer: writer.clone(),
            estimator: Estimator::new(&config.estimate.model_dirs, requests.clone()),
            requests,
            views,
            tokens,
            key,
            audit,
            rates: Arc::new(Rates::new(config.limits.requests_per_second, config.limits.burst)),
            token_rules: config.tokens.clone(),
            limits: limits.clone(),
            tls: tls.clone(),
            refused_reports: RefusedReports::default(),
            log_level,
            stopping: stopping.clone(),
        });
        tokio::spawn(sweep(app.clone()));
        let gateway = start_gateway(&app, &config.gateway)?;
        let routes = router::router(app.clone(), gateway.as_ref().map(|gateway| (gateway, &config.gateway)));
        let reloader = Reloader::new(app, config);
        let serving = tokio::spawn(serve::serve(listener, tls, routes, limits, stopping));
        let (writer, decision_log) = ((writer, writer_thread), (decision_log, decision_log_thread));
        Ok(Self { address, stop, serving, reloader, writer, decision_log, compaction, local_admin, gateway })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The admin's token that is kept in the data directory, if there is one.
    #[must_use]
    pub fn local_admin(&self) -> Option<&LocalAdmin> {
        self.local_admin.as_ref()
    }

    /// Reads again what may change while the server runs; see [`Reloader::reload`].
    pub fn reload(&mut self, read: Result<Config, ConfigError>) {
        self.reloader.reload(read);
    }

    /// Stops: no new requests, those in flight finish, everything taken in is durable and answered.
    pub async fn stop(self) {
        let Self { stop, serving, reloader, writer, decision_log, compaction, gateway, .. } = self;
        drop(reloader);
        stop.send_replace(true);
        drop(serving.await);
        if let Some(gateway) = gateway {
            // Leases of streams that were cut are ended while there is a writer to end them.
            drop(tokio::time::timeout(LAST_LEASES, gateway.flush()).await);
        }
        // Requests that did not finish in time are not answered; whatever the writer took before is.
        let joined = tokio::task::spawn_blocking(move || {
            writer.0.stop();
            drop(writer.1.join());
            drop(compaction);
            decision_log.0.stop();
            drop(decision_log.1.join());
        });
        drop(joined.await);
    }
}

/// How long a shutdown waits for the last leases of the gateway to end.
const LAST_LEASES: std::time::Duration = std::time::Duration::from_secs(2);

fn start_gateway(app: &App, config: &berth_gateway::GatewayConfig) -> Result<Option<OwnGateway>, RunError> {
    if !config.enabled {
        return Ok(None);
    }
    let started = OwnGateway::start(app.clone(), config.clone());
    started.map(Some).map_err(|error| RunError::Gateway(error.to_string()))
}

/// Now and then forgets clients that are gone, and puts on record how many others were refused.
async fn sweep(app: App) {
    let mut stopping = app.stopping.clone();
    while tokio::time::timeout(std::time::Duration::from_secs(60), stopping.wait_for(|stopping| *stopping))
        .await
        .is_err()
    {
        app.rates.sweep();
        app.record_counted_refusals();
    }
}

fn make_data_dir(path: &Path) -> Result<(), RunError> {
    match berth_files::make_directory(path) {
        // The directory belongs to another user, as volumes of containers do. That is for the operator to decide.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && path.is_dir() => {
            tracing::warn!(path = %path.display(), %error, "other users may enter the data directory: chmod 700 it");
            Ok(())
        }
        made => made.map_err(|error| RunError::DataDir(path.display().to_string(), error)),
    }
}

fn refuse_unfinished_restore(data_dir: &Path) -> Result<(), RunError> {
    match data_dir.join(backup::UNFINISHED).exists() {
        true => Err(RunError::Unrestored(data_dir.display().to_string())),
        false => Ok(()),
    }
}

/// Draws the number that tells this start of the server from every other.
fn draw_tag() -> Result<EpochTag, RunError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
    Ok(EpochTag::new(u32::from_be_bytes(bytes)))
}

fn refuse_open_bind(listen: SocketAddr, is_open: bool, no_tls: bool) -> Result<(), RunError> {
    let missing = match (is_open, no_tls) {
        _ if listen.ip().is_loopback() => return Ok(()),
        (true, true) => "it needs tokens (no server.anyone_on_this_machine_is_admin) and TLS (tls.cert and tls.key)",
        (true, false) => "it needs tokens (no server.anyone_on_this_machine_is_admin)",
        (false, true) => "it needs TLS (tls.cert and tls.key)",
        (false, false) => return Ok(()),
    };
    Err(RunError::OpenBind { listen, missing })
}

/// What the data directory held.
struct Kept {
    engine: Engine,
    journal: berth_store::LogJournal,
    compactor: berth_store::Compactor,
    cluster: ClusterId,
    /// The revision of its snapshot.
    snapshot: Revision,
}

fn open_journal(config: &Config) -> Result<Kept, RunError> {
    let begun = Instant::now();
    let opened = berth_store::open(&config.server.data_dir, options(&config.journal))?;
    let settings = config.scheduler.settings();
    let snapshot = opened.recovered.snapshot;
    let from = snapshot.as_ref().map(|snapshot| snapshot.revision).unwrap_or_default();
    let mut recovery = Recovery::begin(settings, snapshot.as_ref().map(|snapshot| snapshot.payload.as_slice()))?;
    drop(snapshot);
    let mut records = 0u64;
    for record in opened.recovered.records {
        let record = record?;
        recovery.replay(record.last, &record.payload)?;
        records += 1;
    }
    if let Some(cut) = opened.recovered.cut {
        tracing::warn!(?cut, "the last record was torn by a crash and is cut; nobody was told of it");
    }
    let state = recovery.finish();
    tracing::info!(
        revision = state.revision().get(),
        snapshot = from.get(),
        records,
        ms = begun.elapsed().as_millis(),
        "the journal is read"
    );
    let cluster = state.cluster().unwrap_or_else(|| ClusterId::new(uuid::Uuid::now_v7()));
    Ok(Kept {
        engine: Engine::new(state),
        journal: opened.journal,
        compactor: opened.compactor,
        cluster,
        snapshot: from,
    })
}

/// How the journal uses its disk.
#[must_use]
pub fn options(config: &JournalConfig) -> Options {
    Options {
        segment_bytes: config.segment.get(),
        spare_bytes: config.spare.get(),
        limit_bytes: Some(config.limit.get()).filter(|limit| *limit > 0),
        max_records: 1024,
    }
}
