//! Publishing a durable batch: rows first, then the revision, then those who wait are woken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_core::view::{SlotView, WorkloadView};
use berth_core::{FleetChanges, SlotRef, State, WorkChanges};
use berth_domain::{Revision, RunnerId, WorkloadId};

use super::history::RecordedDecision;
use super::past::Whereabouts;
use super::stream::PublishedEvent;
use super::subject::{BatchNames, Subject};
use super::{Map, Views, WorkloadRow};
use crate::engine::Outcome;

impl Views {
    /// Publishes what a batch did to workloads and slots. Everything in it is durable.
    pub fn publish(&self, changes: WorkChanges, outcomes: Vec<Outcome>, durations: &[Duration], state: &State) {
        let revision = state.revision();
        let WorkChanges { workloads, slots, called } = changes;
        let changed: Vec<WorkloadId> = workloads.iter().map(|(id, _)| *id).collect();
        let mut names = BatchNames::default();
        for (slot, view) in slots {
            self.put_slot(slot, view, &mut names);
        }
        for (id, view) in workloads {
            self.put_workload(id, view, &mut names);
        }
        let Noted { decisions, events, passing } = self.note_outcomes(outcomes, durations, &mut names, state);
        self.epoch.store(state.epoch().get(), Ordering::Release);
        if self.cluster.read().is_none() {
            *self.cluster.write() = state.cluster();
        }
        self.set_went_back(state.went_back());
        self.revision.store(revision.get(), Ordering::Release);
        let log_batch = self.decision_log.prepare(&decisions, &events, &passing);
        self.stream.push(events, revision);
        changed.iter().for_each(|workload| self.workload_waiters.wake(workload));
        called.iter().for_each(|runner| self.runner_waiters.wake(runner));
        self.decision_log.write(log_batch);
    }

    /// Publishes what changed about runners, devices, hosts and models since this was last done. It is done when
    /// somebody wants to read them: placements touch all four, and nobody looks after each.
    pub fn publish_fleet(&self, changes: FleetChanges, revision: Revision) {
        self.publishing.fetch_add(1, Ordering::AcqRel);
        for (id, view) in changes.runners {
            match view {
                Some(view) => drop(self.runners.insert(id, view)),
                None => self.forget_runner(&id),
            }
        }
        put(&self.devices, changes.devices);
        put(&self.hosts, changes.hosts);
        for (name, _) in changes.models.iter().filter(|(_, view)| view.as_ref().is_none_or(|view| view.deleted)) {
            self.load_times.forget(name);
        }
        put(&self.models, changes.models);
        self.fleet_revision.store(revision.get(), Ordering::Release);
        self.publishing.fetch_add(1, Ordering::AcqRel);
    }

    fn put_workload(&self, id: WorkloadId, view: Option<Arc<WorkloadView>>, names: &mut BatchNames) {
        let before = match view {
            Some(view) => {
                self.tally.workload(view.state, 1);
                let revision = view.revision;
                self.workloads.insert(id, WorkloadRow { view, revision })
            }
            None => self.workloads.remove(&id).map(|(_, row)| {
                names.workload_removed(&row.view);
                row
            }),
        };
        if let Some(before) = before {
            self.tally.workload(before.view.state, -1);
        }
    }

    fn put_slot(&self, slot: SlotRef, view: Option<Arc<SlotView>>, names: &mut BatchNames) {
        let before = match view {
            Some(view) => {
                self.tally.slot(view.state, 1);
                let before = self.slots.insert(slot, view.clone());
                self.load_times.note(before.as_deref(), &view);
                before
            }
            None => self.slots.remove(&slot).map(|(_, row)| {
                let was = Whereabouts { runner: row.runner.clone(), generation: row.generation };
                self.past.lock().note(row.id, was);
                names.slot_removed(&row);
                row
            }),
        };
        if let Some(before) = before {
            self.tally.slot(before.state, -1);
        }
    }

    fn forget_runner(&self, id: &RunnerId) {
        self.runners.remove(id);
        self.reports.remove(id);
        self.slots.retain(|slot, view| {
            let goes = slot.stray_on.as_ref() == Some(id);
            if goes {
                self.tally.slot(view.state, -1);
            }
            !goes
        });
    }

    fn note_outcomes(
        &self,
        outcomes: Vec<Outcome>,
        durations: &[Duration],
        names: &mut BatchNames,
        state: &State,
    ) -> Noted {
        let mut passing = Vec::new();
        let mut decisions = Vec::with_capacity(outcomes.iter().map(|outcome| outcome.reports.len()).sum());
        let mut events = Vec::with_capacity(outcomes.iter().map(|outcome| outcome.kept.len()).sum());
        for (outcome, duration) in outcomes.into_iter().zip(durations) {
            for report in outcome.reports {
                self.metrics.decided(&report.outcome, *duration);
                decisions.push(self.history.push(report, outcome.revision, *duration));
            }
            passing.extend(outcome.passing.into_iter().map(|event| PublishedEvent {
                revision: outcome.revision,
                at: outcome.at,
                event,
                subject: Subject::default(),
            }));
            let first = outcome.revision.get().saturating_sub(outcome.kept.len() as u64);
            events.extend(outcome.kept.into_iter().zip(first + 1..).map(|(event, revision)| {
                self.metrics.happened(&event);
                let subject = self.subject(&event, names, state);
                PublishedEvent { revision: Revision::new(revision), at: outcome.at, event, subject }
            }));
        }
        Noted { decisions, events, passing }
    }
}

/// What a batch came to, for those who read of it.
struct Noted {
    decisions: Vec<Arc<RecordedDecision>>,
    events: Vec<PublishedEvent>,
    /// What no journal keeps and an operator should hear of all the same.
    passing: Vec<PublishedEvent>,
}

fn put<K: Eq + std::hash::Hash, V>(map: &Map<K, Arc<V>>, changes: Vec<(K, Option<Arc<V>>)>) {
    for (key, view) in changes {
        match view {
            Some(view) => drop(map.insert(key, view)),
            None => drop(map.remove(&key)),
        }
    }
}
