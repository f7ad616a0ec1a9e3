//! How long work waited for its memory.

use crate::{assert_says, failure, passes, refusal, then};

const BUSY: &str = "submit = { model = \"m\", name = \"second\" }\n[[step]]\nadvance = \"10s\"\n[[step]]\n";

#[test]
fn work_that_waits_has_waited_until_now() {
    passes(&then(&format!(
        "{BUSY}expect.workloads = {{ m = {{ waited = \"0s\" }}, second = {{ state = \"queued\", waited = \"10s\" }} }}\n\
         [[step]]\nadvance = \"500ms\"\n[[step]]\nexpect.workloads.second = {{ waited = \"10s 500ms\" }}"
    )));
    assert_says(
        &failure(&then(&format!("{BUSY}expect.workloads.second = {{ waited = \"11s\" }}"))),
        &["workload second: waited: expected 11s, found 10s"],
    );
}

#[test]
fn work_that_runs_waits_no_more() {
    passes(&then(&format!(
        "{BUSY}complete = \"m\"\n[[step]]\nadvance = \"30s\"\n[[step]]\n\
         expect.workloads.second = {{ state = \"running\", waited = \"10s\" }}\n[[step]]\ncomplete = \"second\"\n\
         [[step]]\nadvance = \"1m\"\n[[step]]\nexpect.workloads.second = {{ state = \"succeeded\", waited = \"10s\" }}"
    )));
}

#[test]
fn work_that_ends_in_the_queue_waits_no_more() {
    passes(&then(&format!(
        "{BUSY}cancel = \"second\"\n[[step]]\nadvance = \"30s\"\n[[step]]\n\
         expect.workloads.second = {{ state = \"cancelled\", waited = \"10s\" }}"
    )));
    passes(&then(
        "submit = { model = \"m\", name = \"second\", queue_timeout = \"7s\", renews = true }\n[[step]]\nadvance = \"30s\"\n\
         [[step]]\nexpect.workloads.second = { state = \"expired\", waited = \"7s\" }",
    ));
}

/// Memory that is being released by others is waited for; the start of the slot is not.
#[test]
fn a_promise_is_waited_for_and_a_start_is_not() {
    let text = |steps: &str| {
        format!(
            "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\ngpus = \"1x80GiB\"\nstarts = \"manual\"\n\
             stops = \"manual\"\n[[model]]\nname = \"a\"\nmemory = \"60GiB\"\nmin_run = \"0s\"\n[[model]]\nname = \"b\"\n\
             memory = \"60GiB\"\n{steps}"
        )
    };
    passes(&text(
        "[[step]]\nsubmit = \"a\"\n[[step]]\nadvance = \"20s\"\n[[step]]\nexpect.workloads.a = { waited = \"0s\" }\n\
         [[step]]\nready = \"a\"\n[[step]]\nexpect.workloads.a = { waited = \"0s\" }\n[[step]]\nsubmit = \"b\"\n\
         [[step]]\nadvance = \"3s\"\n[[step]]\ncomplete = \"a\"\n[[step]]\n\
         expect.workloads.b = { slot_state = \"promised\", waits = \"releasing\", waited = \"3s\" }\n\
         [[step]]\nadvance = \"4s\"\n[[step]]\nexpect.workloads.b = { slot_state = \"promised\", waited = \"7s\" }\n\
         [[step]]\ngone = \"a\"\n[[step]]\nadvance = \"8s\"\n[[step]]\n\
         expect.workloads.b = { state = \"assigned\", slot_state = \"starting\", waited = \"7s\" }\n",
    ));
}

/// Every stay in the queue counts.
#[test]
fn work_that_comes_back_to_the_queue_waits_again() {
    passes(&then(&format!(
        "{BUSY}complete = \"m\"\n[[step]]\nadvance = \"5s\"\n[[step]]\nreport = {{ runner = \"r1\", stops = \"manual\" }}\n\
         [[step]]\nfail = \"second\"\n[[step]]\nadvance = \"20s\"\n[[step]]\n\
         expect.workloads.second = {{ state = {{ one_of = [\"queued\", \"assigned\"] }}, waited = \"30s\" }}\n[[step]]\n\
         gone = \"second\"\n[[step]]\nadvance = \"1m\"\n[[step]]\n\
         expect.workloads.second = {{ state = \"running\", attempt = 2, waited = {{ at_least = \"30s\", at_most = \"31s\" }} }}"
    )));
}

#[test]
fn time_without_a_server_counts() {
    passes(&then(&format!(
        "{BUSY}pause = \"1m\"\n[[step]]\nrestart = true\n[[step]]\nexpect.workloads.second = {{ waited = \"1m 10s\" }}"
    )));
}

#[test]
fn nothing_is_known_of_work_that_was_forgotten() {
    let wiped = then(&format!("{BUSY}wipe = true\n[[step]]\nexpect.workloads.second = {{ waited = \"10s\" }}"));
    assert_says(&failure(&wiped), &["forgotten"]);
    let both = then(&format!("{BUSY}expect.workloads.second = {{ state = \"forgotten\", waited = \"10s\" }}"));
    assert_says(&refusal(&both), &["waited"]);
}
