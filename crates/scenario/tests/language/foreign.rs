//! What others use of a GPU is one amount, however many agents see the GPU.

use crate::{assert_says, failure, passes, refusal};

/// Two runners of one machine that share GPU A; each may state what others use of it.
fn shared(first: &str, second: &str, steps: &str) -> String {
    let steps: String = steps.lines().map(|step| format!("[[step]]\n{}\n", step.trim())).collect();
    format!(
        "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\nmachine = \"host\"\n\
         gpus = [{{ uuid = \"A\", memory = \"80GiB\"{first} }}]\n[[runner]]\nid = \"r2\"\nmachine = \"host\"\npool = \"p2\"\n\
         gpus = [{{ uuid = \"A\", memory = \"80GiB\"{second} }}]\n[[model]]\nname = \"m\"\nmemory = \"30GiB\"\n[[model]]\n\
         name = \"n\"\nmemory = \"30GiB\"\npool = \"p2\"\n{steps}"
    )
}

const TWENTY: &str = ", foreign = \"20GiB\"";

#[test]
fn stated_once_it_holds_for_both_agents() {
    for (first, second) in [(TWENTY, ""), ("", TWENTY), (TWENTY, TWENTY)] {
        passes(&shared(
            first,
            second,
            "expect.devices.A = { foreign = \"20GiB\", free = \"60GiB\" }\nadvance = \"1m\"\n\
             expect.devices.A = { foreign = \"20GiB\", free = \"60GiB\" }\nsilence = \"r1\"\nadvance = \"1m\"\n\
             expect.devices.A = { foreign = \"20GiB\" }\nreturn = \"r1\"\nsilence = \"r2\"\nadvance = \"1m\"\n\
             expect.devices.A = { foreign = \"20GiB\" }",
        ));
    }
}

#[test]
fn two_amounts_for_one_gpu_are_refused() {
    let said = refusal(&shared(TWENTY, ", foreign = \"30GiB\"", "advance = \"1s\""));
    assert_says(&said, &["line 7: runner r2", "A", "r1", "20 GiB", "30 GiB"]);
    let said = refusal(&shared(TWENTY, ", foreign = 0", "advance = \"1s\""));
    assert_says(&said, &["line 7: runner r2", "r1", "20 GiB", "0 B"]);
}

#[test]
fn a_report_of_either_agent_changes_the_one_amount() {
    for runner in ["r1", "r2"] {
        passes(&shared(
            TWENTY,
            "",
            &format!(
                "report = {{ runner = \"{runner}\", gpus = {{ A = {{ foreign = \"50GiB\" }} }} }}\n\
                 expect.devices.A = {{ foreign = \"50GiB\" }}\nadvance = \"1m\"\nexpect.devices.A = {{ foreign = \"50GiB\" }}\n\
                 report = {{ runner = \"{runner}\", gpus = {{ A = {{ foreign = 0 }} }} }}\nadvance = \"1m\"\n\
                 expect.devices.A = {{ foreign = 0, free = \"80GiB\" }}"
            ),
        ));
    }
}

#[test]
fn others_that_come_unseen_are_seen_by_whoever_reports_first() {
    for silent in ["r1", "r2"] {
        passes(&shared(
            "",
            "",
            &format!(
                "silence = \"{silent}\"\noccupy = {{ A = \"60GiB\" }}\nexpect.devices.A = {{ foreign = 0 }}\nadvance = \"10s\"\n\
                 expect.devices.A = {{ foreign = \"60GiB\" }}\nadvance = \"10s\"\nexpect.devices.A = {{ foreign = \"60GiB\" }}\n\
                 return = \"{silent}\"\nadvance = \"1m\"\nexpect.devices.A = {{ foreign = \"60GiB\" }}"
            ),
        ));
    }
}

/// Neither agent starts a slot on memory that others took since the last report.
#[test]
fn an_agent_refuses_to_start_where_others_came_unseen() {
    for model in ["m", "n"] {
        passes(&shared(
            "",
            "",
            &format!(
                "occupy = {{ A = \"60GiB\" }}\nsubmit = \"{model}\"\n\
                 expect.workloads.{model} = {{ state = \"queued\", cause = \"start_refused\" }}\n\
                 expect.devices.A = {{ foreign = \"60GiB\" }}"
            ),
        ));
    }
}

#[test]
fn what_a_slot_left_behind_is_seen_by_both_agents() {
    passes(&shared(
        "",
        "",
        "report = { runner = \"r1\", stops = \"manual\" }\nsubmit = \"m\"\ncomplete = \"m\"\nstop_slot = \"m\"\n\
         gone = { slot = \"m\", leaves = { A = \"5GiB\" } }\nexpect.devices.A = { releasing = 0, foreign = \"5GiB\" }\n\
         advance = \"1m\"\nexpect.devices.A = { foreign = \"5GiB\" }\nsilence = \"r1\"\nadvance = \"1m\"\n\
         expect.devices.A = { foreign = \"5GiB\" }",
    ));
}

/// One UUID on two machines is two GPUs, whatever the server makes of it.
#[test]
fn gpus_of_two_machines_have_amounts_of_their_own() {
    let text = shared(TWENTY, ", foreign = \"30GiB\"", "advance = \"1m\"\nexpect.devices.A = { foreign = \"20GiB\" }");
    passes(&text.replacen("id = \"r2\"\nmachine = \"host\"", "id = \"r2\"\nmachine = \"other\"", 1));
}

#[test]
fn a_gpu_that_a_second_agent_finds_later_is_the_same_gpu() {
    let text = shared(
        TWENTY,
        "",
        "report = { runner = \"r2\", gpus = { A = { memory = \"80GiB\" } } }\nadvance = \"1m\"\n\
         expect.devices.A = { foreign = \"20GiB\", runners = [\"r1\", \"r2\"] }",
    );
    passes(&text.replacen("pool = \"p2\"\ngpus = [{ uuid = \"A\", memory = \"80GiB\" }]", "pool = \"p2\"", 1));
}

#[test]
fn a_late_agent_sees_the_same_amount() {
    for late in ["r1", "r2"] {
        let text = shared(
            TWENTY,
            "",
            &format!(
                "advance = \"30s\"\nexpect.devices.A = {{ foreign = \"20GiB\" }}\nreturn = \"{late}\"\nadvance = \"1m\"\n\
                 expect.devices.A = {{ foreign = \"20GiB\", runners = [\"r1\", \"r2\"] }}"
            ),
        );
        passes(&text.replacen(&format!("id = \"{late}\""), &format!("id = \"{late}\"\nregistered = false"), 1));
    }
}

/// The simulated memory is the one amount, too: a slot that does not fit beside it is not started.
#[test]
fn a_report_of_one_agent_that_hides_the_rest_is_noticed() {
    let hidden = shared("", "", "occupy = { A = \"60GiB\" }\nexpect.devices.A = { foreign = \"60GiB\" }");
    assert_says(&failure(&hidden), &["foreign: expected 60 GiB", "found 0 B"]);
}
