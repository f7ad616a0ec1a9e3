//! Agents that register late, are not heard, come back, and change their habits.

use crate::{assert_says, passes, refusal};

/// One runner that does not register, one model, and these steps.
fn late(steps: &str) -> String {
    format!(
        "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\ngpus = \"1x80GiB\"\nregistered = false\n\
         [[model]]\nname = \"m\"\nmemory = \"10GiB\"\ngpu_counts = [1]\n[[step]]\nsubmit = \"m\"\n{}",
        in_steps(steps)
    )
}

/// Steps, one on each line; a refusal belongs to the step before it.
fn in_steps(steps: &str) -> String {
    let line = |step: &str| match step.trim() {
        refused if refused.starts_with("refused") => format!("{refused}\n"),
        step => format!("[[step]]\n{step}\n"),
    };
    steps.lines().map(line).collect()
}

const RUNS: &str = "expect.workloads.m = { state = \"running\", on = [\"r1/0\"] }";

#[test]
fn a_late_runner_is_unknown_until_a_step_lets_it_register() {
    passes(&late(
        "advance = \"1m\"\nexpect = { runners.r1 = { known = false }, workloads.m = { waits = \"no_runners\" } }",
    ));
    passes(&late("silence = \"r1\"\nadvance = \"1m\"\nexpect.runners.r1 = { known = false }"));
    for verb in [
        "return = \"r1\"",
        "return = [\"r1\"]",
        "report = \"r1\"",
        "report = { runner = \"r1\", cpu_millicores = 4000 }",
        "register = \"r1\"",
        "register = { runner = \"r1\", boot = \"boot-2\" }",
        "join = \"r1\"",
    ] {
        passes(&late(&format!("{verb}\n{RUNS}\nadvance = \"2m\"\n{RUNS}")));
        passes(&late(&format!("advance = \"6m\"\nrestart = true\n{verb}\n{RUNS}\nadvance = \"2m\"\n{RUNS}")));
        passes(&late(&format!("silence = \"r1\"\n{verb}\n{RUNS}")));
        passes(&late(&format!("{verb}\nregister = \"r1\"\n{RUNS}")));
        passes(&late(&format!(
            "wipe = true\n{verb}\nput_model = {{ name = \"n\", memory = \"1GiB\" }}\nsubmit = \"n\"\n\
                               expect.workloads.n = {{ state = \"running\" }}"
        )));
    }
}

#[test]
fn a_late_runner_falls_silent_and_comes_back_like_any_other() {
    passes(&late(&format!(
        "return = \"r1\"\n{RUNS}\nsilence = \"r1\"\nadvance = \"40s\"\nexpect.runners.r1 = {{ liveness = \"suspect\" }}\n\
         return = \"r1\"\nreturn = \"r1\"\nexpect.runners.r1 = {{ liveness = \"ready\", incarnation = 1 }}\nadvance = \"1m\"\n\
         {RUNS}\nsilence = \"r1\"\nadvance = \"6m\"\nexpect.runners.r1 = {{ liveness = \"lost\" }}\nreturn = \"r1\"\n\
         advance = \"1m\"\nexpect.runners.r1 = {{ liveness = \"ready\" }}\n{RUNS}"
    )));
}

#[test]
fn a_late_runner_shows_what_others_took_meanwhile() {
    passes(&late(
        "occupy = { \"r1/0\" = \"75GiB\" }\nreturn = \"r1\"\nadvance = \"30s\"\n\
         expect = { devices.\"r1/0\" = { foreign = \"75GiB\" }, workloads.m = { state = \"queued\", waits = \"full_now\" } }",
    ));
}

#[test]
fn several_late_runners_return_together() {
    let text = late(
        "return = [\"r1\", \"q1\", \"q2\"]\nexpect.runners.\"*\" = { liveness = \"ready\", reported = true }\n\
                     expect.device_count = 3\nadvance = \"1m\"\nexpect.states = { running = 1 }",
    );
    passes(
        &text.replace(
            "[[model]]",
            "[[runner]]\nid = \"q\"\ncount = 2\nregistered = false\ngpus = \"1x80GiB\"\n[[model]]",
        ),
    );
}

