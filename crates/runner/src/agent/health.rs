//! Asking slots whether they answer. Each question is a task of its own: a slot that hangs holds up nobody else.

use std::time::Duration;

use berth_domain::{FailureReason, Generation, SlotId, Timestamp};
use tokio::task::JoinSet;

use super::{Agent, now};
use crate::process::{HealthChange, HealthState, Probed, SlotLog, probe};
use crate::reconcile::Health;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Questions under way: of which start of which slot, and what came of it.
pub(super) type Probes = JoinSet<Answered>;

/// Which start of which slot answered, and what.
pub(super) type Answered = (SlotId, Generation, Probed);

impl Agent {
    /// Asks those whose turn it is, and notes what time alone has changed. Says whether it has changed anything.
    pub(super) fn ask_for_health(&mut self, at: Timestamp) -> bool {
        let mut changed = false;
        for (id, live) in &mut self.live {
            let (Some(checks), Some(launch)) = (&mut live.checks, &live.launch) else { continue };
            if let Some(change) = checks.tick(at) {
                live.health = health_of(change);
                note_verdict(&live.log, checks, change);
                changed = true;
            }
            if live.is_asked {
                continue;
            }
            if let Some(question) = checks.due(at) {
                let (id, generation, address) = (*id, launch.generation, launch.probe);
                live.is_asked = true;
                self.probes.spawn(async move { (id, generation, probe(address, &question, TIMEOUT).await) });
            }
        }
        changed
    }

    /// Takes an answer and all others that are there, and says whether they have changed anything.
    pub(super) fn note_answers(&mut self, first: Answered) -> bool {
        let mut changed = false;
        let mut next = Some(first);
        while let Some((id, generation, probed)) = next {
            changed |= self.note_health(id, generation, probed);
            next = self.probes.try_join_next().and_then(Result::ok);
        }
        changed
    }

    /// Takes an answer, and says whether it has changed anything. One about an earlier start of the slot says nothing
    /// of this one.
    fn note_health(&mut self, id: SlotId, generation: Generation, probed: Probed) -> bool {
        let Some(live) = self.live.get_mut(&id) else { return false };
        if live.launch.as_ref().is_none_or(|launch| launch.generation != generation) {
            return false;
        }
        live.is_asked = false;
        let Some(checks) = &mut live.checks else { return false };
        let Some(change) = checks.observe(now(), probed) else { return false };
        live.health = health_of(change);
        note_verdict(&live.log, checks, change);
        true
    }
}

/// Why a slot is given up stands at the end of its log, where whoever asks what became of it looks first.
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
