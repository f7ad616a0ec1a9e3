//! Whatever is wrong, the file, the line, the number of the step and its verb are named.

use crate::{FLEET, assert_says, failure, refusal, then};

#[test]
fn a_step_that_is_refused_or_fails_is_named_with_its_verb_and_line() {
    for (step, parts) in [
        ("submit = \"huge\"", &["case.toml:19: step 2 (submit)", "never_fits"][..]),
        ("submit = { model = \"m\", count = 3 }\nrefused = \"queue_full\"", &["step 2 (submit)", "was taken"]),
        ("submit = { model = \"huge\", count = 3 }", &["step 2 (submit)", "number 1 of 3 was refused (never_fits)"]),
        ("cancel = \"m\"\n[[step]]\ncomplete = \"m\"", &["case.toml:21: step 3 (complete)", "workload_ended"]),
        ("expect.queue_length = 1", &["case.toml:19: step 2 (expect)", "expected 1, found 0"]),
        ("[step.expect]\nqueue_length = 1", &["case.toml:19: step 2 (expect)", "expected 1, found 0"]),
        ("ready = \"huge\"", &["case.toml:19: step 2 (ready)", "huge"]),
        ("restart = true\n[[step]]\nexpect.queue = [\"m\"]", &["case.toml:21: step 3 (expect)"]),
    ] {
        assert_says(&failure(&then(step)), parts);
    }
}

#[test]
fn a_step_that_cannot_be_read_is_named_with_its_verb_and_line() {
    for (step, parts) in [
        ("submit = { model = \"m\", prio = 1 }", &["line 20: step 2 (submit)", "prio", "`priority`"][..]),
        ("submits = \"m\"", &["line 20: step 2 (submits)", "unknown field", "`submit`"]),
        ("note = \"x\"\nexpect.devices.\"r1/0\" = { hold = 1 }", &["line 21: step 2 (expect)", "line 19", "`held`"]),
        ("[step.expect]\nqueue_length = \"many\"", &["line 21: step 2 (expect)", "queue_length = \"many\""]),
        ("[step.expect.devices.\"r1/0\"]\nheld = \"80GiBs\"", &["line 21: step 2 (expect)", "80GiBs"]),
        ("advance = 30", &["line 20: step 2 (advance)"]),
        ("advance = \"1s\"\nadvance = \"2s\"", &["line 21: step 2 (advance)", "duplicate key"]),
        ("advance = \"1s", &["line 20: step 2"]),
        ("advance 1s", &["line 20: step 2"]),
        ("note = \"nothing\"", &["line 19: step 2", "does nothing", "submit"]),
        ("restart = true\nwipe = true", &["line 19: step 2 (restart and wipe)", "one thing"]),
        ("restart = false", &["line 19: step 2 (restart)", "restart = true"]),
        ("advance = \"0s\"", &["line 19: step 2 (advance)"]),
        ("submit = { model = \"m\", restart_on_lost = true }", &["line 19: step 2 (submit)", "for jobs"]),
        ("submit = { model = \"m\", name = \"m\" }", &["line 19: step 2 (submit)", "already named m"]),
    ] {
        assert_says(&refusal(&then(step)), parts);
    }
}

/// The last of three steps that look alike is the one that is named.
#[test]
fn the_right_step_is_counted() {
    let text = format!("{FLEET}[[step]]\nadvance = \"1s\"\n\n# [[step]]\n[[step]]\nadvance = \"2s\"\nagain = 1\n");
    assert_says(&refusal(&text), &["line 25: step 3 (advance)", "again"]);
    let inline = "id = \"x\"\ntitle = \"x\"\nstep = [\n  { advance = \"1s\" },\n  { advance = 2 },\n]\n";
    assert_says(&refusal(inline), &["line 5: step 2 (advance)"]);
}

#[test]
fn what_is_wrong_before_the_steps_is_named_with_its_line() {
    for (was, is, parts) in [
        ("id = \"r2\"", "id = \"r1\"", &["line 6: runner r1", "two runners"][..]),
        ("name = \"huge\"", "name = \"m\"", &["line 14: model m", "two models"]),
        ("id = \"r2\"", "id = \"r2\"\ngpuss = 1", &["line 8: runner r2", "gpuss", "`gpus`"]),
        ("id = \"r2\"", "id = \"r 2\\n\"", &["line 6: runner"]),
        ("name = \"huge\"", "name = \"huge\"\nmin_run = 3", &["line 16: model huge"]),
        ("memory = \"500GiB\"", "memory = { totl = 1 }", &["line 16: model huge", "totl", "`total`"]),
        ("title = \"x\"", "titel = \"x\"", &["line 2", "titel"]),
    ] {
        assert_says(&refusal(&FLEET.replace(was, is)), &[&["case.toml"][..], parts].concat());
    }
    for (after, parts) in [
        ("[settings]\nage_limit = 3", &["line 20: settings of line 19", "age_limit"][..]),
        ("[[stpe]]\nsubmit = \"m\"", &["line 19: stpe", "`step`"]),
        ("[[runner]]\nid = \"r3\"\ngpus = 7", &["line 21: runner r3 of line 19"]),
    ] {
        assert_says(&refusal(&format!("{FLEET}{after}\n")), parts);
    }
    let invalid = FLEET.replace("memory = \"500GiB\"", "memory = \"500GiB\"\nconcurrency = 0");
    assert_says(&failure(&invalid), &["case.toml:14: model huge", "invalid_model"]);
}
