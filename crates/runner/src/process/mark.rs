//! The mark that every process of a slot inherits: three variables of its environment. A fourth says what kind of slot it
//! is, for agents that have no record of it.
//!
//! It finds who left its parent, its group and its session. It does not find who cleared its environment, wrote over it
//! (as programs do that set their title) or runs as another user: those are found by descent, group, session or cgroup,
//! or because they were seen before.

use std::collections::BTreeMap;
use std::io;

use berth_domain::{Generation, RunnerId, SlotId, WorkloadKind};

use super::exit_file;
use super::id::ProcessId;
use super::table::{ProcessTable, read_of};
use crate::runtime::{SLOT_GENERATION, SLOT_ID, SLOT_KIND, SLOT_RUNNER, kind_named};

/// Whose process it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotMark {
    /// The agent that started it.
    pub runner: RunnerId,
    /// Its slot.
    pub slot: SlotId,
    /// Which start of the slot.
    pub generation: Generation,
}

impl SlotMark {
    /// The mark in a process's environment. Nothing if there is none, or if one may not look.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        match read_of(pid, "environ") {
            Ok(environ) => Ok(environ.as_deref().and_then(Self::parse)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(environ: &[u8]) -> Option<Self> {
        let found = ours(environ)?;
        Some(Self {
            runner: RunnerId::new(found.get(SLOT_RUNNER)?).ok()?,
            slot: SlotId::new(found.get(SLOT_ID)?.parse().ok()?),
            generation: Generation::new(found.get(SLOT_GENERATION)?.parse().ok()?),
        })
    }
}

/// What Berth set in an environment. Nothing if that is no longer what Berth wrote.
fn ours(environ: &[u8]) -> Option<BTreeMap<&str, &str>> {
    let ours = environ.split(|byte| *byte == 0).filter(|pair| pair.starts_with(b"BERTH_"));
    ours.map(|pair| std::str::from_utf8(pair).ok()?.split_once('=')).collect()
}

/// One start of a slot that processes carry the mark of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// Which start of the slot.
    pub generation: Generation,
    /// The first of its processes: the keeper of a job, else the oldest that is there.
    pub process: ProcessId,
    /// Whether it is a job, where its environment says so.
    pub kind: Option<WorkloadKind>,
}

impl Carrier {
    /// Of those who carry a mark, the one to watch. Nothing if nobody is there any more.
    pub fn of(mark: &SlotMark, processes: &[ProcessId]) -> io::Result<Option<Self>> {
        let is_keeper = |process: &&ProcessId| exit_file::is_keeper(process.pid, mark.slot, mark.generation);
        let oldest = || processes.iter().min_by_key(|process| (process.start_ticks, process.pid));
        let Some(process) = processes.iter().find(is_keeper).or_else(oldest) else { return Ok(None) };
        let environ = read_of(process.pid, "environ")?.unwrap_or_default();
        let kind = ours(&environ).and_then(|ours| kind_named(ours.get(SLOT_KIND)?));
        Ok(Some(Self { generation: mark.generation, process: process.clone(), kind }))
    }
}

/// Which starts of a slot there are processes of, by the mark of this runner, the newest first.
pub fn carriers(table: &ProcessTable, runner: &RunnerId, slot: SlotId) -> io::Result<Vec<Carrier>> {
    let mut found = Vec::new();
    for (mark, pids) in table.marks()?.iter().filter(|(mark, _)| mark.runner == *runner && mark.slot == slot) {
        let rows = pids.iter().filter_map(|pid| table.get(*pid));
        let processes = rows.map(ProcessId::from_row).collect::<io::Result<Vec<_>>>()?;
        found.extend(Carrier::of(mark, &processes)?);
    }
    found.sort_by_key(|carrier| std::cmp::Reverse(carrier.generation));
    Ok(found)
}

/// Whether a process shows an environment in which a mark could be seen. One that may not be read says nothing, and
/// neither does one that its program has written over.
pub fn is_legible(pid: u32) -> io::Result<bool> {
    match read_of(pid, "environ") {
        Ok(environ) => Ok(environ.is_some_and(|environ| environ.contains(&b'='))),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// Everybody who carries a mark of this runner. Ask this once, when the agent knows which cluster it serves: what is of
/// that cluster and not on record is an orphan.
pub fn marked(table: &ProcessTable, runner: &RunnerId) -> io::Result<BTreeMap<SlotMark, Vec<ProcessId>>> {
    let mut found = BTreeMap::new();
    for (mark, pids) in table.marks()?.iter().filter(|(mark, _)| mark.runner == *runner) {
        let rows = pids.iter().filter_map(|pid| table.get(*pid));
        found.insert(mark.clone(), rows.map(ProcessId::from_row).collect::<io::Result<_>>()?);
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
}
