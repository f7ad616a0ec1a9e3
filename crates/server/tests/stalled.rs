//! A writer that is stuck: the server says so, and answers what needs no writer.

#![expect(clippy::unwrap_used, reason = "a test says so when it fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use berth_core::{Command, Settings, State};
use berth_domain::{ClusterId, Epoch, EpochTag, Revision};
use berth_server::config::Config;
use berth_server::decision_log::DecisionLog;
use berth_server::engine::Engine;
use berth_server::estimator::Estimator;
use berth_server::http::{App, Tools, router};
use berth_server::limits::Limits;
use berth_server::logging::LogLevel;
use berth_server::requests::Requests;
use berth_server::trust::audit::Audit;
use berth_server::trust::cluster_key::ClusterKey;
use berth_server::trust::rates::Rates;
use berth_server::trust::tokens::Tokens;
use berth_server::views::Views;
use berth_server::writer::{self, WriterLoop};
use berth_store::{AppendError, Journal, MemoryJournal, NoSpace, RecordRef};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tower::ServiceExt;
use uuid::Uuid;

/// A journal on a disk that does not answer while somebody holds the lock.
struct SlowJournal {
    inner: MemoryJournal,
    disk: Arc<Mutex<()>>,
}

impl Journal for SlowJournal {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn reserve(&mut self, bytes: usize, spare: bool) -> Result<(), NoSpace> {
        self.inner.reserve(bytes, spare)
    }

    fn append(&mut self, epoch: Epoch, expected: Revision, records: &[RecordRef<'_>]) -> Result<(), AppendError> {
        let _disk = self.disk.lock();
        self.inner.append(epoch, expected, records)
    }
}

fn cluster() -> ClusterId {
    ClusterId::new(Uuid::from_u128(7))
}

fn app(data_dir: &std::path::Path, disk: Arc<Mutex<()>>) -> App {
    let config = Config::default();
    let (decision_log, _) = DecisionLog::start().unwrap();
    let views = Arc::new(Views::new(1, 1, decision_log));
    let engine = Engine::new(State::new(Settings::default()));
    let journal = SlowJournal { inner: MemoryJournal::new(), disk };
    let writer_loop = WriterLoop::new(engine, journal, views.clone(), |_| ());
    let (writer, _) = writer::start(writer_loop, cluster(), EpochTag::default()).unwrap();
    let limits = Limits::new(config.limits.clone());
    let requests = Requests::new(views.clone(), limits.clone());
    App::from(Tools {
        writer,
        estimator: Estimator::new(&[], requests.clone()),
        requests,
        views,
        tokens: Tokens::open(data_dir).unwrap(),
        key: ClusterKey::open(data_dir).unwrap(),
        refused_reports: Default::default(),
        audit: Audit::open(data_dir, &config.audit).unwrap(),
        rates: Arc::new(Rates::new(config.limits.requests_per_second, config.limits.burst)),
        token_rules: config.tokens.clone(),
        limits,
        tls: None,
        log_level: LogLevel::fixed(),
        stopping: watch::channel(false).1,
    })
}

async fn ready(app: &App) -> (StatusCode, String) {
    let request = Request::get("/readyz").header("host", "localhost").body(Body::empty()).unwrap();
    let response = router::router(app.clone(), None).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Asks until the status is this one.
async fn becomes(app: &App, status: StatusCode) -> String {
    let begun = Instant::now();
    loop {
        let (is, text) = ready(app).await;
        if is == status {
            return text;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{is} instead of {status}: {text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_writer_is_stuck_is_not_ready_until_it_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(Mutex::new(()));
    let app = app(directory.path(), disk.clone());
    becomes(&app, StatusCode::OK).await;

    let held = disk.lock_arc();
    let writer = app.writer.clone();
    let stuck = tokio::spawn(async move {
        // A start is written down, whatever came before it.
        let start = Command::Start { cluster: cluster(), tag: EpochTag::default() };
        writer.execute(start).await.unwrap().unwrap();
    });
    let text = becomes(&app, StatusCode::SERVICE_UNAVAILABLE).await;
    assert!(text.contains("busy with one batch"), "{text}");
    drop(held);
    becomes(&app, StatusCode::OK).await;
    stuck.await.unwrap();
}
