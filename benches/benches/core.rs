//! How fast the core decides: one table, a goal and a verdict beside each number.
//!
//! A row is one kind of step: `decide`, `apply` and `settle` together. What a step changed is undone outside the
//! timing, so that every sample meets the same world.

use std::time::Duration;

use berth_benches::catalogue::{self, model, staying};
use berth_benches::measure::{Runs, Samples};
use berth_benches::table::{Goal, Table};
use berth_benches::world::{self, Hardware, World, complete};
use berth_core::{Event, Outcome, Step};
use berth_domain::{Bytes, HostReport, Millicores, ModelName, ModelSpec, Submission, WorkloadId};

/// Runs of each thing, taken in turns. The least mean of them counts; percentiles are those of all.
const RUNS: usize = 5;
/// Steps on a copied world that do not count: the first ones grow tables that were copied without room to spare.
const WARM_UP: usize = 5;

fn main() {
    let given = |word: &str| std::env::args().any(|arg| arg == word);
    // `cargo test --all-targets` runs this too, without the word.
    if !given("--bench") {
        return;
    }
    let bench = Bench { quick: given("--quick") };
    let mut table = Table::default();
    bench.placing_and_waiting(&mut table);
    bench.evicting(&mut table);
    bench.waking(&mut table);
    bench.processors(&mut table);
    bench.heartbeats(&mut table);
    bench.largest_reports(&mut table);
    print!("{table}");
    println!("{} goals missed", table.missed());
}

/// How long it may take.
#[derive(Clone, Copy)]
struct Bench {
    quick: bool,
}

/// A fleet with its name and what was measured in it.
struct Site {
    name: &'static str,
    world: World,
    place: Runs,
    no_fit: Runs,
}

impl Site {
    fn new(name: &'static str, fleet: &[Hardware]) -> Self {
        eprintln!("building {name} runners");
        let mut world = World::new(fleet);
        world.put(world::whole_catalogue());
        world.put(too_large_now());
        Self { name, world, place: Runs::default(), no_fit: Runs::default() }
    }
}

/// Models that fit empty GPUs only.
fn too_large_now() -> Vec<ModelSpec> {
    vec![model("huge/80g", 80, &[1]), model("huge/2x80g", 160, &[2]), model("huge/8x80g", 640, &[8])]
}

fn names(models: &[ModelSpec]) -> Vec<ModelName> {
    models.iter().map(|spec| spec.name.clone()).collect()
}

impl Bench {
    /// So many, or a tenth of it.
    fn many(self, samples: usize) -> usize {
        if self.quick { samples / 10 } else { samples }
    }

    fn placing_and_waiting(self, table: &mut Table) {
        let mut sites = vec![
            Site::new("100", &world::eights(100)),
            Site::new("1 000", &world::eights(1000)),
            Site::new("1 213", &world::mixed()),
        ];
        if !self.quick {
            sites.push(Site::new("10 000", &world::eights(10_000)));
        }
        for fill in [0, 50, 90, 99] {
            for site in &mut sites {
                site.world.fill_to(f64::from(fill));
                (site.place, site.no_fit) = (Runs::default(), Runs::default());
                eprintln!("{} runners are {:.1} % full: {} slots", site.name, site.world.fill(), site.world.slots());
            }
            for _ in 0..RUNS {
                for Site { world, place, no_fit, .. } in &mut sites {
                    let placed = |outcome| outcome == Outcome::Placed;
                    place.add(submit_and_undo(world, &names(&catalogue::submitted()), self.many(2400), placed));
                    let waits = |outcome| matches!(outcome, Outcome::Waiting(_));
                    no_fit.add(submit_and_undo(world, &names(&too_large_now()), self.many(600), waits));
                }
            }
            show_fill(table, &sites, fill);
        }
    }

    fn evicting(self, table: &mut Table) {
        let small = [staying("stay/16g", 16), staying("stay/24g", 24), staying("stay/40g", 40)];
        let rows = [
            ("evict 1 idle slot", model("need/36g", 36, &[1]), 1),
            ("evict 2 idle slots on 1 GPU", model("need/60g", 60, &[1]), 2),
            ("evict 2 idle slots on 2 GPUs", model("need/2x36g", 72, &[2]), 2),
        ];
        eprintln!("filling 1 000 runners with idle slots");
        let mut idle = World::new(&world::alike(1000));
        idle.put(small.iter().cloned().chain(rows.iter().map(|(_, spec, _)| spec.clone())));
        let leases = idle.fill_with_leases(&names(&small));
        idle.leave_idle(&leases);
        for (what, spec, victims) in rows {
            let evicts = |step: &Step| step.reports.iter().any(|report| report.evictions.len() == victims);
            let runs = self.on_copies(&idle, |world| {
                submit_all(world, &spec.name, WARM_UP, evicts);
                submit_all(world, &spec.name, self.many(100), evicts)
            });
            table.runs(format!("{what}, 1 000 runners"), &runs, Goal::mean_us(100));
        }

        eprintln!("filling 1 000 runners with idle slots of one model");
        let own = staying("own/40g", 40);
        let mut idle = World::new(&world::alike(1000));
        idle.put([own.clone()]);
        let leases = idle.fill_with_leases(&names(std::slice::from_ref(&own)));
        idle.leave_idle(&leases);
        let waits = |step: &Step| step.reports.iter().any(|report| matches!(report.outcome, Outcome::Waiting(_)));
        let runs = self.on_copies(&idle, |world| {
            submit_all(world, &own.name, WARM_UP, waits);
            submit_all(world, &own.name, self.many(50), waits)
        });
        let what = "no fit: idle slots of its own model everywhere, 1 000 runners";
        table.runs(what, &runs, Goal::mean_us(50));
    }

