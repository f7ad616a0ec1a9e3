//! The agent's configuration file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use berth_domain::{Bytes, LabelKey, LabelValue, PoolName, RunnerId, RuntimeKind, RuntimeName, Span};
use serde::Deserialize;

use super::users;
use crate::engine::KnownEngines;
use crate::inventory::InventorySettings;
use crate::process::{LogLimits, OnAgentExit};
use crate::reconcile::Timeouts;
use crate::runtime::{self, RuntimeConfig, Runtimes};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// The agent's identity and behaviour.
    pub agent: AgentTable,
    /// How much of the slots' output is kept.
    pub logs: LogTable,
    /// Where the inventory of the machine comes from.
    pub inventory: InventorySettings,
    /// The runtimes that can be started, by name.
    pub runtime: BTreeMap<RuntimeName, RuntimeConfig>,
}

/// `[agent]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentTable {
    /// The runner's id in the fleet; the machine's host name unless given.
    pub id: Option<RunnerId>,
    /// The URL of the server.
    pub server: String,
    /// A file with the runner's token.
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate authority of the server, the only one that is trusted then.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate that names this runner, for a server that asks for one.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub client_key: Option<PathBuf>,
    /// Whether the token may be sent over plain http beyond this machine.
    pub allow_token_over_http: bool,
    /// Where the agent keeps its record and the logs of its slots.
    pub data_dir: PathBuf,
    /// The runner's pool; the one that its token grants unless given.
    pub pool: Option<PoolName>,
    /// The runner's labels, among those that its token grants.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The name or address under which gateways reach its slots; unless given, the one that its token grants, else the
    /// one from which it connects to the server.
    pub address: Option<String>,
    /// The address that slots listen on.
    pub bind: IpAddr,
    /// Directories with model files whose headers the server may have read; none unless listed.
    pub model_dirs: Vec<PathBuf>,
    /// The first and the last port for slots.
    pub ports: (u16, u16),
    /// What becomes of slots when the agent ends.
    pub on_agent_exit: OnAgentExit,
    /// Whether SIGTERM ends the slots first.
    pub drain_on_sigterm: bool,
    /// The time between SIGTERM and SIGKILL for a slot, where its runtime states nothing else.
    pub stop_grace: Span,
    /// The same for a slot that is not ready yet, where its runtime states nothing else; the shorter of the two counts.
    pub loading_grace: Span,
    /// The time between SIGKILL and giving a slot up as unkillable.
    pub unkillable_after: Span,
    /// How long the driver may list a process that is gone before its devices count as failed.
    pub driver_after: Span,
    /// The longest interval between reports.
    pub report_every: Span,
    /// A cgroup v2 directory in which the agent may make one for each slot.
    pub cgroup: Option<PathBuf>,
}

impl Default for AgentTable {
    fn default() -> Self {
        Self {
            id: None,
            server: "http://127.0.0.1:8080".into(),
            token_file: None,
            ca: None,
            client_cert: None,
            client_key: None,
            allow_token_over_http: false,
            data_dir: PathBuf::from("berth-runner-data"),
            pool: None,
            labels: BTreeMap::new(),
            address: None,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            model_dirs: Vec::new(),
            ports: (20_000, 29_999),
            on_agent_exit: OnAgentExit::Keep,
            drain_on_sigterm: false,
            stop_grace: Span::from_secs(10),
            loading_grace: Span::from_secs(2),
            unkillable_after: Span::from_secs(60),
            driver_after: Span::from_secs(120),
            report_every: Span::from_secs(10),
            cgroup: None,
        }
    }
}

/// `[logs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogTable {
    /// The bytes of each slot kept in memory.
    pub ring: Bytes,
    /// The largest log file of a slot; a larger one is copied and cut.
    pub file: Bytes,
    /// The number of copies of each slot's log.
    pub copies: u32,
    /// The number of ended slots whose logs are kept.
    pub ended: usize,
}

impl Default for LogTable {
    fn default() -> Self {
        let LogLimits { ring, file, copies } = LogLimits::default();
        Self { ring, file, copies, ended: 50 }
    }
}

impl LogTable {
    pub(super) fn limits(self) -> LogLimits {
        LogLimits { ring: self.ring, file: self.file, copies: self.copies }
    }
}

