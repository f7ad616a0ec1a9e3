//! The desired state that an agent acts upon: the newest one it accepted, and whether the agent is draining.

use std::collections::BTreeMap;
use std::time::Instant;

use berth_domain::{DesiredAction, SlotId};

use super::{DesiredState, SlotRecord};

/// Holds the desired state that the agent acts upon. Time is an argument, so that a simulator can drive it.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    desired: Option<DesiredState>,
    is_draining: bool,
    /// The log already says that the desired state is too old to start anything.
    has_warned_of_age: bool,
}

impl Assignment {
    /// Returns the desired state, once the server has sent one.
    #[must_use]
    pub fn desired(&self) -> Option<&DesiredState> {
        self.desired.as_ref()
    }

    /// Returns whether the agent is ending its slots before it exits.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Replaces the desired state and returns whether the agent has to reconcile again.
    ///
    /// A desired state that repeats an expired one is a change too: it allows starts again.
    pub fn replace(&mut self, desired: DesiredState, monotonic: Instant) -> bool {
        let desired = if self.is_draining { with_stops_only(desired) } else { desired };
        let is_known = |old: &DesiredState| old.is_same_as(&desired) && !old.is_expired(monotonic);
        let has_changed = !self.desired.as_ref().is_some_and(is_known);
        self.has_warned_of_age &= desired.is_expired(monotonic);
        self.desired = Some(desired);
        has_changed
    }

    /// Turns every slot that should run into one that should stop, now and in each desired state that follows.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.desired = self.desired.take().map(with_stops_only);
    }

    /// Returns how many slots are not started because the desired state has expired. Returns a number once for each
    /// time that it expires, so that the log does not repeat it.
    pub fn newly_expired_starts(
        &mut self,
        records: &BTreeMap<SlotId, SlotRecord>,
        monotonic: Instant,
    ) -> Option<usize> {
        let desired = self.desired.as_ref().filter(|desired| desired.is_expired(monotonic))?;
        let recorded = |id: &SlotId| records.get(id);
        let waiting = desired
            .slots
            .iter()
            .filter(|slot| slot.should_run() && recorded(&slot.id).is_none_or(|record| record.is_replaced_by(slot)))
            .count();
        if waiting == 0 || self.has_warned_of_age {
            return None;
        }
        self.has_warned_of_age = true;
        Some(waiting)
    }
}

/// Turns `run` into `stop`. Slots that the server only asks about are still only accounted for.
fn with_stops_only(mut desired: DesiredState) -> DesiredState {
    desired.slots.iter_mut().filter(|slot| slot.should_run()).for_each(|slot| slot.action = DesiredAction::Stop);
    desired
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_domain::{Bytes, ClusterId, DesiredSlot, Epoch, Generation, Millicores, Revision, RunSpec, WorkloadKind};

    use super::*;
    use crate::reconcile::Version;

    fn desired(actions: Vec<DesiredAction>, sent: Instant) -> DesiredState {
        let id = |number| SlotId::new(uuid::Uuid::from_u128(number));
        let slot =
            |number, action| DesiredSlot { id: id(number), generation: Generation::new(1), gpus: Vec::new(), action };
        let slots = (0..).zip(actions).map(|(number, action)| slot(number, action)).collect();
        let cluster = ClusterId::new(uuid::Uuid::from_u128(1));
        let version = Version { cluster, epoch: Epoch::new(1), revision: Revision::new(1) };
        DesiredState { version, code: None, sent, slots }
    }

    fn run() -> DesiredAction {
        DesiredAction::Run(Box::new(RunSpec {
            model: "m".parse().unwrap(),
            runtime: "r".parse().unwrap(),
            kind: WorkloadKind::Lease,
            model_args: 0,
            args: Vec::new(),
            cpu_millicores: Millicores::ZERO,
            ram_bytes: Bytes::ZERO,
            concurrency: 1,
        }))
    }

    #[test]
    fn an_agent_that_drains_stops_what_should_run_and_answers_what_is_asked() {
        let now = Instant::now();
        let all = || vec![run(), DesiredAction::Stop, DesiredAction::Account];
        let mut assignment = Assignment::default();
        assignment.replace(desired(all(), now), now);
        assignment.drain();
        let actions = |assignment: &Assignment| -> Vec<DesiredAction> {
            assignment.desired().unwrap().slots.iter().map(|slot| slot.action.clone()).collect()
        };
        let drained = [DesiredAction::Stop, DesiredAction::Stop, DesiredAction::Account];
        assert_eq!(actions(&assignment), drained);
        assignment.replace(desired(all(), now), now);
        assert_eq!(actions(&assignment), drained, "what the server sends while the agent drains");
    }

    #[test]
    fn a_repeated_desired_state_is_a_change_only_after_the_first_one_expired() {
        let begin = Instant::now();
        let expired = begin + DesiredState::MAX_AGE + Duration::from_secs(1);
        let mut assignment = Assignment::default();
        assert!(assignment.replace(desired(vec![run()], begin), begin));
        assert!(!assignment.replace(desired(vec![run()], begin), begin));
        assert_eq!(assignment.newly_expired_starts(&BTreeMap::new(), begin), None);
        assert_eq!(assignment.newly_expired_starts(&BTreeMap::new(), expired), Some(1));
        assert_eq!(assignment.newly_expired_starts(&BTreeMap::new(), expired), None, "the log says it once");
        assert!(assignment.replace(desired(vec![run()], expired), expired));
        let expired_again = expired + DesiredState::MAX_AGE + Duration::from_secs(1);
        assert_eq!(assignment.newly_expired_starts(&BTreeMap::new(), expired_again), Some(1));
    }
}
