//! The configuration: a file, then the environment, then flags; each overrides the one before it.
//!
//! Every value has a default, so an empty file is a configuration. An unknown name is an error wherever it stands:
//! a typo must not be ignored.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_core::Settings;
use berth_domain::{Bytes, Priority, Span};
use berth_gateway::GatewayConfig;
use serde::{Deserialize, Deserializer, Serialize};

use crate::requests::Bounds;

/// Everything an operator may choose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where it listens and where it keeps its data.
    pub server: ServerConfig,
    /// Encryption.
    pub tls: TlsConfig,
    /// How tokens are made.
    pub tokens: TokensConfig,
    /// What a client may use up.
    pub limits: LimitsConfig,
    /// How the journal is kept.
    pub journal: JournalConfig,
    /// How much of the past is shown.
    pub history: HistoryConfig,
    /// How the audit log is kept.
    pub audit: AuditConfig,
    /// What is written to the log, and how.
    pub log: LogConfig,
    /// How model files are read.
    pub estimate: EstimateConfig,
    /// The gateway below `/v1`.
    pub gateway: GatewayConfig,
    /// How decisions are made.
    pub scheduler: SchedulerConfig,
}

/// Where it listens and where it keeps its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The address to listen on. Anything but loopback needs tokens and TLS.
    pub listen: SocketAddr,
    /// The directory of the journal, the tokens and the audit log.
    pub data_dir: PathBuf,
    /// Make no token at the first start: every user and program of this machine may do everything, which with a runner
    /// that is root means to be root.
    pub anyone_on_this_machine_is_admin: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            data_dir: PathBuf::from("berth-data"),
            anyone_on_this_machine_is_admin: false,
        }
    }
}

/// Encryption. Certificate and key, or neither.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// PEM file with the certificate chain.
    pub cert: Option<PathBuf>,
    /// PEM file with the private key.
    pub key: Option<PathBuf>,
    /// PEM file with the authority of runners' client certificates. With it, a runner's token counts only together with
    /// a certificate that names the runner.
    pub client_ca: Option<PathBuf>,
    /// Whether runners must have such a certificate; required unless said otherwise.
    pub runner_certificates: Option<RunnerCertificates>,
}

/// Whether runners must have a client certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunnerCertificates {
    /// A runner without one is refused.
    #[default]
    Required,
    /// A runner without one is let pass, and one with the certificate of another runner is refused: for the time in which
    /// agents are given theirs.
    Optional,
}

/// How tokens are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// How long a secret of a runner that joined is worth something; its agent rotates it after half of that. 0: for
    /// ever.
    pub runner_lifetime: Span,
    /// How many workloads of one submitter may wait, unless its token says otherwise.
    pub queued: u32,
    /// How many workloads of one submitter may have a slot, unless its token says otherwise.
    pub running: u32,
    /// The highest priority that a submitter may ask for, unless its token says otherwise.
    pub priority: Priority,
    /// The most bytes of arguments of one job of a submitter, unless its token says otherwise.
    pub job_args: Bytes,
}

impl Default for TokensConfig {
    fn default() -> Self {
        Self {
            runner_lifetime: Span::from_secs(30 * 24 * 60 * 60),
            queued: 1_000,
            running: 1_000,
            priority: Priority::default(),
            job_args: Bytes::new(16 * 1024),
        }
    }
}