    fn waking(self, table: &mut Table) {
        eprintln!("filling 1 000 runners");
        let mut full = World::new(&world::alike(1000));
        full.put(world::whole_catalogue());
        full.fill_to(100.0);
        for (what, models) in [("10 000 waiting, 50 models", 50), ("10 000 waiting, 10 000 models", 10_000)] {
            eprintln!("wake: {what}");
            let mut world = full.clone();
            world.put((0..models).map(waiting_model));
            for place in 0..10_000 {
                let submission = Submission::job(waiting_model(place % models).name);
                let (_, command) = world.submit(submission);
                world.run(&command);
            }
            for _ in 0..WARM_UP {
                wake(&mut world, &mut Samples::default(), &mut Samples::default());
            }
            eprintln!("{} wait", world.state.queue().len());
            let (mut ended, mut gone, mut woken) = (Runs::default(), Runs::default(), 0);
            for _ in 0..RUNS {
                let (mut end, mut proof) = (Samples::default(), Samples::default());
                woken += (0..self.many(400)).filter(|_| wake(&mut world, &mut end, &mut proof)).count();
                ended.add(end);
                gone.add(proof);
            }
            let share = woken * 100 / (RUNS * self.many(400));
            table.runs(format!("job ends, {what}, {share} % wake one"), &ended, Goal::mean_us(200));
            table.runs(format!("job is proven gone, {what}"), &gone, Goal::mean_us(200));
        }
    }

    /// A hundred jobs without GPUs on twenty runners.
    fn processors(self, table: &mut Table) {
        let host = HostReport { cpu: Millicores::new(10_000), ram: Bytes::mib(20_480) };
        let runners: Vec<Hardware> =
            world::alike(20).into_iter().map(|hardware| Hardware { gpus: 0, host, ..hardware }).collect();
        let spec = ModelSpec { cpu: Millicores::new(100), ram: Bytes::mib(256), ..model("cpu/job", 1, &[0]) };
        let mut world = World::new(&runners);
        world.put([spec.clone()]);
        let mut best = Duration::MAX;
        let mut even = true;
        for _ in 0..RUNS {
            let mut world = world.clone();
            let placed = |step: &Step| step.events.iter().any(|event| matches!(event, Event::SlotPlaced(_)));
            let samples = submit_all(&mut world, &spec.name, 100, placed);
            best = best.min(samples.mean() * 100);
            even &= samples.len() == 100 && (0..20).all(|agent| world.slots_of(agent) == 5);
        }
        let value = format!("{:.1}", best.as_secs_f64() * 1e6);
        let what = format!("100 CPU jobs on 20 runners, all together; 5 on each: {}", if even { "yes" } else { "NO" });
        table.value(what, value, "<= 1000 us, 5 on each", even && best <= Duration::from_millis(1));
    }

    fn heartbeats(self, table: &mut Table) {
        eprintln!("filling 1 000 runners with 16 slots each");
        let spec = model("beat/40g", 40, &[1]);
        let mut world = World::new(&world::alike(1000));
        world.put([spec.clone()]);
        submit_all(&mut world, &spec.name, 16_000, |_| true);
        world.calm();
        let (mut reports, mut polls) = (Samples::default(), Samples::default());
        for sample in 0..self.many(5000) {
            let agent = sample * 7 % 1000;
            let report = world.report(agent);
            let (time, step) = world.timed(&report);
            reports.add(time, &step);
            let poll = world.poll(agent);
            let (time, step) = world.timed(&poll);
            polls.add(time, &step);
        }
        table.runs("unchanged report, 8 GPUs, 16 slots", &reports.into(), Goal::NONE);
        table.runs("poll", &polls.into(), Goal::NONE);
    }

    /// Runs on copies of a world, each as it was.
    fn on_copies(self, world: &World, run: impl Fn(&mut World) -> Samples) -> Runs {
        let mut runs = Runs::default();
        (0..RUNS).for_each(|_| runs.add(run(&mut world.clone())));
        runs
    }
}

