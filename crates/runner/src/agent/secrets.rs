//! The secrets that slots are given, and what is told of slots without them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use berth_domain::{Arg, InlineSecret};

use super::Agent;
use super::config::AgentSettings;
use crate::process::Redactor;
use crate::runtime::{Launch, Runtime, Runtimes, SecretError, SecretSource};

/// Warns of files with secrets that every user of the machine can read.
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

/// Reads the secrets of a runtime.
pub(super) fn read_all(
    runtime: &Runtime,
    settings: &AgentSettings,
) -> Result<BTreeMap<OsString, OsString>, SecretError> {
    let read = |(name, source): (&String, &SecretSource)| {
        Ok((OsString::from(name), source.read(name, &settings.environment)?))
    };
    runtime.secrets().iter().map(read).collect()
}

impl Agent {
    /// Adds the runtime's secrets to what a slot is started with.
    pub(super) fn add_secrets(&mut self, launch: &mut Launch, runtime: &Runtime) -> Result<(), SecretError> {
        let secrets = read_all(runtime, &self.settings)?;
        // A slot may write to its log what it was given, also after the file was changed.
        self.given_secrets.extend(secrets.values().cloned());
        launch.env.extend(secrets);
        Ok(())
    }

    /// What has to be taken out of everything that slots wrote before it leaves this machine: what slots were given, and
    /// what they would be given now, since an agent before this one may have started them.
    pub(super) fn redactor(&self) -> Redactor {
        let own = &self.settings.environment;
        let read = self.runtimes.iter().filter_map(|runtime| read_all(runtime, &self.settings).ok());
        let named = read.flat_map(BTreeMap::into_values);
        let passed = self.runtimes.iter().flat_map(Runtime::passed_variables).filter(|name| is_secret(name));
        let passed = passed.filter_map(|name| own.get(OsStr::new(name)).cloned());
        Redactor::new(self.given_secrets.iter().cloned().chain(named).chain(passed).map(OsString::into_encoded_bytes))
    }
}

/// Whether a variable is named like a secret.
fn is_secret(variable: &str) -> bool {
    let assigned = Arg::new(format!("{variable}=x"));
    assigned.is_ok_and(|assigned| InlineSecret::find(&[assigned]).is_some())
}
