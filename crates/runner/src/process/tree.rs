//! The processes of a slot, wherever they went.
//!
//! A process belongs to a tree if it is its root, was seen in it before, descends from a member, is in a session or
//! group that a member leads or led, is in the slot's cgroup, or carries the slot's mark. Members are remembered, so
//! that a process which then leaves its parent and clears its environment is still known.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::cgroup::Cgroup;
use super::id::{Liveness, ProcessId};
use super::mark::{self, MarkTrust, SlotMark};
use super::signal::{self, Signal};
use super::table::{ProcessTable, Row};

/// How thoroughly to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Looks at parents, sessions and groups. Cheap enough for each round.
    Quick,
    /// Looks at environments too; and if no process is found, once more at a new table. Only this is proof.
    Thorough,
}

/// The processes of one start of a slot.
#[derive(Debug)]
pub struct Tree {
    mark: SlotMark,
    trust: MarkTrust,
    root: Option<ProcessId>,
    cgroup: Option<Cgroup>,
    members: BTreeMap<u32, ProcessId>,
    circles: BTreeMap<u32, ProcessId>,
    is_invisible: bool,
}

impl Tree {
    /// Returns the tree below a root. Without a root (an agent died before it could note it), the tree is the processes
    /// that carry the mark and are accepted. If the root is in a pid namespace that the agent cannot look into, each
    /// look is an error.
    #[must_use]
    pub fn new(mark: SlotMark, trust: MarkTrust, root: Option<ProcessId>, cgroup: Option<Cgroup>) -> Self {
        let is_invisible =
            root.as_ref().is_some_and(|root| !matches!(root.liveness(), Ok(Liveness::Alive | Liveness::Gone)));
        // After a reboot the same pids are other processes.
        let root = root.filter(ProcessId::is_visible);
        let seed = || root.iter().map(|root| (root.pid, root.clone())).collect();
        Self { mark, trust, cgroup, members: seed(), circles: seed(), root, is_invisible }
    }

    /// Returns the mark of the slot.
    #[must_use]
    pub fn mark(&self) -> &SlotMark {
        &self.mark
    }

    /// Returns the slot's cgroup, where it has one.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Returns the living members, by pid. Empty after a [`Depth::Thorough`] look proves that no process is left. An
    /// error means that it is unknown.
    ///
    /// A table is not read at one instant: a process that forks and exits all the time may be missing in it. So a
    /// thorough look that finds no process looks once more, and asks the kernel about groups and the cgroup as a whole;
    /// if one is not empty, the dead leader stands for its members.
    pub fn look(&mut self, table: &ProcessTable, depth: Depth) -> io::Result<Vec<ProcessId>> {
        if self.is_invisible {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its processes are in another pid namespace"));
        }
        self.update(table, depth)?;
        if self.members.is_empty() && depth == Depth::Thorough {
            let again = table.again()?;
            self.update(again, depth)?;
            if self.members.is_empty() {
                return Ok(self.unseen(table, again)?.into_iter().collect());
            }
        }
        Ok(self.members.values().cloned().collect())
    }

    /// Returns a leader whose group has members but none in the table, or has other zombies than a moment ago.
    fn unseen(&self, before: &ProcessTable, now: &ProcessTable) -> io::Result<Option<ProcessId>> {
        let moves = |circle: u32| {
            let mut rows = now.group(circle).peekable();
            rows.peek().is_none() || rows.any(|row| before.get(row.pid) != Some(row))
        };
        let unseen = self.circles.iter().find(|(circle, _)| signal::group_exists(**circle) && moves(**circle));
        if let Some((_, leader)) = unseen {
            return Ok(Some(leader.clone()));
        }
        let populated = self.cgroup.as_ref().map(Cgroup::is_populated).transpose()?;
        Ok(self.root.clone().filter(|_| populated == Some(true)))
    }

    /// Sends SIGTERM to all members of the last look, once: many programs treat a second one as a request to end at
    /// once.
    pub fn term(&self) {
        self.signal(Signal::TERM);
        // A stopped process would receive it only once it continues.
        self.signal(Signal::CONT);
    }