fn show_fill(table: &mut Table, sites: &[Site], fill: u32) {
    let mean = |name: &str| sites.iter().find(|site| site.name == name).map(|site| site.place.least_mean());
    for site in sites {
        let goal = if site.name == "1 213" { Goal::mean_us(5).and_p99_us(50) } else { Goal::NONE };
        table.runs(format!("place, {} runners, {fill} % full", site.name), &site.place, goal);
    }
    if let (Some(small), Some(large)) = (mean("1 000"), mean("10 000")) {
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        let what = format!("place, 10 000 runners against 1 000, {fill} % full");
        table.value(what, format!("{ratio:.2} x"), "<= 2 x", ratio <= 2.0);
    }
    for site in sites.iter().filter(|site| !site.no_fit.is_empty()) {
        let goal = if site.name == "1 000" { Goal::mean_us(50) } else { Goal::NONE };
        table.runs(format!("no fit, explained, {} runners, {fill} % full", site.name), &site.no_fit, goal);
    }
}

impl Bench {
    /// Everybody waits for the writer while it takes in a report: the largest that is accepted must not take long.
    fn largest_reports(self, table: &mut Table) {
        eprintln!("reports as large as they may be, on 1 000 runners that are half full");
        let mut world = World::new(&world::eights(1000));
        world.put(world::whole_catalogue());
        world.fill_to(50.0);
        let rows = [("registers with 128 GPUs", 0), ("reports 512 unknown slots on 128 GPUs", 512)];
        for (what, slots) in rows {
            let mut longest = Duration::ZERO;
            for number in 0..self.many(50).max(5) {
                let report = world::largest_report(1_000_000 + slots + number, slots);
                let (time, step) = world.timed(&report);
                assert!(step.answer.is_ok(), "it is accepted: {:?}", step.answer);
                longest = longest.max(time);
            }
            let value = format!("{:.2} ms", longest.as_secs_f64() * 1e3);
            table.value(
                format!("a runner {what}, the longest"),
                value,
                "<= 50 ms",
                longest <= Duration::from_millis(50),
            );
        }
    }
}

/// Submits jobs of these models in turn and takes each back at once. Only those that came out as wanted count.
fn submit_and_undo(world: &mut World, models: &[ModelName], many: usize, wanted: impl Fn(Outcome) -> bool) -> Samples {
    let mut samples = Samples::default();
    for model in models.iter().cycle().take(many) {
        let (workload, command) = world.submit(Submission::job(model.clone()));
        let (time, step) = world.timed(&command);
        if step.reports.iter().any(|report| wanted(report.outcome)) {
            samples.add(time, &step);
        }
        world.cancel(workload);
        world.calm();
    }
    samples
}

/// Submits jobs of a model one after the other. Only those that came out as wanted count.
fn submit_all(world: &mut World, model: &ModelName, many: usize, wanted: impl Fn(&Step) -> bool) -> Samples {
    let mut samples = Samples::default();
    for _ in 0..many {
        let (_, command) = world.submit(Submission::job(model.clone()));
        let (time, step) = world.timed(&command);
        if wanted(&step) {
            samples.add(time, &step);
        }
    }
    samples
}

/// One of many models of fifty shapes: none fits a full fleet, and the smallest needs more than the smallest job frees.
fn waiting_model(number: u64) -> ModelSpec {
    let shape = number % 50;
    let counts: &[u16] = match shape % 10 {
        8 => &[2],
        9 => &[4],
        _ => &[1],
    };
    model(&format!("wait/{number}"), 9 + shape * u64::from(counts[0]), counts)
}

/// A job ends, and its agent proves that it is gone. Whoever got its memory is replaced by another who waits; says
/// whether anybody did.
fn wake(world: &mut World, ended: &mut Samples, gone: &mut Samples) -> bool {
    let Some(job) = world.any_job() else { return false };
    let (time, first) = world.timed(&complete(job));
    ended.add(time, &first);
    let stopping = first.events.iter().find_map(|event| match event {
        Event::SlotStopping { slot, .. } => world.agent_of(*slot),
        _ => None,
    });
    let Some(agent) = stopping else { return false };
    let report = world.report(agent);
    let (time, second) = world.timed(&report);
    gone.add(time, &second);
    world.calm();
    let woken: Vec<WorkloadId> = first.events.iter().chain(&second.events).filter_map(assigned).collect();
    for workload in &woken {
        let Some(model) = world.state.workload(*workload).map(|view| view.model) else { continue };
        let (_, command) = world.submit(Submission::job(model));
        world.run(&command);
    }
    !woken.is_empty()
}

fn assigned(event: &Event) -> Option<WorkloadId> {
    match event {
        Event::WorkloadAssigned { workload, .. } => Some(*workload),
        _ => None,
    }
}
