//! The mark that each process of a slot inherits: three variables of its environment. A fourth says what kind of slot
//! it is, for agents that have no record of it; a fifth is a secret of this start of the slot.
//!
//! The mark finds processes that left their parent, group and session. It does not find processes that cleared or
//! overwrote their environment (as programs do that set their title): those are found by descent, group, session or
//! cgroup, or because they were seen before.
//!
//! # Forged marks
//!
//! Any process can put any mark into its own environment, and the ids in it are no secrets. So a mark counts only on a
//! process that [`MarkTrust`] accepts:
//!
//! | the agent has | a mark counts on a process that |
//! | --- | --- |
//! | a record of the start, with its secret | carries the secret, and runs as the user that the slot was started as, or as root. (A slot that was started as root may have become any user: there the secret is enough.) |
//! | no record of it, or one without a secret | runs as the agent's own user, or as the user of one of its runtimes |
//!
//! A process of another user can neither read the secret (`/proc/PID/environ` is shown to the same user and to root) nor
//! choose its own real user id. It is never adopted, charged or ended for a mark that it copied, and keeps no slot from
//! starting or from being proven gone.
//!
//! A process of the *same* user can read the environment of that user's slots, and so copy a secret. It then counts as
//! part of the slot whose mark it carries, which therefore is not gone before this process is, and it is ended with
//! that slot. While no record exists it can pretend to be a slot of this agent, which is then reported as a stray and
//! stopped. It cannot make a slot look gone that is not, or have any process ended but itself and its own children.
//! Runtimes that do not trust each other need users of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;

use berth_domain::{Generation, RunnerId, SlotId, WorkloadKind};
use serde::{Deserialize, Serialize};

use super::exit_file;
use super::id::ProcessId;
use super::table::{ProcessTable, read_of};
use crate::runtime::{SLOT_GENERATION, SLOT_ID, SLOT_KIND, SLOT_RUNNER, SLOT_SECRET, UserId, kind_named};

/// The identity of the slot that a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotMark {
    /// The agent that started the process.
    pub runner: RunnerId,
    /// The slot that the process belongs to.
    pub slot: SlotId,
    /// The generation of the slot.
    pub generation: Generation,
}

impl SlotMark {
    fn parse(environ: &[u8]) -> Option<Self> {
        let found = berth_variables(environ)?;
        Some(Self {
            runner: RunnerId::new(found.get(SLOT_RUNNER)?).ok()?,
            slot: SlotId::new(found.get(SLOT_ID)?.parse().ok()?),
            generation: Generation::new(found.get(SLOT_GENERATION)?.parse().ok()?),
        })
    }
}

/// A random text that one start of a slot carries in its environment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SlotSecret(String);

impl SlotSecret {
    /// Returns a new secret of 128 random bits.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the text, which goes into the environment of the slot and nowhere else.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Does not show the secret.
impl fmt::Debug for SlotSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotSecret")
    }
}

/// What identifies the processes of one start of a slot. It is on record before they are started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedAs {
    /// The user that the processes run as.
    pub user: UserId,
    /// The secret that they carry.
    pub secret: SlotSecret,
}

/// The processes on which a mark counts. The documentation of this module says why.
#[derive(Clone, Debug)]
pub enum MarkTrust {
    /// Processes of one start of a slot that is on record.
    Start(StartedAs),
    /// Processes of these users: all that is known of a start without a secret on record.
    Users(BTreeSet<UserId>),
}

impl MarkTrust {
    fn accepts(&self, process: &MarkedProcess) -> bool {
        match self {
            // The supervisor of a job runs as the agent does, which is root where users differ.
            Self::Start(StartedAs { user, secret }) => {
                let may_be_its_user = user.is_root() || process.user == *user || process.user.is_root();
                process.secret.as_ref() == Some(secret) && may_be_its_user
            }
            Self::Users(users) => users.contains(&process.user),
        }
    }
}

