//! A state as data is the state, and what a step says it changed is what it changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_core::view::{DeviceView, HostView, ModelView, RunnerView, SlotView, WorkloadView};
use berth_core::{Command, FleetChanges, SlotRef, Snapshot, State, WorkChanges, invariants, replay, step};
use berth_domain::{DeviceUuid, EpochTag, MachineId, ModelName, RunnerId, Span, WorkloadId};
use berth_tests::assertions::difference;
use berth_tests::names;
use berth_tests::system_under_test::{SystemUnderTest, config};
use berth_tests::transition::{Transition, transitions};
use berth_tests::world::{World, worlds};
use proptest::prelude::*;

/// A snapshot made in one go, as it is written down.
fn written(state: &State) -> Result<String, String> {
    let mut state = state.clone();
    state.begin_snapshot();
    let snapshot = state.continue_snapshot(usize::MAX).ok_or("it is not whole")?;
    serde_json::to_string(&snapshot).map_err(|error| error.to_string())
}

fn restored(from: &State, text: &str) -> Result<State, String> {
    let snapshot: Snapshot = serde_json::from_str(text).map_err(|error| error.to_string())?;
    State::restore(from.settings().clone(), snapshot).map_err(|violation| violation.to_string())
}

fn check_snapshot(world: &World, transitions: &[Transition], rest: &[Transition], after: Span) -> Result<(), String> {
    let mut run = SystemUnderTest::new(world).map_err(|failed| failed.to_string())?;
    for transition in transitions {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
    }
    // What is kept at a restart is the fold of the durable events; a snapshot is that fold as data.
    let kept = run.replayed();
    let mut restored = restored(&kept, &written(&kept)?)?;
    if restored.fingerprint() != kept.fingerprint() {
        return Err(difference(&restored, &kept));
    }
    invariants::check(&restored).map_err(|violation| violation.to_string())?;
    // Life goes on: the fold from the snapshot is the fold from the beginning.
    let known = run.journal.len();
    for transition in rest {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
    }
    for (event, at) in run.journal[known..].iter().filter(|(event, _)| event.is_durable()) {
        replay(&mut restored, event, *at);
    }
    restored.finish_replay();
    let mut whole = run.replayed();
    if restored.fingerprint() != whole.fingerprint() {
        return Err(difference(&restored, &whole));
    }
    let start = Command::Start { cluster: names::cluster(), tag: EpochTag::default() };
    let at = run.now.after(after);
    let (first, second) = (step(&mut whole, &start, at), step(&mut restored, &start, at));
    if first.events != second.events {
        return Err(format!("a start finds {:?}, restored {:?}", first.events, second.events));
    }
    invariants::check(&restored).map_err(|violation| violation.to_string())
}

/// A snapshot is begun after `transitions` and copied by `rows` rows after each of `rest`.
fn check_copying(world: &World, transitions: &[Transition], rest: &[Transition], rows: usize) -> Result<(), String> {
    let mut run = SystemUnderTest::new(world).map_err(|failed| failed.to_string())?;
    for transition in transitions {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
    }
    let (begun, known) = (written(&run.state)?, run.journal.len());
    run.state.begin_snapshot();
    let mut copied = None;
    for transition in rest {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
        copied = copied.or_else(|| run.state.continue_snapshot(rows));
    }
    let copied = copied.or_else(|| run.state.continue_snapshot(usize::MAX)).ok_or("it never became whole")?;
    let copied = serde_json::to_string(&copied).map_err(|error| error.to_string())?;
    // An entry of the catalogue that changed meanwhile is written where it was left out; it is the same all the same.
    let (mut from_copy, from_begun) = (restored(&run.state, &copied)?, restored(&run.state, &begun)?);
    if written(&from_copy)? != written(&from_begun)? {
        return Err(format!("it was\n{begun}\nand was copied as\n{copied}"));
    }
    // It knows what the journal does not keep; the accounts are those of the journal.
    for (event, at) in run.journal[known..].iter().filter(|(event, _)| event.is_durable()) {
        replay(&mut from_copy, event, *at);
    }
    from_copy.finish_replay();
    same("devices", from_copy.devices(), run.replayed().devices())?;
    invariants::check(&from_copy).map_err(|violation| violation.to_string())
}

