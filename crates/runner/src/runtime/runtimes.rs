//! The runtimes of an agent: the built-in ones and those of its configuration, each for the version of its engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use berth_domain::{Arg, RuntimeKind, RuntimeName};

use super::builtin;
use super::config::{ConfigError, Runtime, RuntimeConfig, VersionConfig, overlay};
use super::user::UserId;
use crate::engine::{EngineVersion, Needs};

/// All runtimes of the agent.
#[derive(Clone, Debug)]
pub struct Runtimes {
    all: BTreeMap<RuntimeName, Templates>,
}

/// One runtime, and its differences for later versions of its engine.
#[derive(Clone, Debug)]
struct Templates {
    plain: Runtime,
    /// The differences, in the order of the versions.
    since: Vec<(EngineVersion, Runtime)>,
    /// The index in `since` that applies, once the engine's version is known.
    chosen: Option<usize>,
}

impl Templates {
    fn new(name: &RuntimeName, config: &RuntimeConfig) -> Result<Self, ConfigError> {
        let mut since = Vec::new();
        for (text, VersionConfig { command, env, ready }) in &config.versions {
            let wrong = || ConfigError::Version { runtime: name.clone(), version: text.clone() };
            let version = EngineVersion::parse(text).ok_or_else(wrong)?;
            let (command, env, ready) = (command.clone(), env.clone(), ready.clone());
            let over = RuntimeConfig { command, env, ready, ..RuntimeConfig::default() };
            since.push((version, Runtime::new(name, &overlay(config.clone(), &over))?));
        }
        since.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(Self { plain: Runtime::new(name, config)?, since, chosen: None })
    }

    fn position_for(&self, version: &EngineVersion) -> Option<usize> {
        self.since.iter().rposition(|(since, _)| since <= version)
    }

    fn at(&self, position: Option<usize>) -> &Runtime {
        position.and_then(|at| self.since.get(at)).map_or(&self.plain, |(_, runtime)| runtime)
    }
}

impl Runtimes {
    /// Returns the built-in runtimes and those of the configuration, which take precedence.
    pub fn from_config(config: &BTreeMap<RuntimeName, RuntimeConfig>) -> Result<Self, ConfigError> {
        let built_in = builtin::NAMES.iter().filter_map(|name| RuntimeName::new(name).ok());
        let names: BTreeSet<RuntimeName> = built_in.chain(config.keys().cloned()).collect();
        let mut all = BTreeMap::new();
        for name in names {
            let said = config.get(&name).cloned().unwrap_or_default();
            if said.enabled != Some(false) {
                let templates = Templates::new(&name, &said)?;
                all.insert(name, templates);
            }
        }
        Ok(Self { all })
    }

    /// Returns the runtime of this name.
    #[must_use]
    pub fn get(&self, name: &RuntimeName) -> Option<&Runtime> {
        self.all.get(name).map(|templates| templates.at(templates.chosen))
    }

    /// Returns what the templates of a runtime need of its engine, in the order of versions.
    pub(crate) fn needs(&self, name: &RuntimeName) -> Vec<Needs> {
        let Some(Templates { plain, since, .. }) = self.all.get(name) else { return Vec::new() };
        let needs = |since: Option<&EngineVersion>, runtime: &Runtime| Needs {
            since: since.cloned(),
            options: runtime.needed_options(),
        };
        let versions = since.iter().map(|(version, runtime)| needs(Some(version), runtime));
        std::iter::once(needs(None, plain)).chain(versions).collect()
    }

    /// Selects the template of a runtime for this version of its engine.
    pub(crate) fn choose(&mut self, name: &RuntimeName, version: Option<&EngineVersion>) {
        if let Some(templates) = self.all.get_mut(name) {
            templates.chosen = version.and_then(|version| templates.position_for(version));
        }
    }

    /// Returns all runtimes, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Runtime> {
        self.all.values().map(|templates| templates.at(templates.chosen))
    }

    /// Returns all users that a slot of this agent may run as, including the agent's own.
    #[must_use]
    pub fn users(&self) -> BTreeSet<UserId> {
        self.iter().map(Runtime::user_id).chain([UserId::own()]).collect()
    }

    /// Returns the runtimes whose program is on the machine, with what each starts, for the report. `path` is the
    /// agent's own `PATH`.
    #[must_use]
    pub fn installed(&self, path: &OsStr) -> BTreeMap<RuntimeName, RuntimeKind> {
        let installed = self.iter().filter(|runtime| runtime.find_program(path).is_some());
        installed.map(|runtime| (runtime.name.clone(), runtime.kind)).collect()
    }

    /// Returns the arguments that the configuration allows for each of these runtimes, for the report.
    #[must_use]
    pub fn allowed(&self, offered: &BTreeMap<RuntimeName, RuntimeKind>) -> BTreeMap<RuntimeName, BTreeSet<Arg>> {
        let listed = self.iter().filter(|runtime| offered.contains_key(&runtime.name) && !runtime.allow.is_empty());
        let entries = |runtime: &Runtime| runtime.allow.entries().filter_map(|entry| Arg::new(entry).ok()).collect();
        listed.map(|runtime| (runtime.name.clone(), entries(runtime))).collect()
    }

    /// Returns the agent's own environment, as [`super::LaunchContext`] takes it.
    #[must_use]
    pub fn own_environment() -> BTreeMap<OsString, OsString> {
        std::env::vars_os().collect()
    }
}