/// A process that carries a mark, whether or not it is accepted.
#[derive(Clone, Debug)]
pub(super) struct MarkedProcess {
    pub(super) pid: u32,
    user: UserId,
    secret: Option<SlotSecret>,
}

/// Returns the mark in a process's environment, and what is needed to decide whether it counts. Returns `None` if there
/// is no mark, if the agent may not look, or if the process has gone.
pub(super) fn read_mark(pid: u32) -> io::Result<Option<(SlotMark, MarkedProcess)>> {
    let environ = match read_of(pid, "environ") {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        environ => environ?,
    };
    let Some(environ) = environ else { return Ok(None) };
    let Some(mark) = SlotMark::parse(&environ) else { return Ok(None) };
    let Some(user) = real_user(pid)? else { return Ok(None) };
    let secret =
        berth_variables(&environ).and_then(|variables| Some(SlotSecret((*variables.get(SLOT_SECRET)?).to_owned())));
    Ok(Some((mark, MarkedProcess { pid, user, secret })))
}

/// Returns the real user of a process, which it cannot choose, or `None` if the process has gone.
fn real_user(pid: u32) -> io::Result<Option<UserId>> {
    let Some(status) = read_of(pid, "status")? else { return Ok(None) };
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    let unreadable = || io::Error::other(format!("/proc/{pid}/status does not say whose process it is"));
    number.map(|number| Some(UserId::new(number))).ok_or_else(unreadable)
}

/// Returns the processes of a table that carry this mark and are accepted.
pub(super) fn accepted_pids<'a>(
    table: &'a ProcessTable,
    mark: &SlotMark,
    trust: &'a MarkTrust,
) -> io::Result<impl Iterator<Item = u32> + 'a> {
    let processes = table.marks()?.get(mark).into_iter().flatten();
    Ok(processes.filter(|process| trust.accepts(process)).map(|process| process.pid))
}

/// Returns the variables that Berth set in an environment, or `None` if they are no longer what Berth wrote.
fn berth_variables(environ: &[u8]) -> Option<BTreeMap<&str, &str>> {
    let pairs = environ.split(|byte| *byte == 0).filter(|pair| pair.starts_with(b"BERTH_"));
    pairs.map(|pair| std::str::from_utf8(pair).ok()?.split_once('=')).collect()
}

/// A start of a slot whose mark is carried by processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedStart {
    /// The generation of the slot.
    pub generation: Generation,
    /// The first of its processes: the supervisor of a job, else the oldest that is there.
    pub process: ProcessId,
    /// Whether it is a job, where its environment says so.
    pub kind: Option<WorkloadKind>,
}

impl MarkedStart {
    /// Returns the process to watch among those that carry a mark, or `None` if all have gone.
    pub fn of(mark: &SlotMark, processes: &[ProcessId]) -> io::Result<Option<Self>> {
        let is_supervisor = |process: &&ProcessId| exit_file::is_supervisor(process.pid, mark.slot, mark.generation);
        let oldest = || processes.iter().min_by_key(|process| (process.start_ticks, process.pid));
        let Some(process) = processes.iter().find(is_supervisor).or_else(oldest) else { return Ok(None) };
        let environ = read_of(process.pid, "environ")?.unwrap_or_default();
        let kind = berth_variables(&environ).and_then(|variables| kind_named(variables.get(SLOT_KIND)?));
        Ok(Some(Self { generation: mark.generation, process: process.clone(), kind }))
    }
}

/// Returns the starts of a slot that have processes, by the mark of this runner, the newest first. The slot is not on
/// record, so its processes are told from others by the users of the agent's slots.
pub fn find_marked_starts(
    table: &ProcessTable,
    runner: &RunnerId,
    slot: SlotId,
    users: &BTreeSet<UserId>,
) -> io::Result<Vec<MarkedStart>> {
    let mut found = Vec::new();
    for (mark, processes) in find_marked_processes(table, runner, users)?.iter().filter(|(mark, _)| mark.slot == slot) {
        found.extend(MarkedStart::of(mark, processes)?);
    }
    found.sort_by_key(|start| std::cmp::Reverse(start.generation));
    Ok(found)
}

