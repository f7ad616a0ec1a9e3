//! The script: the simulated machine, as a file that tests rewrite.

mod fault;
mod gpu;
mod link;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub(crate) use fault::{Event, Fault, FaultEffect, Hang};
pub(crate) use gpu::{Attribution, ComputeMode, Gpu, Instance, Process, ProcessKind};
pub(crate) use link::{Level, Link};

/// Why a text is not a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file could not be read or replaced.
    #[error("the script {path}: {source}")]
    File {
        /// The path of the script.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The text is not well-formed TOML, or has an unknown field.
    #[error("the script is not as it should be: {0}")]
    Toml(#[from] toml::de::Error),
    /// The text is not well-formed JSON, or has an unknown field.
    #[error("the script is not as it should be: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is well-formed, and describes a machine that cannot exist.
    #[error("the script is not as it should be: {0}")]
    Nonsense(String),
}

/// A whole script.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    #[serde(default = "default_driver")]
    pub(crate) driver_version: String,
    #[serde(default = "default_nvml")]
    pub(crate) nvml_version: String,
    #[serde(default = "default_cuda")]
    pub(crate) cuda_version: i32,
    #[serde(default)]
    pub(crate) release_delay_ms: u64,
    #[serde(default = "yes")]
    pub(crate) release_listed: bool,
    pub(crate) claims: Option<PathBuf>,
    #[serde(default, rename = "gpu")]
    pub(crate) gpus: Vec<Gpu>,
    #[serde(default, rename = "link")]
    pub(crate) links: Vec<Link>,
    #[serde(default, rename = "event")]
    pub(crate) events: Vec<Event>,
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<Fault>,
}

fn default_driver() -> String {
    "570.86.15".to_owned()
}

fn default_nvml() -> String {
    "12.570.86.15".to_owned()
}

const fn default_cuda() -> i32 {
    12_080
}

const fn yes() -> bool {
    true
}

impl Script {
    /// Reads a script from text: JSON if the file's name ends so, else TOML.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, ScriptError> {
        let json = path.extension().is_some_and(|extension| extension == "json");
        let mut script: Self = if json { serde_json::from_str(text)? } else { toml::from_str(text)? };
        for (position, gpu) in script.gpus.iter_mut().enumerate() {
            gpu.settle(u32::try_from(position).unwrap_or(u32::MAX));
        }
        script.check().map_err(ScriptError::Nonsense)?;
        Ok(script)
    }

    /// Checks what the types alone do not rule out, so that a mistake in a test's script is reported.
    fn check(&self) -> Result<(), String> {
        let mut uuids = BTreeSet::new();
        let mut indexes = BTreeSet::new();
        for gpu in &self.gpus {
            gpu.check()?;
            if !indexes.insert(gpu.index()) {
                return Err(format!("two GPUs have the index {}", gpu.index()));
            }
            for uuid in gpu.uuids() {
                if !uuids.insert(uuid) {
                    return Err(format!("{uuid} is there twice"));
                }
            }
        }
        let known = |uuid: &str| {
            if uuids.contains(uuid) { Ok(()) } else { Err(format!("no GPU is called {uuid}")) }
        };
        self.links.iter().flat_map(|link| &link.between).try_for_each(|uuid| known(uuid))?;
        self.events.iter().try_for_each(|event| known(&event.gpu))?;
        for fault in &self.faults {
            fault.check()?;
            fault.gpu.as_deref().map_or(Ok(()), known)?;
        }
        Ok(())
    }

    /// Returns the GPU at this index.
    pub(crate) fn at(&self, index: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.index() == index)
    }

    /// Returns the GPU or MIG instance with this UUID.
    pub(crate) fn find(&self, uuid: &str) -> Option<(&Gpu, Option<&Instance>)> {
        self.gpus.iter().find_map(|gpu| {
            if gpu.uuid == uuid {
                return Some((gpu, None));
            }
            gpu.instances().iter().find(|instance| instance.uuid == uuid).map(|instance| (gpu, Some(instance)))
        })
    }

    /// Returns how two GPUs are connected, if the script says.
    pub(crate) fn link(&self, one: &str, other: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.joins(one, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, ScriptError> {
        Script::parse(Path::new("script.toml"), text)
    }

    #[test]
    fn an_impossible_machine_is_refused_with_a_reason() {
        let gpu = "[[gpu]]\nuuid = \"GPU-a\"\nmemory_total = \"1GiB\"\n";
        for (text, reason) in [
            (format!("{gpu}[[gpu]]\nuuid = \"GPU-b\"\nindex = 0\nmemory_total = 1\n"), "have the index 0"),
            (format!("{gpu}{gpu}"), "GPU-a is there twice"),
            (format!("{gpu}memory_totl = 3\n"), "memory_totl"),
            (format!("{gpu}pci_bus_id = \"here\"\n"), "no PCI bus id"),
            (format!("{gpu}[[link]]\nbetween = [\"GPU-a\", \"GPU-b\"]\n"), "no GPU is called GPU-b"),
            (format!("{gpu}[[event]]\nid = 1\ngpu = \"GPU-b\"\n"), "no GPU is called GPU-b"),
            (format!("{gpu}[[fault]]\nfunction = \"nvmlInit_v2\"\n"), "one of error, hang and delay_ms"),
            (format!("{gpu}[[fault]]\nfunction = \"f\"\nerror = \"memory\"\ndelay_ms = 1\n"), "one of error"),
        ] {
            let said = parse(&text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains(reason), "{text}\nsaid: {said}");
        }
    }

    #[test]
    fn a_script_can_be_written_in_json() {
        let text = r#"{"gpu": [{"uuid": "GPU-a", "memory_total": "80GiB"}]}"#;
        let script = Script::parse(Path::new("script.json"), text).unwrap();
        assert_eq!(script.at(0).unwrap().memory_total, berth_domain::Bytes::gib(80));
        assert_eq!(script.at(0).unwrap().pci_bus_id(), "00000000:01:00.0");
    }
}
