//! A cgroup for each slot, where an operator gave the agent a subtree (cgroup v2). A process cannot leave its cgroup by
//! itself, and `cgroup.kill` ends all of its processes at once. Without a subtree, slots have no cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::{Generation, SlotId};

/// The subtree in which the agent may make cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    parent: PathBuf,
}

impl Cgroups {
    /// Opens a directory of a cgroup v2 file system, if cgroups can be made in it.
    pub fn open(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        if !parent.join("cgroup.procs").exists() {
            let text = format!("{} is not in a cgroup v2 file system", parent.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let probe = parent.join(format!("probe-{}", std::process::id()));
        fs::create_dir(&probe)?;
        fs::remove_dir(&probe)?;
        Ok(Self { parent: parent.to_owned() })
    }

    /// Returns the cgroup of a slot, whether or not it exists: its name follows from the slot's id.
    #[must_use]
    pub fn of(&self, slot: SlotId, generation: Generation) -> Cgroup {
        Cgroup { path: self.parent.join(format!("slot-{slot}-{generation}")) }
    }
}

/// The cgroup of one start of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Returns the directory of the cgroup.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the cgroup.
    pub fn create(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Moves a process into the cgroup.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// Returns the pids in the cgroup and below it; none, if it does not exist.
    pub fn pids(&self) -> io::Result<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        collect(&self.path, &mut found)?;
        Ok(found)
    }

    /// Returns whether any process is in the cgroup or below it. Unlike a list of pids, this is read at one instant.
    pub fn is_populated(&self) -> io::Result<bool> {
        let text = absent(fs::read_to_string(self.path.join("cgroup.events")))?;
        Ok(text.lines().any(|line| line == "populated 1"))
    }

    /// Kills all processes in the cgroup and below it.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// Returns how often the kernel killed a process of the cgroup for want of memory; 0 without a memory controller.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let count = |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse().ok());
        text.lines().find_map(count).unwrap_or(0)
    }

    /// Removes the cgroup once it is empty.
    pub fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Treats a cgroup that vanishes while it is read as an empty one.
fn absent<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        // The error of a cgroup that was removed after it was opened.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(T::default()),
        result => result,
    }
}

fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in absent(fs::read_dir(path).map(Some))?.into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn collect(path: &Path, found: &mut BTreeSet<u32>) -> io::Result<()> {
    let text = absent(fs::read_to_string(path.join("cgroup.procs")))?;
    // 0 is a process that this pid namespace does not show.
    found.extend(text.lines().filter_map(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid != 0));
    for child in below(path)? {
        collect(&child, found)?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    for child in below(path)? {
        remove(&child)?;
    }
    absent(fs::remove_dir(path))
}
