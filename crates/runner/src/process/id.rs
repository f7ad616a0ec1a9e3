//! The identity of a process. A pid alone is not one, since the kernel reuses it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use berth_domain::BootId;
use serde::{Deserialize, Serialize};

use super::table::Row;

/// The identity of one process. It stays valid over restarts of the agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid, as the agent sees it.
    pub pid: u32,
    /// When the process started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// The pid namespace in which the pid is valid.
    pub pid_namespace: u64,
    /// The boot in which the pid is valid.
    pub boot: BootId,
    /// Whether the agent that started the process was the first process of that namespace: then no process there
    /// outlived it.
    #[serde(default)]
    pub agent_was_init: bool,
}

/// Whether a process is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process is there.
    Alive,
    /// The process is gone for good.
    Gone,
    /// The process was started in a pid namespace that the agent cannot look into.
    Unknown,
}

impl ProcessId {
    /// Returns the process that has this pid now, if any.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        match Row::read(pid)? {
            Some(row) => Self::from_row(&row).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn from_row(row: &Row) -> io::Result<Self> {
        let here = here()?;
        Ok(Self {
            pid: row.pid,
            start_ticks: row.start_ticks,
            pid_namespace: here.pid_namespace,
            boot: here.boot.clone(),
            agent_was_init: std::process::id() == 1,
        })
    }

    /// Returns whether the process is still there. A zombie is gone: it holds nothing.
    pub fn liveness(&self) -> io::Result<Liveness> {
        let here = here()?;
        if self.boot != here.boot {
            return Ok(Liveness::Gone);
        }
        if self.pid_namespace != here.pid_namespace {
            return Ok(if self.agent_was_init { Liveness::Gone } else { Liveness::Unknown });
        }
        let alive = Row::read(self.pid)?.is_some_and(|row| row.start_ticks == self.start_ticks && !row.is_dead());
        Ok(if alive { Liveness::Alive } else { Liveness::Gone })
    }

    /// Returns whether the process was started since the last boot.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        here().is_ok_and(|here| self.boot == here.boot)
    }

    /// Returns whether the process could be there: neither of an earlier boot nor of a pid namespace that the agent
    /// cannot look into.
    pub(super) fn is_visible(&self) -> bool {
        here().is_ok_and(|here| self.boot == here.boot && self.pid_namespace == here.pid_namespace)
    }

    /// Returns whether the process is known to be there.
    pub fn is_alive(&self) -> io::Result<bool> {
        self.liveness().map(|liveness| liveness == Liveness::Alive)
    }

    /// Returns whether this is the process of that row, given that it is within sight.
    pub(super) fn is(&self, row: &Row) -> bool {
        self.pid == row.pid && self.start_ticks == row.start_ticks
    }
}

/// Returns whether the agent is in the first pid namespace of the machine, from which all processes are visible.
#[must_use]
pub(crate) fn sees_every_process() -> bool {
    /// The inode number that the kernel gives the first pid namespace (`PROC_PID_INIT_INO`).
    const FIRST: u64 = 0xEFFF_FFFC;
    here().is_ok_and(|here| here.pid_namespace == FIRST)
}

/// What a pid is relative to.
struct Here {
    pid_namespace: u64,
    boot: BootId,
}

/// Returns the agent's namespace and boot. Neither changes while the agent runs.
fn here() -> io::Result<&'static Here> {
    static HERE: OnceLock<Here> = OnceLock::new();
    if let Some(here) = HERE.get() {
        return Ok(here);
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let boot = BootId::new(boot.trim()).map_err(io::Error::other)?;
    let pid_namespace = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(HERE.get_or_init(|| Here { pid_namespace, boot }))
}
