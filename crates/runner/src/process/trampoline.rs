//! The steps between fork and exec, done by the agent's own program without unsafe code.
//!
//! The agent starts itself with flags, in the environment of the slot; that process makes itself a session, enters its
//! cgroup, changes to the slot's user, asks for the parent-death signal, and executes the slot's program: same pid,
//! same start time. The program inherits no descriptors but its standard ones, and gains no privileges by what it runs.
//!
//! For a job it first makes the job's [exit file](super::exit_file), so that a later agent knows that the job was
//! started. Then it stays as the parent of the program (the job's *supervisor*) and notes there how it ended: the kernel
//! reports a status to the parent only, and the agent that started the job may not be there when it ends. The supervisor
//! then ends the same way. Where a job dies with its agent no supervisor is needed, and the process executes the program
//! itself.
//!
//! A supervisor stays the agent's user: the job can neither signal it nor write into the exit file. Only the thread that
//! starts the program changes to the slot's user, and the program inherits from that thread.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{self, Child, Command, ExitStatus};
use std::thread;

use rustix::process::{Signal, getppid, set_parent_process_death_signal, setsid};

use super::credentials::{self, Credentials};
use super::exit_file;
use super::handle::Exit;

const SESSION: &str = "--session";
const STARTED_BY: &str = "--started-by";
const DIE_WITH: &str = "--die-with";
const CGROUP: &str = "--cgroup";
const EXIT_FILE: &str = "--exit-file";
const SUPERVISOR: &str = "--supervisor";
/// Followed by the user, its group, and all of its groups: `65534:65534:65534,44`.
const USER: &str = "--user";
const END: &str = "--";

/// The exit code for a program that was not found.
const NOT_FOUND: i32 = 127;
/// The exit code for a program that cannot be run.
const NOT_RUNNABLE: i32 = 126;
/// The exit code for a step before the program that failed.
const STEP_FAILED: i32 = 125;

/// The steps before the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Make a session, and so a group, of its own.
    pub(super) session: bool,
    /// The agent that starts the process. If it is gone already nothing is started: a later agent may have looked for
    /// the slot's mark before this process carried it, and found none.
    pub(super) started_by: Option<u32>,
    /// The parent to die with.
    pub(super) die_with: Option<u32>,
    /// The cgroup to enter.
    pub(super) cgroup: Option<PathBuf>,
    /// Make this file before the program is started. Nothing is started if it exists already.
    pub(super) exit_file: Option<PathBuf>,
    /// Stay as the parent, and note in the exit file how the program ended.
    pub(super) supervisor: bool,
    /// The user to run the program as; the agent's own if absent.
    pub(super) user: Option<Credentials>,
}

impl Steps {
    /// Returns the argument list that has these steps done before `argv`.
    pub(super) fn command(&self, prefix: &[OsString], argv: &[OsString]) -> Vec<OsString> {
        let mut list = prefix.to_vec();
        for (flag, is_set) in [(SESSION, self.session), (SUPERVISOR, self.supervisor)] {
            if is_set {
                list.push(flag.into());
            }
        }
        for (flag, pid) in [(STARTED_BY, self.started_by), (DIE_WITH, self.die_with)] {
            if let Some(pid) = pid {
                list.extend([flag.into(), pid.to_string().into()]);
            }
        }
        for (flag, path) in [(CGROUP, &self.cgroup), (EXIT_FILE, &self.exit_file)] {
            if let Some(path) = path {
                list.extend([flag.into(), path.into()]);
            }
        }
        if let Some(user) = &self.user {
            list.extend([USER.into(), user.to_string().into()]);
        }
        list.push(END.into());
        list.extend_from_slice(argv);
        list
    }

    fn parse(args: impl IntoIterator<Item = OsString>) -> io::Result<(Self, Vec<OsString>)> {
        let mut steps = Self::default();
        let mut args = args.into_iter();
        let missing = || io::Error::other("a flag without its value");
        let pid =
            |word: Option<OsString>| word.and_then(|pid| pid.to_str()?.parse().ok()).ok_or_else(missing).map(Some);
        while let Some(flag) = args.next() {
            match flag.to_str() {
                Some(SESSION) => steps.session = true,
                Some(SUPERVISOR) => steps.supervisor = true,
                Some(STARTED_BY) => steps.started_by = pid(args.next())?,
                Some(DIE_WITH) => steps.die_with = pid(args.next())?,
                Some(CGROUP) => steps.cgroup = Some(args.next().ok_or_else(missing)?.into()),
                Some(EXIT_FILE) => steps.exit_file = Some(args.next().ok_or_else(missing)?.into()),
                Some(USER) => {
                    let word = args.next().ok_or_else(missing)?;
                    steps.user = Some(word.to_str().unwrap_or_default().parse()?);
                }
                Some(END) => return Ok((steps, args.collect())),
                _ => return Err(io::Error::other(format!("{flag:?} is not a flag"))),
            }
        }
        Err(io::Error::other("there is no program to run"))
    }

    fn prepare(&self) -> io::Result<()> {
        if let Some(agent) = self.started_by {
            is_parent(agent)?;
        }
        if self.session {
            setsid()?;
        }
        if let Some(path) = &self.cgroup {
            fs::write(path.join("cgroup.procs"), "0")?;
        }
        if let Some(parent) = self.die_with {
            die_with(parent)?;
        }
        credentials::gain_no_privileges()
    }