/// What a client may use up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// The largest body of a request.
    pub body: Bytes,
    /// The largest report of an agent.
    pub report: Bytes,
    /// How long a client may take to send its headers.
    pub header_timeout: Span,
    /// How long a client may take to send a body.
    pub body_timeout: Span,
    /// The longest `wait` of a request.
    pub wait: Span,
    /// How long an agent may take to answer a request of a reader: for a slot's log, say.
    pub agent_answer: Span,
    /// How many such requests may be open at one runner.
    pub agent_requests: usize,
    /// How many such requests may be open at all runners.
    pub agent_requests_total: usize,
    /// The most that is read of a slot's log before following it.
    pub log: Bytes,
    /// How long a client may take nothing of an answer that is ready for it.
    pub write_timeout: Span,
    /// How long a connection that has authenticated may be without a request.
    pub idle_timeout: Span,
    /// How often an HTTP/2 client is asked whether it is still there, and how long it may take to answer that.
    pub keep_alive: Span,
    /// How many connections there may be at once.
    pub connections: usize,
    /// How many requests may be in flight on one HTTP/2 connection.
    pub streams: u32,
    /// How many connections that have not authenticated there may be at once.
    pub unauthenticated_connections: usize,
    /// How many of them may come from one address.
    pub unauthenticated_per_address: usize,
    /// How many requests that did not authenticate may be in flight on one HTTP/2 connection.
    pub unauthenticated_streams: usize,
    /// How long a connection may last without authenticating.
    pub unauthenticated_lifetime: Span,
    /// How many requests a second one client may send.
    pub requests_per_second: u32,
    /// How many it may send at once after a pause.
    pub burst: u32,
    /// How long a shutdown waits for requests in flight.
    pub shutdown: Span,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            body: Bytes::mib(1),
            report: Bytes::mib(8),
            header_timeout: Span::from_secs(10),
            body_timeout: Span::from_secs(30),
            wait: Span::from_secs(60),
            agent_answer: Span::from_secs(10),
            agent_requests: 16,
            agent_requests_total: 512,
            log: Bytes::mib(64),
            write_timeout: Span::from_secs(30),
            idle_timeout: Span::from_secs(120),
            keep_alive: Span::from_secs(20),
            connections: 8192,
            streams: 256,
            unauthenticated_connections: 1024,
            unauthenticated_per_address: 256,
            unauthenticated_streams: 8,
            unauthenticated_lifetime: Span::from_secs(60),
            requests_per_second: 20_000,
            burst: 40_000,
            shutdown: Span::from_secs(10),
        }
    }
}

impl LimitsConfig {
    /// How many requests to agents may be open.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        Bounds { per_runner: self.agent_requests, total: self.agent_requests_total }
    }

    /// How long an agent may take to answer one.
    #[must_use]
    pub fn agent_patience(&self) -> Duration {
        Duration::from_millis(self.agent_answer.millis())
    }
}

/// How the journal is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JournalConfig {
    /// The size of one segment.
    pub segment: Bytes,
    /// All segments together are never larger than this; writes are refused before. 0: as large as the disk.
    pub limit: Bytes,
    /// Room that only what gives memory back may use.
    pub spare: Bytes,
    /// A snapshot is made after so many bytes of journal.
    pub snapshot_after: Bytes,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { segment: Bytes::mib(16), limit: Bytes::ZERO, spare: Bytes::mib(2), snapshot_after: Bytes::mib(64) }
    }
}

/// How much of the past is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// How many decisions are kept, in memory.
    pub decisions: usize,
    /// How many events a follower may be behind.
    pub events: usize,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self { decisions: 5_000, events: 10_000 }
    }
}

/// How the audit log is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// A file of the audit log is followed by a new one once it is this large.
    pub file_size: Bytes,
    /// How many files are kept, the one that is written included.
    pub files: usize,
    /// How many refused requests (401 and 403) go on record in a minute.
    pub refused_per_minute: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { file_size: Bytes::mib(16), files: 16, refused_per_minute: 60 }
    }
}

/// What is written to the log, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// A level (`info`), or a level for each target (`info,berth::decision=debug`).
    pub filter: String,
    /// For people or for machines.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

/// For people or for machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One readable line for each event.
    #[default]
    Text,
    /// One JSON object for each event.
    Json,
}

/// How model files are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EstimateConfig {
    /// Directories below which the server may read the headers of model files. None: it reads no such file.
    #[serde(deserialize_with = "one_or_several")]
    pub model_dirs: Vec<PathBuf>,
}

/// A list, or one of them: the environment and flags have no lists.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a directory, or a list of directories")]
    enum Directories {
        One(PathBuf),
        Several(Vec<PathBuf>),
    }
    Ok(match Directories::deserialize(deserializer)? {
        Directories::One(directory) => vec![directory],
        Directories::Several(directories) => directories,
    })
}

