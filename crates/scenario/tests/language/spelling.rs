//! A word that is not known is refused before the first step runs, also where nothing of that kind is expected.

use crate::{FLEET, NEXT_LINE, assert_says, failure, passes, refusal, then};

/// The step is refused with its number, its verb, its line, the word, and what is known instead.
fn is_refused(step: &str, word: &str, known: &str) {
    let verb = step.split([' ', '.', '=']).next().unwrap_or_default();
    let line = format!("line {NEXT_LINE}");
    let said = refusal(&then(step));
    assert_says(&said, &["case.toml", &format!("step 2 ({verb})"), word, known]);
    assert!(said.contains(&line) || said.contains(&format!("line {}", NEXT_LINE + 1)), "no {line}: {said}");
}

#[test]
fn a_word_that_is_in_no_list_is_refused() {
    for (step, word, known) in [
        ("expect.states = { runing = 0 }", "runing", "running"),
        ("expect.states = { forgotten = 0 }", "forgotten", "running"),
        ("expect.workloads.m = { state = \"runing\" }", "runing", "running"),
        ("expect.workloads.m = { slot_state = \"redy\" }", "redy", "ready"),
        ("expect.workloads.m = { waits = \"ful_now\" }", "ful_now", "full_now"),
        ("expect.workloads.m = { waits = \"none\" }", "none", "`no`"),
        ("expect.workloads.m = { cause = \"crash\" }", "crash", "crashed"),
        ("expect.devices.\"r1/0\" = { closed = \"cordonned\" }", "cordonned", "cordoned"),
        ("expect.slots = [{ state = \"stoping\", count = 0 }]", "stoping", "stopping"),
        ("expect.slots = [{ stop_reason = \"evict\", count = 0 }]", "evict", "evicted"),
        ("expect.runners.r1 = { liveness = \"alive\" }", "alive", "ready"),
        ("expect.runners.\"*\" = { liveness = \"alive\" }", "alive", "ready"),
        ("expect.runners.r1 = { admission = \"opened\" }", "opened", "open"),
        ("expect.models.m.memory.\"1\" = { verdict = \"fit\" }", "fit", "fits"),
        ("expect.models.m.memory.\"1\" = { corrected = \"oom\" }", "oom", "out_of_memory"),
        ("expect.models.m.memory.one = { charged = 0 }", "one", "a number of GPUs"),
        ("expect.decision = { outcome = \"place\" }", "place", "placed"),
        ("expect.decision = { code = \"ful_now\" }", "ful_now", "full_now"),
        ("expect.decision = { gpu_counts = { \"1\" = \"choosen\" } }", "choosen", "chosen"),
        ("expect.decision = { gpu_counts = { one = \"chosen\" } }", "one", "a number of GPUs"),
        ("expect.decision = { excluded = { pol = 0 } }", "pol", "pool"),
        ("expect.decision.devices.\"r1/0\" = { verdict = \"choosen\" }", "choosen", "chosen"),
        ("expect.explain = { workload = \"m\", outcome = \"reuse\" }", "reuse", "reused"),
        ("expect.fit = { model = \"m\", outcome = \"reuse\" }", "reuse", "reused"),
        ("expect.fit = { model = \"m\", kind = \"lese\" }", "lese", "lease"),
        ("expect.workloads.m = { state = { one_of = [\"queued\", \"runing\"] } }", "runing", "running"),
        ("expect.slots = [{ state = { one_of = [\"redy\"] }, count = 0 }]", "redy", "ready"),
        ("submit = \"huge\"\nrefused = \"never_fit\"", "never_fit", "never_fits"),
        ("submit = { model = \"m\", kind = \"lese\" }", "lese", "lease"),
        ("fail = { slot = \"m\", reason = \"oom\" }", "oom", "out_of_memory"),
        ("report = { runner = \"r1\", gpus = { \"r1/0\" = { health = \"okay\" } } }", "okay", "ok"),
        ("report = { runner = \"r1\", slots = { m = { state = \"redy\" } } }", "redy", "ready"),
        ("report = { runner = \"r1\", starts = \"automatic\" }", "automatic", "auto"),
    ] {
        is_refused(step, word, known);
    }
}

