//! Whom the agent has to wait for.
//!
//! The agent is a subreaper: processes of a slot that lose their parent become its children, and stay as dead entries
//! until it waits for them. It waits for each by its pid, never for "anybody": the status of a child that somebody
//! else in this process waits for is not its to take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::signal;
use super::table::ProcessTable;

/// How long a dead child of the agent's own session may belong to another part of this process that is about to wait for
/// it. A slot has a session of its own, so that what a slot left behind is waited for at once.
const COURTESY: Duration = Duration::from_secs(1);

/// Those that have a handle of their own, and the dead that nobody has waited for yet. There is one list, since a
/// process has one set of children.
static CHILDREN: Mutex<Children> = Mutex::new(Children { watched: BTreeSet::new(), unclaimed: BTreeMap::new() });

struct Children {
    watched: BTreeSet<u32>,
    unclaimed: BTreeMap<(u32, u64), Instant>,
}

pub(super) fn watch(pid: u32) {
    CHILDREN.lock().watched.insert(pid);
}

pub(super) fn unwatch(pid: u32) {
    CHILDREN.lock().watched.remove(&pid);
}

/// Waits for the dead that came back to the agent and that nobody else has waited for. Says how many there were.
pub(super) fn reap(table: &ProcessTable, now: Instant) -> usize {
    let own = std::process::id();
    // The table and not `getsid`: a session that was begun outside this pid namespace (a container's first process, `unshare
    // --pid`) has the number 0 here, which the system call's wrapper takes for impossible.
    let own_session = table.get(own).map_or(0, |row| row.session);
    let mut children = CHILDREN.lock();
    let Children { watched, unclaimed } = &mut *children;
    let dead = table.rows().filter(|row| row.parent == own && row.is_dead() && !watched.contains(&row.pid));
    let dead: BTreeMap<(u32, u64), u32> = dead.map(|row| ((row.pid, row.start_ticks), row.session)).collect();
    unclaimed.retain(|entry, _| dead.contains_key(entry));
    let mut reaped = 0;
    for (entry, session) in dead {
        let since = *unclaimed.entry(entry).or_insert(now);
        let is_of_a_slot = session != own_session;
        if (is_of_a_slot || now.saturating_duration_since(since) >= COURTESY)
            && let Some(pid) = signal::pid(entry.0)
        {
            let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            reaped += usize::from(matches!(ended, Ok(Some(_))));
            unclaimed.remove(&entry);
        }
    }
    reaped
}