/// Listings that are kept up to date by the reported changes alone.
#[derive(Default)]
struct Kept {
    workloads: BTreeMap<WorkloadId, WorkloadView>,
    slots: BTreeMap<SlotRef, SlotView>,
    runners: BTreeMap<RunnerId, RunnerView>,
    devices: BTreeMap<DeviceUuid, DeviceView>,
    hosts: BTreeMap<MachineId, HostView>,
    models: BTreeMap<ModelName, ModelView>,
}

fn take<K: Ord, V: Clone>(kept: &mut BTreeMap<K, V>, changes: Vec<(K, Option<Arc<V>>)>) {
    for (key, view) in changes {
        match view {
            Some(view) => kept.insert(key, (*view).clone()),
            None => kept.remove(&key),
        };
    }
}

impl Kept {
    fn hear(&mut self, work: WorkChanges, changes: FleetChanges) {
        for (runner, view) in &changes.runners {
            if view.is_none() {
                self.slots.retain(|slot, _| slot.stray_on.as_ref() != Some(runner));
            }
        }
        take(&mut self.workloads, work.workloads);
        take(&mut self.slots, work.slots);
        take(&mut self.runners, changes.runners);
        take(&mut self.devices, changes.devices);
        take(&mut self.hosts, changes.hosts);
        take(&mut self.models, changes.models);
    }

    fn compare(&self, state: &State) -> Result<(), String> {
        // A position depends on the other workloads too.
        let placeless = |view: &WorkloadView| WorkloadView { position: None, ..view.clone() };
        let mut workloads: Vec<_> = self.workloads.values().map(placeless).collect();
        workloads.sort_by_key(|view| view.number);
        same("workloads", workloads, state.workloads().iter().map(placeless).collect())?;
        let mut slots: Vec<_> = self.slots.values().cloned().collect();
        let mut listed = state.slots();
        slots.sort_by_key(|view| (view.id, view.runner.clone()));
        listed.sort_by_key(|view| (view.id, view.runner.clone()));
        same("slots", slots, listed)?;
        same("runners", self.runners.values().cloned().collect(), state.runners())?;
        same("devices", self.devices.values().cloned().collect(), state.devices())?;
        same("hosts", self.hosts.values().cloned().collect(), state.hosts())?;
        same("models", self.models.values().cloned().collect(), state.models())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "both are made for this one comparison")]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, kept: Vec<T>, there: Vec<T>) -> Result<(), String> {
    if kept == there { Ok(()) } else { Err(format!("{what}: heard of\n{kept:#?}\nbut there are\n{there:#?}")) }
}

fn check_changes(world: &World, transitions: &[Transition]) -> Result<(), String> {
    let mut run = SystemUnderTest::new(world).map_err(|failed| failed.to_string())?;
    let mut kept = Kept::default();
    run.state.watch();
    let (work, fleet) = (run.state.take_work_changes(), run.state.take_fleet_changes());
    kept.hear(work, fleet);
    for transition in transitions {
        run.apply(transition).map_err(|failed| run.describe(&failed))?;
        let before: BTreeMap<_, _> = kept.runners.iter().map(|(id, view)| (id.clone(), view.desired)).collect();
        let work = run.state.take_work_changes();
        let called = work.called.clone();
        kept.hear(work, run.state.take_fleet_changes());
        let changed = kept.runners.values().filter(|view| before.get(&view.id) != Some(&view.desired));
        if let Some(missed) = changed.into_iter().find(|view| !called.contains(&view.id)) {
            return Err(format!("after {transition:?}: {} was not called", missed.id));
        }
        kept.compare(&run.state).map_err(|text| format!("after {transition:?}: {text}"))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_snapshot_forgets_nothing(world in worlds(), transitions_ in transitions(60), rest in transitions(30), after in 0u64..30_000) {
        if let Err(text) = check_snapshot(&world, &transitions_, &rest, Span::from_millis(after)) {
            prop_assert!(false, "{text}");
        }
    }

    #[test]
    fn a_snapshot_that_is_copied_while_life_goes_on_shows_one_moment(
        world in worlds(), transitions_ in transitions(40), rest in transitions(40), rows in 1usize..12,
    ) {
        if let Err(text) = check_copying(&world, &transitions_, &rest, rows) {
            prop_assert!(false, "{text}");
        }
    }

    #[test]
    fn a_copy_that_follows_the_reported_changes_equals_the_state(world in worlds(), transitions in transitions(80)) {
        if let Err(text) = check_changes(&world, &transitions) {
            prop_assert!(false, "{text}");
        }
    }
}
