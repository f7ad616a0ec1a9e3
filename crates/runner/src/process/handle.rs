//! One watched process: started by this agent, or by one before it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use berth_domain::ExitStatus;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::children;
use super::exit_file::{ExitFile, ExitNote};
use super::id::{Liveness, ProcessId};
use super::signal;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
    /// The program could not be run, so it never began.
    NotRun,
    /// The process was not a child of this agent, and no exit file says how it ended.
    Unknown,
}

impl Exit {
    /// Returns the exit code or the signal, where there is one.
    #[must_use]
    pub const fn status(self) -> Option<ExitStatus> {
        match self {
            Self::Code(code) => Some(ExitStatus::Code(code)),
            Self::Signal(signal) => Some(ExitStatus::Signal(signal)),
            Self::NotRun | Self::Unknown => None,
        }
    }
}

/// What became of a process that an earlier agent started.
#[derive(Debug)]
pub enum Adoption {
    /// The process lives, and is watched from now on.
    Alive(Process),
    /// The process has ended, as far as that was noted.
    Gone(Exit),
    /// The process was started in a pid namespace that the agent cannot look into.
    Unknown,
}

/// The first process of a slot.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    descriptor: Option<OwnedFd>,
    exit_file: Option<ExitFile>,
    exit: Mutex<Option<Exit>>,
    is_child: bool,
}

impl Process {
    /// Takes over a process that an earlier agent started, if the pid still is that process. `exit_file` is where its
    /// supervisor notes how it ended (see [`super::SlotLog::exit_file`]); the file that a living supervisor has open is
    /// preferred.
    pub fn adopt(id: ProcessId, exit_file: Option<PathBuf>) -> io::Result<Adoption> {
        let descriptor = open(&id)?;
        let exit_file = exit_file.map(ExitFile::at);
        Ok(match id.liveness()? {
            Liveness::Alive => {
                let exit_file = exit_file.map(|file| file.of_supervisor(&id));
                Adoption::Alive(Self { id, descriptor, exit_file, exit: Mutex::new(None), is_child: false })
            }
            Liveness::Gone => Adoption::Gone(exit_file.as_ref().and_then(noted).unwrap_or(Exit::Unknown)),
            Liveness::Unknown => Adoption::Unknown,
        })
    }

    /// Watches a process that this agent has just started and not reaped, so that its pid cannot have been reused.
    pub(super) fn started(pid: u32, exit_file: Option<PathBuf>) -> io::Result<Self> {
        let id = ProcessId::of(pid)?.ok_or_else(|| io::Error::other("a process that was just started is not there"))?;
        let descriptor = open(&id)?;
        let exit_file = exit_file.map(ExitFile::at);
        Ok(Self { id, descriptor, exit_file, exit: Mutex::new(None), is_child: true })
    }

    /// Returns the identity of the process, to be put on record.
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    /// Returns how the process ended, if it has, without waiting. Its tree may live on.
    pub fn poll_exit(&self) -> Option<Exit> {
        let mut exit = self.exit.lock();
        if exit.is_none() {
            *exit = self.ask();
            if exit.is_some() {
                self.forget();
            }
        }
        *exit
    }

    /// Waits until the process has ended.
    pub async fn exited(&self) -> Exit {
        // For kernels without pidfds, and for a pidfd that cannot be polled.
        const POLL: Duration = Duration::from_millis(50);
        let watch = self.descriptor.as_ref().and_then(|descriptor| readable(descriptor.try_clone().ok()?));
        loop {
            if let Some(exit) = self.poll_exit() {
                return exit;
            }
            match &watch {
                Some(watch) => {
                    if let Ok(mut guard) = watch.readable().await {
                        guard.clear_ready();
                    }
                }
                None => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn ask(&self) -> Option<Exit> {
        let pid = signal::pid(self.id.pid)?;
        let target = self.descriptor.as_ref().map_or(WaitId::Pid(pid), |descriptor| WaitId::PidFd(descriptor.as_fd()));
        let seen = match waitid(target, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(None) => return None,
            Ok(Some(status)) => {
                let code = status.exit_status().map(Exit::Code);
                code.or_else(|| status.terminating_signal().map(Exit::Signal)).unwrap_or(Exit::Unknown)
            }
            // The process is not a child of this agent.
            Err(_) if matches!(self.id.liveness(), Ok(Liveness::Gone)) => Exit::Unknown,
            Err(_) => return None,
        };
        // The supervisor's note says how the program ended; the exit status is that of the supervisor.
        Some(self.exit_file.as_ref().and_then(noted).unwrap_or(seen))
    }

    fn forget(&self) {
        if self.is_child {
            children::unwatch(self.id.pid);
        }
    }
}

/// Hands a process that is no longer watched to the reaper.
impl Drop for Process {
    fn drop(&mut self) {
        self.forget();
    }
}

#[expect(deprecated, reason = "its successor is unsafe; an owned descriptor keeps what that asks for")]
fn readable(descriptor: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

/// Opens a pidfd; `None` where the kernel has none, or where the process has gone.
fn open(id: &ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = signal::pid(id.pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(Errno::NOSYS | Errno::SRCH | Errno::PERM | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns how a job ended, if its supervisor noted it.
fn noted(file: &ExitFile) -> Option<Exit> {
    match file.read() {
        Some(ExitNote::Ended(exit)) => Some(exit),
        Some(ExitNote::Started) | None => None,
    }
}