#[test]
fn a_name_that_is_not_in_the_file_is_refused_in_an_expectation() {
    for (step, word, known) in [
        ("expect.workloads.n = { state = \"queued\" }", "n", "m"),
        ("expect.workloads.m = { on = [\"r1/9\"] }", "r1/9", "r1/0"),
        ("expect.workloads.m = { on = { one_of = [[\"r1/0\"], [\"r1/9\"]] } }", "r1/9", "r1/0"),
        ("expect.workloads.m = { memory = { \"r1/9\" = 0 } }", "r1/9", "r1/0"),
        ("expect.workloads.m = { reserved = [\"r1/9\"] }", "r1/9", "r1/0"),
        ("expect.workloads.m = { runner = \"r9\" }", "r9", "r1"),
        ("expect.workloads.m = { same_slot_as = \"n\" }", "n", "m"),
        ("expect.devices.\"r9/0\" = { held = 0 }", "r9/0", "r1/0"),
        ("expect.devices.\"r1/0\" = { runners = [\"r9\"] }", "r9", "r1"),
        ("expect.hosts.r2 = { cpu_held = 0 }", "r2", "host"),
        ("expect.slots = [{ model = \"n\", count = 0 }]", "n", "m"),
        ("expect.slots = [{ runner = \"r9\", count = 0 }]", "r9", "r1"),
        ("expect.slots = [{ runner = { one_of = [\"r1\", \"r9\"] }, count = 0 }]", "r9", "r1"),
        ("expect.slots = [{ device = \"r1/9\", count = 0 }]", "r1/9", "r1/0"),
        ("expect.models.n = { live = 0 }", "n", "m"),
        ("expect.models.m.memory.\"3\" = { charged = 0 }", "3", "1, 2, 4, 8, 16"),
        ("expect.runners.r9 = { slots = 0 }", "r9", "r1"),
        ("expect.runners.r1 = { devices = [\"r1/9\"] }", "r1/9", "r1/0"),
        ("expect.runners.r1 = { disputed = [\"r1/9\"] }", "r1/9", "r1/0"),
        ("expect.queue = [\"n\"]", "n", "m"),
        ("expect.desired.r9 = []", "r9", "r1"),
        ("expect.desired.r1 = [\"run n\"]", "n", "m"),
        ("expect.desired.r1 = [\"start m\"]", "start m", "run m"),
        ("expect.accounts.r9 = []", "r9", "r1"),
        ("expect.accounts.r1 = [\"n\"]", "n", "m"),
        ("expect.decision = { workload = \"n\" }", "n", "m"),
        ("expect.decision = { runner = \"r9\" }", "r9", "r1"),
        ("expect.decision = { on = [\"r1/9\"] }", "r1/9", "r1/0"),
        ("expect.decision = { evictions = [\"n\"] }", "n", "m"),
        ("expect.decision.devices.\"r1/9\" = { held = 0 }", "r1/9", "r1/0"),
        ("expect.explain = { workload = \"n\" }", "n", "m"),
        ("expect.fit = { model = \"n\" }", "n", "m"),
    ] {
        is_refused(step, word, known);
    }
}

#[test]
fn a_name_that_is_not_in_the_file_is_refused_in_a_step() {
    for (step, word, known) in [
        ("submit = \"n\"", "n", "m"),
        ("submit = { model = \"m\", same_as = \"n\" }", "n", "m"),
        ("cancel = \"n\"", "n", "m"),
        ("heartbeat = \"n\"", "n", "m"),
        ("complete = \"n\"", "n", "m"),
        ("delete_model = \"n\"", "n", "m"),
        ("register = \"r9\"", "r9", "r1"),
        ("report = \"r9\"", "r9", "r1"),
        ("silence = \"r9\"", "r9", "r1"),
        ("return = [\"r1\", \"r9\"]", "r9", "r1"),
        ("join = \"r9\"", "r9", "r1"),
        ("cordon = \"r9\"", "r9", "r1"),
        ("uncordon = \"r9\"", "r9", "r1"),
        ("drain = \"r9\"", "r9", "r1"),
        ("forget = \"r9\"", "r9", "r1"),
        ("cordon_device = \"r1/9\"", "r1/9", "r1/0"),
        ("uncordon_device = \"r1/9\"", "r1/9", "r1/0"),
        ("occupy = { \"r1/9\" = 0 }", "r1/9", "r1/0"),
        ("ready = \"n\"", "n", "m"),
        ("ready = \"m (redy)\"", "redy", "ready"),
        ("ready = \"m@r9\"", "r9", "r1"),
        ("gone = { slot = \"m\", leaves = { \"r1/9\" = 0 } }", "r1/9", "r1/0"),
        ("gone = \"n\"", "n", "m"),
        ("fail = \"n\"", "n", "m"),
        ("exit = \"n\"", "n", "m"),
        ("refuse = \"n\"", "n", "m"),
        ("stop_slot = \"m (stoping)\"", "stoping", "stopping"),
        ("force_release = \"n\"", "n", "m"),
        ("report = { runner = \"r1\", slots = { n = { state = \"ready\" } } }", "n", "m"),
        ("report = { runner = \"r1\", slots = { m = { uses = { \"r1/9\" = 0 } } } }", "r1/9", "r1/0"),
        ("report = { runner = \"r1\", strays = [{ name = \"s\", claims = { \"r1/9\" = 1 } }] }", "r1/9", "r1/0"),
        ("report = { runner = \"r1\", strays = [{ name = \"s\", same_id_as = \"n\" }] }", "n", "m"),
        ("report = { runner = \"r1\", gpus = { \"r1/9\" = { foreign = 0 } } }", "r1/9", "r1/0"),
    ] {
        is_refused(step, word, known);
    }
}

