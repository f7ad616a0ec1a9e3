//! The secrets that slots are given, and their removal from logs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use berth_domain::{Arg, InlineSecret};

use super::config::AgentSettings;
use crate::process::Redactor;
use crate::runtime::{Launch, Runtime, Runtimes, SecretError, SecretSource};

/// Warns of files with secrets that all users of the machine can read.
pub(super) fn warn_of_loose_files(runtimes: &Runtimes) {
    let sources = runtimes.iter().flat_map(|runtime| runtime.secrets().values());
    let files = sources.filter_map(|source| match source {
        SecretSource::File(path) => Some(path),
        SecretSource::Env(_) => None,
    });
    for path in files.collect::<BTreeSet<_>>() {
        berth_files::warn_if_loose(path, "a secret of slots");
    }
}

/// Gives secrets to slots and remembers them, so that logs can be redacted.
pub(super) struct SlotSecrets {
    settings: Arc<AgentSettings>,
    /// The values that slots were given. A slot may write one to its log, also after the file was changed.
    given: BTreeSet<OsString>,
}

impl SlotSecrets {
    pub(super) fn new(settings: Arc<AgentSettings>) -> Self {
        Self { settings, given: BTreeSet::new() }
    }

    /// Adds the runtime's secrets to the environment that a slot is started with.
    pub(super) fn add_to(&mut self, launch: &mut Launch, runtime: &Runtime) -> Result<(), SecretError> {
        let secrets = self.read(runtime)?;
        self.given.extend(secrets.values().cloned());
        launch.env.extend(secrets);
        Ok(())
    }

    /// Returns what removes secrets from the output of slots before it leaves this machine: the secrets that slots were
    /// given, and those that they would be given now, since an agent before this one may have started them.
    pub(super) fn redactor(&self, runtimes: &Runtimes) -> Redactor {
        let own = &self.settings.environment;
        let named = runtimes.iter().filter_map(|runtime| self.read(runtime).ok()).flat_map(BTreeMap::into_values);
        let passed = runtimes.iter().flat_map(Runtime::passed_variables).filter(|name| is_secret(name));
        let passed = passed.filter_map(|name| own.get(OsStr::new(name)).cloned());
        Redactor::new(self.given.iter().cloned().chain(named).chain(passed).map(OsString::into_encoded_bytes))
    }

    fn read(&self, runtime: &Runtime) -> Result<BTreeMap<OsString, OsString>, SecretError> {
        let read = |(name, source): (&String, &SecretSource)| {
            Ok((OsString::from(name), source.read(name, &self.settings.environment)?))
        };
        runtime.secrets().iter().map(read).collect()
    }
}

/// Returns whether a variable is named like a secret.
fn is_secret(variable: &str) -> bool {
    let assigned = Arg::new(format!("{variable}=x"));
    assigned.is_ok_and(|assigned| InlineSecret::find(&[assigned]).is_some())
}
