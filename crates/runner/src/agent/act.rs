//! Doing what was decided. Everything is on the disk before it is done, as far as the disk has room: see [`crate::record`].

use berth_domain::{Evidence, FailureReason, SlotEnd, SlotId};

use super::{Agent, AgentError};
use crate::reconcile::{Action, Doubt, Kept, Life};

impl Agent {
    /// Does one thing.
    pub(super) fn act(&mut self, action: Action) -> Result<(), AgentError> {
        let now = super::now();
        if let Action::CannotTell(id, doubt) = action {
            self.doubt(id, doubt);
            return Ok(());
        }
        self.news = true;
        match action {
            Action::Start(slot) => self.start_slot(&slot, now),
            Action::Refuse(slot) => {
                tracing::warn!(slot = %slot.id, "not started: the driver shows too little free memory");
                Ok(self.record.note(Kept::of(&slot, Life::Refused))?)
            }
            Action::Adopt(kept) => self.adopt(&kept),
            Action::NoTrace(kept) => {
                tracing::info!(slot = %kept.id, "not on record, nobody carries its mark, and the driver lists nobody");
                self.live.remove(&kept.id);
                Ok(self.record.note(*kept)?)
            }
            Action::Learn(slot) => self.learn(&slot),
            Action::Found(id, process) => self.found(id, process, now),
            Action::Ready(id) => self.change(id, |life| match life {
                Life::Started { at, .. } => Life::Started { at, ready: true },
                other => other,
            }),
            Action::Term(id, why) => {
                tracing::info!(slot = %id, ?why, "asked to end");
                self.change(id, |life| life.asked_to_end(now, why))?;
                self.live.get(&id).into_iter().for_each(|live| live.tree.term());
                Ok(())
            }
            Action::Kill(id) => {
                self.change(id, Life::ended_by_force)?;
                self.live.get(&id).into_iter().for_each(|live| live.tree.kill());
                Ok(())
            }
            Action::TreeGone(id, why) => {
                self.live.get(&id).into_iter().for_each(|live| live.log.close());
                self.change(id, |_| Life::TreeGone { since: now, why })
            }
            Action::Gone(id, evidence) => self.gone(id, evidence),
            Action::GiveUp(id) => {
                tracing::error!(slot = %id, "it cannot be ended, or the driver will not let go of it");
                self.change(id, |_| Life::GivenUp)
            }
            Action::Forget(id) => {
                self.live.remove(&id);
                self.record.forget(id)?;
                self.prune_logs();
                Ok(())
            }
            // A question, which was answered before it came here; and a doubt, which was noted above.
            Action::LookFor(_) | Action::CannotTell(..) => Ok(()),
        }
    }

    fn change(&mut self, id: SlotId, change: impl FnOnce(Life) -> Life) -> Result<(), AgentError> {
        let Some(mut kept) = self.record.kept().get(&id).cloned() else { return Ok(()) };
        kept.life = change(kept.life);
        if let Some(live) = self.live.get(&id) {
            kept.pids.clone_from(&live.pids);
            kept.exit = live.exit.or(kept.exit);
        }
        Ok(self.record.note(kept)?)
    }

    /// Notes why it cannot be told whether a slot exists. The server hears of it if it is another reason than before.
    pub(super) fn doubt(&mut self, id: SlotId, doubt: Doubt) {
        let is_known = self.doubts.get(&id).is_some_and(|known| known.why == doubt.why);
        if !is_known {
            tracing::warn!(slot = %id, why = doubt.why, "it cannot be told whether this slot exists");
            self.news = true;
        }
        self.doubts.insert(id, doubt);
    }

    /// Removes what is too old of what slots wrote that are no more. Logs that cannot be removed are no reason to end.
    pub(super) fn prune_logs(&self) {
        let living = self.record.kept().keys().copied().collect();
        if let Err(error) = self.logs.prune(&living, self.settings.logs.ended) {
            tracing::warn!(%error, "old logs cannot be removed");
        }
    }

    fn gone(&mut self, id: SlotId, evidence: Evidence) -> Result<(), AgentError> {
        tracing::info!(slot = %id, "gone, and the driver agrees");
        self.record.kept().get(&id).and_then(|kept| kept.port).into_iter().for_each(|port| self.ports.release(port));
        if let Some(live) = self.live.get(&id) {
            live.tree.cgroup().into_iter().for_each(|cgroup| drop(cgroup.remove()));
        }
        self.change(id, |life| match life {
            Life::TreeGone { why, .. } | Life::Ending { why, .. } => Life::Gone { why, evidence },
            _ => Life::Gone { why: SlotEnd::Failed(FailureReason::Unkillable), evidence },
        })
    }
}
