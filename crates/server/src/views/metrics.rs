//! Numbers for Prometheus. Counted as things happen; what can be read off the views is read when somebody asks.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::Method;
use berth_core::{Event, Outcome};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// What a decision came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
    code: &'static str,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Which request, and what it came to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

/// Which route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

/// All counters of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    decisions: Family<OutcomeLabels, Counter>,
    step_seconds: Histogram,
    append_seconds: Histogram,
    records: Counter,
    journal_bytes: Counter,
    evictions: Counter,
    slots_failed: Counter,
    lost: Counter,
    corrections: Family<ReasonLabels, Counter>,
    ledgers_sound: Gauge<u64, AtomicU64>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    handles: super::Map<(usize, u16, &'static str), Handles>,
}

fn request_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_1, 4.0, 10))
}

impl Metrics {
    pub(super) fn new() -> Self {
        let micro = || Histogram::new(exponential_buckets(0.000_001, 2.0, 20));
        let metrics = Self {
            registry: Registry::with_prefix("berth"),
            decisions: Family::default(),
            step_seconds: micro(),
            append_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            records: Counter::default(),
            journal_bytes: Counter::default(),
            evictions: Counter::default(),
            slots_failed: Counter::default(),
            lost: Counter::default(),
            corrections: Family::default(),
            ledgers_sound: Gauge::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(request_buckets),
            handles: super::Map::default(),
        };
        metrics.ledgers_sound.set(1);
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("decisions", "Decisions by outcome and code", self.decisions.clone());
        registry.register_with_unit(
            "step",
            "Time to decide and apply one command",
            Unit::Seconds,
            self.step_seconds.clone(),
        );
        registry.register_with_unit(
            "append",
            "Time of one durable append to the journal",
            Unit::Seconds,
            self.append_seconds.clone(),
        );
        registry.register("journal_records", "Records appended to the journal", self.records.clone());
        registry.register_with_unit(
            "journal_appended",
            "Appended to the journal",
            Unit::Bytes,
            self.journal_bytes.clone(),
        );
        registry.register("evictions", "Slots stopped because others needed their memory", self.evictions.clone());
        registry.register("slot_failures", "Slots that came to a bad end", self.slots_failed.clone());
        registry.register("runners_lost", "Runners that were silent for too long", self.lost.clone());
        registry.register(
            "memory_corrections",
            "Changes of what a model is charged, by reason: it ran out of memory, or it learns",
            self.corrections.clone(),
        );
        registry.register(
            "ledgers_sound",
            "1 if the last check found every ledger to be the fold of its claims",
            self.ledgers_sound.clone(),
        );
        registry.register("http_requests", "Requests by route and status", self.requests.clone());
        registry.register_with_unit(
            "http_request",
            "Time of a request, waits included",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        self
    }

    /// The registry, to encode.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn decided(&self, outcome: &Outcome, duration: Duration) {
        let labels = OutcomeLabels { outcome: outcome.as_str(), code: outcome.code() };
        self.decisions.get_or_create(&labels).inc();
        self.step_seconds.observe(duration.as_secs_f64());
    }

    pub(super) fn happened(&self, event: &Event) {
        match event {
            Event::SlotStopping { why: berth_core::StopReason::Evicted, .. } => drop(self.evictions.inc()),
            Event::SlotFailed { .. } => drop(self.slots_failed.inc()),
            Event::RunnerLost { .. } => drop(self.lost.inc()),
            Event::MemoryCorrected { why, .. } => {
                self.corrections.get_or_create(&ReasonLabels { reason: why.code() }).inc();
            }
            _ => {}
        }
    }

    pub(super) fn note_ledger_check(&self, sound: bool) {
        self.ledgers_sound.set(u64::from(sound));
    }

    /// One durable append.
    pub fn appended(&self, records: usize, bytes: usize, duration: Duration) {
        self.records.inc_by(records as u64);
        self.journal_bytes.inc_by(bytes as u64);
        self.append_seconds.observe(duration.as_secs_f64());
    }

    /// One request that was answered.
    pub fn answered(&self, method: &Method, route: &str, status: u16, duration: Duration) {
        // Names of routes live as long as the router, so an address tells them apart, and labels are made once.
        let method = method_name(method);
        let key = (route.as_ptr() as usize, status, method);
        if let Some(known) = self.handles.get(&key) {
            return known.count(duration);
        }
        let labels = RequestLabels { method, route: route.into(), status };
        let counter = self.requests.get_or_create_owned(&labels);
        let histogram = self.request_seconds.get_or_create_owned(&RouteLabels { route: route.into() });
        self.handles.entry(key).or_insert(Handles { counter, histogram }).count(duration);
    }
}

