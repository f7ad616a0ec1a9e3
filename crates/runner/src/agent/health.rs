//! Health checks. Each probe is a task of its own: a slot that hangs delays no other.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::{FailureReason, Generation, SlotId, Timestamp};
use tokio::task::JoinSet;

use super::live::LiveSlot;
use crate::clock::now;
use crate::process::{HealthChange, HealthState, Probed, SlotLog, probe};
use crate::reconcile::Health;

/// How long one probe may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of one probe, with the slot and the generation that it is about.
pub(super) type Answered = (SlotId, Generation, Probed);

/// Sends health probes and takes their answers. Each probe is a task of its own: a slot that hangs delays no other.
pub(super) struct HealthChecks {
    probes: JoinSet<Answered>,
}

impl HealthChecks {
    pub(super) fn new() -> Self {
        Self { probes: JoinSet::new() }
    }

    /// Waits for the next answer. Returns `None` if no probe is under way.
    pub(super) async fn next_answer(&mut self) -> Option<Answered> {
        loop {
            if let Ok(answered) = self.probes.join_next().await? {
                return Some(answered);
            }
        }
    }

    /// Probes the slots whose turn it is, and notes deadlines that have passed. Returns whether any slot's health changed.
    pub(super) fn probe_due(&mut self, live: &mut BTreeMap<SlotId, LiveSlot>, at: Timestamp) -> bool {
        let mut changed = false;
        for (id, live) in live {
            let (Some(checks), Some(launch)) = (&mut live.checks, &live.launch) else { continue };
            if let Some(change) = checks.tick(at) {
                live.health = health_of(change);
                note_verdict(&live.log, checks, change);
                changed = true;
            }
            if live.is_probing {
                continue;
            }
            if let Some(question) = checks.due(at) {
                let (id, generation, address) = (*id, launch.generation, launch.probe);
                live.is_probing = true;
                self.probes.spawn(async move { (id, generation, probe(address, &question, TIMEOUT).await) });
            }
        }
        changed
    }

    /// Notes an answer and all others that have arrived. Returns whether any slot's health changed.
    pub(super) fn note_answers(&mut self, live: &mut BTreeMap<SlotId, LiveSlot>, first: Answered) -> bool {
        let mut changed = false;
        let mut next = Some(first);
        while let Some((id, generation, probed)) = next {
            changed |= live.get_mut(&id).is_some_and(|live| note_answer(live, generation, probed));
            next = self.probes.try_join_next().and_then(Result::ok);
        }
        changed
    }
}

/// Notes an answer and returns whether the slot's health changed. The answer of an earlier start says nothing of this one.
fn note_answer(live: &mut LiveSlot, generation: Generation, probed: Probed) -> bool {
    if live.launch.as_ref().is_none_or(|launch| launch.generation != generation) {
        return false;
    }
    live.is_probing = false;
    let Some(checks) = &mut live.checks else { return false };
    let Some(change) = checks.observe(now(), probed) else { return false };
    live.health = health_of(change);
    note_verdict(&live.log, checks, change);
    true
}

/// Notes at the end of a slot's log why it is given up, where a reader looks first.
fn note_verdict(log: &SlotLog, checks: &HealthState, change: HealthChange) {
    if let Some(verdict) = checks.verdict(change) {
        log.note(&verdict);
    }
}

fn health_of(change: HealthChange) -> Health {
    match change {
        HealthChange::Ready => Health::Ready,
        HealthChange::NeverReady => Health::Failed(FailureReason::NeverReady),
        HealthChange::Dead => Health::Failed(FailureReason::Crashed),
    }
}
