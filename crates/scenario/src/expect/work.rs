//! Workloads, the queue, slots and models.

use berth_core::view::{MemoryView, SlotView, WorkloadView};
use berth_domain::{Bytes, SlotId};

use super::Findings;
use crate::error::StepError;
use crate::format::expect::{Expect, MemoryExpect, SlotExpect, WorkloadExpect};
use crate::world::World;

pub(super) fn check(world: &World, expect: &Expect, found: &mut Findings) -> Result<(), StepError> {
    for (name, expected) in &expect.workloads {
        let before = found.count();
        let id = world.workload(name)?;
        match world.state.workload(id) {
            Some(view) => check_workload(world, name, expected, &view, found)?,
            None => found.word(format!("workload {name}: state"), expected.state.as_ref(), "forgotten"),
        }
        if found.count() > before {
            let text = world.state.explain(id, world.now).map(|report| report.to_string());
            found.explain(format!("explain {name}: {}", text.unwrap_or_else(|| "(nothing)".to_owned())));
        }
    }
    check_queue(world, expect, found);
    check_states(world, expect, found);
    let slots = world.state.slots();
    for expected in &expect.slots {
        check_slots(world, expected, &slots, found);
    }
    check_models(world, expect, found);
    found.same("evictions", expect.evictions.as_ref(), &world.state.evictions());
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
    found.word(what("state"), expected.state.as_ref(), view.state.as_str());
    let slot = view.slot.and_then(|id| world.state.slot_by_id(id));
    let gpus = slot.as_ref().map(|slot| slot.gpus.clone()).unwrap_or_default();
    found.set(what("on"), expected.on.as_ref(), gpus.iter().map(|(uuid, ..)| uuid.to_string()).collect());
    for (uuid, size) in expected.memory.iter().flatten() {
        let bytes = gpus.iter().find(|(on, ..)| on == uuid).map(|(_, bytes, _)| *bytes).unwrap_or_default();
        found.size(what(&format!("memory on {uuid}")), Some(*size), bytes);
    }
    let runner = slot.as_ref().map_or("none", |slot| slot.runner.as_str());
    found.word(what("runner"), expected.runner.as_ref(), runner);
    let slot_state = slot.as_ref().map_or("none", |slot| slot.state.as_str());
    found.word(what("slot_state"), expected.slot_state.as_ref(), slot_state);
    if let Some(other) = &expected.same_slot_as {
        let theirs = world.state.workload(world.workload(other)?).and_then(|view| view.slot);
        if theirs.is_none() || theirs != view.slot {
            found.differs(what(&format!("same_slot_as {other}: {:?} and {theirs:?}", view.slot.map(SlotId::uuid))));
        }
    }
    found.same(what("position"), expected.position.as_ref(), &view.position.unwrap_or(0));
    found.word(what("waits"), expected.waits.as_ref(), view.waits.map_or("no", |why| why.code()));
    found.word(what("cause"), expected.cause.as_ref(), view.cause.map_or("none", |cause| cause.code()));
    found.same(what("attempt"), expected.attempt.as_ref(), &view.attempt.get());
    found.same(what("may_run_twice"), expected.may_run_twice.as_ref(), &view.may_run_twice);
    found.set(what("reserved"), expected.reserved.as_ref(), view.reserved.iter().map(ToString::to_string).collect());
    Ok(())
}

fn check_queue(world: &World, expect: &Expect, found: &mut Findings) {
    let queue = world.state.queue();
    found.same("queue_length", expect.queue_length.as_ref(), &queue.len());
    if expect.queue.is_some() {
        let names = queue.into_iter().map(|id| world.name_of(id)).collect();
        found.list("queue", expect.queue.as_ref(), &names);
    }
}

fn check_states(world: &World, expect: &Expect, found: &mut Findings) {
    if expect.states.is_empty() {
        return;
    }
    let all = world.state.workloads();
    for (state, many) in &expect.states {
        let there = all.iter().filter(|view| view.state.as_str() == state).count();
        found.same(format!("workloads that are {state}"), Some(many), &there);
    }
}