    /// Kills all members of the last look, and everything in their groups and cgroup at one instant, so that no member
    /// can escape by forking. Callers look and kill again until no process is left: a tree may grow while it is being
    /// killed.
    pub fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            // Older kernels have no such file; then members are killed one by one.
            let _ = cgroup.kill();
        }
        for circle in self.circles.keys() {
            signal::send_to_group(*circle, Signal::KILL);
        }
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        for member in self.members.values() {
            signal::send(member, signal);
        }
    }

    fn update(&mut self, table: &ProcessTable, depth: Depth) -> io::Result<()> {
        let mut found = match &self.cgroup {
            Some(cgroup) => cgroup.pids()?,
            None => BTreeSet::new(),
        };
        if depth == Depth::Thorough {
            found.extend(mark::accepted_pids(table, &self.mark, &self.trust)?);
        }
        self.settle(table, signal::group_exists, &found)
    }

    /// Returns whether a process could belong: it is not older than the root, dead, of the kernel, or an ancestor of
    /// the agent.
    fn could_belong(&self, table: &ProcessTable, row: &Row) -> bool {
        let is_old = self.root.as_ref().is_some_and(|root| row.start_ticks < root.start_ticks);
        !is_old && !row.is_kernel && !row.is_dead() && !table.is_agent_or_ancestor(row.pid)
    }

    /// Adds processes that belong to known members until none is added, and drops members that are gone.
    fn settle(
        &mut self,
        table: &ProcessTable,
        group_exists: impl Fn(u32) -> bool,
        found: &BTreeSet<u32>,
    ) -> io::Result<()> {
        self.drop_empty_sessions_and_groups(table, group_exists);
        let known = self.members.values().filter_map(|member| table.get(member.pid).filter(|row| member.is(row)));
        let mut next: Vec<&Row> = known.chain(found.iter().filter_map(|pid| table.get(*pid))).collect();
        for circle in self.circles.keys() {
            next.extend(table.session(*circle).chain(table.group(*circle)));
        }
        let mut alive = BTreeMap::new();
        while let Some(row) = next.pop() {
            if !self.could_belong(table, row) || alive.contains_key(&row.pid) {
                continue;
            }
            let id = ProcessId::from_row(row)?;
            next.extend(table.children(row.pid));
            if row.session == row.pid || row.group == row.pid {
                next.extend(table.session(row.pid).chain(table.group(row.pid)));
                self.circles.insert(row.pid, id.clone());
            }
            alive.insert(row.pid, id);
        }
        self.members = alive;
        Ok(())
    }

    /// Drops sessions and groups that are empty. The kernel reuses their number only once they are empty, so an empty
    /// one must be forgotten.
    fn drop_empty_sessions_and_groups(&mut self, table: &ProcessTable, group_exists: impl Fn(u32) -> bool) {
        let mut circles = std::mem::take(&mut self.circles);
        circles.retain(|circle, leader| {
            let reused = table.get(*circle).is_some_and(|row| !leader.is(row));
            let mut rows = table.session(*circle).chain(table.group(*circle));
            !reused && (rows.any(|row| self.could_belong(table, row)) || group_exists(*circle))
        });
        self.circles = circles;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_domain::{BootId, Generation, RunnerId, SlotId};

    const ROOT: u32 = 4_000_100;

    fn row(pid: u32, parent: u32, group: u32, session: u32) -> Row {
        Row { pid, parent, group, session, state: 'S', threads: 1, start_ticks: u64::from(pid), is_kernel: false }
    }

    fn trust() -> MarkTrust {
        MarkTrust::Users([crate::runtime::UserId::own()].into())
    }

    fn tree() -> Tree {
        let mark = SlotMark {
            runner: RunnerId::new("r").unwrap(),
            slot: SlotId::new("01234567-89ab-cdef-0123-456789abcdef".parse().unwrap()),
            generation: Generation::new(1),
        };
        let own = ProcessId::of(std::process::id()).unwrap().unwrap();
        Tree::new(mark, trust(), Some(ProcessId { pid: ROOT, start_ticks: u64::from(ROOT), ..own }), None)
    }

    fn pids(tree: &mut Tree, rows: &[Row]) -> Vec<u32> {
        tree.settle(&rows.iter().cloned().collect(), |_| false, &BTreeSet::new()).unwrap();
        tree.members.keys().copied().collect()
    }

    #[test]
    fn n10_a_process_that_left_group_session_and_parent_is_still_a_member() {
        let mut tree = tree();
        let (root, child, grandchild) = (ROOT, ROOT + 1, ROOT + 2);
        let all = [row(root, 5, root, root), row(child, root, child, child), row(grandchild, child, child, child)];
        assert_eq!(pids(&mut tree, &all), [root, child, grandchild]);
        // The root and the child are gone; the grandchild has a new parent and a session of its own; it has a child.
        let left = [row(grandchild, 1, grandchild, grandchild), row(ROOT + 3, grandchild, ROOT + 3, ROOT + 3)];
        assert_eq!(pids(&mut tree, &left), [grandchild, ROOT + 3]);
    }

    #[test]
    fn n10_a_new_process_of_the_session_is_a_member() {
        let mut tree = tree();
        assert_eq!(pids(&mut tree, &[row(ROOT + 9, 1, ROOT + 8, ROOT)]), [ROOT + 9]);
    }

    #[test]
    fn a_reused_session_number_is_not_the_slots() {
        let mut tree = tree();
        assert!(pids(&mut tree, &[row(7, 1, 7, 7)]).is_empty());
        let stranger = Row { start_ticks: u64::from(ROOT) + 50, ..row(ROOT, 1, ROOT, ROOT) };
        assert!(pids(&mut tree, &[stranger, row(ROOT + 1, ROOT, ROOT, ROOT)]).is_empty());
    }

    #[test]
    fn a_reused_pid_is_not_the_root() {
        let mut tree = tree();
        let stranger = Row { start_ticks: u64::from(ROOT) + 50, ..row(ROOT, 1, ROOT, ROOT) };
        assert!(pids(&mut tree, &[stranger, row(ROOT + 1, ROOT, ROOT, ROOT)]).is_empty());
    }

    #[test]
    fn the_agent_and_its_ancestors_are_not_members() {
        let mut tree = tree();
        let own = std::process::id();
        let root = row(ROOT, 5, ROOT, ROOT);
        let agent = Row { start_ticks: u64::from(ROOT) + 9, ..row(own, ROOT, ROOT, ROOT) };
        assert!(pids(&mut tree, &[root, agent]).is_empty(), "an agent that runs inside a slot ends itself");
    }

    #[test]
    fn n4_the_same_pids_after_a_reboot_are_not_members() {
        let known = tree();
        let root = ProcessId { boot: BootId::new("before").unwrap(), ..known.root.clone().unwrap() };
        let mut tree = Tree::new(known.mark, trust(), Some(root), None);
        assert!(pids(&mut tree, &[row(ROOT, 1, ROOT, ROOT)]).is_empty());
        assert!(tree.look(&ProcessTable::default(), Depth::Quick).unwrap().is_empty());
    }

    #[test]
    fn n3_a_tree_in_another_pid_namespace_is_unknown() {
        let known = tree();
        let root = ProcessId { pid_namespace: 1, ..known.root.clone().unwrap() };
        let mut tree = Tree::new(known.mark.clone(), trust(), Some(root.clone()), None);
        assert!(tree.look(&ProcessTable::default(), Depth::Thorough).is_err());
        // But where an agent was the first process, all others ended with it.
        let mut tree = Tree::new(known.mark, trust(), Some(ProcessId { agent_was_init: true, ..root }), None);
        assert!(tree.look(&ProcessTable::default(), Depth::Thorough).unwrap().is_empty());
    }

    #[test]
    fn a_zombie_is_not_a_member() {
        let mut tree = tree();
        assert!(pids(&mut tree, &[Row { state: 'Z', ..row(ROOT, 5, ROOT, ROOT) }]).is_empty());
    }
}
