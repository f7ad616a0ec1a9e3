//! What slots were seen to use is held against what their model is charged; running out of memory raises the next claim.

use std::collections::BTreeMap;

use berth_domain::{Bytes, GpuCount, GpuMemory, SlotState, Timestamp, WorkloadKind};

use super::models::end_reservations;
use crate::event::Event;
use crate::memory::{self, CorrectionReason, MemoryVerdict, Watched};
use crate::plan::{Demand, could_ever};
use crate::state::{Model, Runner, Slot, State};
use crate::table::ModelKey;

/// What the slots of one report use, for one GPU count of one model.
#[derive(Default)]
struct Seen {
    peaks: Vec<Bytes>,
    settled: bool,
}

/// Holds what a runner's slots use against what their models are charged.
pub(super) fn watch(state: &State, runner: &Runner, now: Timestamp) -> Vec<Event> {
    let mut seen: BTreeMap<(ModelKey, GpuCount), Seen> = BTreeMap::new();
    for slot in runner.slots.iter().filter_map(|key| state.slots.get(*key)) {
        let running = matches!(slot.state, SlotState::Starting | SlotState::Ready | SlotState::Draining);
        let Some((key, _)) = current(state, slot).filter(|_| running) else { continue };
        // A GPU of which the driver tells nothing says nothing about the others either.
        let peaks: Vec<Bytes> = slot.gpus.iter().map(|gpu| gpu.peak).filter(|peak| !peak.is_zero()).collect();
        if peaks.is_empty() || peaks.len() != slot.gpus.len() {
            continue;
        }
        let row = seen.entry((key, count_of(slot))).or_default();
        let known = Watched { peaks: std::mem::take(&mut row.peaks), ..Watched::default() };
        row.peaks = known.with(&peaks);
        row.settled |= is_settled(state, slot, now);
    }
    seen.into_iter().flat_map(|((key, count), seen)| judge(state, key, count, &seen)).collect()
}

/// A slot that has been ready for a while and has served somebody: it will hardly take much more.
fn is_settled(state: &State, slot: &Slot, now: Timestamp) -> bool {
    let ready = slot.state != SlotState::Starting;
    ready && slot.has_served() && slot.ready_since.is_some_and(|since| since.after(state.settings.judge_after) <= now)
}

fn count_of(slot: &Slot) -> GpuCount {
    GpuCount::new(u16::try_from(slot.gpus.len()).unwrap_or(u16::MAX))
}

/// The model of a slot, if the slot is of its current revision.
fn current<'a>(state: &'a State, slot: &Slot) -> Option<(ModelKey, &'a Model)> {
    let key = slot.model?;
    let model = state.models.get(key)?;
    (!model.deleted && model.revision == slot.revision).then_some((key, model))
}

fn judge(state: &State, key: ModelKey, count: GpuCount, seen: &Seen) -> Vec<Event> {
    let Some(model) = state.models.get(key) else { return Vec::new() };
    let (Some(original), Some(claim)) = (model.stated_on(count), model.bytes_on(count)) else { return Vec::new() };
    let unknown = Watched::default();
    let known = model.memory.get(&count).unwrap_or(&unknown);
    let (peaks, settled) = (known.with(&seen.peaks), known.settled || seen.settled);
    let verdict = MemoryVerdict::of(&claim, &peaks, settled);
    if verdict == known.verdict && settled == known.settled && !known.is_step(&claim, &peaks) {
        return Vec::new();
    }
    let mut events = vec![Event::MemoryObserved { model: model.name.clone(), count, peaks: peaks.clone(), settled }];
    let raised = known.correction.as_ref().is_some_and(|correction| correction.raised);
    let limit = u64::from(state.settings.oom_limit);
    let offered = memory::corrected(&original, &peaks, limit);
    let may_learn = model.spec.memory.learn && verdict.is_drift();
    let lowers = verdict == MemoryVerdict::OverEstimated;
    if may_learn && !(raised && lowers) && offered != claim {
        correct(state, model, count, offered.clone(), CorrectionReason::Learned, &mut events);
        note_verdict(model, count, known.verdict, &offered, &peaks, settled, &mut events);
    } else {
        note_verdict(model, count, known.verdict, &claim, &peaks, settled, &mut events);
    }
    events
}

/// A slot ran out of memory: the next claim of its model and count is a step higher, up to a limit and up to what the
/// largest device has. A slot that had less than is charged by now teaches nothing new.
pub(super) fn raise(state: &State, slot: &Slot) -> Vec<Event> {
    let (Some((key, model)), count) = (current(state, slot), count_of(slot)) else { return Vec::new() };
    let (Some(original), Some(claim)) = (model.stated_on(count), model.bytes_on(count)) else { return Vec::new() };
    if !model.is_enough(slot) || slot.gpus.is_empty() {
        return Vec::new();
    }
    let (step, limit) = (u64::from(state.settings.oom_step), u64::from(state.settings.oom_limit));
    let largest = state.devices.iter().map(|(_, device)| device.ledger.capacity()).max().unwrap_or(Bytes::MAX);
    let next = memory::raised(&original, &claim, step, limit);
    let next: Vec<Bytes> = next.into_iter().zip(&claim).map(|(next, now)| next.min(largest).max(*now)).collect();
    if next == claim || !has_a_place(state, key, &next) {
        return Vec::new();
    }
    let mut events = Vec::new();
    let unknown = Watched::default();
    let known = model.memory.get(&count).unwrap_or(&unknown);
    correct(state, model, count, next.clone(), CorrectionReason::OutOfMemory, &mut events);
    note_verdict(model, count, known.verdict, &next, &known.peaks, known.settled, &mut events);
    events
}

/// Whether an empty runner could hold so much. A claim that fits nowhere would help nobody.
fn has_a_place(state: &State, model: ModelKey, bytes: &[Bytes]) -> bool {
    let needs: Vec<GpuMemory> = bytes.iter().copied().map(GpuMemory::Bytes).collect();
    let fits = |kind| Demand::of_model(state, model, kind).is_some_and(|demand| could_ever(state, &demand, &needs));
    [WorkloadKind::Lease, WorkloadKind::Job].into_iter().any(fits)
}

/// Something else is charged from now on. What was kept for waiting work may be wrong for it.
fn correct(
    state: &State,
    model: &Model,
    count: GpuCount,
    bytes: Vec<Bytes>,
    why: CorrectionReason,
    events: &mut Vec<Event>,
) {
    events.extend(end_reservations(state, &model.name));
    events.push(Event::MemoryCorrected { model: model.name.clone(), count, bytes, why });
}

fn note_verdict(
    model: &Model,
    count: GpuCount,
    before: MemoryVerdict,
    claim: &[Bytes],
    peaks: &[Bytes],
    settled: bool,
    events: &mut Vec<Event>,
) {
    let verdict = MemoryVerdict::of(claim, peaks, settled);
    if verdict != before {
        let (model, claim, peaks) = (model.name.clone(), claim.to_vec(), peaks.to_vec());
        events.push(Event::MemoryJudged { model, count, verdict, claim, peaks });
    }
}
