//! One process that is watched: started by this agent, or by one before it.

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

/// How a process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The program could not be run: nothing of it ever happened.
    NotRun,
    /// It ended as somebody else's child, and nobody noted how.
    Unknown,
}

impl Exit {
    /// The exit code or the signal, where there is one.
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
    /// It lives, and is watched from now on.
    Alive(Process),
    /// It has ended, as far as that was noted.
    Gone(Exit),
    /// It was started in a pid namespace that cannot be looked into from here.
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
    /// Takes over a process that an earlier agent started, if it is still that one. `exit_file` is where its keeper
    /// notes how it ended (see [`super::SlotLog::exit_file`]); what a living keeper has open counts more than the path.
    pub fn adopt(id: ProcessId, exit_file: Option<PathBuf>) -> io::Result<Adoption> {
        let descriptor = open(&id)?;
        let exit_file = exit_file.map(ExitFile::at);
        Ok(match id.liveness()? {
            Liveness::Alive => {
                let exit_file = exit_file.map(|file| file.of_keeper(&id));
                Adoption::Alive(Self { id, descriptor, exit_file, exit: Mutex::new(None), is_child: false })
            }
            Liveness::Gone => Adoption::Gone(exit_file.as_ref().and_then(noted).unwrap_or(Exit::Unknown)),
            Liveness::Unknown => Adoption::Unknown,
        })
    }

    /// A process that this agent has just started, and has not waited for: its pid cannot be anybody else's.
    pub(super) fn started(pid: u32, exit_file: Option<PathBuf>) -> io::Result<Self> {
        let id = ProcessId::of(pid)?.ok_or_else(|| io::Error::other("a process that was just started is not there"))?;
        let descriptor = open(&id)?;
        let exit_file = exit_file.map(ExitFile::at);
        Ok(Self { id, descriptor, exit_file, exit: Mutex::new(None), is_child: true })
    }

    /// Who it is: to be put on record.
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    /// How it ended, if it has. Does not wait. Its tree may live on.
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

    /// Waits until it has ended.
    pub async fn exited(&self) -> Exit {
        // For kernels without descriptors of processes, and for a descriptor that cannot be waited for.
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
            // Not a child of this agent.
            Err(_) if matches!(self.id.liveness(), Ok(Liveness::Gone)) => Exit::Unknown,
            Err(_) => return None,
        };
        // What a keeper noted is how the program ended; what is seen is how the keeper did.
        Some(self.exit_file.as_ref().and_then(noted).unwrap_or(seen))
    }

    fn forget(&self) {
        if self.is_child {
            children::unwatch(self.id.pid);
        }
    }
}

/// Whoever lets go of it leaves it to be reaped.
impl Drop for Process {
    fn drop(&mut self) {
        self.forget();
    }
}

#[expect(deprecated, reason = "its successor is unsafe; an owned descriptor keeps what that asks for")]
fn readable(descriptor: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE).ok()
}

/// A descriptor of whoever has that pid; nothing where the kernel has none, or where there is nobody.
fn open(id: &ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = signal::pid(id.pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(Errno::NOSYS | Errno::SRCH | Errno::PERM | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How a job ended, if its keeper noted it.
fn noted(file: &ExitFile) -> Option<Exit> {
    match file.read() {
        Some(ExitNote::Ended(exit)) => Some(exit),
        Some(ExitNote::Started) | None => None,
    }
}