/// Returns whether the agent can read an environment in which a mark would be visible. An environment that may not be
/// read, or that its program has overwritten, is not readable.
pub fn has_readable_environment(pid: u32) -> io::Result<bool> {
    match read_of(pid, "environ") {
        Ok(environ) => Ok(environ.is_some_and(|environ| environ.contains(&b'='))),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns all processes of these users that carry a mark of this runner. The agent calls this once it knows which
/// cluster it serves: slots of that cluster that are not on record are orphans.
pub fn find_marked_processes(
    table: &ProcessTable,
    runner: &RunnerId,
    users: &BTreeSet<UserId>,
) -> io::Result<BTreeMap<SlotMark, Vec<ProcessId>>> {
    let trust = MarkTrust::Users(users.clone());
    let mut found = BTreeMap::new();
    for mark in table.marks()?.keys().filter(|mark| mark.runner == *runner) {
        let rows = accepted_pids(table, mark, &trust)?.filter_map(|pid| table.get(pid));
        let processes = rows.map(ProcessId::from_row).collect::<io::Result<Vec<_>>>()?;
        if !processes.is_empty() {
            found.insert(mark.clone(), processes);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_from_an_environment_that_is_not_all_text() {
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        let environ =
            format!("A=\u{fffd}\0BERTH_SLOT_ID={id}\0BERTH_OTHER=x\0BERTH_SLOT_GENERATION=3\0BERTH_RUNNER_ID=r1\0");
        let mut bytes = vec![0xff, b'=', b'1', 0];
        bytes.extend_from_slice(environ.as_bytes());
        let mark = SlotMark::parse(&bytes).unwrap();
        assert_eq!((mark.slot.to_string().as_str(), mark.generation.get(), mark.runner.as_str()), (id, 3, "r1"));
        assert_eq!(SlotMark::parse(b"BERTH_SLOT_ID=nonsense\0"), None);
    }

    #[test]
    fn a_mark_counts_by_user_and_secret() {
        let secret = SlotSecret("s".to_owned());
        let process_of = |user, secret: Option<&str>| MarkedProcess {
            pid: 1,
            user: UserId::new(user),
            secret: secret.map(|secret| SlotSecret(secret.to_owned())),
        };
        let started = |user| MarkTrust::Start(StartedAs { user: UserId::new(user), secret: secret.clone() });
        assert!(started(7).accepts(&process_of(7, Some("s"))));
        assert!(started(7).accepts(&process_of(0, Some("s"))), "a supervisor runs as the agent does");
        assert!(!started(7).accepts(&process_of(8, Some("s"))), "a secret that became known helps no other user");
        assert!(started(0).accepts(&process_of(8, Some("s"))), "root may have become any user");
        for wrong in [None, Some(""), Some("t")] {
            assert!(
                !started(7).accepts(&process_of(7, wrong)) && !started(0).accepts(&process_of(0, wrong)),
                "{wrong:?}"
            );
        }
        let users = MarkTrust::Users([UserId::new(0), UserId::new(7)].into());
        assert!(users.accepts(&process_of(7, None)) && users.accepts(&process_of(0, Some("t"))));
        assert!(!users.accepts(&process_of(8, None)) && !users.accepts(&process_of(8, Some("s"))));
        assert_eq!(real_user(std::process::id()).unwrap(), Some(UserId::new(rustix::process::getuid().as_raw())));
    }

    #[test]
    fn secrets_differ_and_are_not_shown() {
        let (one, other) = (SlotSecret::random().unwrap(), SlotSecret::random().unwrap());
        assert!(one != other && one.as_str().len() == 32);
        assert!(!format!("{one:?}").contains(one.as_str()));
    }
}
