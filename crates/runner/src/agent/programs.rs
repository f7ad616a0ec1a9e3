//! The programs of this machine: the configured runtimes, and the versions and options of their engines.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::{RuntimeKind, RuntimeName};

use super::config::AgentSettings;
use crate::engine::KnownEngines;
use crate::runtime::Runtimes;

/// Holds the runtimes and asks the engines behind them for versions and options.
pub(super) struct Programs {
    settings: Arc<AgentSettings>,
    pub(super) runtimes: Runtimes,
    pub(super) engines: KnownEngines,
}

impl Programs {
    pub(super) fn new(settings: Arc<AgentSettings>, runtimes: Runtimes) -> Self {
        let engines = KnownEngines::open(&settings.data_dir);
        Self { settings, runtimes, engines }
    }

    /// Asks engines that are new or have changed, in the background. Returns whether the report changes by that.
    pub(super) fn look(&mut self) -> bool {
        self.engines.look(&mut self.runtimes, &self.settings.environment, &self.settings.path())
    }

    /// Waits for an engine's answer and returns whether the report changes by it. Returns `None` if none was asked.
    pub(super) async fn next_answer(&mut self) -> Option<bool> {
        let (_, is_new) = self.engines.next_answer().await?;
        self.engines.choose_templates(&mut self.runtimes);
        Some(is_new)
    }

    /// Returns the runtimes whose programs this machine has, with all options that their templates need.
    pub(super) fn offered(&self) -> BTreeMap<RuntimeName, RuntimeKind> {
        self.settings.offered(&self.runtimes, &self.engines)
    }
}
