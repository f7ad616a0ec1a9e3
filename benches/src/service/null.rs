//! The limit: the same sockets, gate, extractors and JSON, the same durable batch append, and nothing decided.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use berth_core::{Settings, State};
use berth_domain::{
    Attempt, ClusterId, DeviceUuid, Epoch, EpochTag, ModelRevision, Revision, RunnerId, SlotId, Timestamp, WorkloadId,
    WorkloadKind,
};
use berth_server::config::Config;
use berth_server::decision_log::DecisionLog;
use berth_server::engine::{Engine, Record};
use berth_server::http::body::{Json, Query};
use berth_server::http::layers::around_handler;
use berth_server::http::layers::authentication::RouteAccess;
use berth_server::http::{App, Tools};
use berth_server::limits::Limits;
use berth_server::logging::LogLevel;
use berth_server::requests::Requests;
use berth_server::serve;
use berth_server::trust::Access;
use berth_server::trust::audit::Audit;
use berth_server::trust::cluster_key::ClusterKey;
use berth_server::trust::rates::Rates;
use berth_server::trust::tokens::Tokens;
use berth_server::views::Views;
use berth_server::writer::{self, WriterLoop};
use berth_store::{Journal, MemoryJournal, Options, RecordRef};
use berth_wire::{SubmitRequest, Time, WaitQuery, Workload, WorkloadSlot, WorkloadState};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::child::announce;

/// A submission, and where its revision goes once it is durable.
type Ask = (Box<berth_domain::Submission>, WorkloadId, oneshot::Sender<Revision>);

/// The way to the one who appends.
static LINE: OnceLock<SyncSender<Ask>> = OnceLock::new();

/// Serves `POST /api/v1/workloads` until the process ends.
pub async fn serve(config: &Config) -> anyhow::Result<()> {
    let opened = berth_store::open(&config.server.data_dir, Options::default())?;
    let (line, asks) = sync_channel::<Ask>(8192);
    LINE.get_or_init(|| line);
    std::thread::spawn(move || {
        let mut journal = opened.journal;
        let mut encoded = Vec::new();
        while let Ok(first) = asks.recv() {
            let batch: Vec<Ask> = std::iter::once(first).chain(asks.try_iter()).take(512).collect();
            let mut last = journal.revision();
            let mut ends = Vec::new();
            encoded.clear();
            for (submission, workload, _) in &batch {
                last = Revision::new(last.get() + 3);
                encode_record(submission, *workload, &mut encoded);
                ends.push((last, encoded.len()));
            }
            let starts = std::iter::once(0).chain(ends.iter().map(|(_, end)| *end));
            let record = |((last, end), start): (&(Revision, usize), usize)| RecordRef {
                last: *last,
                payload: &encoded[start..*end],
            };
            let records: Vec<RecordRef<'_>> = ends.iter().zip(starts).map(record).collect();
            let room = 256 * 1024 + 8 * 1024 * batch.len();
            let kept = journal.reserve(room, false).is_ok()
                && journal.append(Epoch::new(1), journal.revision(), &records).is_ok();
            if !kept {
                std::process::exit(70);
            }
            for ((_, _, reply), (revision, _)) in batch.into_iter().zip(ends) {
                let _ = reply.send(revision);
            }
        }
    });
    let app = idle_app(config)?;
    let gate = from_fn_with_state(RouteAccess { app: app.clone(), access: Access::Submit }, around_handler);
    let router = Router::new().route("/api/v1/workloads", post(submit)).route_layer(gate).with_state(app);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?);
    let (_stop, stopping) = watch::channel(false);
    serve::serve(listener, None, router, Limits::new(config.limits.clone()), stopping).await;
    Ok(())
}

/// What the gate works with: a server that has nothing to do.
fn idle_app(config: &Config) -> anyhow::Result<App> {
    let (decision_log, _) = DecisionLog::start()?;
    let views = Arc::new(Views::new(1, 1, decision_log));
    let engine = Engine::new(State::new(Settings::default()));
    let writer_loop = WriterLoop::new(engine, MemoryJournal::new(), views.clone(), |_| ());
    let (writer, _) = writer::start(writer_loop, ClusterId::new(Uuid::now_v7()), EpochTag::default())?;
    let limits = Limits::new(config.limits.clone());
    let requests = Requests::new(views.clone(), limits.clone());
    Ok(App::from(Tools {
        writer,
        estimator: berth_server::estimator::Estimator::new(&[], requests.clone()),
        requests,
        views,
        tokens: Tokens::open(&config.server.data_dir)?,
        key: ClusterKey::open(&config.server.data_dir)?,
        refused_reports: Default::default(),
        audit: Audit::open(&config.server.data_dir, &config.audit)?,
        rates: Arc::new(Rates::new(config.limits.requests_per_second, config.limits.burst)),
        token_rules: config.tokens.clone(),
        limits,
        tls: None,
        log_level: LogLevel::fixed(),
        stopping: watch::channel(false).1,
    }))
}

/// A record as large as that of a placement.
fn encode_record(submission: &berth_domain::Submission, workload: WorkloadId, to: &mut Vec<u8>) {
    let slot = SlotId::new(Uuid::nil());
    let events = vec![
        berth_core::Event::WorkloadSubmitted { workload, submission: Arc::new(submission.clone()), waits: false },
        berth_core::Event::SlotPlaced(Arc::new(berth_core::PlacedSlot {
            slot,
            model: submission.model.clone(),
            revision: ModelRevision::new(1),
            runner: runner(),
            claims: vec![berth_core::PlacedClaim {
                uuid: device(),
                bytes: berth_domain::Bytes::gib(1),
                exclusive: false,
            }],
            cpu: berth_domain::Millicores::ZERO,
            ram: berth_domain::Bytes::ZERO,
            promised: false,
            granted: true,
            job: Some(workload),
        })),
        berth_core::Event::WorkloadAssigned { workload, slot },
    ];
    let record = Record::new(Timestamp::from_millis(1_760_000_000_000), &events);
    record.encode_to(to).unwrap_or_else(|_| unreachable!("events are JSON"));
}

fn runner() -> RunnerId {
    RunnerId::new("runner-0001").unwrap_or_else(|_| unreachable!("a name"))
}

fn device() -> DeviceUuid {
    DeviceUuid::new("GPU-0001-0").unwrap_or_else(|_| unreachable!("a name"))
}

async fn submit(
    Query(_): Query<WaitQuery>,
    Json(request): Json<SubmitRequest>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<Workload>), StatusCode> {
    let model = request.model.clone();
    let submission = request.into_submission(None).map_err(|_| StatusCode::BAD_REQUEST)?;
    let workload = WorkloadId::new(Uuid::now_v7());
    let (reply, durable) = oneshot::channel();
    let line = LINE.get().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    line.try_send((Box::new(submission), workload, reply)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let revision = durable.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let answer = Workload {
        may_run_twice: false,
        id: workload,
        kind: WorkloadKind::Job,
        model,
        state: WorkloadState::Assigned,
        attempt: Attempt::new(1),
        priority: berth_domain::Priority::default(),
        tenant: None,
        owner: None,
        position: None,
        slot: Some(WorkloadSlot {
            id: SlotId::new(Uuid::nil()),
            runner_id: runner(),
            endpoint: None,
            gpus: vec![device()],
        }),
        reason: None,
        created: Time(Timestamp::from_millis(1_760_000_000_000)),
        revision,
        reserved_gpus: Vec::new(),
        attempts: Vec::new(),
    };
    Ok((StatusCode::CREATED, [(header::LOCATION, format!("/api/v1/workloads/{workload}"))], Json(answer)))
}