/// How decisions are made. See the comments in `config/berth.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "each is documented where the core declares it, and in the example file")]
pub struct SchedulerConfig {
    pub device_reserve: Bytes,
    pub exclusive_tolerance: Bytes,
    pub foreign_step: Bytes,
    pub keep_alive: Span,
    pub min_run: Span,
    pub lease_ttl: Span,
    pub suspect_after: Span,
    pub lost_after: Span,
    pub age_limit: Span,
    pub backfill_after: Span,
    pub queue_limit: usize,
    pub start_deadline: Span,
    pub stall_after: Span,
    pub attempts: u32,
    pub forgive_after: Span,
    pub backoff: Span,
    pub backoff_limit: Span,
    pub pause_after: Span,
    pub keep_ended_for: Span,
    pub keep_ended: usize,
    pub self_suspicion_from: usize,
    pub devices_per_runner: usize,
    pub unknown_slots_per_runner: usize,
    pub oom_step: u32,
    pub oom_limit: u32,
    pub judge_after: Span,
    pub explained_devices: usize,
}

/// The same fields on both sides: what the file says and what the core takes.
macro_rules! scheduler_fields {
    ($from:ident as $to:path) => {{
        use $to as Target;
        Target {
            device_reserve: $from.device_reserve,
            exclusive_tolerance: $from.exclusive_tolerance,
            foreign_step: $from.foreign_step,
            keep_alive: $from.keep_alive,
            min_run: $from.min_run,
            lease_ttl: $from.lease_ttl,
            suspect_after: $from.suspect_after,
            lost_after: $from.lost_after,
            age_limit: $from.age_limit,
            backfill_after: $from.backfill_after,
            queue_limit: $from.queue_limit,
            start_deadline: $from.start_deadline,
            stall_after: $from.stall_after,
            attempts: $from.attempts,
            forgive_after: $from.forgive_after,
            backoff: $from.backoff,
            backoff_limit: $from.backoff_limit,
            pause_after: $from.pause_after,
            keep_ended_for: $from.keep_ended_for,
            keep_ended: $from.keep_ended,
            self_suspicion_from: $from.self_suspicion_from,
            devices_per_runner: $from.devices_per_runner,
            unknown_slots_per_runner: $from.unknown_slots_per_runner,
            oom_step: $from.oom_step,
            oom_limit: $from.oom_limit,
            judge_after: $from.judge_after,
            explained_devices: $from.explained_devices,
        }
    }};
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        let settings = Settings::default();
        scheduler_fields!(settings as SchedulerConfig)
    }
}

impl SchedulerConfig {
    /// As the core takes it.
    #[must_use]
    pub fn settings(&self) -> Settings {
        scheduler_fields!(self as Settings)
    }
}

/// Why a configuration is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A name that nobody knows, or a value that cannot be meant.
    #[error("{origin}: {field}: {why}")]
    Value {
        /// The file, the variable or the flag.
        origin: String,
        /// Which field.
        field: String,
        /// What is wrong.
        why: String,
    },
}

/// Where values come from, the weakest first.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    file: Option<(PathBuf, toml::Table)>,
    overrides: Vec<(String, String, toml::Value)>,
}

impl Sources {
    /// Reads a file.
    pub fn file(mut self, path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let table = toml::from_str(&text)
            .map_err(|source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        self.file = Some((path.to_owned(), table));
        Ok(self)
    }

    /// Takes variables such as `BERTH_LOG__FILTER` for `log.filter`: two underscores part the section from the name.
    #[must_use]
    pub fn environment(mut self, variables: impl Iterator<Item = (String, String)>) -> Self {
        let mut found: Vec<_> = variables
            .filter_map(|(name, value)| {
                let (section, field) = name.strip_prefix("BERTH_")?.split_once("__")?;
                Some((format!("{}.{}", section.to_lowercase(), field.to_lowercase()), name, value))
            })
            .collect();
        found.sort();
        self.overrides.extend(found.into_iter().map(|(path, name, value)| (path, name, literal(&value))));
        self
    }

    /// Takes one flag.
    #[must_use]
    pub fn flag(mut self, path: &str, flag: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.overrides.push((path.into(), flag.into(), literal(&value)));
        }
        self
    }

