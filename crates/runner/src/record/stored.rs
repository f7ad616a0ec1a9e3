//! A slot's record as it is on disk, in all formats that this agent reads.
//!
//! An upgraded agent finds the files of its predecessor, whose slots run on. So the first format is still read. A file
//! of a later version is refused, because its meaning is unknown.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::RecordError;
use crate::reconcile::SlotRecord;

/// The format that is written. The first one had no number.
const FORMAT: u64 = 2;

/// The name that the first version wrote where it did not know the model or the runtime.
const INVENTED: &str = "unknown";

#[derive(Serialize)]
pub(super) struct Stored<'a> {
    format: u64,
    #[serde(flatten)]
    row: &'a SlotRecord,
}

pub(super) fn to_json(row: &SlotRecord) -> Stored<'_> {
    Stored { format: FORMAT, row }
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<SlotRecord, RecordError> {
    let damaged = |source| RecordError::Damaged { path: path.to_owned(), source };
    let value: Value = serde_json::from_slice(bytes).map_err(damaged)?;
    let value = match value.get("format").map(Value::as_u64) {
        None => from_first_format(&value),
        Some(Some(FORMAT)) => value,
        Some(format) => {
            return Err(RecordError::Newer { path: path.to_owned(), format: format.unwrap_or_default() });
        }
    };
    serde_json::from_value(value).map_err(damaged)
}

/// Converts the first format to the current one. Missing fields stay missing, and are reported when the record is
/// parsed.
fn from_first_format(value: &Value) -> Value {
    let slot = &value["slot"];
    let mut state = value["life"].clone();
    if let Some(gone) = state.get_mut("gone").and_then(Value::as_object_mut) {
        // The first version called a slot gone when it had seen both.
        gone.remove("told_why");
        gone.insert("evidence".to_owned(), json!({ "tree_gone": true, "driver_clear": true }));
    }
    let spec = (slot["model"] != INVENTED || slot["runtime"] != INVENTED).then(|| {
        json!({
            "model": slot["model"],
            "runtime": slot["runtime"],
            // Whether it was a job is looked up in its runtime when it is adopted.
            "kind": "lease",
            "args": slot["args"],
            "cpu_millicores": slot["cpu_millicores"],
            "ram_bytes": slot["ram_bytes"],
            "concurrency": slot["concurrency"],
        })
    });
    json!({
        "id": slot["id"],
        "generation": slot["generation"],
        "gpus": slot["gpus"],
        "spec": spec,
        "kind": null,
        "life": state,
        "process": value["process"],
        "port": value["port"],
        "pids": value["pids"],
    })
}

#[cfg(test)]
mod tests {
    use berth_domain::{Evidence, FailureReason, SlotEnd, WorkloadKind};

    use super::*;
    use crate::reconcile::LocalState;

    fn parsed(value: &Value) -> Result<SlotRecord, RecordError> {
        parse(Path::new("x.json"), value.to_string().as_bytes())
    }

    /// A record as the first version wrote it.
    fn first(state: &Value) -> Value {
        json!({
            "slot": {
                "id": "018f3b1c-7c2e-7d41-0000-000000000007", "generation": 3, "action": "run", "model": "chat",
                "runtime": "vllm", "args": ["--a"], "gpus": [{"uuid": "GPU-a", "memory_bytes": 5}],
                "cpu_millicores": 100, "ram_bytes": 7, "concurrency": 2,
            },
            "life": state,
            "process": {"pid": 9, "start_ticks": 1, "pid_namespace": 2, "boot": "b", "agent_was_init": false},
            "port": 20001,
            "pids": [9, 10],
        })
    }

    #[test]
    fn a_record_of_the_first_version_is_read() {
        let record = parsed(&first(&json!({"started": {"at": 5, "ready": true}}))).unwrap();
        assert_eq!((record.generation.get(), record.gpus.len(), record.port), (3, 1, Some(20001)));
        assert_eq!((record.process.unwrap().pid, record.pids.len(), record.kind), (9, 2, None));
        let spec = record.spec.unwrap();
        assert_eq!((spec.model.as_str(), spec.runtime.as_str(), spec.kind), ("chat", "vllm", WorkloadKind::Lease));
        let crashed = SlotEnd::Failed(FailureReason::Crashed);
        for (state, expected) in [
            (json!("planned"), LocalState::Planned),
            (
                json!({"gone": {"why": {"exited": 0}, "told_why": false}}),
                LocalState::Gone { why: SlotEnd::Exited(0), evidence: Evidence::COMPLETE },
            ),
            (
                json!({"tree_gone": {"since": 5, "why": {"failed": "crashed"}}}),
                LocalState::TreeGone { since: berth_domain::Timestamp::from_millis(5), why: crashed },
            ),
            (json!("given_up"), LocalState::GivenUp),
        ] {
            assert_eq!(parsed(&first(&state)).unwrap().state, expected, "{state}");
        }
    }

    #[test]
    fn placeholder_names_of_the_first_version_are_dropped() {
        let mut value = first(&json!({"started": {"at": 5, "ready": true}}));
        value["slot"]["model"] = json!("unknown");
        value["slot"]["runtime"] = json!("unknown");
        assert_eq!(parsed(&value).unwrap().spec, None);
    }

    #[test]
    fn a_record_reads_back_and_a_newer_or_damaged_one_is_refused() {
        let record = parsed(&first(&json!("refused"))).unwrap();
        let value = serde_json::to_value(to_json(&record)).unwrap();
        assert_eq!(value["format"], 2);
        assert_eq!(parsed(&value).unwrap(), record);
        let mut newer = value;
        newer["format"] = json!(3);
        assert!(matches!(parsed(&newer), Err(RecordError::Newer { format: 3, .. })));
        assert!(matches!(parsed(&json!({"format": 2})), Err(RecordError::Damaged { .. })));
        assert!(matches!(parsed(&json!({"slot": {}})), Err(RecordError::Damaged { .. })));
    }
}
