//! Workloads, the queue, slots and models.

use std::collections::BTreeMap;

use berth_core::view::{MemoryView, SlotView, WorkloadView};
use berth_domain::{Bytes, SlotId};

use super::{Findings, many};
use crate::error::StepError;
use crate::format::expect::{Expect, MemoryExpect, SlotExpect, WorkloadExpect};
use crate::format::wanted::{Expectable, Wanted};
use crate::world::World;

pub(super) fn check(world: &World, expect: &Expect, found: &mut Findings) -> Result<(), StepError> {
    for (name, expected) in expect.workloads.iter().flatten() {
        let before = found.count();
        let id = world.workload(name)?;
        match (world.state.workload(id), &expected.state) {
            (Some(view), _) => check_workload(world, name, expected, &view, found)?,
            (None, None) => found.differs(format!("workload {name}: it was forgotten")),
            (None, state) => found.wanted(format!("workload {name}: state"), state.as_ref(), "forgotten"),
        }
        if found.count() > before {
            let text = world.state.explain(id, world.now).map(|report| report.to_string());
            found.explain(format!("explain {name}: {}", text.unwrap_or_else(|| "(nothing)".to_owned())));
        }
    }
    check_queue(world, expect, found);
    check_states(world, expect, found);
    if let Some(filters) = &expect.slots {
        let slots = world.state.slots();
        filters.iter().for_each(|expected| check_slots(world, expected, &slots, found));
    }
    check_models(world, expect, found);
    found.wanted("evictions", expect.evictions.as_ref(), &world.state.evictions());
    Ok(())
}

fn check_workload(
    world: &World,
    name: &str,
    expected: &WorkloadExpect,
    view: &WorkloadView,
    found: &mut Findings,
) -> Result<(), StepError> {
    let what = |part: &str| format!("workload {name}: {part}");
    found.wanted(what("state"), expected.state.as_ref(), view.state.as_str());
    let slot = view.slot.and_then(|id| world.state.slot_by_id(id));
    let gpus = slot.as_ref().map(|slot| slot.gpus.clone()).unwrap_or_default();
    found.set(what("on"), expected.on.as_ref(), gpus.iter().map(|(uuid, ..)| uuid.to_string()).collect());
    for (uuid, size) in expected.memory.iter().flatten() {
        let bytes = gpus.iter().find(|(on, ..)| on == uuid).map(|(_, bytes, _)| *bytes).unwrap_or_default();
        found.wanted(what(&format!("memory on {uuid}")), Some(size), &bytes);
    }
    let runner = slot.as_ref().map_or("none", |slot| slot.runner.as_str());
    found.wanted(what("runner"), expected.runner.as_ref(), runner);
    let slot_state = slot.as_ref().map_or("none", |slot| slot.state.as_str());
    found.wanted(what("slot_state"), expected.slot_state.as_ref(), slot_state);
    if let Some(other) = &expected.same_slot_as {
        let theirs = world.state.workload(world.workload(other)?).and_then(|view| view.slot);
        if theirs.is_none() || theirs != view.slot {
            found.differs(what(&format!("same_slot_as {other}: {:?} and {theirs:?}", view.slot.map(SlotId::uuid))));
        }
    }
    found.wanted(what("position"), expected.position.as_ref(), &many(view.position.unwrap_or(0)));
    found.wanted(what("waits"), expected.waits.as_ref(), view.waits.map_or("no", |why| why.code()));
    found.wanted(what("waited"), expected.waited.as_ref(), &world.waits.waited(view.id, world.now));
    found.wanted(what("cause"), expected.cause.as_ref(), view.cause.map_or("none", |cause| cause.code()));
    found.wanted(what("attempt"), expected.attempt.as_ref(), &u64::from(view.attempt.get()));
    found.is(what("may_run_twice"), expected.may_run_twice, view.may_run_twice);
    found.set(what("reserved"), expected.reserved.as_ref(), view.reserved.iter().map(ToString::to_string).collect());
    Ok(())
}

fn check_queue(world: &World, expect: &Expect, found: &mut Findings) {
    if expect.queue.is_none() && expect.queue_length.is_none() {
        return;
    }
    let queue = world.state.queue();
    found.wanted("queue_length", expect.queue_length.as_ref(), &many(queue.len()));
    let names: Vec<String> = queue.into_iter().map(|id| world.name_of(id)).collect();
    found.wanted("queue", expect.queue.as_ref(), &names);
}

fn check_states(world: &World, expect: &Expect, found: &mut Findings) {
    let Some(expected) = &expect.states else { return };
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for view in world.state.workloads() {
        *counts.entry(view.state.as_str()).or_default() += 1;
    }
    for (state, wanted) in expected {
        let there = counts.get(state.as_str()).copied().unwrap_or_default();
        found.wanted(format!("workloads that are {}", state.as_str()), Some(wanted), &there);
    }
}