/// What the server takes for a sign of life must be one: the agent obeys from then on.
#[test]
fn a_silent_agent_that_reports_is_heard_again() {
    passes(&late(&format!(
        "return = \"r1\"\nsilence = \"r1\"\nadvance = \"40s\"\nreport = \"r1\"\nexpect.runners.r1 = {{ liveness = \"ready\" }}\n\
         submit = {{ model = \"m\", name = \"n\" }}\nexpect.workloads.n = {{ state = \"running\" }}\nadvance = \"2m\"\n\
         expect.runners.r1 = {{ liveness = \"ready\" }}\n{RUNS}"
    )));
}

/// The operator speaks to the agent, not to the server.
#[test]
fn a_silent_agent_that_is_told_its_cluster_stays_silent() {
    passes(&late(
        "return = \"r1\"\nsilence = \"r1\"\nadvance = \"40s\"\njoin = \"r1\"\nexpect.runners.r1 = { liveness = \"suspect\" }\n\
         return = \"r1\"\nexpect.runners.r1 = { liveness = \"ready\" }",
    ));
}

/// A real agent that is not known registers, whatever made it report.
#[test]
fn an_agent_that_the_server_forgot_registers_again() {
    for verb in [
        "report = \"r1\"",
        "report = { runner = \"r1\", cpu_millicores = 4000 }",
        "return = \"r1\"",
        "advance = \"10s\"",
    ] {
        passes(&late(&format!(
            "return = \"r1\"\nwipe = true\n{verb}\nexpect.runners.r1 = {{ known = true, liveness = \"ready\" }}"
        )));
        passes(&late(&format!(
            "return = \"r1\"\ncomplete = \"m\"\nadvance = \"11m\"\ndrain = \"r1\"\nforget = \"r1\"\n{verb}\n\
             expect.runners.r1 = {{ known = true, liveness = \"ready\" }}"
        )));
    }
    let manual = late(
        "report = { runner = \"r1\", starts = \"manual\" }\nwipe = true\nready = \"m\"\n\
                       expect.devices.\"r1/0\" = { held = \"10GiB\" }",
    );
    passes(&manual);
}

/// A machine with two runners, and these steps.
fn pair(steps: &str) -> String {
    format!(
        "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\nmachine = \"host\"\ngpus = [{{ uuid = \"A\", memory = \"80GiB\" }}]\n\
         [[runner]]\nid = \"r2\"\nmachine = \"host\"\ngpus = [{{ uuid = \"A\", memory = \"80GiB\" }}]\nregistered = false\n\
         pool = \"p2\"\n[[model]]\nname = \"m\"\nmemory = \"60GiB\"\ngpu_counts = [1]\npool = \"p2\"\n[[model]]\nname = \"n\"\n\
         memory = \"30GiB\"\ngpu_counts = [1]\n{}",
        in_steps(steps)
    )
}

#[test]
fn a_late_runner_on_a_shared_machine_obeys() {
    passes(&pair(
        "submit = \"n\"\nsubmit = \"m\"\nrefused = \"no_matching_runner\"\nreturn = \"r2\"\nsubmit = \"m\"\n\
         expect.workloads = { n = { runner = \"r1\" }, m = { state = \"queued\", waits = \"full_now\" } }\n\
         complete = \"n\"\nadvance = \"31s\"\nexpect.workloads.m = { state = \"running\", runner = \"r2\", on = [\"A\"] }",
    ));
}

