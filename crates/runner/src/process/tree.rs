//! Everybody who belongs to a slot, wherever they went.
//!
//! A process belongs to a tree if it is its root, was seen in it before, descends from a member, is in a session or
//! group that a member leads or led, is in the slot's cgroup, or carries the slot's mark. What was seen once is
//! remembered, so that a process which then leaves its parent and wipes its environment is still known.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::cgroup::Cgroup;
use super::id::{Liveness, ProcessId};
use super::mark::{self, MarkTrust, SlotMark};
use super::signal::{self, Signal};
use super::table::{ProcessTable, Row};

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// At who is whose child, and in which session and group. Cheap: for every round.
    Quick,
    /// At everybody's environment too; and if nobody is found, once more at a new table. Only this is proof.
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
    out_of_sight: bool,
}

impl Tree {
    /// The tree below a root; without one (an agent that died before it could note it), whoever carries the mark and is
    /// believed. Of a
    /// root in a pid namespace that one cannot look into nobody can say anything: every look is an error.
    #[must_use]
    pub fn new(mark: SlotMark, trust: MarkTrust, root: Option<ProcessId>, cgroup: Option<Cgroup>) -> Self {
        let out_of_sight =
            root.as_ref().is_some_and(|root| !matches!(root.liveness(), Ok(Liveness::Alive | Liveness::Gone)));
        // After a reboot the same numbers are somebody else.
        let root = root.filter(ProcessId::is_within_sight);
        let seed = || root.iter().map(|root| (root.pid, root.clone())).collect();
        Self { mark, trust, cgroup, members: seed(), circles: seed(), root, out_of_sight }
    }

    /// Whose tree it is.
    #[must_use]
    pub fn mark(&self) -> &SlotMark {
        &self.mark
    }

