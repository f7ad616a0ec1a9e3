//! A duration is a text with a unit, wherever one is written.

use crate::{FLEET, assert_says, passes, refusal, then};

/// Every key of the language that is a duration, with a place to write it.
fn every_place(duration: &str) -> Vec<String> {
    let settings = [
        "keep_alive",
        "min_run",
        "lease_ttl",
        "suspect_after",
        "lost_after",
        "age_limit",
        "backfill_after",
        "start_deadline",
        "stall_after",
        "forgive_after",
        "backoff",
        "backoff_limit",
        "pause_after",
        "keep_ended_for",
        "judge_after",
    ];
    let mut all: Vec<String> = settings
        .iter()
        .map(|key| {
            FLEET
                .replace("[[runner]]\nid = \"r1\"", &format!("[settings]\n{key} = {duration}\n[[runner]]\nid = \"r1\""))
        })
        .collect();
    for key in ["keep_alive", "min_run"] {
        all.push(FLEET.replace("name = \"m\"", &format!("name = \"m\"\n{key} = {duration}")));
        all.push(then(&format!("put_model = {{ name = \"m\", memory = \"60GiB\", {key} = {duration} }}")));
    }
    for key in ["ttl", "queue_timeout"] {
        all.push(then(&format!("submit = {{ model = \"m\", {key} = {duration} }}")));
    }
    all.push(then(&format!("submit = {{ model = \"m\", kind = \"job\", max_run = {duration} }}")));
    all.push(then(&format!("advance = {duration}")));
    all.push(then(&format!("pause = {duration}")));
    all.push(then(&format!("drain = {{ runner = \"r1\", deadline = {duration} }}")));
    all.push(then(&format!("expect.workloads.m = {{ waited = {{ at_most = {duration} }} }}")));
    all.push(then(&format!("expect.workloads.m = {{ waited = {{ one_of = [\"0s\", {duration}] }} }}")));
    all
}

#[test]
fn a_number_is_no_duration() {
    for number in ["30", "30000", "0", "-1", "1.5"] {
        for text in every_place(number) {
            assert_says(&refusal(&text), &["line ", "a duration is a text with a unit, such as \"30s\""]);
        }
    }
}

#[test]
fn a_text_without_a_unit_is_no_duration() {
    for bad in ["\"30\"", "\"0\"", "\"\"", "\"soon\"", "\"30 parsecs\"", "\"300us\"", "\"-3s\""] {
        for text in every_place(bad) {
            assert_says(&refusal(&text), &["line ", "a duration is a text with a unit, such as \"30s\""]);
        }
    }
}

#[test]
fn a_text_with_a_unit_is_a_duration() {
    for good in ["\"30s\"", "\"1h 30m\"", "\"500ms\""] {
        every_place(good).iter().for_each(|text| passes(text));
    }
}