fn check_slots(world: &World, expected: &SlotExpect, slots: &[SlotView], found: &mut Findings) {
    let there = many(slots.iter().filter(|slot| fits(world, expected, slot)).count());
    let wanted = expected.count.clone().unwrap_or(Wanted::Exactly(1));
    if wanted.admits(&there) {
        return;
    }
    let line = |slot: &SlotView| {
        let gpus: Vec<&str> = slot.gpus.iter().map(|(uuid, ..)| uuid.as_str()).collect();
        let model = slot.model.as_ref().map_or("(unknown)", |name| name.as_str());
        format!("{model} {} on {} {}", slot.state, slot.runner, gpus.join("+"))
    };
    let all: Vec<String> = slots.iter().take(16).map(line).collect();
    found.differs(format!("slots {}: expected {wanted}, found {there} among: {}", filter(expected), all.join("; ")));
}

/// Whether a slot is of the kind that is counted.
fn fits(world: &World, expected: &SlotExpect, slot: &SlotView) -> bool {
    fn is<T: Expectable>(wanted: Option<&Wanted<T>>, found: Option<&T::Found>) -> bool {
        wanted.is_none_or(|wanted| found.is_some_and(|found| wanted.admits(found)))
    }
    let stray = || world.state.slot_by_id(slot.id).is_none_or(|own| own.runner != slot.runner);
    let on_device = |wanted: &Wanted<_>| slot.gpus.iter().any(|(uuid, ..)| wanted.admits(uuid.as_str()));
    is(expected.model.as_ref(), slot.model.as_ref().map(|name| name.as_str()))
        && is(expected.state.as_ref(), Some(slot.state.as_str()))
        && is(expected.runner.as_ref(), Some(slot.runner.as_str()))
        && is(expected.stop_reason.as_ref(), slot.stop_reason.map(|why| why.code()))
        && expected.device.as_ref().is_none_or(on_device)
        && is(expected.revision.as_ref(), Some(&u64::from(slot.revision.get())))
        && is(expected.generation.as_ref(), Some(&u64::from(slot.generation.get())))
        && is(expected.active.as_ref(), Some(&u64::from(slot.active)))
        && expected.stalled.is_none_or(|stalled| slot.stalled == stalled)
        && expected.stray.is_none_or(|wanted| stray() == wanted)
}

/// The filter in the words of the file.
fn filter(expected: &SlotExpect) -> String {
    fn said<T: Expectable>(key: &str, wanted: Option<&Wanted<T>>) -> Option<String> {
        wanted.map(|wanted| format!("{key} = {wanted}"))
    }
    let words = [
        said("model", expected.model.as_ref()),
        said("state", expected.state.as_ref()),
        said("runner", expected.runner.as_ref()),
        said("device", expected.device.as_ref()),
        said("stop_reason", expected.stop_reason.as_ref()),
        said("revision", expected.revision.as_ref()),
        said("generation", expected.generation.as_ref()),
        said("active", expected.active.as_ref()),
        expected.stalled.map(|stalled| format!("stalled = {stalled}")),
        expected.stray.map(|stray| format!("stray = {stray}")),
    ];
    format!("{{ {} }}", words.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn check_models(world: &World, expect: &Expect, found: &mut Findings) {
    let models = world.state.models();
    for (name, expected) in expect.models.iter().flatten() {
        let what = |part: &str| format!("model {name}: {part}");
        let view = models.iter().find(|view| view.name == *name);
        found.is(what("known"), Some(expected.known.unwrap_or(true)), view.is_some());
        let Some(view) = view else { continue };
        found.wanted(what("live"), expected.live.as_ref(), &u64::from(view.live));
        found.wanted(what("waiting"), expected.waiting.as_ref(), &many(view.waiting));
        found.wanted(what("evictions"), expected.evictions.as_ref(), &view.evictions);
        found.wanted(what("revision"), expected.revision.as_ref(), &u64::from(view.revision.get()));
        found.is(what("deleted"), expected.deleted, view.deleted);
        for (count, expected) in expected.memory.iter().flatten() {
            let row = view.memory.iter().find(|row| row.count.to_string() == *count);
            check_memory(&what(&format!("memory on {count}")), expected, row, found);
        }
    }
}

/// A count of which nothing was seen is known by its catalogue entry alone.
fn check_memory(what: &str, expected: &MemoryExpect, row: Option<&MemoryView>, found: &mut Findings) {
    let what = |part: &str| format!("{what}: {part}");
    let sum = |ranks: &[Bytes]| ranks.iter().fold(Bytes::ZERO, |sum, bytes| sum.saturating_add(*bytes));
    let ranks = |of: fn(&MemoryView) -> &[Bytes]| row.map(|row| sum(of(row))).unwrap_or_default();
    found.wanted(what("charged"), expected.charged.as_ref(), &ranks(|row| &row.charged));
    found.wanted(what("peak"), expected.peak.as_ref(), &ranks(|row| &row.peaks));
    found.wanted(what("offered"), expected.offered.as_ref(), &ranks(|row| row.offered.as_deref().unwrap_or_default()));
    let corrected = row.and_then(|row| row.corrected).map_or("no", |why| why.code());
    found.wanted(what("corrected"), expected.corrected.as_ref(), corrected);
    found.wanted(what("verdict"), expected.verdict.as_ref(), row.map_or("unseen", |row| row.verdict.code()));
}