fn check_slots(world: &World, expected: &SlotExpect, slots: &[SlotView], found: &mut Findings) {
    let is = |wanted: &Option<String>, value: Option<&str>| wanted.as_deref().is_none_or(|word| value == Some(word));
    let fits = |slot: &&SlotView| {
        let stray = world.state.slot_by_id(slot.id).is_none_or(|own| own.runner != slot.runner);
        is(&expected.model, slot.model.as_ref().map(|name| name.as_str()))
            && is(&expected.state, Some(slot.state.as_str()))
            && is(&expected.runner, Some(slot.runner.as_str()))
            && is(&expected.stop_reason, slot.stop_reason.map(|why| why.code()))
            && expected.device.as_ref().is_none_or(|uuid| slot.gpus.iter().any(|(on, ..)| on.as_str() == uuid))
            && expected.revision.is_none_or(|revision| slot.revision.get() == revision)
            && expected.generation.is_none_or(|generation| slot.generation.get() == generation)
            && expected.active.is_none_or(|active| slot.active == active)
            && expected.stalled.is_none_or(|stalled| slot.stalled == stalled)
            && expected.stray.is_none_or(|wanted| stray == wanted)
    };
    let there = slots.iter().filter(fits).count();
    if there == expected.count.unwrap_or(1) {
        return;
    }
    let line = |slot: &SlotView| {
        let gpus: Vec<&str> = slot.gpus.iter().map(|(uuid, ..)| uuid.as_str()).collect();
        let model = slot.model.as_ref().map_or("(unknown)", |name| name.as_str());
        format!("{model} {} on {} {}", slot.state, slot.runner, gpus.join("+"))
    };
    let all: Vec<String> = slots.iter().take(16).map(line).collect();
    let wanted = expected.count.unwrap_or(1);
    found.differs(format!("slots {}: expected {wanted}, found {there} among: {}", filter(expected), all.join("; ")));
}

/// The filter in the words of the file.
fn filter(expected: &SlotExpect) -> String {
    let words = [
        ("model", &expected.model),
        ("state", &expected.state),
        ("runner", &expected.runner),
        ("device", &expected.device),
        ("stop_reason", &expected.stop_reason),
    ];
    let said = words.into_iter().filter_map(|(key, word)| word.as_ref().map(|word| format!("{key} = {word}")));
    format!("{{ {} }}", said.collect::<Vec<_>>().join(", "))
}

fn check_models(world: &World, expect: &Expect, found: &mut Findings) {
    let models = world.state.models();
    for (name, expected) in &expect.models {
        let what = |part: &str| format!("model {name}: {part}");
        let view = models.iter().find(|view| view.name == *name);
        found.same(what("known"), Some(&expected.known.unwrap_or(true)), &view.is_some());
        let Some(view) = view else { continue };
        found.same(what("live"), expected.live.as_ref(), &view.live);
        found.same(what("waiting"), expected.waiting.as_ref(), &view.waiting);
        found.same(what("evictions"), expected.evictions.as_ref(), &view.evictions);
        found.same(what("revision"), expected.revision.as_ref(), &view.revision.get());
        found.same(what("deleted"), expected.deleted.as_ref(), &view.deleted);
        for (count, expected) in &expected.memory {
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
    found.size(what("charged"), expected.charged, ranks(|row| &row.charged));
    found.size(what("peak"), expected.peak, ranks(|row| &row.peaks));
    found.size(what("offered"), expected.offered, ranks(|row| row.offered.as_deref().unwrap_or_default()));
    let corrected = row.and_then(|row| row.corrected).map_or("no", |why| why.code());
    found.word(what("corrected"), expected.corrected.as_ref(), corrected);
    found.word(what("verdict"), expected.verdict.as_ref(), row.map_or("unseen", |row| row.verdict.code()));
}
