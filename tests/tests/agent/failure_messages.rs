//! A first day of a user: six models that do not run, each for another reason. Whatever command they try says the cause
//! and the way out.

use std::collections::BTreeMap;

use berth_tests::fleet::{Fleet, Machine, Model};
use berth_tests::service::{cli, eventually};
use serde_json::{Value, json};

/// What a user prints, with what differs from day to day replaced.
struct Day {
    fleet: Fleet,
    machine: Machine,
    /// What stands in texts, and what is shown instead.
    names: BTreeMap<String, String>,
}

impl Day {
    fn new() -> Self {
        let fleet = Fleet::with(&["scheduler.attempts=2", "scheduler.backoff=100ms"]);
        let machine = Machine::new(&[80]);
        let names = BTreeMap::from([(machine.uuid(0), "GPU-0".to_owned())]);
        Self { fleet, machine, names }
    }

    /// Adds a model and submits a lease of it, as the command line does.
    fn submit(&self, model: &Model) -> String {
        self.fleet.model(model);
        let printed = cli(&self.fleet.api, &["submit", model.name(), "--output", "json"]).ok();
        let row: Value = serde_json::from_str(&printed).unwrap();
        row["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a workload has failed and nothing of it is left on the GPU.
    fn fails(&self, id: &str) {
        self.fleet.until(id, "failed");
        let uuid = self.machine.uuid(0);
        self.fleet.until_charge(&uuid, "its memory is free", |charge| charge.used() == 0 && charge.free == 80);
    }

    /// Everything that a user would try about a workload, below each other.
    fn tries(&mut self, model: &str, id: &str) -> String {
        self.names.insert(id.to_owned(), "WORKLOAD".to_owned());
        let row = self.fleet.api.workload(id);
        for (number, attempt) in (1..).zip(row["attempts"].as_array().into_iter().flatten()) {
            self.names.insert(attempt["slot_id"].as_str().unwrap().to_owned(), format!("SLOT-{number}"));
        }
        let commands: [&[&str]; 4] = [&["workloads", id], &["explain", id], &["logs", id], &["fit", model]];
        let mut text: String = commands.iter().map(|args| self.printed(args)).collect();
        let shown = redacted(json!({
            "workload": self.fleet.api.workload(id),
            "now": self.fleet.api.get(&format!("/api/v1/workloads/{id}/explain")).is(200).body["now"],
        }));
        text += &format!("JSON\n{}\n", serde_json::to_string_pretty(&shown).unwrap());
        self.plain(&text)
    }

    /// A command and what it prints.
    fn printed(&self, args: &[&str]) -> String {
        let printed = cli(&self.fleet.api, args);
        format!("$ berth {}    (status {})\n{}{}\n", args.join(" "), printed.status, printed.out, printed.err)
    }

    fn plain(&self, text: &str) -> String {
        let text = self.names.iter().fold(text.to_owned(), |text, (name, shown)| text.replace(name, shown));
        text.lines().map(|line| format!("{}\n", plain_line(line))).collect()
    }
}

/// Times and numbers that differ from day to day.
fn redacted(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| match name.as_str() {
                "waited_ms" | "revision" => (name, json!(0)),
                _ => (name, redacted(value)),
            })
            .collect(),
        Value::Array(rows) => rows.into_iter().map(redacted).collect(),
        other => other,
    }
}

/// A line with its times and lengths of time replaced.
fn plain_line(line: &str) -> String {
    let edges = |c: char| "(),;:.\"]".contains(c);
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let core = word.trim_matches(edges);
        let shown = match core {
            _ if is_time(core) => "TIME",
            _ if is_span(core) => "SPAN",
            _ => core,
        };
        let word = if core.is_empty() { word.to_owned() } else { word.replacen(core, shown, 1) };
        // "1s 20ms" is one length of time.
        match words.last_mut().filter(|last| last.as_str() == "SPAN" || last.ends_with("(SPAN")) {
            Some(last) if word.starts_with("SPAN") => last.push_str(&word["SPAN".len()..]),
            _ => words.push(word),
        }
    }
    words.join(" ")
}

fn is_time(word: &str) -> bool {
    word.len() == "2026-01-31T09:30:00.000Z".len() && word.ends_with('Z') && word.contains("T")
}

/// `3s`, `45ms`, `2m3s`: digits and units, beginning with a digit.
fn is_span(word: &str) -> bool {
    let rest = word.trim_matches(|c: char| c.is_ascii_digit() || "dhmsun".contains(c));
    rest.is_empty() && word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(['s', 'm', 'h'])
}

#[test]
fn each_of_six_failing_models_names_its_cause_and_the_way_out() {
    let mut day = Day::new();
    // Before there is a runner everything is taken in. These two will never run on what comes.
    let large = day.submit(&Model::new("too-large", 500));
    let foreign = day.submit(&Model::new("no-runtime", 20).with("runtime", json!("tensorrt")));
    let _agent = day.machine.plan(&day.fleet).id("gpu-box").start(&day.fleet);
    for id in [&large, &foreign] {
        eventually("it is judged anew", || {
            (day.fleet.api.workload(id)["reason"]["code"] == "no_longer_fits").then_some(())
        });
    }
    for (name, id, snapshot) in [
        ("too-large", &large, "a_model_that_is_too_large"),
        ("no-runtime", &foreign, "a_model_whose_runtime_nobody_has"),
    ] {
        // Now that there is a runner, another one is refused.
        let refused = day.printed(&["submit", name]);
        insta::assert_snapshot!(snapshot, day.tries(name, id) + &day.plain(&refused));
    }

    let out_of_memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    for (name, args, code, exit, snapshot) in [
        (
            "crashes",
            vec!["--say", "cannot parse the tokenizer", "--exit", "3"],
            "crashed",
            json!({ "code": 3 }),
            "a_model_whose_program_crashes",
        ),
        (
            "wrong-argument",
            vec!["--max-model-length", "4096"],
            "bad_argument",
            json!({ "code": 2 }),
            "a_model_with_a_wrong_argument",
        ),
        ("never-healthy", vec!["--never-ready"], "never_ready", Value::Null, "a_model_that_never_gets_healthy"),
        (
            "out-of-memory",
            vec!["--say", out_of_memory, "--exit", "1"],
            "out_of_memory",
            json!({ "code": 1 }),
            "a_model_that_runs_out_of_memory",
        ),
    ] {
        let id = day.submit(&Model::new(name, 20).args(&args));
        day.fails(&id);
        let row = day.fleet.api.workload(&id);
        let attempts = row["attempts"].as_array().cloned().unwrap_or_default();
        assert_eq!(attempts.len(), 2, "{row}");
        for attempt in &attempts {
            assert_eq!((&attempt["reason"]["code"], &attempt["exit"]), (&json!(code), &exit), "{row}");
            assert_eq!(attempt["runner_id"], "gpu-box", "{row}");
            assert!(attempt["hint"].is_string() && attempt["last_lines"].is_array(), "{row}");
        }
        insta::assert_snapshot!(snapshot, day.tries(name, &id));
    }
}
