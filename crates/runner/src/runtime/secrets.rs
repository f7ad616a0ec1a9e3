//! Secrets of a runtime: variables of its slots whose values are in a file, or in the agent's own environment.
//!
//! A value is read at each start of a slot, so that a changed one counts from the next start on. It is put into the
//! environment of the slot and nowhere else: not into an argument, the agent's record, a report or a log.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use berth_domain::RuntimeName;
use serde::{Deserialize, Serialize};

use super::config::{ConfigError, RuntimeConfig};
use super::environment;

/// The largest value: a larger file is not a secret but a mistake.
const MOST_BYTES: u64 = 64 << 10;

/// The source of a secret's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SecretSource {
    /// A file that holds the value and nothing else but a line end.
    File(PathBuf),
    /// A variable of the agent's own environment.
    Env(String),
}

/// Why a secret cannot be read. The message names the source, and nothing of its content.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("the secret {name} cannot be read from {}: {error}", path.display())]
    File {
        /// The variable of the slot.
        name: String,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The agent does not have the variable.
    #[error("the secret {name} is the variable {variable} of the agent's environment, which is not set")]
    Unset {
        /// The variable of the slot.
        name: String,
        /// The variable of the agent.
        variable: String,
    },
    /// The source is empty.
    #[error("the secret {name} is empty, larger than 64 KiB, or has a NUL in it: check its file or variable")]
    NoValue {
        /// The variable of the slot.
        name: String,
    },
}

pub(super) fn check(runtime: &RuntimeName, config: &RuntimeConfig) -> Result<(), ConfigError> {
    for (name, source) in &config.secrets {
        environment::check_name(runtime, name)?;
        let wrong = |why| Err(ConfigError::Secret { runtime: runtime.clone(), name: name.clone(), why });
        if config.env.contains_key(name) {
            return wrong("it is in `env` too: leave it in one of them");
        }
        match source {
            SecretSource::File(path) if !path.is_absolute() => return wrong("the file must be an absolute path"),
            SecretSource::File(_) => {}
            SecretSource::Env(variable) => environment::check_passed(runtime, variable)?,
        }
    }
    Ok(())
}

impl SecretSource {
    /// Reads the value of the variable `name`. `own` is the agent's own environment.
    pub(crate) fn read(&self, name: &str, own: &BTreeMap<OsString, OsString>) -> Result<OsString, SecretError> {
        let value = match self {
            Self::File(path) => {
                let failed = |error| SecretError::File { name: name.to_owned(), path: path.clone(), error };
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(failed)?;
                file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
                let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
                bytes.truncate(end);
                OsString::from_vec(bytes)
            }
            Self::Env(variable) => {
                let unset = || SecretError::Unset { name: name.to_owned(), variable: variable.clone() };
                own.get(OsStr::new(variable)).cloned().ok_or_else(unset)?
            }
        };
        let bytes = value.as_encoded_bytes();
        let is_value = !bytes.is_empty() && bytes.len() as u64 <= MOST_BYTES && !bytes.contains(&0);
        if is_value { Ok(value) } else { Err(SecretError::NoValue { name: name.to_owned() }) }
    }
}
