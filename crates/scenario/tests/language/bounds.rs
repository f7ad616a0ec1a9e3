//! `at_least`, `at_most` and `one_of` stand wherever a value stands.

use crate::{assert_says, failure, passes, refusal, then};

/// Both expectations are about the same; the first is true and the second is not.
const EXPECTATIONS: &[(&str, &str)] = &[
    ("workloads.m = { attempt = { at_most = 1 } }", "workloads.m = { attempt = { at_least = 2 } }"),
    ("workloads.m = { position = { at_most = 0 } }", "workloads.m = { position = { one_of = [1, 2] } }"),
    (
        "workloads.m = { state = { one_of = [\"queued\", \"running\"] } }",
        "workloads.m = { state = { one_of = [\"queued\", \"assigned\"] } }",
    ),
    (
        "workloads.m = { slot_state = { one_of = [\"ready\"] } }",
        "workloads.m = { slot_state = { one_of = [\"none\", \"starting\"] } }",
    ),
    (
        "workloads.m = { waits = { one_of = [\"no\", \"full_now\"] } }",
        "workloads.m = { waits = { one_of = [\"full_now\"] } }",
    ),
    (
        "workloads.m = { cause = { one_of = [\"none\", \"crashed\"] } }",
        "workloads.m = { cause = { one_of = [\"crashed\"] } }",
    ),
    (
        "workloads.m = { runner = { one_of = [\"r1\", \"r2\"] } }",
        "workloads.m = { runner = { one_of = [\"none\", \"r2\"] } }",
    ),
    (
        "workloads.m = { on = { one_of = [[\"r2/0\"], [\"r1/0\"]] } }",
        "workloads.m = { on = { one_of = [[\"r2/0\"], []] } }",
    ),
    (
        "workloads.m = { reserved = { one_of = [[], [\"r1/0\"]] } }",
        "workloads.m = { reserved = { one_of = [[\"r1/0\"]] } }",
    ),
    (
        "workloads.m = { memory = { \"r1/0\" = { at_least = \"60GiB\" } } }",
        "workloads.m = { memory = { \"r1/0\" = { at_most = \"59GiB\" } } }",
    ),
    ("workloads.m = { waited = { at_most = \"1s\" } }", "workloads.m = { waited = { at_least = \"1s\" } }"),
    (
        "devices.\"r1/0\" = { held = { at_most = \"80GiB\" } }",
        "devices.\"r1/0\" = { held = { at_most = 64424509439 } }",
    ),
    (
        "devices.\"r1/0\" = { held = { at_least = [\"30GiB\", \"30GiB\"], at_most = \"60GiB\" } }",
        "devices.\"r1/0\" = { held = { at_least = \"61GiB\" } }",
    ),
    (
        "devices.\"r1/0\" = { free = { one_of = [\"10GiB\", \"20GiB\"] } }",
        "devices.\"r1/0\" = { free = { one_of = [\"10GiB\"] } }",
    ),
    ("devices.\"*\" = { capacity = { at_least = \"80GiB\" } }", "devices.\"*\" = { held = { at_least = 1 } }"),
    ("devices.\"r1/0\" = { claims = { at_least = 1 } }", "devices.\"r1/0\" = { claims = { at_least = 2 } }"),
    ("devices.\"r1/0\" = { replicas = { at_most = 1 } }", "devices.\"r1/0\" = { replicas = { at_least = 2 } }"),
    (
        "devices.\"r1/0\" = { closed = { one_of = [\"no\", \"lost\"] } }",
        "devices.\"r1/0\" = { closed = { one_of = [\"lost\"] } }",
    ),
    (
        "devices.\"r1/0\" = { runners = { one_of = [[\"r2\"], [\"r1\"]] } }",
        "devices.\"r1/0\" = { runners = { one_of = [[\"r2\"]] } }",
    ),
    ("hosts.host = { cpu_held = { at_most = 5 } }", "hosts.host = { cpu_free = { at_most = 5 } }"),
    ("hosts.host = { ram_held = { at_most = \"5GiB\" } }", "hosts.host = { ram_free = { at_most = \"5GiB\" } }"),
    ("slots = [{ model = \"m\", count = { at_least = 1 } }]", "slots = [{ model = \"m\", count = { at_most = 0 } }]"),
    (
        "slots = [{ state = { one_of = [\"ready\", \"starting\"] } }]",
        "slots = [{ state = { one_of = [\"starting\"] } }]",
    ),
    ("slots = [{ model = { one_of = [\"m\", \"huge\"] } }]", "slots = [{ model = { one_of = [\"huge\"] } }]"),
    ("slots = [{ runner = { one_of = [\"r1\", \"r2\"] } }]", "slots = [{ runner = { one_of = [\"r2\"] } }]"),
    ("slots = [{ device = { one_of = [\"r1/0\", \"r2/0\"] } }]", "slots = [{ device = { one_of = [\"r2/0\"] } }]"),
    ("slots = [{ active = { at_most = 1 } }]", "slots = [{ active = { at_least = 2 } }]"),
    ("slots = [{ revision = { at_least = 1 } }]", "slots = [{ revision = { at_least = 2 } }]"),
    ("slots = [{ generation = { at_most = 9 } }]", "slots = [{ generation = { at_least = 9 } }]"),
    (
        "slots = [{ stop_reason = { one_of = [\"idle\", \"evicted\"] }, count = 0 }]",
        "slots = [{ stop_reason = { one_of = [\"idle\"] } }]",
    ),
    ("models.m = { live = { at_most = 1 } }", "models.m = { live = { at_least = 2 } }"),
    ("models.m = { waiting = { at_most = 0 } }", "models.m = { waiting = { at_least = 1 } }"),
    ("models.m = { evictions = { at_most = 0 } }", "models.m = { evictions = { at_least = 1 } }"),
    ("models.m = { revision = { one_of = [1, 2] } }", "models.m = { revision = { one_of = [2] } }"),
    (
        "models.m.memory.\"1\" = { peak = { at_most = \"60GiB\" } }",
        "models.m.memory.\"1\" = { peak = { at_most = \"59GiB\" } }",
    ),
    (
        "models.m.memory.\"1\" = { verdict = { one_of = [\"watching\", \"fits\"] } }",
        "models.m.memory.\"1\" = { verdict = { one_of = [\"unseen\"] } }",
    ),
    (
        "models.m.memory.\"1\" = { corrected = { one_of = [\"no\"] } }",
        "models.m.memory.\"1\" = { corrected = { one_of = [\"learned\"] } }",
    ),
    (
        "runners.r1 = { liveness = { one_of = [\"ready\", \"suspect\"] } }",
        "runners.r1 = { liveness = { one_of = [\"lost\", \"suspect\"] } }",
    ),
    (
        "runners.r1 = { admission = { one_of = [\"open\", \"cordoned\"] } }",
        "runners.r1 = { admission = { one_of = [\"cordoned\"] } }",
    ),
    ("runners.r1 = { incarnation = { at_least = 1 } }", "runners.r1 = { incarnation = { at_least = 2 } }"),
    ("runners.r1 = { slots = { at_most = 1 } }", "runners.r1 = { slots = { at_least = 2 } }"),
    ("runners.r1 = { devices = { one_of = [[\"r1/0\"], []] } }", "runners.r1 = { devices = { one_of = [[]] } }"),
    ("queue = { one_of = [[\"m\"], []] }", "queue = { one_of = [[\"m\"]] }"),
    ("queue_length = { at_most = 0 }", "queue_length = { at_least = 1 }"),
    ("states = { running = { at_least = 1 } }", "states = { running = { at_most = 0 } }"),
    ("device_count = { at_least = 2, at_most = 2 }", "device_count = { at_most = 1 }"),
    ("evictions = { at_most = 0 }", "evictions = { at_least = 1 }"),
    ("desired.r1 = { one_of = [[\"run m\"], []] }", "desired.r1 = { one_of = [[\"stop m\"], []] }"),
    ("accounts.r1 = { one_of = [[], [\"m\"]] }", "accounts.r1 = { one_of = [[\"m\"]] }"),
    (
        "decision = { outcome = { one_of = [\"placed\", \"reused\"] } }",
        "decision = { outcome = { one_of = [\"waiting\"] } }",
    ),
    (
        "decision = { code = { one_of = [\"placed\", \"full_now\"] } }",
        "decision = { code = { one_of = [\"full_now\"] } }",
    ),
    ("decision = { runner = { one_of = [\"r1\", \"r2\"] } }", "decision = { runner = { one_of = [\"r2\"] } }"),
    ("decision = { on = { one_of = [[\"r1/0\"]] } }", "decision = { on = { one_of = [[\"r2/0\"]] } }"),
    ("decision = { evictions = { one_of = [[], [\"m\"]] } }", "decision = { evictions = { one_of = [[\"m\"]] } }"),
    ("decision = { runners = { at_least = 1 } }", "decision = { runners = { at_most = 0 } }"),
    ("decision = { excluded = { pool = { at_least = 1 } } }", "decision = { excluded = { pool = { at_least = 2 } } }"),
    (
        "fit = { model = \"huge\", gpu_counts = { \"1\" = { one_of = [\"never_fits\", \"no_room\"] }, \"2\" = \"never_fits\", \"4\" = \"never_fits\", \"8\" = \"never_fits\", \"16\" = \"never_fits\" } }",
        "fit = { model = \"huge\", gpu_counts = { \"1\" = { one_of = [\"chosen\"] }, \"2\" = \"never_fits\", \"4\" = \"never_fits\", \"8\" = \"never_fits\", \"16\" = \"never_fits\" } }",
    ),
    (
        "decision.devices.\"r1/0\" = { needed = { at_least = \"60GiB\" }, after_free = { at_most = \"20GiB\" } }",
        "decision.devices.\"r1/0\" = { after_free = { at_most = \"19GiB\" } }",
    ),
    (
        "decision.devices.\"r1/0\" = { verdict = { one_of = [\"chosen\", \"short\"] } }",
        "decision.devices.\"r1/0\" = { verdict = { one_of = [\"short\"] } }",
    ),
];

