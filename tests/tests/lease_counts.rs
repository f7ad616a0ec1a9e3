//! Counts of active leases over histories that are too long for a scenario file: the scenario is generated.

use std::collections::VecDeque;
use std::fmt::Write;

use berth_scenario::run_text;

/// Q4: 50 tasks, each starts and finishes ten requests, in any order; one slot serves eight at once. What is active is
/// known after each step, and is nothing in the end.
#[test]
fn q4_fifty_tasks_ten_times_end_with_nothing_active() {
    const TASKS: usize = 50;
    const ROUNDS: usize = 10;
    const CONCURRENCY: usize = 8;
    for seed in 1..=3 {
        let mut dice = Dice(seed);
        let mut text = format!(
            "id = \"Q4c\"\ntitle = \"seed {seed}\"\n[[runner]]\nid = \"r1\"\ngpus = \"2x80GiB\"\n[[model]]\n\
             name = \"m\"\nmemory = \"60GiB\"\nconcurrency = {CONCURRENCY}\nmax_replicas = 1\n"
        );
        let mut say = |step: String| {
            let _ = write!(text, "[[step]]\n{step}\n");
        };
        let mut rounds = [0usize; TASKS];
        // Tasks that do nothing now, tasks whose request runs, tasks whose request waits.
        let (mut resting, mut running, mut waiting): (Vec<usize>, Vec<usize>, VecDeque<usize>) =
            ((0..TASKS).collect(), Vec::new(), VecDeque::new());
        let (mut finished, mut cancelled) = (0, 0);
        while finished + cancelled < TASKS * ROUNDS {
            let starts = !resting.is_empty() && (running.is_empty() || dice.roll(3) > 0);
            if starts {
                let task = resting.swap_remove(dice.roll(resting.len()));
                say(format!("submit = {{ model = \"m\", name = \"{task}-{}\" }}", rounds[task]));
                if running.len() < CONCURRENCY { running.push(task) } else { waiting.push_back(task) }
            } else {
                let task = running.swap_remove(dice.roll(running.len()));
                let name = format!("{task}-{}", rounds[task]);
                let (verb, sort) = match dice.roll(4) {
                    0 => ("cancel", &mut cancelled),
                    _ => ("complete", &mut finished),
                };
                *sort += 1;
                say(format!("{verb} = \"{name}\""));
                if dice.roll(2) == 0 {
                    say(format!("note = \"Said again.\"\n{verb} = \"{name}\""));
                }
                running.extend(waiting.pop_front());
                rounds[task] += 1;
                if rounds[task] < ROUNDS {
                    resting.push(task);
                }
            }
            say(format!(
                "expect = {{ slots = [{{ model = \"m\", state = \"ready\", active = {} }}], queue_length = {}, \
                 states = {{ running = {}, succeeded = {finished}, cancelled = {cancelled} }} }}",
                running.len(),
                waiting.len(),
                running.len()
            ));
        }
        assert!(cancelled > 0 && finished > 0 && running.is_empty());
        say("expect.slots = [{ model = \"m\", state = \"ready\", active = 0 }]".to_owned());
        let result = run_text("q4.toml", &text);
        assert!(result.is_ok(), "seed {seed}: {}", result.err().map(|failed| failed.to_string()).unwrap_or_default());
    }
}

/// Small numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides
    }
}
