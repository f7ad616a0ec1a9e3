//! What must be true after each command.
//!
//! [`Assertions`] follows the events of each step on copies of the core and on the reference model. [`placement`] compares
//! decisions with brute force, [`reference`] compares views with the reference model.

mod placement;
mod reference;

use std::collections::BTreeMap;

use berth_core::{
    Answer, Closed, Command, Event, Refusal, ReservedFor, Settings, State, Step, apply, invariants, step,
    view::DeviceView,
};
use berth_domain::{DeviceUuid, GpuHealth, GpuReport, WorkloadId};

use crate::assertions::placement::{check_decision, check_waiting};
use crate::assertions::reference::compare;
use crate::reference::{Reference, Workload};
use crate::system_under_test::{AssertionResult, FailedAssertion};

macro_rules! ensure {
    ($check:literal, $condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(FailedAssertion { check: $check, text: format!($($text)*) });
        }
    };
}
pub(crate) use ensure;

/// The assertions, and what they remember from step to step.
pub struct Assertions {
    /// A second core that executes the same commands.
    twin: State,
    /// A third core that applies the same events, one by one.
    mirror: State,
    /// The reference model of the same events.
    reference: Reference,
    /// Whether each decision is compared with a brute-force search too, which is slow.
    pub checks_placement: bool,
}

impl Assertions {
    /// Makes the assertions for an empty core with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            twin: State::new(settings.clone()),
            mirror: State::new(settings),
            reference: Reference::default(),
            checks_placement: true,
        }
    }

    /// Checks every assertion after a step.
    pub fn after(&mut self, before: &State, command: &Command, done: &Step, state: &State) -> AssertionResult {
        self.check_idempotency(command, done)?;
        self.follow_events(done)?;
        invariants::check(state)
            .map_err(|violation| FailedAssertion { check: "invariants", text: violation.to_string() })?;
        check_lines(state)?;
        check_sizes(command, done, state)?;
        compare(&self.reference, state)?;
        if self.checks_placement {
            check_waiting(&self.reference, state)?;
        }
        check_refusal(before, done, state)?;
        self.check_determinism(command, done, state)?;
        check_settled(done, state)
    }

    /// Applies the events one by one, and checks every ledger after each.
    fn follow_events(&mut self, done: &Step) -> AssertionResult {
        let mut ledgers = by_uuid(self.mirror.devices());
        for (position, event) in done.events.iter().enumerate() {
            if let Event::SlotPlaced(placed) = event {
                let owner = done.events.get(position + 1).and_then(owner_of).and_then(|id| self.mirror.workload(id));
                let priority = owner.as_ref().map(|row| row.priority).unwrap_or_default();
                let name = owner
                    .map_or_else(|| ReservedFor::Replica(placed.model.clone()), |row| ReservedFor::Workload(row.id));
                let reservations = self.mirror.reservations();
                for claim in &placed.claims {
                    let kept = reservations.iter().find(|row| row.devices.contains(&claim.uuid));
                    let passes = kept.is_some_and(|row| row.owner == name || row.priority < priority);
                    let open = ledgers.get(&claim.uuid).is_some_and(|device| {
                        device.closed.is_none() || passes && device.closed == Some(Closed::Reserved)
                    });
                    ensure!("open devices", open, "{event:?} on {:?}", ledgers.get(&claim.uuid));
                }
            }
            if self.checks_placement {
                check_decision(&self.reference, &self.mirror, &done.events, position, done.at)?;
            }
            self.reference.apply(event, done.at)?;
            apply(&mut self.mirror, event, done.at);
            let after = by_uuid(self.mirror.devices());
            for (uuid, device) in &after {
                let Some(known) = ledgers.get(uuid) else { continue };
                check_change(event, known, device)?;
            }
            for (uuid, device) in ledgers.iter().filter(|(uuid, _)| !after.contains_key(uuid)) {
                let freed = device.claims.is_empty() || frees(event);
                ensure!("memory leaves on proof", freed, "{uuid} went with its claims by {event:?}");
            }
            ledgers = after;
        }
        Ok(())
    }

    /// Checks idempotency: the same key and body is the same workload, another body is refused.
    fn check_idempotency(&self, command: &Command, done: &Step) -> AssertionResult {
        let Command::Submit { submission, .. } = command else { return Ok(()) };
        let forgotten = |id: &WorkloadId| {
            done.events.iter().any(|event| matches!(event, Event::WorkloadForgotten { workload } if workload == id))
        };
        let same_key = |row: &Workload| {
            row.submission.idempotency_key.is_some() && row.submission.idempotency_key == submission.idempotency_key
        };
        let known = self.reference.workloads.iter().find(|(_, row)| same_key(row));
        if known.is_some_and(|(id, _)| forgotten(id)) {
            // In this very step: before or after the command, either answer is right.
            return Ok(());
        }
        let right = match (known, &done.answer) {
            (Some((id, row)), Ok(Answer::Submitted { workload, repeated })) => {
                *row.submission == *submission && workload == id && *repeated
            }
            (Some((id, row)), Err(Refusal::KeyReused(other))) => *row.submission != *submission && id == other,
            (Some(_), _) => false,
            (None, Ok(Answer::Submitted { repeated, .. })) => !repeated,
            (None, answer) => !matches!(answer, Err(Refusal::KeyReused(_))),
        };
        ensure!("idempotency", right, "{command:?}: {:?}, known {known:?}", done.answer);
        Ok(())
    }

    fn check_determinism(&mut self, command: &Command, done: &Step, state: &State) -> AssertionResult {
        let again = step(&mut self.twin, command, done.at);
        ensure!("same commands, same events", again.events == done.events, "{:?}\n{:?}", done.events, again.events);
        ensure!("same commands, same answer", again.answer == done.answer, "{:?} {:?}", done.answer, again.answer);
        let print = state.fingerprint();
        ensure!("same commands, same state", self.twin.fingerprint() == print, "after {command:?}");
        ensure!("same events, same state", self.mirror.fingerprint() == print, "{}", difference(&self.mirror, state));
        Ok(())
    }
}

