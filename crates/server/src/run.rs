//! Starting and stopping: the data directory is opened, the state put together, the writer started, the door opened;
//! and the other way round.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use berth_domain::{ClusterId, Revision};
use berth_store::{AppendError, OpenError, Options, ReadError};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::compact::{self, Compaction};
use crate::config::{Config, JournalConfig};
use crate::engine::{BootError, Engine, Recovery};
use crate::estimator::Estimator;
use crate::http::{App, Tools, router};
use crate::logging::LogLevel;
use crate::requests::Requests;
use crate::scribe::Scribe;
use crate::serve;
use crate::tls::{self, TlsError};
use crate::trust::audit::Audit;
use crate::trust::rates::Rates;
use crate::trust::tokens::{TokenError, Tokens};
use crate::views::Views;
use crate::writer::{self, Desk, StartError, Writer};

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The data directory cannot be made.
    #[error("the data directory {0} cannot be made: {1}")]
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
    writer: (Writer, JoinHandle<()>),
    scribe: (Scribe, JoinHandle<()>),
    compaction: Compaction,
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
        let tokens = Tokens::open(data_dir)?;
        let tls = match (&config.tls.cert, &config.tls.key) {
            (Some(cert), Some(key)) => Some(tls::acceptor(cert, key)?),
            _ => None,
        };
        refuse_open_bind(config.server.listen, tokens.is_empty(), tls.is_none())?;
        let audit = Audit::open(data_dir).map_err(RunError::Audit)?;

        let (scribe, scribe_thread) = Scribe::start().map_err(RunError::Thread)?;
        let views = Arc::new(Views::new(config.history.decisions, config.history.events, scribe.clone()));
        let kept = open_journal(&config)?;
        let desk = Desk::new(kept.engine, kept.journal, views.clone(), fatal);
        let (writer, writer_thread) = writer::start(desk, kept.cluster)?;
        let compaction = compact::start(kept.compactor, writer.clone(), config.journal.snapshot_after, kept.snapshot)
            .map_err(RunError::Thread)?;

        let listen = |error| RunError::Listen(config.server.listen, error);
        let listener = TcpListener::bind(config.server.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopping) = watch::channel(false);
        let requests = Requests::new(views.clone(), config.limits.bounds(), config.limits.agent_patience());
        let app = App::from(Tools {
            writer: writer.clone(),
            estimator: Estimator::new(&config.estimate.model_dirs, requests.clone()),
            requests,
            views,
            tokens,
            audit,
            rates: Arc::new(Rates::new(config.limits.requests_per_second, config.limits.burst)),
            limits: config.limits.clone(),
            log_level,
            stopping: stopping.clone(),
        });
        tokio::spawn(sweep(app.clone()));
        let limits = config.limits.clone();
        let serving = tokio::spawn(async move {
            serve::serve(listener, tls, router::router(app), &limits, stopping).await;
        });
        let (writer, scribe) = ((writer, writer_thread), (scribe, scribe_thread));
        Ok(Self { address, stop, serving, writer, scribe, compaction })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: no new requests, those in flight finish, everything taken in is durable and answered.
    pub async fn stop(self) {
        let Self { stop, serving, writer, scribe, compaction, .. } = self;
        stop.send_replace(true);
        drop(serving.await);
        // Requests that did not finish in time are not answered; whatever the writer took before is.
        let joined = tokio::task::spawn_blocking(move || {
            writer.0.finish();
            drop(writer.1.join());
            drop(compaction);
            scribe.0.finish();
            drop(scribe.1.join());
        });
        drop(joined.await);
    }
}

/// Now and then forgets clients that are gone.
async fn sweep(app: App) {
    let mut stopping = app.stopping.clone();
    let rates = app.rates.clone();
    drop(app);
    while tokio::time::timeout(std::time::Duration::from_secs(60), stopping.wait_for(|stopping| *stopping))
        .await
        .is_err()
    {
        rates.sweep();
    }
}

fn make_data_dir(path: &Path) -> Result<(), RunError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| RunError::DataDir(path.display().to_string(), error))
}

fn refuse_open_bind(listen: SocketAddr, no_tokens: bool, no_tls: bool) -> Result<(), RunError> {
    let missing = match (no_tokens, no_tls) {
        _ if listen.ip().is_loopback() => return Ok(()),
        (true, true) => "it needs tokens (`berth token create --data-dir`) and TLS (tls.cert and tls.key)",
        (true, false) => "it needs tokens (`berth token create --data-dir`)",
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

fn options(config: &JournalConfig) -> Options {
    Options {
        segment_bytes: config.segment.get(),
        spare_bytes: config.spare.get(),
        limit_bytes: Some(config.limit.get()).filter(|limit| *limit > 0),
        max_records: 1024,
    }
}