    /// Changes this thread to the slot's user. The kernel clears the parent-death signal when the user changes, so it
    /// is set once more.
    fn become_user(&self) -> io::Result<()> {
        let Some(user) = &self.user else { return Ok(()) };
        user.assume().map_err(|error| io::Error::new(error.kind(), format!("cannot become user {user}: {error}")))?;
        self.die_with.map_or(Ok(()), die_with)
    }

    /// Starts the program as the slot's user, from a process that keeps its own.
    fn start(&self, program: &OsStr, args: &[OsString]) -> io::Result<Child> {
        let start = || {
            self.become_user()?;
            Command::new(program).args(args).spawn()
        };
        thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, start)?.join();
            started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts the program has failed")))
        })
    }
}

/// Closes descriptors that this process inherited beside its standard ones: a library in the agent, or the agent's own
/// parent, may have opened files that are passed on. This process has opened nothing itself yet.
fn close_inherited() -> io::Result<()> {
    const STANDARD: i32 = 2;
    let entries = fs::read_dir("/proc/self/fd")?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<i32>().ok();
    let open: Vec<i32> = entries.filter_map(number).filter(|number| *number > STANDARD).collect();
    for number in open {
        // The descriptor that the list was read through is closed by now.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Does the steps and executes the program. `args` follows the arguments that led here: flags, `--`, the program and
/// its arguments. Never returns; a failure is written to standard error, which is the slot's log.
pub fn trampoline(args: impl IntoIterator<Item = OsString>) -> ! {
    let (code, error) = match run(args) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    let _ = writeln!(io::stderr(), "berth: {error}");
    process::exit(code)
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<Infallible, (i32, String)> {
    let failed = |error: io::Error| (STEP_FAILED, format!("cannot prepare the slot's process: {error}"));
    let (steps, argv) = Steps::parse(args).map_err(failed)?;
    close_inherited().map_err(failed)?;
    steps.prepare().map_err(failed)?;
    let (program, args) = argv.split_first().ok_or((NOT_FOUND, "there is no program to run".to_owned()))?;
    let Some(path) = &steps.exit_file else {
        steps.become_user().map_err(failed)?;
        return Err(cannot_run(program, &Command::new(program).args(args).exec()));
    };
    let exit_file = exit_file::reserve(path)
        .map_err(|error| (STEP_FAILED, format!("the job is not started: its exit file {}: {error}", path.display())))?;
    let not_run = |error: io::Error| {
        let _ = exit_file::note(&exit_file, Exit::NotRun);
        cannot_run(program, &error)
    };
    if !steps.supervisor {
        // The exit file is open already, so that the slot's user needs no access to it; the program does not inherit
        // it.
        steps.become_user().map_err(not_run)?;
        return Err(not_run(Command::new(program).args(args).exec()));
    }
    let mut child = steps.start(program, args).map_err(not_run)?;
    let status = child.wait().map_err(|error| (STEP_FAILED, format!("the job cannot be waited for: {error}")))?;
    if let Err(error) = exit_file::note(&exit_file, exit_of(status)) {
        let _ = writeln!(io::stderr(), "berth: cannot note how the job ended: {error}");
    }
    // Shells report a signal like this: there is no safe way to die of one.
    process::exit(status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(STEP_FAILED))
}

fn cannot_run(program: &OsStr, error: &io::Error) -> (i32, String) {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    (code, format!("cannot run {program:?}: {error}"))
}

fn exit_of(status: ExitStatus) -> Exit {
    let code = status.code().map(Exit::Code);
    code.or_else(|| status.signal().map(Exit::Signal)).unwrap_or(Exit::Unknown)
}

/// Asks for the signal, then looks at the parent: it may have died in between.
fn die_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    is_parent(parent)
}

fn is_parent(parent: u32) -> io::Result<()> {
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) { Ok(()) } else { Err(io::Error::other("the agent is gone")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_survive_the_command_line_and_the_program_keeps_its_dashes() {
        let steps = Steps {
            session: true,
            started_by: Some(6),
            die_with: Some(7),
            cgroup: Some("/a b".into()),
            exit_file: Some("--exit-file".into()),
            supervisor: true,
            user: Some(Credentials { uid: 7, gid: 8, groups: vec![8, 44] }),
        };
        let argv: Vec<OsString> = ["prog", "--", "--session", "$(x)"].map(Into::into).to_vec();
        let list = steps.command(&["berth".into(), "runner-exec".into()], &argv);
        assert_eq!(list.len(), 2 + 2 + 2 + 2 + 2 + 2 + 2 + 1 + 4);
        assert_eq!(Steps::parse(list.into_iter().skip(2)).unwrap(), (steps, argv));
    }

    #[test]
    fn n3_nothing_is_started_for_an_agent_that_is_gone() {
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        assert!(Steps { started_by: parent, ..Steps::default() }.prepare().is_ok());
        let gone = Steps { started_by: parent.map(|pid| pid + 1), ..Steps::default() }.prepare();
        assert!(gone.unwrap_err().to_string().contains("the agent is gone"));
    }

    #[test]
    fn unknown_flags_and_a_missing_program_are_refused() {
        let (misspelt, no_pid, no_program) =
            (vec!["--sesion", "--", "x"], vec!["--die-with", "x", "--", "x"], vec!["--session"]);
        let no_user = ["", "7", "7:8", "7:8:", "7:8:x", "-1:8:8", "4294967295:8:8", "7:8:4294967295", "7:8:8:8"];
        let no_user = no_user.map(|user| vec!["--user", user, "--", "x"]);
        for bad in [misspelt, no_pid, no_program].into_iter().chain(no_user) {
            assert!(Steps::parse(bad.iter().map(OsString::from)).is_err(), "{bad:?} was taken");
        }
    }
}
