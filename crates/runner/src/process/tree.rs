//! Everybody who belongs to a slot, wherever they went.
//!
//! A process belongs to a tree if it is its root, was seen in it before, descends from a member, is in a session or
//! group that a member leads or led, is in the slot's cgroup, or carries the slot's mark. What was seen once is
//! remembered, so that a process which then leaves its parent and wipes its environment is still known.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::cgroup::Cgroup;
use super::id::ProcessId;
use super::mark::SlotMark;
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
    root: Option<ProcessId>,
    cgroup: Option<Cgroup>,
    members: BTreeMap<u32, ProcessId>,
    circles: BTreeMap<u32, ProcessId>,
}

impl Tree {
    /// The tree below a root; without one (an agent that died before it could note it), whoever carries the mark.
    #[must_use]
    pub fn new(mark: SlotMark, root: Option<ProcessId>, cgroup: Option<Cgroup>) -> Self {
        let seed = || root.iter().map(|root| (root.pid, root.clone())).collect();
        Self { mark, cgroup, members: seed(), circles: seed(), root }
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
        self.update(table, depth)?;
        if self.members.is_empty() && depth == Depth::Thorough {
            let fresh = ProcessTable::read()?;
            self.update(&fresh, depth)?;
            if self.members.is_empty() {
                return Ok(self.unseen(table, &fresh)?.into_iter().collect());
            }
        }
        Ok(self.members.values().cloned().collect())
    }

    /// Somebody is in a group that has entries and none in the table, or that has other dead ones than a moment ago.
    fn unseen(&self, before: &ProcessTable, now: &ProcessTable) -> io::Result<Option<ProcessId>> {
        let moves = |circle: u32| {
            let mut rows = now.rows().filter(|row| row.group == circle).peekable();
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
        let in_cgroup = match &self.cgroup {
            Some(cgroup) => cgroup.pids()?,
            None => BTreeSet::new(),
        };
        let marked = match depth {
            Depth::Quick => BTreeSet::new(),
            Depth::Thorough => self.marked(table)?,
        };
        self.settle(table, signal::group_exists, |row| in_cgroup.contains(&row.pid) || marked.contains(&row.pid))
    }

    fn marked(&self, table: &ProcessTable) -> io::Result<BTreeSet<u32>> {
        let mut found = BTreeSet::new();
        for row in table.rows().filter(|row| self.could_belong(row) && !self.has(row)) {
            if SlotMark::of(row.pid)?.is_some_and(|mark| mark == self.mark) {
                found.insert(row.pid);
            }
        }
        Ok(found)
    }

    /// Nobody is older than the root, dead, or of the kernel.
    fn could_belong(&self, row: &Row) -> bool {
        !row.is_kernel && !row.is_dead() && self.root.as_ref().is_none_or(|root| row.start_ticks >= root.start_ticks)
    }

    fn has(&self, row: &Row) -> bool {
        self.members.get(&row.pid).is_some_and(|member| member.is(row))
    }

    /// Adds whoever belongs to those who belong, until nobody is added; then lets go of who is gone.
    fn settle(
        &mut self,
        table: &ProcessTable,
        group_exists: impl Fn(u32) -> bool,
        belongs: impl Fn(&Row) -> bool,
    ) -> io::Result<()> {
        let spared = table.lineage(std::process::id());
        self.drop_empty_circles(table, group_exists);
        let could = |row: &&Row| self.could_belong(row) && !spared.contains(&row.pid);
        let candidates: Vec<&Row> = table.rows().filter(could).collect();
        let mut alive: BTreeMap<u32, ProcessId> = BTreeMap::new();
        loop {
            let mut grown = false;
            for &row in &candidates {
                let is_new = !alive.contains_key(&row.pid);
                let led = self.circles.contains_key(&row.session) || self.circles.contains_key(&row.group);
                if is_new && (self.has(row) || alive.contains_key(&row.parent) || led || belongs(row)) {
                    let id = ProcessId::from_row(row)?;
                    if row.session == row.pid || row.group == row.pid {
                        self.circles.insert(row.pid, id.clone());
                    }
                    alive.insert(row.pid, id);
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        self.members = alive;
        Ok(())
    }

    /// A session or group is ours while it has members: its number is given to nobody else before it is empty. An
    /// empty one is forgotten for good.
    fn drop_empty_circles(&mut self, table: &ProcessTable, group_exists: impl Fn(u32) -> bool) {
        let led: BTreeSet<u32> =
            table.rows().filter(|row| self.could_belong(row)).flat_map(|row| [row.session, row.group]).collect();
        self.circles.retain(|circle, leader| {
            let reused = table.get(*circle).is_some_and(|row| !leader.is(row));
            (led.contains(circle) || group_exists(*circle)) && !reused
        });
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

    fn tree() -> Tree {
        let mark = SlotMark {
            runner: RunnerId::new("r").unwrap(),
            slot: SlotId::new("01234567-89ab-cdef-0123-456789abcdef".parse().unwrap()),
            generation: Generation::new(1),
        };
        let boot = BootId::new("b").unwrap();
        let root = ProcessId { pid: ROOT, start_ticks: u64::from(ROOT), pid_namespace: 1, boot };
        Tree::new(mark, Some(root), None)
    }

    fn pids(tree: &mut Tree, rows: &[Row]) -> Vec<u32> {
        tree.settle(&rows.iter().cloned().collect(), |_| false, |_| false).unwrap();
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
    fn a_dead_process_that_nobody_waited_for_is_no_member() {
        let mut tree = tree();
        assert!(pids(&mut tree, &[Row { state: 'Z', ..row(ROOT, 5, ROOT, ROOT) }]).is_empty());
    }
}