    /// Its cgroup, where it has one.
    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Who is alive in it, by pid. Empty after a [`Depth::Thorough`] look means that nobody is left. An error means that
    /// nobody can say.
    ///
    /// A table is not read at one instant: who forks and leaves all the time may not be in it. So a thorough look that
    /// finds nobody looks once more, and asks groups and the cgroup as a whole; the leader, though dead, then stands
    /// for whoever is there.
    pub fn look(&mut self, table: &ProcessTable, depth: Depth) -> io::Result<Vec<ProcessId>> {
        if self.out_of_sight {
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

    /// Somebody is in a group that has entries and none in the table, or that has other dead ones than a moment ago.
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

    /// Asks everybody of the last look to end, once: many programs take a second request for impatience.
    pub fn term(&self) {
        self.signal(Signal::TERM);
        // Who is stopped would hear it only once it goes on.
        self.signal(Signal::CONT);
    }

    /// Ends everybody of the last look, and everybody in their groups and cgroup at one instant: nobody there can fork
    /// out of the way. Look and kill again until nobody is left: a tree may grow while it is being felled.
    pub fn kill(&self) {
        if let Some(cgroup) = &self.cgroup {
            // An older kernel has no such file; then they are ended one by one.
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
            found.extend(mark::believed(table, &self.mark, &self.trust)?);
        }
        self.settle(table, signal::group_exists, &found)
    }

    /// Nobody is older than the root, dead, of the kernel, or an ancestor of the agent.
    fn could_belong(&self, table: &ProcessTable, row: &Row) -> bool {
        let is_old = self.root.as_ref().is_some_and(|root| row.start_ticks < root.start_ticks);
        !is_old && !row.is_kernel && !row.is_dead() && !table.is_spared(row.pid)
    }

    /// From those who are known to belong to those who belong to them, until nobody is added. Who is gone is let go.
    fn settle(
        &mut self,
        table: &ProcessTable,
        group_exists: impl Fn(u32) -> bool,
        found: &BTreeSet<u32>,
    ) -> io::Result<()> {
        self.drop_empty_circles(table, group_exists);
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

    /// A session or group is ours while it has members: its number is given to nobody else before it is empty. An
    /// empty one is forgotten for good.
    fn drop_empty_circles(&mut self, table: &ProcessTable, group_exists: impl Fn(u32) -> bool) {
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
    fn n10_who_changed_group_and_session_and_lost_its_parent_is_still_known() {
        let mut tree = tree();
        let (root, child, grandchild) = (ROOT, ROOT + 1, ROOT + 2);
        let all = [row(root, 5, root, root), row(child, root, child, child), row(grandchild, child, child, child)];
        assert_eq!(pids(&mut tree, &all), [root, child, grandchild]);
        // The root and the child are gone; the grandchild has a new parent and a session of its own; it has a child.
        let left = [row(grandchild, 1, grandchild, grandchild), row(ROOT + 3, grandchild, ROOT + 3, ROOT + 3)];
        assert_eq!(pids(&mut tree, &left), [grandchild, ROOT + 3]);
    }

    #[test]
    fn n10_who_stayed_in_the_session_is_found_though_it_was_never_seen_before() {
        let mut tree = tree();
        assert_eq!(pids(&mut tree, &[row(ROOT + 9, 1, ROOT + 8, ROOT)]), [ROOT + 9]);
    }

    #[test]
    fn a_session_that_was_empty_is_nobodys_when_its_number_comes_again() {
        let mut tree = tree();
        assert!(pids(&mut tree, &[row(7, 1, 7, 7)]).is_empty());
        let stranger = Row { start_ticks: u64::from(ROOT) + 50, ..row(ROOT, 1, ROOT, ROOT) };
        assert!(pids(&mut tree, &[stranger, row(ROOT + 1, ROOT, ROOT, ROOT)]).is_empty());
    }

    #[test]
    fn a_pid_that_was_given_to_somebody_else_is_not_the_root() {
        let mut tree = tree();
        let stranger = Row { start_ticks: u64::from(ROOT) + 50, ..row(ROOT, 1, ROOT, ROOT) };
        assert!(pids(&mut tree, &[stranger, row(ROOT + 1, ROOT, ROOT, ROOT)]).is_empty());
    }

    #[test]
    fn the_agent_and_those_it_descends_from_are_never_part_of_a_tree() {
        let mut tree = tree();
        let own = std::process::id();
        let root = row(ROOT, 5, ROOT, ROOT);
        let agent = Row { start_ticks: u64::from(ROOT) + 9, ..row(own, ROOT, ROOT, ROOT) };
        assert!(pids(&mut tree, &[root, agent]).is_empty(), "an agent that runs inside a slot ends itself");
    }

    #[test]
    fn n4_the_same_numbers_after_a_reboot_are_somebody_else() {
        let known = tree();
        let root = ProcessId { boot: BootId::new("before").unwrap(), ..known.root.clone().unwrap() };
        let mut tree = Tree::new(known.mark, trust(), Some(root), None);
        assert!(pids(&mut tree, &[row(ROOT, 1, ROOT, ROOT)]).is_empty());
        assert!(tree.look(&ProcessTable::default(), Depth::Quick).unwrap().is_empty());
    }

    #[test]
    fn n3_of_another_pid_namespace_nobody_can_say_that_it_is_empty() {
        let known = tree();
        let root = ProcessId { pid_namespace: 1, ..known.root.clone().unwrap() };
        let mut tree = Tree::new(known.mark.clone(), trust(), Some(root.clone()), None);
        assert!(tree.look(&ProcessTable::default(), Depth::Thorough).is_err());
        // But where an agent was the first process, all others ended with it.
        let mut tree = Tree::new(known.mark, trust(), Some(ProcessId { agent_was_init: true, ..root }), None);
        assert!(tree.look(&ProcessTable::default(), Depth::Thorough).unwrap().is_empty());
    }

    #[test]
    fn a_dead_process_that_nobody_waited_for_is_no_member() {
        let mut tree = tree();
        assert!(pids(&mut tree, &[Row { state: 'Z', ..row(ROOT, 5, ROOT, ROOT) }]).is_empty());
    }
}
