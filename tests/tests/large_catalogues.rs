//! Many of one thing: placement keys, GPUs full of one model's idle slots.

use std::fmt::Write;

use berth_scenario::run_text;

/// Plays a scenario that was too long to write by hand.
fn passes(text: &str) {
    if let Err(failed) = run_text("generated.toml", text) {
        unreachable!("{failed}");
    }
}

/// 25 GPUs of 25 names, and a model for every pair of names: each is a placement key of its own.
#[test]
fn the_300th_placement_key_is_as_good_as_the_first() {
    let mut text =
        String::from("id = \"keys\"\ntitle = \"300 sets of GPU names\"\n\n[[runner]]\nid = \"r1\"\ngpus = [\n");
    for name in 0..25 {
        let _ = writeln!(text, "    {{ memory = \"80GiB\", name = \"n{name}\" }},");
    }
    text.push_str("]\n\n");
    let pairs: Vec<(u32, u32)> = (0..25).flat_map(|a| (a + 1..25).map(move |b| (a, b))).collect();
    assert_eq!(pairs.len(), 300);
    for (a, b) in &pairs {
        let model = format!("m{a}-{b}");
        let _ = writeln!(
            text,
            "[[model]]\nname = \"{model}\"\nmemory = \"1GiB\"\ngpu_counts = [1]\ngpu_names = [\"n{a}\", \"n{b}\"]\n"
        );
    }
    for (a, b) in &pairs {
        let _ = writeln!(text, "[[step]]\nsubmit = \"m{a}-{b}\"\n");
    }
    let _ = writeln!(text, "[[step]]\nexpect.states = {{ running = 300 }}");
    passes(&text);
}

/// Models come and go under ever new names: what only they asked for is forgotten, and the next one is placed.
#[test]
fn placement_keys_of_models_that_are_gone_are_used_again() {
    let mut text =
        String::from("id = \"churn\"\ntitle = \"400 models, one after the other\"\n\n[[runner]]\nid = \"r1\"\n");
    text.push_str("gpus = [{ memory = \"80GiB\", name = \"a\" }, { memory = \"80GiB\", name = \"b\" }]\n\n");
    for number in 0..400 {
        let names = format!("[\"a\", \"never-{number}\"]");
        let _ = write!(
            text,
            "[[step]]\nput_model = {{ name = \"m{number}\", memory = \"1GiB\", gpu_counts = [1], gpu_names = {names}, \
             labels = {{}} }}\n\n[[step]]\nsubmit = {{ model = \"m{number}\", name = \"w{number}\" }}\n\n\
             [[step]]\nexpect.workloads.\"w{number}\" = {{ state = \"running\", on = [\"r1/0\"] }}\n\n\
             [[step]]\ncomplete = \"w{number}\"\n\n[[step]]\ndelete_model = \"m{number}\"\n\n"
        );
    }
    passes(&text);
}

/// A job of a model whose own idle slots fill nearly every GPU: the one idle slot of another model has to go.
#[test]
fn the_one_idle_slot_of_another_model_is_found_among_600() {
    let mut text = String::from(
        "id = \"needle\"\ntitle = \"600 GPUs full of the asking model's own idle slots\"\n\n\
         [[runner]]\nid = \"r\"\ncount = 600\ngpus = \"1x80GiB\"\n\n[[runner]]\nid = \"z\"\ngpus = \"1x80GiB\"\n\n\
         [[model]]\nname = \"own\"\nmemory = \"70GiB\"\ngpu_counts = [1]\nmin_run = \"1s\"\nkeep_alive = \"10h\"\n\n\
         [[model]]\nname = \"other\"\nmemory = \"75GiB\"\ngpu_counts = [1]\nmin_run = \"1s\"\nkeep_alive = \"10h\"\n\
         gpu_uuids = [\"z/0\"]\n\n[[step]]\nsubmit = \"other\"\n\n\
         [[step]]\nsubmit = { model = \"own\", name = \"o\", count = 600 }\n\n[[step]]\nadvance = \"2s\"\n\n\
         [[step]]\ncomplete = \"other\"\n\n",
    );
    for number in 1..=600 {
        let name = if number == 1 { "o".to_owned() } else { format!("o#{number}") };
        let _ = write!(text, "[[step]]\ncomplete = \"{name}\"\n\n");
    }
    text.push_str("[[step]]\nsubmit = { model = \"own\", name = \"job\", kind = \"job\" }\n\n");
    text.push_str("[[step]]\nexpect.workloads.job = { state = \"running\", on = [\"z/0\"] }\n");
    passes(&text);
}
