//! Which starts of the server this state knows of, so that it can tell when its history went back.
//!
//! A server that goes on from an old copy of its data directory forgets what it did after the copy was made. Agents
//! keep the newest answer that they obeyed. An answer that is not in [`History`] proves that something was forgotten.
//!
//! | the history | what follows |
//! | --- | --- |
//! | is whole | nothing |
//! | went back, found out by a runner's word | nothing is placed, started or stopped until an operator continues |
//! | continues, after a restore or an operator's word | the epoch is raised above every answer that a runner shows |

use berth_domain::{Epoch, EpochTag, HistoryPoint, Revision, Span, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Runner, Slot, State};
use crate::reason::Exclusion;
use crate::table::{MachineKey, RunnerKey};

/// How many starts of the server are remembered one by one.
const MOST_STARTS: usize = 256;
/// For how long after a restore or an operator's word runners may show answers that this server does not know.
const CONTINUES_FOR: Span = Span::from_secs(60 * 60);

/// One epoch: from this revision on, until the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EpochStart {
    pub(crate) epoch: Epoch,
    pub(crate) tag: EpochTag,
    pub(crate) first: Revision,
    /// How many slots and workloads there had been by then: those with a higher number are of this epoch.
    slots: u64,
    workloads: u64,
}

/// The epochs of this server, and whether anything is missing from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// Oldest first. Those before them were dropped.
    starts: Vec<EpochStart>,
    /// The newest answer that a runner obeyed and this server did not give, while an operator has not continued.
    beyond: Option<HistoryPoint>,
    /// The last epoch in which the server went on although its history had gone back.
    continued: Epoch,
    /// Until then answers that this server does not know raise its epoch instead of an alarm.
    continues_until: Option<Timestamp>,
}

impl History {
    /// Whether an answer of this point was given by this server, which is at revision `now` in its last epoch.
    pub(crate) fn contains(&self, point: HistoryPoint, now: Revision) -> bool {
        let at = self.starts.iter().rposition(|start| start.epoch == point.epoch && start.tag == point.tag);
        let Some(at) = at else {
            // Epochs that were dropped are all older than those that are left.
            let oldest = self.starts.first();
            return self.starts.len() >= MOST_STARTS && oldest.is_some_and(|oldest| point.epoch < oldest.epoch);
        };
        let end = self.starts.get(at + 1).map_or(now, |next| next.first);
        point.revision <= end
    }

    /// Whether the server goes on above everything that was said at this point.
    pub(crate) fn is_continued_above(&self, point: HistoryPoint) -> bool {
        point.epoch < self.continued
    }

    /// The newest answer that a runner obeyed and this server did not give, while an operator has not continued.
    pub(crate) fn beyond(&self) -> Option<HistoryPoint> {
        self.beyond
    }

    pub(crate) fn has_gone_back(&self) -> bool {
        self.beyond.is_some()
    }

    /// The tag of the server's last start.
    pub(crate) fn tag(&self) -> EpochTag {
        self.starts.last().map(|start| start.tag).unwrap_or_default()
    }

    pub(crate) fn starts(&self) -> &[EpochStart] {
        &self.starts
    }

    /// Whether a slot of this number was made before the last epoch began.
    pub(crate) fn is_old_slot(&self, number: u64) -> bool {
        self.starts.last().is_none_or(|start| number <= start.slots)
    }

    /// Whether a workload of this number was submitted before the last epoch began.
    pub(crate) fn is_old_workload(&self, number: u64) -> bool {
        self.starts.last().is_none_or(|start| number <= start.workloads)
    }

    /// Whether anything was ever forgotten, so that agents may know more than this server.
    pub(crate) fn has_gap(&self) -> bool {
        self.beyond.is_some() || self.continues_until.is_some()
    }

    fn begin(&mut self, start: EpochStart) {
        self.starts.push(start);
        if self.starts.len() > MOST_STARTS {
            self.starts.remove(0);
        }
    }
}

