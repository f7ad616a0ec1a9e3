//! Publishing a durable batch: rows first, then the revision, then those who wait are woken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_core::view::SlotView;
use berth_core::{Changes, SlotRef, State};
use berth_domain::{Revision, RunnerId, WorkloadId};

use super::history::Decided;
use super::stream::Happened;
use super::{Map, Views, WorkloadRow};
use crate::engine::Outcome;

impl Views {
    /// Publishes what a batch changed. Everything in it is durable.
    pub fn publish(&self, changes: Changes, outcomes: Vec<Outcome>, durations: &[Duration], state: &State) {
        let revision = state.revision();
        self.publishing.fetch_add(1, Ordering::AcqRel);
        let (workloads, runners) = self.put_rows(changes, revision);
        let (decisions, events) = self.note_outcomes(outcomes, durations);
        self.epoch.store(state.epoch().get(), Ordering::Release);
        if self.cluster.read().is_none() {
            *self.cluster.write() = state.cluster();
        }
        self.revision.store(revision.get(), Ordering::Release);
        self.publishing.fetch_add(1, Ordering::AcqRel);
        let story = self.scribe.pick(&decisions, &events);
        self.stream.push(events, revision);
        workloads.iter().for_each(|workload| self.workload_waiters.wake(workload));
        runners.iter().for_each(|runner| self.runner_waiters.wake(runner));
        self.scribe.write_down(story);
    }

    /// Puts the rows, and tells which workloads changed and for which runners what they should run.
    fn put_rows(&self, changes: Changes, revision: Revision) -> (Vec<WorkloadId>, Vec<RunnerId>) {
        let mut workloads = Vec::with_capacity(changes.workloads.len());
        for (id, view) in changes.workloads {
            let before = match view {
                Some(view) => {
                    self.tally.workload(view.state, 1);
                    self.workloads.insert(id, WorkloadRow { view, revision })
                }
                None => self.workloads.remove(&id).map(|(_, row)| row),
            };
            if let Some(before) = before {
                self.tally.workload(before.view.state, -1);
            }
            workloads.push(id);
        }
        let mut runners = Vec::new();
        for (id, view) in changes.runners {
            let Some(view) = view else {
                self.forget_runner(&id);
                runners.push(id);
                continue;
            };
            let concerns = (view.desired, view.incarnation);
            let before = self.runners.insert(id.clone(), view);
            if before.is_none_or(|before| (before.desired, before.incarnation) != concerns) {
                runners.push(id);
            }
        }
        for (slot, view) in changes.slots {
            self.put_slot(slot, view);
        }
        put(&self.devices, changes.devices);
        put(&self.hosts, changes.hosts);
        put(&self.models, changes.models);
        (workloads, runners)
    }

    fn put_slot(&self, slot: SlotRef, view: Option<Arc<SlotView>>) {
        let before = match view {
            Some(view) => {
                self.tally.slot(view.state, 1);
                self.slots.insert(slot, view)
            }
            None => self.slots.remove(&slot).map(|(_, row)| row),
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

    fn note_outcomes(&self, outcomes: Vec<Outcome>, durations: &[Duration]) -> (Vec<Arc<Decided>>, Vec<Happened>) {
        let mut decisions = Vec::new();
        let mut events = Vec::new();
        for (outcome, duration) in outcomes.into_iter().zip(durations) {
            for report in outcome.reports {
                self.metrics.decided(&report.outcome, *duration);
                decisions.push(self.history.push(report, outcome.revision, *duration));
            }
            let first = outcome.revision.get().saturating_sub(outcome.kept.len() as u64);
            events.extend(outcome.kept.into_iter().zip(first + 1..).map(|(event, revision)| {
                self.metrics.happened(&event);
                Happened { revision: Revision::new(revision), at: outcome.at, event }
            }));
        }
        (decisions, events)
    }
}

fn put<K: Eq + std::hash::Hash, V>(map: &Map<K, Arc<V>>, changes: Vec<(K, Option<Arc<V>>)>) {
    for (key, view) in changes {
        match view {
            Some(view) => drop(map.insert(key, view)),
            None => drop(map.remove(&key)),
        }
    }
}
