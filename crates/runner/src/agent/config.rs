//! The agent's configuration: a file of its own, on its own machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use berth_domain::{Bytes, LabelKey, LabelValue, PoolName, RunnerId, RuntimeKind, RuntimeName, Span};
use serde::Deserialize;

use super::users;
use crate::engine::EnginesFound;
use crate::inventory::InventorySettings;
use crate::process::{LogLimits, OnAgentExit};
use crate::reconcile::Patience;
use crate::runtime::{self, RuntimeConfig, Runtimes};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// Who it is and how it should behave.
    pub agent: AgentTable,
    /// What is kept of what slots write.
    pub logs: LogTable,
    /// What the machine has.
    pub inventory: InventorySettings,
    /// What it can start, by name.
    pub runtime: BTreeMap<RuntimeName, RuntimeConfig>,
}

/// `[agent]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentTable {
    /// Its id in the fleet; the machine's host name unless given.
    pub id: Option<RunnerId>,
    /// The server.
    pub server: String,
    /// A file with its token.
    pub token_file: Option<PathBuf>,
    /// A PEM file with the certificate authority of the server, the only one that is trusted then.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate that names this runner, for a server that asks for one.
    pub client_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    pub client_key: Option<PathBuf>,
    /// Whether its token may be sent over plain http beyond this machine.
    pub allow_token_over_http: bool,
    /// Where it keeps its record and the logs of its slots.
    pub data_dir: PathBuf,
    /// Its pool; the one that its token grants unless given.
    pub pool: Option<PoolName>,
    /// Its labels, among those that its token grants.
    pub labels: BTreeMap<LabelKey, LabelValue>,
    /// The name or address under which gateways reach its slots; unless given, the one that its token grants, else the
    /// one from which it connects to the server.
    pub address: Option<String>,
    /// The address that slots listen on.
    pub bind: IpAddr,
    /// Directories with model files whose headers the server may have read; none unless listed.
    pub model_dirs: Vec<PathBuf>,
    /// The ports that slots are given.
    pub ports: (u16, u16),
    /// What becomes of slots when the agent ends.
    pub on_agent_exit: OnAgentExit,
    /// Whether SIGTERM ends the slots first.
    pub drain_on_sigterm: bool,
    /// Between asking a slot to end and ending it, where its runtime says nothing else.
    pub stop_grace: Span,
    /// The same for a slot that is not ready yet, where its runtime says nothing else; the shorter of the two counts.
    pub loading_grace: Span,
    /// Between ending a slot by force and giving it up as one that cannot be ended.
    pub unkillable_after: Span,
    /// How long the driver may list a process that is gone before its devices count as out of order.
    pub driver_after: Span,
    /// How long it may be silent.
    pub report_every: Span,
    /// A cgroup v2 directory in which it may make one for each slot.
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
    /// In memory, of each slot.
    pub ring: Bytes,
    /// In the file that a slot writes to; it is copied and cut when it is larger.
    pub file: Bytes,
    /// How many copies are kept of each slot.
    pub copies: u32,
    /// Of how many slots that are no more.
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

/// Why a configuration is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A field that cannot be meant.
    #[error("{field}: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
    /// A runtime that cannot be started.
    #[error(transparent)]
    Runtime(#[from] runtime::ConfigError),
}

/// Everything the agent goes by, checked.
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
    /// Checks it, and parts it into what the agent goes by and what it can start.
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
    pub(super) fn patience(&self) -> Patience {
        let Self { stop_grace: grace, loading_grace, unkillable_after, driver_after, .. } = *self;
        Patience { grace, loading_grace, unkillable_after, driver_after }
    }

    /// Runtimes whose programs this machine has, with everything that their templates need, and what each starts.
    pub(super) fn offered(&self, runtimes: &Runtimes, engines: &EnginesFound) -> BTreeMap<RuntimeName, RuntimeKind> {
        let mut offered = runtimes.installed(&self.path());
        offered.retain(|name, _| runtimes.get(name).is_some_and(|runtime| engines.offers(runtime)));
        offered
    }

    /// Where programs are looked for.
    pub(super) fn path(&self) -> OsString {
        self.environment.get(std::ffi::OsStr::new("PATH")).cloned().unwrap_or_default()
    }
}
