//! Starting processes, from one thread that lives as long as the agent.
//!
//! A parent-death signal follows the *thread* that spawned: from a thread of a pool a child would die when the pool
//! shrinks. So there is one thread for it.
//!
//! The steps before a program runs (a session of its own, its cgroup, its user, the parent-death signal) are done by a
//! [trampoline](super::trampoline): the agent's own program, started with a few flags, which then executes the slot's
//! program. Without a trampoline a slot gets a process group and no more, and cannot run as another user.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use berth_domain::{Generation, SlotId, WorkloadKind};
use rustix::process::set_child_subreaper;

use super::cgroup::{Cgroup, Cgroups};
use super::children;
use super::handle::Process;
use super::log::SlotLog;
use super::table::ProcessTable;
use super::trampoline;
use crate::runtime::Launch;

/// What becomes of slots when the agent dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnAgentExit {
    /// Slots live on, and the next agent adopts them.
    #[default]
    Keep,
    /// The first process of each slot gets SIGTERM, so that it can end its own children. The next agent ends those that
    /// ignore it.
    Kill,
}

/// How processes are started.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// The agent's own program and the arguments that make it call [`super::trampoline`].
    pub trampoline: Option<Vec<OsString>>,
    /// What becomes of slots when the agent dies. `Kill` needs a trampoline.
    pub on_agent_exit: OnAgentExit,
    /// Where the cgroups of slots are made, if they have any.
    pub cgroups: Option<Cgroups>,
}

/// Why a process was not started. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command is empty.
    #[error("there is no program to run")]
    NoProgram,
    /// The program could not be run.
    #[error("{program:?} cannot be run: {error}")]
    Program {
        /// The path of the program.
        program: OsString,
        /// The error of the operating system.
        error: io::Error,
    },
    /// There is no trampoline, so the program would run as the agent's own user.
    #[error("a slot can run as another user only if it is started through the agent's own program")]
    NoTrampoline,
    /// The slot's log could not be opened.
    #[error("the log of the slot cannot be written: {0}")]
    Log(io::Error),
    /// The slot's cgroup could not be made.
    #[error("{path} cannot be used as its cgroup: {error}")]
    Cgroup {
        /// The path of the cgroup.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The process could not be watched, so it was ended again.
    #[error("the process cannot be watched: {0}")]
    Watch(io::Error),
}

type Reply = mpsc::SyncSender<Result<Process, SpawnError>>;

/// Starts processes. When it is dropped its thread ends, which ends slots that die with the agent.
#[derive(Debug)]
pub struct Spawner {
    requests: mpsc::Sender<(Box<Task>, Reply)>,
    options: SpawnOptions,
}

/// What the thread needs to start one process.
#[derive(Debug)]
struct Task {
    argv: Vec<OsString>,
    launch: Launch,
    stdout: Stdio,
    stderr: Stdio,
    own_group: bool,
    cgroup: Option<Cgroup>,
    exit_file: Option<PathBuf>,
}

impl Spawner {
    /// Makes the agent a subreaper, and starts the thread.
    pub fn start(options: SpawnOptions) -> io::Result<Self> {
        if options.on_agent_exit == OnAgentExit::Kill && options.trampoline.is_none() {
            let text = "slots can die with the agent only if they are started through its own program";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        set_child_subreaper(Some(rustix::process::getpid()))?;
        let (requests, inbox) = mpsc::channel::<(Box<Task>, Reply)>();
        thread::Builder::new().name("spawner".into()).spawn(move || {
            for (task, reply) in inbox {
                // The requester may have given up; then the process is reaped like any other.
                let _ = reply.send(spawn(*task));
            }
        })?;
        Ok(Self { requests, options })
    }

    /// Starts a slot's first process with its output going to the log. Takes as long as a fork (about a millisecond).
    pub fn spawn(&self, launch: &Launch, log: &SlotLog) -> Result<Process, SpawnError> {
        let task = self.task(launch, log)?;
        let (reply, answer) = mpsc::sync_channel(1);
        let gone = || SpawnError::Watch(io::Error::other("the thread that starts processes has ended"));
        self.requests.send((Box::new(task), reply)).map_err(|_| gone())?;
        let started = answer.recv().map_err(|_| gone())?;
        if let (Err(_), Some(cgroup)) = (&started, self.cgroup(launch.slot, launch.generation)) {
            let _ = cgroup.remove();
        }
        started
    }

    /// Returns the cgroup of one start of a slot, if slots have cgroups here.
    #[must_use]
    pub fn cgroup(&self, slot: SlotId, generation: Generation) -> Option<Cgroup> {
        self.options.cgroups.as_ref().map(|cgroups| cgroups.of(slot, generation))
    }

    /// Reaps ended processes of slots whose parent died before them. Called regularly, with a recent process table.
    pub fn reap(&self, table: &ProcessTable) -> usize {
        children::reap(table, Instant::now())
    }

    fn task(&self, launch: &Launch, log: &SlotLog) -> Result<Task, SpawnError> {
        if launch.argv.is_empty() {
            return Err(SpawnError::NoProgram);
        }
        if launch.user.is_some() && self.options.trampoline.is_none() {
            return Err(SpawnError::NoTrampoline);
        }
        let cgroup = self.cgroup(launch.slot, launch.generation);
        if let Some(cgroup) = &cgroup {
            cgroup.create().map_err(|error| SpawnError::Cgroup { path: cgroup.path().to_owned(), error })?;
        }
        let (stdout, stderr) = log.stdio().map_err(SpawnError::Log)?;
        let has_exit_file = launch.kind == WorkloadKind::Job && self.options.trampoline.is_some();
        let exit_file = has_exit_file.then(|| log.exit_file());
        let argv = match &self.options.trampoline {
            None => launch.argv.clone(),
            Some(prefix) => {
                let steps = trampoline::Steps {
                    session: true,
                    started_by: Some(std::process::id()),
                    die_with: (self.options.on_agent_exit == OnAgentExit::Kill).then(std::process::id),
                    cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
                    exit_file: exit_file.clone(),
                    // A job that may outlive the agent needs a supervisor beside it that notes how it ended.
                    supervisor: has_exit_file && self.options.on_agent_exit == OnAgentExit::Keep,
                    user: launch.user.as_ref().map(Into::into),
                };
                steps.command(prefix, &launch.argv)
            }
        };
        let own_group = self.options.trampoline.is_none();
        // The trampoline enters the cgroup itself, before it can have children.
        let cgroup = cgroup.filter(|_| own_group);
        Ok(Task { argv, launch: launch.clone(), stdout, stderr, own_group, cgroup, exit_file })
    }
}

fn spawn(task: Task) -> Result<Process, SpawnError> {
    let (program, args) = task.argv.split_first().ok_or(SpawnError::NoProgram)?;
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&task.launch.env);
    command.stdin(Stdio::null()).stdout(task.stdout).stderr(task.stderr);
    if task.own_group {
        command.process_group(0);
    }
    if let Some(dir) = &task.launch.dir {
        command.current_dir(dir);
    }
    let child = command.spawn().map_err(|error| SpawnError::Program { program: program.clone(), error })?;
    let pid = child.id();
    children::watch(pid);
    let process = Process::started(pid, task.exit_file);
    let process = process.and_then(|process| match &task.cgroup {
        Some(cgroup) => cgroup.add(pid).map(|()| process),
        None => Ok(process),
    });
    process.map_err(|error| {
        // A process that cannot be watched must not run.
        let mut child = child;
        let _ = child.kill();
        let _ = child.wait();
        children::unwatch(pid);
        SpawnError::Watch(error)
    })
}