/// Methods that somebody made up are one: labels must not grow with what strangers send.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// Where one kind of answer is counted.
#[derive(Debug)]
struct Handles {
    counter: Counter,
    histogram: Histogram,
}

impl Handles {
    fn count(&self, duration: Duration) {
        self.counter.inc();
        self.histogram.observe(duration.as_secs_f64());
    }
}

/// What a gauge is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// Which part of which device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeviceLabels {
    uuid: String,
    part: &'static str,
}

/// Which part of a model's memory, with so many GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelMemoryLabels {
    model: String,
    gpus: u16,
    part: &'static str,
}

/// How what a model is charged compares with what its slots use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriftLabels {
    model: String,
    gpus: u16,
    verdict: &'static str,
}

/// What models are charged beside what their slots were seen to use, where anything was seen.
fn model_memory(views: &super::Views, registry: &mut Registry) {
    let memory = Family::<ModelMemoryLabels, Gauge>::default();
    let drift = Family::<DriftLabels, Gauge>::default();
    for view in views.models().iter().filter(|view| !view.deleted) {
        for row in view.memory.iter().filter(|row| !row.peaks.is_empty()) {
            let (model, gpus) = (view.name.to_string(), row.count.get());
            for (part, ranks) in [("charged", &row.charged), ("peak", &row.peaks)] {
                let sum: u128 = ranks.iter().map(|bytes| u128::from(bytes.get())).sum();
                let labels = ModelMemoryLabels { model: model.clone(), gpus, part };
                memory.get_or_create(&labels).set(i64::try_from(sum).unwrap_or(i64::MAX));
            }
            drift.get_or_create(&DriftLabels { model, gpus, verdict: row.verdict.code() }).set(1);
        }
    }
    let help = "What all GPUs of a slot are charged, and the most they were seen to use";
    registry.register_with_unit("model_memory", help, Unit::Bytes, memory);
    registry.register("model_memory_verdict", "1 for how the two compare", drift);
}

/// What can be read off the views, as of now.
#[must_use]
pub fn gauges(views: &super::Views) -> Registry {
    let mut registry = Registry::with_prefix("berth");
    let workloads = Family::<StateLabels, Gauge>::default();
    for (state, count) in views.tally.workloads() {
        workloads.get_or_create(&StateLabels { state: state.as_str() }).set(count);
    }
    registry.register("workloads", "Workloads by state", workloads);
    let slots = Family::<StateLabels, Gauge>::default();
    for (state, count) in views.tally.slots() {
        slots.get_or_create(&StateLabels { state: state.as_str() }).set(count);
    }
    registry.register("slots", "Slots by state", slots);
    let runners = Family::<StateLabels, Gauge>::default();
    for view in views.runners() {
        let state = match view.liveness {
            berth_core::Liveness::Ready => "ready",
            berth_core::Liveness::Suspect => "suspect",
            berth_core::Liveness::Lost => "lost",
        };
        runners.get_or_create(&StateLabels { state }).inc();
    }
    registry.register("runners", "Runners by state", runners);
    let (revision, devices, _) = views.ledgers();
    let memory = Family::<DeviceLabels, Gauge>::default();
    let mut overcommitted = 0;
    for device in devices {
        overcommitted += i64::from(device.overcommitted);
        let (_, balance) = crate::present::offer(&device, |runner| views.is_open(runner));
        let parts = [
            ("capacity", balance.capacity_bytes),
            ("held", balance.held_bytes),
            ("releasing", balance.releasing_bytes),
            ("promised", balance.promised_bytes),
            ("foreign", balance.foreign_bytes),
            ("free", balance.free_bytes),
        ];
        for (part, bytes) in parts {
            let labels = DeviceLabels { uuid: device.uuid.to_string(), part };
            memory.get_or_create(&labels).set(i64::try_from(bytes.get()).unwrap_or(i64::MAX));
        }
    }
    registry.register_with_unit("device_memory", "Memory of each device by what it is", Unit::Bytes, memory);
    model_memory(views, &mut registry);
    let number = |value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        gauge
    };
    registry.register("devices_overcommitted", "Devices on which reality broke a line", number(overcommitted));
    registry.register("revision", "The revision", number(i64::try_from(revision.get()).unwrap_or(i64::MAX)));
    registry.register(
        "read_only",
        "1 while writes are refused for want of room",
        number(i64::from(views.is_read_only())),
    );
    registry.register(
        "history_went_back",
        "1 while the history of the server went back and no operator has continued it",
        number(i64::from(views.went_back().is_some())),
    );
    registry.register(
        "long_polls",
        "Runners whose agents wait for work",
        number(i64::try_from(views.runner_waiters.len()).unwrap_or(0)),
    );
    registry
}