/// A runner of before the reboot is refused, in so many words, until it registers with the new boot.
/// A reboot that one runner reports says nothing of another one: each speaks for itself.
#[test]
fn a_runner_of_a_machine_that_was_rebooted_comes_back_by_itself() {
    let reboot = "return = \"r2\"\nregister = { runner = \"r1\", boot = \"boot-2\" }\n";
    passes(&pair(&format!("{reboot}return = \"r2\"\nexpect.runners.r2 = {{ liveness = \"ready\" }}")));
    passes(&pair(&format!(
        "{reboot}register = {{ runner = \"r2\", boot = \"boot-2\" }}\nsubmit = \"m\"\n\
         expect.workloads.m = {{ state = \"running\", runner = \"r2\" }}"
    )));
}

/// It was not there before the reboot: it starts on the machine as it is now.
#[test]
fn a_late_runner_comes_after_a_reboot() {
    for verb in ["return = \"r2\"", "report = \"r2\"", "register = \"r2\""] {
        passes(&pair(&format!(
            "register = {{ runner = \"r1\", boot = \"boot-2\" }}\n{verb}\nsubmit = \"m\"\nsubmit = \"n\"\n\
             expect.workloads = {{ m = {{ state = \"running\", runner = \"r2\" }}, n = {{ state = \"queued\" }} }}\nadvance = \"1m\"\n\
             expect.runners.\"*\" = {{ liveness = \"ready\" }}"
        )));
    }
}

#[test]
fn one_machine_has_one_boot() {
    let text = pair("advance = \"1s\"").replace("registered = false", "registered = false\nboot = \"boot-2\"");
    assert_says(&refusal(&text), &["line 7: runner r2", "host", "boot-1", "boot-2"]);
}

/// A runner with two GPUs that starts and stops like this, and these steps.
fn habits(habits: &str, steps: &str) -> String {
    format!(
        "id = \"x\"\ntitle = \"x\"\n[[runner]]\nid = \"r1\"\ngpus = \"2x80GiB\"\n{habits}\n[[model]]\nname = \"m\"\n\
         memory = \"60GiB\"\ngpu_counts = [1]\nmin_run = \"0s\"\n[[model]]\nname = \"n\"\nmemory = \"60GiB\"\ngpu_counts = [1]\n\
         min_run = \"0s\"\n{}",
        in_steps(steps)
    )
}

#[test]
fn slots_that_are_starting_come_up_when_the_agent_starts_by_itself_from_now_on() {
    passes(&habits(
        "starts = \"manual\"",
        "submit = { model = \"m\", count = 2 }\nexpect.states = { assigned = 2 }\nreport = { runner = \"r1\", starts = \"auto\" }\n\
         expect.states = { running = 2, assigned = 0 }\ncomplete = \"m\"\nsubmit = \"n\"\nexpect.workloads.n = { state = \"running\" }",
    ));
}

#[test]
fn slots_that_run_stay_and_new_ones_wait_when_the_agent_no_longer_starts_by_itself() {
    passes(&habits(
        "",
        "submit = \"m\"\nreport = { runner = \"r1\", starts = \"manual\" }\nexpect.workloads.m = { state = \"running\" }\n\
         submit = \"n\"\nadvance = \"30s\"\nexpect.workloads.n = { state = \"assigned\", slot_state = \"starting\" }\nready = \"n\"\n\
         expect.workloads.n = { state = \"running\" }\nreport = { runner = \"r1\", starts = \"auto\" }\n\
         expect.states = { running = 2 }",
    ));
}

#[test]
fn slots_that_are_stopping_are_gone_when_the_agent_stops_by_itself_from_now_on() {
    passes(&habits(
        "stops = \"manual\"",
        "submit = { model = \"m\", count = 2 }\ncomplete = \"m\"\ncomplete = \"m#2\"\nstop_slot = \"m\"\nstop_slot = \"m#2\"\n\
         expect.devices.\"*\" = { releasing = \"60GiB\" }\nreport = { runner = \"r1\", stops = \"auto\" }\n\
         expect = { devices.\"*\" = { releasing = 0, free = \"80GiB\" }, slots = [{ count = 0 }] }",
    ));
}