fn by_uuid(devices: Vec<DeviceView>) -> BTreeMap<DeviceUuid, DeviceView> {
    devices.into_iter().map(|device| (device.uuid.clone(), device)).collect()
}

/// Returns the workload that an event gives a slot to.
#[must_use]
pub fn owner_of(event: &Event) -> Option<WorkloadId> {
    match event {
        Event::WorkloadAssigned { workload, .. } => Some(*workload),
        _ => None,
    }
}

fn frees(event: &Event) -> bool {
    matches!(event, Event::SlotReleased { .. } | Event::StrayReleased { .. } | Event::PromiseWithdrawn { .. })
}

/// Checks what one event may change of one device.
fn check_change(event: &Event, before: &DeviceView, after: &DeviceView) -> AssertionResult {
    let claimed = |device: &DeviceView| device.claims.iter().map(|claim| u128::from(claim.bytes.get())).sum::<u128>();
    let less = claimed(after) < claimed(before);
    ensure!("memory leaves on proof", !less || frees(event), "{event:?}: {before:?} -> {after:?}");
    let reality = matches!(
        event,
        Event::DeviceAttached { .. }
            | Event::DeviceDetached { .. }
            | Event::RunnerForgotten { .. }
            | Event::ForeignChanged { .. }
            | Event::SlotCharged { .. }
            | Event::StrayFound { .. }
    );
    let worse = after.overcommitted && !before.overcommitted;
    ensure!("only reality breaks a line", !worse || reality, "{event:?}: {before:?} -> {after:?}");
    let grew = matches!(event, Event::SlotPlaced(_) | Event::PromiseKept { .. }) && before != after;
    ensure!("nothing new on overcommitted", !(grew && before.overcommitted), "{event:?}: {before:?} -> {after:?}");
    Ok(())
}

