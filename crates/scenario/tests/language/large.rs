//! 20 000 submissions in one step. A cost that grows with the square of them (for names, look-ups, checks) takes minutes.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::passes;

const MANY: usize = 20_000;
/// Ten times what it should take, for a machine that is busy: it is there to notice a square, not a slow day.
const GUARD: Duration = Duration::from_secs(20);

fn passes_in_time(text: &str) {
    let start = Instant::now();
    passes(text);
    let taken = start.elapsed();
    assert!(taken < GUARD, "it took {taken:?}");
}

/// These runners and this model, and one step that submits many of it.
fn many(runners: &str, model: &str, submit: &str, expect: &str) -> String {
    format!(
        "id = \"x\"\ntitle = \"x\"\n[settings]\nqueue_limit = 30000\n[[runner]]\n{runners}\n[[model]]\nname = \"m\"\n{model}\n\
         [[step]]\nsubmit = {{ model = \"m\", count = {MANY}{submit} }}\n[[step]]\nexpect = {{ {expect} }}\n"
    )
}

const ONE_GPU: &str = "id = \"r1\"\ngpus = \"1x80GiB\"";
const JOB: &str = ", kind = \"job\"";

#[test]
fn many_of_one_model_wait() {
    for kind in ["", JOB] {
        let expect = "states = { running = 1, queued = 19999 }, workloads.\"m#20000\" = { position = 19999 }";
        passes_in_time(&many(ONE_GPU, "memory = \"60GiB\"", kind, expect));
    }
}

#[test]
fn many_leases_share_one_slot() {
    let model = format!("memory = \"60GiB\"\nconcurrency = {MANY}");
    let expect = format!("states = {{ running = {MANY} }}, slots = [{{ active = {MANY} }}]");
    passes_in_time(&many(ONE_GPU, &model, "", &expect));
}

#[test]
fn many_leases_share_many_slots() {
    let model = "memory = \"8GiB\"\ngpu_counts = [1]\nconcurrency = 10";
    let expect = format!("states = {{ running = {MANY} }}, slots = [{{ state = \"ready\", count = 2000 }}]");
    passes_in_time(&many("id = \"r\"\ncount = 25\ngpus = \"8x80GiB\"", model, "", &expect));
}

#[test]
fn many_jobs_run_on_many_gpus() {
    let model = "memory = \"8GiB\"\ngpu_counts = [1]";
    let expect = format!("states = {{ running = {MANY} }}, devices.\"*\" = {{ held = \"80GiB\" }}");
    passes_in_time(&many("id = \"r\"\ncount = 250\ngpus = \"8x80GiB\"", model, JOB, &expect));
}

#[test]
fn many_jobs_run_without_a_gpu() {
    let model = "memory = 0\ngpu_counts = [0]\ncpu_millicores = 1000";
    let expect = format!("states = {{ running = {MANY} }}, hosts.\"*\" = {{ cpu_free = 0 }}");
    passes_in_time(&many("id = \"r\"\ncount = 20", model, JOB, &expect));
}

#[test]
fn many_wait_for_a_first_runner() {
    let text = many(ONE_GPU, "memory = \"60GiB\"", "", "states = { queued = 20000 }");
    passes_in_time(&text.replace("gpus =", "registered = false\ngpus ="));
}

/// 100 models, 200 submissions of each.
#[test]
fn many_of_many_models_wait_and_run() {
    let mut text = String::from(
        "id = \"x\"\ntitle = \"x\"\n[settings]\nqueue_limit = 30000\n[[runner]]\nid = \"r\"\ncount = 25\ngpus = \"4x80GiB\"\n",
    );
    for number in 0..100 {
        let _ = write!(text, "[[model]]\nname = \"m{number}\"\nmemory = \"70GiB\"\ngpu_counts = [1]\n");
    }
    for number in 0..100 {
        let _ = write!(text, "[[step]]\nsubmit = {{ model = \"m{number}\", count = {} }}\n", MANY / 100);
    }
    text.push_str("[[step]]\nexpect = { states = { running = 100, queued = 19900 }, queue_length = 19900 }\n");
    passes_in_time(&text);
}