/// Why a configuration is not valid.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A field has a value that is not valid.
    #[error("{field}: {why}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// What is wrong with the value.
        why: String,
    },
    /// A runtime is not valid.
    #[error(transparent)]
    Runtime(#[from] runtime::ConfigError),
}

/// The agent's configuration, checked.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is documented where it is configured")]
pub struct AgentSettings {
    pub id: RunnerId,
    pub data_dir: PathBuf,
    pub pool: Option<PoolName>,
    pub labels: BTreeMap<LabelKey, LabelValue>,
    pub address: Option<String>,
    pub bind: IpAddr,
    pub model_dirs: Vec<PathBuf>,
    pub ports: RangeInclusive<u16>,
    pub drain_on_sigterm: bool,
    pub stop_grace: Span,
    pub loading_grace: Span,
    pub unkillable_after: Span,
    pub driver_after: Span,
    pub report_every: Span,
    pub logs: LogTable,
    pub inventory: InventorySettings,
    /// The agent's own environment, of which runtimes may pass on what they list.
    pub environment: BTreeMap<OsString, OsString>,
}

impl AgentConfig {
    /// Checks the configuration, and splits it into the agent's settings and its runtimes.
    pub fn check(&self) -> Result<(AgentSettings, Runtimes), ConfigError> {
        let table = &self.agent;
        let field = |field, why: String| ConfigError::Field { field, why };
        let id = match &table.id {
            Some(id) => id.clone(),
            None => {
                let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                RunnerId::new(name.trim()).map_err(|error| field("agent.id", error.to_string()))?
            }
        };
        let (first, last) = table.ports;
        if first == 0 || first > last {
            return Err(field("agent.ports", "write [FIRST, LAST], the first being the smaller one".into()));
        }
        if self.logs.ring > Bytes::mib(64) {
            return Err(field("logs.ring", "it is kept in memory for each slot: 64MiB at most".into()));
        }
        if table.model_dirs.iter().any(|path| !path.is_absolute()) {
            return Err(field("model_dirs", "each must be an absolute path".into()));
        }
        if let Some(address) = &table.address {
            berth_domain::ReasonText::new(address).map_err(|error| field("agent.address", error.to_string()))?;
        }
        if table.client_cert.is_some() != table.client_key.is_some() {
            return Err(field("agent.client_cert", "give both client_cert and client_key, or neither".into()));
        }
        let settings = AgentSettings {
            id,
            data_dir: table.data_dir.clone(),
            pool: table.pool.clone(),
            labels: table.labels.clone(),
            address: table.address.clone(),
            bind: table.bind,
            model_dirs: table.model_dirs.clone(),
            ports: first..=last,
            drain_on_sigterm: table.drain_on_sigterm,
            stop_grace: table.stop_grace,
            loading_grace: table.loading_grace,
            unkillable_after: table.unkillable_after,
            driver_after: table.driver_after,
            report_every: table.report_every,
            logs: self.logs,
            inventory: self.inventory.clone(),
            environment: Runtimes::own_environment(),
        };
        let runtimes = Runtimes::from_config(&self.runtime)?;
        for (field, secret) in [("agent.token_file", &table.token_file), ("agent.client_key", &table.client_key)] {
            secret.iter().try_for_each(|path| users::check_secret_file(field, path, &runtimes))?;
        }
        Ok((settings, runtimes))
    }
}

impl AgentSettings {
    pub(super) fn timeouts(&self) -> Timeouts {
        let Self { stop_grace: grace, loading_grace, unkillable_after, driver_after, .. } = *self;
        Timeouts { grace, loading_grace, unkillable_after, driver_after }
    }

    /// Returns the runtimes whose programs this machine has, with all that their templates need, and what each starts.
    pub(super) fn offered(&self, runtimes: &Runtimes, engines: &KnownEngines) -> BTreeMap<RuntimeName, RuntimeKind> {
        let mut offered = runtimes.installed(&self.path());
        offered.retain(|name, _| runtimes.get(name).is_some_and(|runtime| engines.offers(runtime)));
        offered
    }

    /// Returns the `PATH` in which programs are looked for.
    pub(super) fn path(&self) -> OsString {
        self.environment.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default()
    }
}
