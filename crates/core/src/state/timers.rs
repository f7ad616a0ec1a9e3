//! What is due when. A timer never frees memory; it only asks a question.

use std::collections::BTreeSet;

use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::table::{DeviceKey, Lookup, ModelKey, RunnerKey, SlotKey, WorkloadKey};

/// A question to ask later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Timer {
    /// Is it suspect or lost?
    Silence(RunnerKey),
    /// Is its patience over?
    DrainDeadline(RunnerKey),
    /// May it be tried again?
    DeviceBackoff(DeviceKey),
    /// Should it have started by now?
    StartDeadline(SlotKey),
    /// Should it have stopped by now?
    StopStall(SlotKey),
    /// May it be evicted from now on?
    Ripe(SlotKey),
    /// Is it idle for too long?
    KeepAlive(SlotKey),
    /// May a model that keeps failing have its slots again?
    Replicas(ModelKey),
    /// Has its gateway gone?
    Lease(WorkloadKey),
    /// Has it waited too long?
    QueueTimeout(WorkloadKey),
    /// Is its pause over?
    Backoff(WorkloadKey),
    /// May it be forgotten?
    Forget(WorkloadKey),
    /// Has its job run for as long as it may?
    MaxRun(SlotKey),
    /// Does anybody need a place kept free, or a better one?
    Reservations,
}

/// All timers. Each is armed at most once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Timestamp, Timer)>,
    armed: Lookup<Timer, Timestamp>,
}

impl Timers {
    pub(crate) fn arm(&mut self, timer: Timer, at: Timestamp) {
        if let Some(before) = self.armed.insert(timer, at) {
            if before == at {
                return;
            }
            self.due.remove(&(before, timer));
        }
        self.due.insert((at, timer));
    }

    /// Arms those with a time and disarms the others. `armed` tells which of them are armed, bit by bit, so that the
    /// many that never were cost nothing; the answer tells it anew.
    pub(crate) fn set<const N: usize>(&mut self, armed: u8, due: [(Timer, Option<Timestamp>); N]) -> u8 {
        let mut now_armed = 0;
        for (bit, (timer, at)) in due.into_iter().enumerate() {
            match at {
                Some(at) => {
                    now_armed |= 1 << bit;
                    self.arm(timer, at);
                }
                None if armed & (1 << bit) != 0 => self.disarm(timer),
                None => {}
            }
        }
        now_armed
    }

    pub(crate) fn disarm(&mut self, timer: Timer) {
        if let Some(at) = self.armed.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }

    /// The first timer that is due at `now`.
    pub(crate) fn first_due(&self, now: Timestamp) -> Option<Timer> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    /// When the next timer is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// All of them, the next first.
    pub(crate) fn list(&self) -> Vec<(Timestamp, Timer)> {
        self.due.iter().copied().collect()
    }

    pub(crate) fn from_list(list: Vec<(Timestamp, Timer)>) -> Self {
        Self { armed: list.iter().map(|(at, timer)| (*timer, *at)).collect(), due: list.into_iter().collect() }
    }

    pub(crate) fn armed_at(&self, timer: Timer) -> Option<Timestamp> {
        self.armed.get(&timer).copied()
    }
}
