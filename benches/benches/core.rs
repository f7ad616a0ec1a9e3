//! How fast the core decides, and how much it holds.

use berth_benches::measure::{Runs, Samples};
use berth_benches::table::{Goal, Table};
use berth_benches::world::World;
use berth_benches::{catalogue, world};
use berth_core::Outcome;
use berth_domain::Submission;

const FILLS: [f64; 4] = [0.0, 50.0, 90.0, 99.0];
const RUNS: usize = 5;

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let mut table = Table::default();
    place(&mut table, quick);
    print!("{table}");
}

fn place(table: &mut Table, quick: bool) {
    let samples = if quick { 240 } else { 2400 };
    let sizes: &[usize] = if quick { &[100, 1000] } else { &[100, 1000, 10_000] };
    let mut worlds: Vec<(String, World)> = Vec::new();
    for size in sizes {
        worlds.push((size.to_string(), World::new(&world::eights(*size))));
        eprintln!("built {size}");
    }
    worlds.push(("1213".into(), World::new(&world::mixed())));
    for (_, w) in &mut worlds {
        w.put(world::whole_catalogue());
    }
    for fill in FILLS {
        let mut runs: Vec<Runs> = worlds.iter().map(|_| Runs::default()).collect();
        for (name, w) in &mut worlds {
            w.fill_to(fill);
            eprintln!("{name} filled to {:.1} {} slots", w.fill(), w.slots());
        }
        for _ in 0..RUNS {
            for ((_, w), runs) in worlds.iter_mut().zip(&mut runs) {
                runs.add(place_run(w, samples));
            }
        }
        for ((name, _), runs) in worlds.iter().zip(&runs) {
            table.samples(
                format!("place, {name} runners, {fill} % full"),
                runs.best().as_ref(),
                Goal::mean_us(5).and_p99_us(50),
            );
        }
        print!("{table}");
    }
}

fn place_run(w: &mut World, samples: usize) -> Samples {
    let models = catalogue::submitted();
    let mut out = Samples::default();
    for n in 0..samples {
        let (id, cmd) = w.submit(Submission::job(models[n % models.len()].name.clone()));
        let (time, step) = w.timed(&cmd);
        if step.reports.iter().any(|r| r.outcome == Outcome::Placed) {
            out.add(time, &step);
        }
        w.cancel(id);
        w.calm();
    }
    out
}
