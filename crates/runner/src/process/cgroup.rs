//! A cgroup of its own for each slot, where an operator gave the agent a subtree (cgroup v2). It is the one thing that
//! no process can leave by itself, and `cgroup.kill` ends all in it at one instant. To have none is normal.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_domain::{Generation, SlotId};

/// The subtree that the agent may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    parent: PathBuf,
}

impl Cgroups {
    /// Takes a directory of a cgroup v2 file system, if cgroups can be made in it.
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

    /// The cgroup of a slot, whether or not it exists: its name follows from the slot's.
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
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it.
    pub fn create(&self) -> io::Result<()> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Puts a process into it.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// Who is in it, and in what they made below it. Nobody, if it does not exist.
    pub fn pids(&self) -> io::Result<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        collect(&self.path, &mut found)?;
        Ok(found)
    }

    /// Whether anybody lives in it or below it: said at one instant, unlike a list.
    pub fn is_populated(&self) -> io::Result<bool> {
        let text = absent(fs::read_to_string(self.path.join("cgroup.events")))?;
        Ok(text.lines().any(|line| line == "populated 1"))
    }

    /// Ends all in it, and all below it.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// How often the kernel ended somebody in it for want of memory. 0 where the memory controller is not there.
    #[must_use]
    pub fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let count = |line: &str| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse().ok());
        text.lines().find_map(count).unwrap_or(0)
    }

    /// Takes it away once nobody is in it.
    pub fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// One that vanishes while it is being looked at has nobody in it.
fn absent<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        // What it says of a cgroup that was removed after it was opened.
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
    // 0 is somebody whom this pid namespace does not show.
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
