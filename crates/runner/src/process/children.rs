//! Reaping ended children of the agent.
//!
//! The agent is a subreaper: processes of a slot that lose their parent become its children, and stay as zombies until
//! it waits for them. It waits for each by its pid and never for any child: another part of this process may be waiting
//! for its own child, and must get its status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::signal;
use super::table::ProcessTable;

/// How long a dead child of the agent's own session is left to another part of this process that may be about to wait
/// for it. A slot has a session of its own, so what a slot left behind is reaped at once.
const FOREIGN_CHILD_GRACE: Duration = Duration::from_secs(1);

/// The children that have a handle of their own, and the dead ones that were not reaped yet. The list is global, since
/// a process has one set of children.
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

/// Reaps dead children that no other part of this process has waited for, and returns how many there were.
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
        if (is_of_a_slot || now.saturating_duration_since(since) >= FOREIGN_CHILD_GRACE)
            && let Some(pid) = signal::pid(entry.0)
        {
            let ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            reaped += usize::from(matches!(ended, Ok(Some(_))));
            unclaimed.remove(&entry);
        }
    }
    reaped
}