#[test]
fn the_whole_file_is_read_before_the_first_step_runs() {
    let text = format!("{FLEET}[[step]]\nexpect.queue_length = 7\n[[step]]\nexpect.states = {{ runing = 0 }}\n");
    assert_says(&refusal(&text), &["step 3 (expect)", "line 22"]);
    let text = format!("{FLEET}[[step]]\nexpect.queue_length = 7\n[[step]]\nexpect.slots = [{{ runner = \"r3\" }}]\n");
    assert_says(&refusal(&text), &["step 3 (expect)", "line 21"]);
}

/// A name is known from the step on that makes it.
#[test]
fn work_that_comes_later_is_not_known_yet() {
    let text =
        then("expect.workloads.later = { state = \"queued\" }\n[[step]]\nsubmit = { model = \"m\", name = \"later\" }");
    assert_says(&refusal(&text), &["step 2 (expect)", "later", "submitted", "m"]);
    passes(&then(
        "submit = { model = \"m\", count = 2 }\n[[step]]\nexpect.queue = [\"m#2\", \"m#3\"]\n[[step]]\n\
         submit = { model = \"huge\", name = \"h\" }\nrefused = \"never_fits\"\n[[step]]\n\
         submit = { model = \"m\", name = \"h\" }\n[[step]]\nexpect.workloads.h = { position = 3 }",
    ));
    let refused = then("submit = \"huge\"\nrefused = \"never_fits\"\n[[step]]\ncancel = \"huge\"");
    assert_says(&refusal(&refused), &["step 3 (cancel)", "huge"]);
}

#[test]
fn names_that_are_unknown_on_purpose_may_be_used() {
    for step in [
        "expect.devices.\"r9/0\" = { known = false }",
        "expect.runners.r9 = { known = false }",
        "expect.models.n = { known = false }",
        "submit = \"n\"\nrefused = \"unknown_model\"",
        "delete_model = \"n\"\nrefused = \"unknown_model\"",
        "cordon = \"r9\"\nrefused = \"unknown_runner\"",
        "drain = \"r9\"\nrefused = \"unknown_runner\"",
        "forget = \"r9\"\nrefused = \"unknown_runner\"",
        "cordon_device = \"r9/0\"\nrefused = \"unknown_device\"",
        "put_model = { name = \"n\", memory = \"1GiB\" }\n[[step]]\nsubmit = \"n\"",
        "report = { runner = \"r1\", gpus = { new = { memory = \"8GiB\" } } }\n[[step]]\n\
         expect.devices.new = { free = \"8GiB\" }",
        "put_model = { name = \"n\", memory = \"1GiB\", gpu_uuids = [\"nowhere\"] }",
        "report = { runner = \"r2\", strays = [{ name = \"s\", model = \"n\", claims = { \"r2/0\" = \"1GiB\" } }] }",
    ] {
        passes(&then(step));
    }
}

/// An expectation that is not looked at must not be written.
#[test]
fn nothing_more_is_said_of_what_is_not_there() {
    for (step, part) in [
        ("expect.devices.\"r9/0\" = { known = false, held = 0 }", "held"),
        ("expect.runners.r9 = { known = false, slots = 0 }", "slots"),
        ("expect.models.n = { known = false, live = 0 }", "live"),
        ("expect.devices.\"*\" = { known = false }", "known"),
        ("expect.workloads.m = { state = \"forgotten\", attempt = 1 }", "attempt"),
    ] {
        assert_says(&refusal(&then(step)), &["step 2 (expect)", part]);
    }
    for (step, part) in [
        ("expect = {}", "expect says nothing"),
        ("expect.slots = []", "count = 0"),
        ("expect.states = {}", "states says nothing"),
        ("expect.devices = {}", "devices says nothing"),
        ("expect.workloads.m = {}", "m says nothing"),
        ("expect.decision = { model = \"m\", outcome = \"placed\" }", "decision has no model"),
        ("expect.explain = { outcome = \"placed\" }", "explain needs a workload"),
        ("expect.fit = { outcome = \"placed\" }", "fit needs a model"),
        ("expect.fit = { model = \"m\", workload = \"m\" }", "fit has no workload"),
        ("submit = { model = \"m\", count = 0 }", "count is at least 1"),
        ("silence = []", "names nothing"),
        ("ready = []", "names nothing"),
        ("occupy = {}", "names no GPU"),
        ("pause = \"0s\"", "more than nothing"),
        ("gone = { slot = \"m\", reason = \"crashed\", code = 1 }", "not both"),
    ] {
        assert_says(&refusal(&then(step)), &["step 2 (", part]);
    }
    for each in ["devices.\"*\" = { held = 0 }", "runners.\"*\" = { slots = 0 }", "hosts.\"*\" = { cpu_held = 0 }"] {
        assert_says(&failure(&then(&format!("wipe = true\n[[step]]\nexpect.{each}"))), &["step 3 (expect)", "*"]);
    }
    let forgotten =
        then("complete = \"m\"\n[[step]]\nadvance = \"2h\"\n[[step]]\nexpect.workloads.m = { attempt = 1 }");
    assert_says(&failure(&forgotten), &["step 4 (expect)", "forgotten"]);
    passes(&then(
        "complete = \"m\"\n[[step]]\nadvance = \"2h\"\n[[step]]\nexpect.workloads.m = { state = \"forgotten\" }",
    ));
}