/// Checks both inequalities of every device, computed from its view.
pub fn check_lines(state: &State) -> AssertionResult {
    for device in state.devices() {
        let b = device.balance;
        let [capacity, held, releasing, promised, foreign] =
            [b.capacity, b.held, b.releasing, b.promised, b.foreign].map(|bytes| u128::from(bytes.get()));
        let now = held + releasing + foreign <= capacity;
        let future = held + foreign + promised <= capacity;
        ensure!("the lines", device.overcommitted != (now && future), "{device:?}");
        ensure!("overcommitted is closed", !device.overcommitted || device.closed.is_some(), "{device:?}");
        let of = |phase| {
            let claims = device.claims.iter().filter(|claim| claim.phase == phase);
            claims.map(|claim| u128::from(claim.bytes.get())).sum::<u128>()
        };
        use berth_core::Phase::{Held, Promised, Releasing};
        let folded = (of(Held), of(Releasing), of(Promised)) == (held, releasing, promised);
        ensure!("the fold of the claims", folded, "{device:?}");
    }
    Ok(())
}

/// Checks that no device is larger than its smallest reported entry: a replica is a name, not memory.
fn check_sizes(command: &Command, done: &Step, state: &State) -> AssertionResult {
    let (Command::Report(report), Ok(_)) = (command, &done.answer) else { return Ok(()) };
    // A driver that does not answer for a GPU says nothing of its size: it is as large as it was.
    let says_its_size = |gpu: &&GpuReport| matches!(gpu.health, GpuHealth::Ok | GpuHealth::Failed);
    for gpu in report.gpus.iter().filter(says_its_size) {
        let Some(device) = state.device(&gpu.uuid) else { continue };
        let here = device.runners.iter().any(|(runner, _)| *runner == report.runner);
        let usable = gpu.memory_total.saturating_sub(gpu.memory_reserved);
        ensure!("a replica is a name", !here || device.balance.capacity <= usable, "{usable} of {device:?}");
    }
    Ok(())
}

/// Checks that a refused command changed nothing but what its timers would have changed anyway.
fn check_refusal(before: &State, done: &Step, state: &State) -> AssertionResult {
    let Err(refusal) = &done.answer else { return Ok(()) };
    ensure!("refusals have a code", !refusal.code().is_empty(), "{refusal:?}");
    let mut ticked = before.clone();
    let tick = step(&mut ticked, &Command::Tick, done.at);
    ensure!("refusals change nothing", tick.events == done.events, "{refusal:?}: {:?}", done.events);
    ensure!("refusals change nothing", ticked.fingerprint() == state.fingerprint(), "{refusal:?}");
    Ok(())
}

/// Checks that settling again changes nothing.
fn check_settled(done: &Step, state: &State) -> AssertionResult {
    let due = state.next_timer().is_some_and(|at| at <= done.at);
    ensure!("no timer is left due", !due, "{:?} at {:?}, after {:?}", state.next_timer(), done.at, done.events);
    let mut again = state.clone();
    let tick = step(&mut again, &Command::Tick, done.at);
    ensure!("settled", tick.events.is_empty(), "a tick right after still finds {:?}", tick.events);
    // Nothing was overlooked either: with everything in the dirty set again there is still nothing to do.
    let mut again = state.clone();
    again.note_everything();
    let tick = step(&mut again, &Command::Tick, done.at);
    // The reason that is shown for waiting may lag behind; an action may not.
    let actions: Vec<&Event> =
        tick.events.iter().filter(|event| !matches!(event, Event::WorkloadWaits { .. })).collect();
    ensure!("nothing was overlooked", actions.is_empty(), "when asked again: {actions:?}");
    Ok(())
}

/// Describes where two states differ.
#[must_use]
pub fn difference(one: &State, other: &State) -> String {
    let parts = |state: &State| {
        [
            format!("revision {:?}", state.revision()),
            format!("{:?}", state.devices()),
            format!("{:?}", state.hosts()),
            format!("{:?}", state.slots()),
            format!("{:?}", state.workloads()),
            format!("{:?}", state.runners()),
            format!("{:?}", state.models()),
            format!("{:?}", state.queue()),
        ]
    };
    let pairs = parts(one).into_iter().zip(parts(other));
    pairs.filter(|(a, b)| a != b).map(|(a, b)| format!("{a}\n!= {b}\n")).collect()
}
