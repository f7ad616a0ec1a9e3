//! What the machine has beside its GPUs.

mod cgroup;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::{BootId, Bytes, HostReport, MachineId, Millicores, NameError};

/// CPU and RAM that the agent may use, and which machine this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSeen {
    /// The machine.
    pub machine: MachineId,
    /// Its boot.
    pub boot: BootId,
    /// CPU: the cores that the agent may run on, or the cgroup's limit if that is less.
    pub cpu: Millicores,
    /// RAM: all of it, or the cgroup's limit if that is less.
    pub ram: Bytes,
    /// RAM that could be had now, on the whole machine.
    pub ram_available: Bytes,
}

impl HostSeen {
    /// What the server is told of it.
    #[must_use]
    pub const fn report(&self) -> HostReport {
        HostReport { cpu: self.cpu, ram: self.ram }
    }
}

/// Why a machine cannot say what it has.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file that every Linux machine has could not be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could be read, and is not what it should be.
    #[error("{path} does not say what it should: {what}")]
    Content {
        /// Which.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// A name that is none.
    #[error("{path} names nothing: {source}")]
    Name {
        /// Where it came from.
        path: PathBuf,
        /// What is wrong with it.
        source: NameError,
    },
    /// Nobody says which machine this is.
    #[error("this machine has no /etc/machine-id: set `inventory.machine_id`, the same for all agents on the machine")]
    Nameless,
}

/// Where facts about the machine come from.
#[derive(Clone, Debug)]
pub struct HostSource {
    root: PathBuf,
    machine: Option<MachineId>,
}

impl HostSource {
    /// This machine. A name that is given goes before the one that it has.
    #[must_use]
    pub fn new(machine: Option<MachineId>) -> Self {
        Self::under("/", machine)
    }

    /// A machine whose `/proc`, `/sys` and `/etc` are below another directory.
    #[must_use]
    pub fn under(root: impl Into<PathBuf>, machine: Option<MachineId>) -> Self {
        Self { root: root.into(), machine }
    }

    /// Looks.
    pub fn look(&self) -> Result<HostSeen, HostError> {
        let limits = cgroup::limits(&self.root);
        let total = self.meminfo("MemTotal:")?;
        let cores = Millicores::new(self.cores()?.saturating_mul(1000));
        Ok(HostSeen {
            machine: self.machine_id()?,
            boot: self.boot_id()?,
            cpu: limits.cpu.map_or(cores, |limit| limit.min(cores)),
            ram: limits.ram.map_or(total, |limit| limit.min(total)),
            ram_available: self.meminfo("MemAvailable:")?,
        })
    }

    fn machine_id(&self) -> Result<MachineId, HostError> {
        if let Some(machine) = &self.machine {
            return Ok(machine.clone());
        }
        for path in ["etc/machine-id", "var/lib/dbus/machine-id"] {
            let path = self.root.join(path);
            // An image that has not been started yet has an empty one, or this word.
            let text = fs::read_to_string(&path).unwrap_or_default();
            if !matches!(text.trim(), "" | "uninitialized") {
                return MachineId::new(text.trim()).map_err(|source| HostError::Name { path, source });
            }
        }
        Err(HostError::Nameless)
    }

    fn boot_id(&self) -> Result<BootId, HostError> {
        let path = self.root.join("proc/sys/kernel/random/boot_id");
        let text = read(&path)?;
        BootId::new(text.trim()).map_err(|source| HostError::Name { path, source })
    }

    /// The number of cores that the agent may run on.
    fn cores(&self) -> Result<u64, HostError> {
        let path = self.root.join("proc/self/status");
        let text = read(&path)?;
        let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let count = list.and_then(|list| count_cores(list.trim())).filter(|count| *count > 0);
        count.ok_or(HostError::Content { path, what: "which cores may be used" })
    }

    fn meminfo(&self, field: &'static str) -> Result<Bytes, HostError> {
        let path = self.root.join("proc/meminfo");
        let text = read(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(field));
        let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
        kib.map(|kib| Bytes::new(kib.saturating_mul(1024))).ok_or(HostError::Content { path, what: field })
    }
}

fn read(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|source| HostError::File { path: path.to_owned(), source })
}

/// How many cores a list such as `0-3,8` has.
fn count_cores(list: &str) -> Option<u64> {
    list.split(',').try_fold(0, |count: u64, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(count + last.checked_sub(first)? + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cores_is_counted() {
        for (list, count) in [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)] {
            assert_eq!(count_cores(list), count, "{list}");
        }
    }
}