    /// Puts everything together.
    pub fn load(self) -> Result<Config, ConfigError> {
        let (origin, mut table) = match self.file {
            Some((path, table)) => (path.display().to_string(), table),
            None => ("defaults".to_owned(), toml::Table::new()),
        };
        parse(&origin, table.clone())?;
        for (path, origin, value) in self.overrides {
            let (section, field) = path.split_once('.').unwrap_or((&path, ""));
            let section = table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if let Some(section) = section.as_table_mut() {
                section.insert(field.to_owned(), value);
            }
            parse(&origin, table.clone())?;
        }
        let config = parse("configuration", table)?;
        config.check()?;
        Ok(config)
    }
}

fn parse(origin: &str, table: toml::Table) -> Result<Config, ConfigError> {
    serde_path_to_error::deserialize(table).map_err(|error| ConfigError::Value {
        origin: origin.to_owned(),
        field: error.path().to_string(),
        why: error.inner().to_string().trim().to_owned(),
    })
}

/// A number or a truth value if it looks like one, else a text.
fn literal(text: &str) -> toml::Value {
    match (text.parse::<i64>(), text.parse::<bool>()) {
        (Ok(number), _) => toml::Value::Integer(number),
        (_, Ok(truth)) => toml::Value::Boolean(truth),
        _ => toml::Value::String(text.to_owned()),
    }
}

impl Config {
    /// Refuses what fits the types but cannot be meant.
    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |field: &str, why: &str| {
            Err(ConfigError::Value { origin: "configuration".into(), field: field.into(), why: why.into() })
        };
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return refuse("tls", "give both cert and key, or neither");
        }
        if self.tls.client_ca.is_some() && self.tls.cert.is_none() {
            return refuse("tls.client_ca", "needs TLS: give cert and key, too");
        }
        if self.tls.runner_certificates.is_some() && self.tls.client_ca.is_none() {
            return refuse("tls.runner_certificates", "needs client_ca: the authority of these certificates");
        }
        if self.scheduler.lost_after <= self.scheduler.suspect_after {
            return refuse("scheduler.lost_after", "must be longer than suspect_after");
        }
        if self.scheduler.attempts == 0 {
            return refuse("scheduler.attempts", "must be at least 1");
        }
        if self.scheduler.oom_step > 100 || self.scheduler.oom_limit > 1000 {
            return refuse("scheduler.oom_step", "is at most 100 percent, and oom_limit at most 1000");
        }
        let climbs = |path: &PathBuf| path.components().any(|part| part == std::path::Component::ParentDir);
        if self.estimate.model_dirs.iter().any(|path| !path.is_absolute() || climbs(path)) {
            return refuse("estimate.model_dirs", "each must be an absolute path without ..");
        }
        if self.journal.segment < Bytes::mib(1) {
            return refuse("journal.segment", "must be at least 1MiB");
        }
        if self.limits.connections == 0 || self.limits.requests_per_second == 0 || self.limits.burst == 0 {
            return refuse("limits", "connections, requests_per_second and burst must be at least 1");
        }
        self.check_limits().or_else(|(field, why)| refuse(&format!("limits.{field}"), why))?;
        if self.audit.file_size < Bytes::new(64 << 10) || self.audit.files == 0 {
            return refuse("audit", "file_size must be at least 64KiB, and files at least 1");
        }
        if let Err(error) = crate::logging::parse_filter(&self.log.filter) {
            return refuse("log.filter", &error);
        }
        Ok(())
    }

    /// Refuses limits under which nobody would be served.
    fn check_limits(&self) -> Result<(), (&'static str, &'static str)> {
        let limits = &self.limits;
        let spans = [
            ("header_timeout", limits.header_timeout),
            ("write_timeout", limits.write_timeout),
            ("idle_timeout", limits.idle_timeout),
            ("keep_alive", limits.keep_alive),
            ("unauthenticated_lifetime", limits.unauthenticated_lifetime),
        ];
        if let Some((name, _)) = spans.into_iter().find(|(_, span)| span.millis() < 100) {
            return Err((name, "must be at least 100ms"));
        }
        let counts = [
            ("streams", limits.streams as usize),
            ("unauthenticated_connections", limits.unauthenticated_connections),
            ("unauthenticated_per_address", limits.unauthenticated_per_address),
            ("unauthenticated_streams", limits.unauthenticated_streams),
        ];
        match counts.into_iter().find(|(_, count)| *count == 0) {
            Some((name, _)) => Err((name, "must be at least 1")),
            None => Ok(()),
        }
    }
}
