//! How many bytes the core's state takes for each device and each slot.
//!
//! A process of its own: an allocator that counts would slow what the other table measures.

use std::alloc::System;

use berth_benches::catalogue::POOLS;
use berth_benches::table::Table;
use berth_benches::world::{self, World};
use cap::Cap;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const RUNNERS: usize = 1000;

fn main() {
    // `cargo test --all-targets` runs this too, without the word.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let devices: usize = world::alike(RUNNERS).iter().map(|hardware| usize::from(hardware.gpus)).sum();
    let (empty, _) = held(0.0);
    let (full, slots) = held(99.0);
    let (per_device, per_slot) = (empty / devices, (full - empty) / slots.max(1));
    let mut table = Table::default();
    table.value(
        format!("state for each device ({devices} on {RUNNERS} runners, hosts and index included)"),
        format!("{per_device} B"),
        "<= 1024 B",
        per_device <= 1024,
    );
    table.value(
        format!("state for each slot ({slots} jobs, their workloads included)"),
        format!("{per_slot} B"),
        "<= 4096 B",
        per_slot <= 4096,
    );
    print!("{table}");
}

/// The bytes of a state that is so full, and its slots.
fn held(percent: f64) -> (usize, usize) {
    eprintln!("memory: {RUNNERS} runners, {percent} % full");
    let mut world = World::new(&world::alike(RUNNERS));
    world.put(world::whole_catalogue().into_iter().filter(|spec| spec.constraints.pool.as_str() == POOLS[0]));
    world.fill_to(percent);
    let slots = world.slots();
    let state = world.into_state();
    let with_state = ALLOCATOR.allocated();
    drop(state);
    (with_state - ALLOCATOR.allocated(), slots)
}
