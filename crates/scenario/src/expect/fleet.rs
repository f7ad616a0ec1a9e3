//! Devices, hosts and runners. The name `*` means each of them.

use berth_core::view::{DeviceView, HostView, RunnerView};
use berth_domain::{DesiredAction, DesiredSlot, RunnerId, SlotId};

use super::{Findings, many};
use crate::format::expect::{DeviceExpect, Expect, HostExpect, RunnerExpect};
use crate::vocabulary::{admission, liveness};
use crate::world::World;

pub(super) fn check(world: &World, expect: &Expect, found: &mut Findings) {
    check_devices(world, expect, found);
    check_hosts(world, expect, found);
    check_runners(world, expect, found);
    check_desired(world, expect, found);
}

fn check_devices(world: &World, expect: &Expect, found: &mut Findings) {
    let all = world.state.devices();
    found.wanted("device_count", expect.device_count.as_ref(), &many(all.len()));
    for (uuid, expected) in expect.devices.iter().flatten() {
        if uuid.as_str() == "*" {
            exists("device", all.len(), found);
            all.iter().for_each(|view| check_device(expected, view, found));
            continue;
        }
        let view = all.iter().find(|view| view.uuid == *uuid);
        found.is(format!("device {uuid}: known"), Some(expected.known.unwrap_or(true)), view.is_some());
        if let Some(view) = view {
            check_device(expected, view, found);
        }
    }
}

/// What is expected of each is expected of one at least.
fn exists(kind: &str, there: usize, found: &mut Findings) {
    if there == 0 {
        found.differs(format!("{kind} *: there is none"));
    }
}

fn check_device(expected: &DeviceExpect, view: &DeviceView, found: &mut Findings) {
    let what = |part: &str| format!("device {}: {part}", view.uuid);
    let balance = &view.balance;
    for (part, expected, there) in [
        ("capacity", &expected.capacity, balance.capacity),
        ("held", &expected.held, balance.held),
        ("releasing", &expected.releasing, balance.releasing),
        ("promised", &expected.promised, balance.promised),
        ("foreign", &expected.foreign, balance.foreign),
        ("free", &expected.free, balance.free),
    ] {
        found.wanted(what(part), expected.as_ref(), &there);
    }
    found.wanted(what("closed"), expected.closed.as_ref(), view.closed.map_or("no", |why| why.code()));
    found.is(what("overcommitted"), expected.overcommitted, view.overcommitted);
    found.is(what("sizes_differ"), expected.sizes_differ, view.sizes_differ);
    found.is(what("attributed"), expected.attributed, view.attributed);
    found.wanted(what("claims"), expected.claims.as_ref(), &many(view.claims.len()));
    found.wanted(what("replicas"), expected.replicas.as_ref(), &u64::from(view.replicas));
    let runners = view.runners.iter().map(|(runner, _)| runner.to_string()).collect();
    found.set(what("runners"), expected.runners.as_ref(), runners);
}

fn check_hosts(world: &World, expect: &Expect, found: &mut Findings) {
    let all = world.state.hosts();
    for (machine, expected) in expect.hosts.iter().flatten() {
        let each = machine.as_str() == "*";
        let mut views = all.iter().filter(|view| each || view.machine == *machine).peekable();
        if views.peek().is_none() {
            found.differs(format!("host {machine}: not known"));
        }
        views.for_each(|view| check_host(expected, view, found));
    }
}

fn check_host(expected: &HostExpect, view: &HostView, found: &mut Findings) {
    let what = |part: &str| format!("host {}: {part}", view.machine);
    let cpu = &view.cpu;
    for (part, expected, there) in [
        ("cpu_capacity", &expected.cpu_capacity, cpu.capacity),
        ("cpu_held", &expected.cpu_held, cpu.held),
        ("cpu_releasing", &expected.cpu_releasing, cpu.releasing),
        ("cpu_promised", &expected.cpu_promised, cpu.promised),
        ("cpu_free", &expected.cpu_free, cpu.free),
    ] {
        found.wanted(what(part), expected.as_ref(), &there.get());
    }
    let ram = &view.ram;
    for (part, expected, there) in [
        ("ram_capacity", &expected.ram_capacity, ram.capacity),
        ("ram_held", &expected.ram_held, ram.held),
        ("ram_releasing", &expected.ram_releasing, ram.releasing),
        ("ram_promised", &expected.ram_promised, ram.promised),
        ("ram_free", &expected.ram_free, ram.free),
    ] {
        found.wanted(what(part), expected.as_ref(), &there);
    }
}

fn check_runners(world: &World, expect: &Expect, found: &mut Findings) {
    let all = world.state.runners();
    for (id, expected) in expect.runners.iter().flatten() {
        if id.as_str() == "*" {
            exists("runner", all.len(), found);
            all.iter().for_each(|view| check_runner(expected, view, world.state.slots_of(&view.id).len(), found));
            continue;
        }
        let view = all.iter().find(|view| view.id == *id);
        found.is(format!("runner {id}: known"), Some(expected.known.unwrap_or(true)), view.is_some());
        if let Some(view) = view {
            check_runner(expected, view, world.state.slots_of(&view.id).len(), found);
        }
    }
}

fn check_runner(expected: &RunnerExpect, view: &RunnerView, slots: usize, found: &mut Findings) {
    let what = |part: &str| format!("runner {}: {part}", view.id);
    found.wanted(what("liveness"), expected.liveness.as_ref(), liveness(view.liveness));
    found.wanted(what("admission"), expected.admission.as_ref(), admission(view.admission));
    found.is(what("reported"), expected.reported, view.reported);
    found.wanted(what("incarnation"), expected.incarnation.as_ref(), &view.incarnation.get());
    let text = |list: &[berth_domain::DeviceUuid]| list.iter().map(ToString::to_string).collect();
    found.set(what("devices"), expected.devices.as_ref(), text(&view.devices));
    found.set(what("disputed"), expected.disputed.as_ref(), text(&view.disputed));
    found.wanted(what("slots"), expected.slots.as_ref(), &many(slots));
}

fn check_desired(world: &World, expect: &Expect, found: &mut Findings) {
    for (runner, expected) in expect.desired.iter().flatten() {
        let model = |id| model_of(world, runner, id);
        let line = |slot: DesiredSlot| match slot.action {
            DesiredAction::Run(_) => Some(format!("run {}", model(slot.id))),
            DesiredAction::Stop => Some(format!("stop {}", model(slot.id))),
            DesiredAction::Account => None,
        };
        let told = world.state.desired(runner).into_iter().filter_map(line).collect();
        found.set(format!("desired of {runner}"), Some(expected), told);
    }
    for (runner, expected) in expect.accounts.iter().flatten() {
        let asked = world.state.desired(runner).into_iter().filter(|slot| slot.action == DesiredAction::Account);
        let models = asked.map(|slot| model_of(world, runner, slot.id)).collect();
        found.set(format!("slots that {runner} is asked about"), Some(expected), models);
    }
}

fn model_of(world: &World, runner: &RunnerId, slot: SlotId) -> String {
    let views = world.state.slots();
    let view = views.into_iter().find(|view| view.id == slot && view.runner == *runner);
    view.and_then(|view| view.model).map_or_else(|| "unknown".to_owned(), |model| model.to_string())
}