impl State {
    /// Begins the epoch that was just entered. Ids of slots carry its tag from now on.
    pub(crate) fn begin_epoch(&mut self, tag: EpochTag, at: Timestamp) {
        let goes_on = self.may_continue_above(at);
        let (slots, workloads) = (self.counters.slots, self.counters.workloads);
        self.history.begin(EpochStart { epoch: self.epoch, tag, first: self.revision, slots, workloads });
        self.counters.slot_ids = u64::from(tag.get()) << 32 | self.counters.slot_ids & u64::from(u32::MAX);
        if goes_on {
            self.continue_from_here(at);
        }
    }

    /// From now on runners may show what they obeyed, and the epoch is raised above it.
    pub(crate) fn continue_from_here(&mut self, at: Timestamp) {
        self.history.beyond = None;
        self.history.continued = self.epoch;
        self.history.continues_until = Some(at.after(CONTINUES_FOR));
    }

    /// Whether a runner may show an answer that this server does not know, and the server goes on above it.
    pub(crate) fn may_continue_above(&self, now: Timestamp) -> bool {
        let is_waited_for = || self.runners.iter().any(|(_, row)| !row.caught_up && !row.is_forgotten());
        self.history.continues_until.is_some_and(|until| now < until || is_waited_for())
    }

    /// Notes that the history does not reach to this point. It may have been noted for a lesser one before.
    pub(crate) fn note_beyond(&mut self, shown: HistoryPoint) {
        let newer = |before: HistoryPoint| (shown.epoch, shown.revision) > (before.epoch, before.revision);
        if self.history.beyond.is_none_or(newer) {
            self.history.beyond = Some(shown);
        }
    }

    /// Every old slot that an agent may have been told of is one that its runner must account for: it may be gone.
    pub(crate) fn doubt_all_runners(&mut self, is_old: fn(&History, &Slot) -> bool) {
        use berth_domain::SlotState::{Draining, Ready, Starting};
        for runner in self.runners.keys() {
            if let Some(row) = self.runners.get_mut(runner) {
                row.caught_up = false;
            }
        }
        for slot in self.slots.keys() {
            let is_told = |row: &Slot| matches!(row.state, Starting | Ready | Draining);
            let is_doubted = self.slots.get(slot).is_some_and(|row| is_told(row) && is_old(&self.history, row));
            if is_doubted && let Some(row) = self.slots.get_mut(slot) {
                row.seen = true;
            }
        }
    }

    /// Why the runners of a machine take nothing new, apart from what operators say.
    ///
    /// Two runners of one machine may share a GPU. While one of them has not reported since the history went back, it
    /// may have a slot there that the ledger does not know.
    pub(crate) fn link_bars(&mut self, machine: MachineKey) {
        for (key, barred) in self.bars_on(machine) {
            if let Some(row) = self.runners.get_mut(key).filter(|row| row.barred != barred) {
                row.barred = barred;
                self.on_runner_changed(key);
            }
        }
    }

    pub(crate) fn link_all_bars(&mut self) {
        self.machines.keys().into_iter().for_each(|machine| self.link_bars(machine));
    }

    /// The same for a state that is made from its rows: its index is made later.
    pub(crate) fn restore_bars(&mut self) {
        let machines = self.machines.keys().into_iter();
        let bars: Vec<_> = machines.flat_map(|machine| self.bars_on(machine)).collect();
        for (key, barred) in bars {
            if let Some(row) = self.runners.get_mut(key) {
                row.barred = barred;
            }
        }
    }

    pub(crate) fn bars_on(&self, machine: MachineKey) -> Vec<(RunnerKey, Option<Exclusion>)> {
        let runners = self.machines.get(machine).map(|row| row.runners.as_slice()).unwrap_or_default();
        let rows = || runners.iter().filter_map(|key| Some((*key, self.runners.get(*key)?)));
        let is_one_missing = rows().any(|(_, row)| !row.caught_up && !row.is_forgotten());
        let bar = |row: &Runner| match () {
            () if self.history.has_gone_back() => Some(Exclusion::HistoryWentBack),
            () if row.sent_invalid_code => Some(Exclusion::InvalidCode),
            () if row.disputes.is_some() => Some(Exclusion::MachineDisputed),
            () if is_one_missing => Some(Exclusion::NeighbourNotReported),
            () => None,
        };
        rows().map(|(key, row)| (key, bar(row))).collect()
    }
}