#[test]
fn slots_that_are_told_to_stop_wait_when_the_agent_no_longer_stops_by_itself() {
    passes(&habits(
        "",
        "submit = \"m\"\nreport = { runner = \"r1\", stops = \"manual\" }\ncomplete = \"m\"\nstop_slot = \"m\"\nadvance = \"30s\"\n\
         expect.slots = [{ state = \"stopping\" }]\ngone = \"m\"\nexpect.slots = [{ count = 0 }]",
    ));
}

#[test]
fn a_slot_that_came_to_a_bad_end_is_gone_when_the_agent_stops_by_itself_from_now_on() {
    passes(&habits(
        "stops = \"manual\"",
        "submit = { model = \"m\", kind = \"job\" }\nfail = \"m\"\nadvance = \"20s\"\nexpect.slots = [{ state = \"failed\" }]\n\
         report = { runner = \"r1\", stops = \"auto\" }\nexpect.slots = [{ state = \"failed\", count = 0 }]",
    ));
}

/// What an agent said of a slot's end stands until a step says more.
#[test]
fn a_slot_without_proof_is_not_proven_by_a_change_of_habits() {
    passes(&habits(
        "stops = \"manual\"",
        "submit = \"m\"\ncomplete = \"m\"\nstop_slot = \"m\"\ngone = { slot = \"m\", driver_clear = false }\n\
         report = { runner = \"r1\", stops = \"auto\" }\nadvance = \"20s\"\nexpect.slots = [{ state = \"stopping\" }]\n\
         gone = \"m\"\nexpect.slots = [{ count = 0 }]",
    ));
}

/// A step that says how a slot is has the last word.
#[test]
fn a_slot_that_the_same_report_calls_starting_is_starting() {
    passes(&habits(
        "starts = \"manual\"",
        "submit = { model = \"m\", count = 2 }\nreport = { runner = \"r1\", starts = \"auto\", slots = { m = { state = \"starting\" } } }\n\
         expect.workloads = { m = { state = \"assigned\" }, \"m#2\" = { state = \"running\" } }\nready = \"m\"\n\
         expect.workloads.m = { state = \"running\" }",
    ));
}

/// One that is being stopped before it came up is not started by it, and a promise is kept in the new way.
#[test]
fn a_slot_on_its_way_out_does_not_come_up_again() {
    passes(&habits(
        "starts = \"manual\"\nstops = \"manual\"",
        "submit = { model = \"m\", count = 2 }\ncancel = \"m\"\nstop_slot = \"m\"\nsubmit = \"n\"\n\
         expect.workloads.n = { slot_state = \"promised\" }\nreport = { runner = \"r1\", starts = \"auto\" }\n\
         expect = { slots = [{ state = \"stopping\" }, { state = \"ready\" }, { state = \"promised\" }] }\n\
         report = { runner = \"r1\", stops = \"auto\" }\nexpect.workloads.n = { state = \"running\" }",
    ));
}

/// Habits are those of the agent: they outlive its restart, a silence and the server.
#[test]
fn habits_stay_until_they_are_changed_again() {
    passes(&habits(
        "",
        "report = { runner = \"r1\", starts = \"manual\" }\nsilence = \"r1\"\nadvance = \"40s\"\nreturn = \"r1\"\nrestart = true\n\
         register = \"r1\"\nsubmit = \"m\"\nexpect.workloads.m = { state = \"assigned\" }",
    ));
}

/// A change of habits that the server never hears of holds all the same.
#[test]
fn a_report_that_is_refused_changes_the_agent_all_the_same() {
    passes(&habits(
        "starts = \"manual\"",
        "submit = \"m\"\nreport = { runner = \"r1\", starts = \"auto\", sequence = 1 }\nrefused = \"old_report\"\nadvance = \"10s\"\n\
         expect.workloads.m = { state = \"running\" }",
    ));
}
