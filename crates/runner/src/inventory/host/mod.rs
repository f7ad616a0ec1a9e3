//! CPU, RAM and identity of the machine.

mod cgroup;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::{BootId, Bytes, HostReport, MachineId, Millicores, NameError};

/// CPU and RAM that the agent may use, and the identity of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSeen {
    /// The id of the machine.
    pub machine: MachineId,
    /// The id of its current boot.
    pub boot: BootId,
    /// CPU: the cores that the agent may run on, or the cgroup's limit if that is less.
    pub cpu: Millicores,
    /// RAM: all of it, or the cgroup's limit if that is less.
    pub ram: Bytes,
    /// RAM that is available now, on the whole machine.
    pub ram_available: Bytes,
}

impl HostSeen {
    /// Returns the part that is reported to the server.
    #[must_use]
    pub const fn report(&self) -> HostReport {
        HostReport { cpu: self.cpu, ram: self.ram }
    }
}

/// Why the host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file that Linux machines have could not be read.
    #[error("{path} cannot be read: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file was read and its content is not as expected.
    #[error("{path} does not say what it should: {what}")]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The value that is missing.
        what: &'static str,
    },
    /// A file has an id that is not valid.
    #[error("{path} names nothing: {source}")]
    Name {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with the id.
        source: NameError,
    },
    /// The machine has no id, and none is configured.
    #[error("this machine has no /etc/machine-id: set `inventory.machine_id`, the same for all agents on the machine")]
    Nameless,
}

/// The place where facts about the host are read.
#[derive(Clone, Debug)]
pub struct HostSource {
    root: PathBuf,
    machine: Option<MachineId>,
}

impl HostSource {
    /// Reads this machine. A configured id replaces the machine's own.
    #[must_use]
    pub fn new(machine: Option<MachineId>) -> Self {
        Self::under("/", machine)
    }

    /// Reads a machine whose `/proc`, `/sys` and `/etc` are below another directory.
    #[must_use]
    pub fn under(root: impl Into<PathBuf>, machine: Option<MachineId>) -> Self {
        Self { root: root.into(), machine }
    }

    /// Reads the host.
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
            // An image that was never started has an empty file, or this word.
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

    /// Returns the number of cores that the agent may run on.
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

/// Returns how many cores a list such as `0-3,8` has.
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