#[test]
fn a_bound_holds_or_fails_for_every_value() {
    for (right, wrong) in EXPECTATIONS {
        passes(&then(&format!("expect.{right}")));
        assert_says(&failure(&then(&format!("expect.{wrong}"))), &["step 2 (expect)"]);
    }
}

#[test]
fn a_failed_bound_says_what_was_expected_and_what_was_found() {
    for (step, said) in [
        (
            "expect.devices.\"r1/0\" = { held = { at_most = \"59GiB\" } }",
            "expected at most 59 GiB (63350767616 B), found 60 GiB (64424509440 B)",
        ),
        ("expect.queue_length = { at_least = 2, at_most = 4 }", "expected at least 2 and at most 4, found 0"),
        (
            "expect.workloads.m = { state = { one_of = [\"queued\", \"assigned\"] } }",
            "expected one of queued, assigned, found running",
        ),
        ("expect.workloads.m = { waited = { at_least = \"10s\" } }", "expected at least 10s, found 0s"),
        ("expect.workloads.m = { on = { one_of = [[\"r2/0\"], []] } }", "expected one of [r2/0], [], found [r1/0]"),
    ] {
        assert_says(&failure(&then(step)), &[said]);
    }
}

#[test]
fn a_bound_that_says_nothing_is_refused() {
    for (step, part) in [
        ("expect.queue_length = {}", "at_least, at_most or one_of"),
        ("expect.queue_length = { at_least = 3, at_most = 2 }", "no value is at least 3 and at most 2"),
        ("expect.queue_length = { one_of = [] }", "one_of needs a value"),
        ("expect.queue_length = { one_of = [1], at_most = 2 }", "one_of stands alone"),
        ("expect.queue_length = { at_mots = 3 }", "`at_most`"),
        (
            "expect.workloads.m = { state = { at_most = \"running\" } }",
            "at_least and at_most are for numbers, sizes and durations",
        ),
        (
            "expect.workloads.m = { on = { at_least = [\"r1/0\"] } }",
            "at_least and at_most are for numbers, sizes and durations",
        ),
        ("expect.devices.\"r1/0\" = { held = { at_most = \"80GiBs\" } }", "80GiBs"),
        ("expect.queue_length = { at_most = -1 }", "-1"),
    ] {
        assert_says(&refusal(&then(step)), &["line 20: step 2 (expect)", part]);
    }
}
