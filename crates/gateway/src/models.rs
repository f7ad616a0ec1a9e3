//! The catalogue as clients list it, with what is loaded.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_domain::SlotState;
use berth_wire::{Explanation, Model, Slot, Time};
use serde_json::{Value, json};

use crate::source::{Catalogue, ServedModel};

/// `GET /v1/models`
pub(crate) fn list(catalogue: &Catalogue) -> Value {
    let data: Vec<Value> = catalogue.models.iter().map(|model| describe(model, &catalogue.slots)).collect();
    json!({ "object": "list", "data": data })
}

/// One model: what OpenAI's clients expect, and how it fares.
pub(crate) fn describe(model: &Model, all: &[Slot]) -> Value {
    let own: Vec<&Slot> = all.iter().filter(|slot| slot.model.as_ref() == Some(&model.name)).collect();
    let count = |wanted: &[SlotState]| own.iter().filter(|slot| wanted.contains(&slot.state)).count();
    let ready = count(&[SlotState::Ready]);
    let loading = count(&[SlotState::Promised, SlotState::Pending, SlotState::Starting]);
    let status = match (ready, loading, count(&[SlotState::Failed])) {
        (1.., _, _) => "loaded",
        (_, 1.., _) => "loading",
        (_, _, 1..) => "failed",
        _ => "unloaded",
    };
    let mut about = json!({
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "berth",
        "status": status,
        "aliases": model.aliases,
        "routes": ServedModel::of(model).routes,
        "slots": { "ready": ready, "loading": loading },
        "waiting": model.waiting,
        "load_median_ms": model.load_median_ms,
    });
    if status == "loading"
        && let Some(first) = own.iter().filter(|slot| slot.state != SlotState::Ready).min_by_key(|slot| slot.created.0)
    {
        about["loading"] = progress(first, all);
    }
    about
}

/// How far the load of a slot has come.
fn progress(slot: &Slot, all: &[Slot]) -> Value {
    let devices: Vec<_> = slot.gpu_allocation.gpus.iter().map(|gpu| &gpu.uuid).collect();
    let leaves = |other: &&Slot| {
        other.state == SlotState::Stopping && other.gpu_allocation.gpus.iter().any(|gpu| devices.contains(&&gpu.uuid))
    };
    let leaving: Vec<_> = all.iter().filter(leaves).filter_map(|other| other.model.as_ref()).collect();
    let step = if slot.state == SlotState::Promised { "evicting" } else { slot.state.as_str() };
    let for_ms = u64::try_from(since(slot.since).as_millis()).unwrap_or(u64::MAX);
    json!({ "slot": slot.id, "step": step, "for_ms": for_ms, "evicting": leaving })
}

/// How long ago something was.
pub(crate) fn since(time: Time) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(time.0.millis()))
}

/// What a caller reads of an explanation: where the workload is, and how many are before it.
pub(crate) fn first_line(explanation: &Explanation) -> String {
    let line = explanation.now.text.lines().next().unwrap_or_default();
    match explanation.position.map(|position| position.saturating_sub(1)) {
        Some(ahead) if ahead > 0 => format!("{line}; {ahead} ahead"),
        _ => line.to_owned(),
    }
}
