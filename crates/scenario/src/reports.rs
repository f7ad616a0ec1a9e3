//! Steps that speak for an agent: what it registers as, what it sees, how its slots get on.

use std::collections::BTreeMap;

use berth_core::{Answer, Command, Refusal};
use berth_domain::{
    Bytes, DeviceUuid, Evidence, FailureReason, Generation, Incarnation, Millicores, ReportedClaim, ReportedState,
    Sequence, SlotEnd, SlotId,
};
use berth_sim::{Record, SimulatedSlot};

use crate::agent::{Agent, gpu, pace};
use crate::error::StepError;
use crate::format::{Exit, Fail, Gone, GpuChange, GpuText, Register, Report, SlotChange, SlotWord, StrayText};
use crate::names::KnownTo;
use crate::steps::{Taken, holder};
use crate::world::World;

/// An agent starts anew. After a reboot nothing of before runs, on any runner of the machine.
pub(crate) fn register(world: &mut World, register: &Register) -> Result<Taken, StepError> {
    let place = world.agent(&register.runner)?;
    if let Some(boot) = register.boot.clone().filter(|boot| *boot != world.agents[place].sim.facts.boot) {
        let machine = world.agents[place].sim.facts.machine.clone();
        let mut there: Vec<&mut Agent> =
            world.agents.iter_mut().filter(|agent| agent.sim.facts.machine == machine).collect();
        // Another runner of the machine may have registered with this boot before.
        if there.iter().all(|agent| agent.sim.facts.boot != boot) {
            for agent in &mut there {
                agent.sim.slots.clear();
                agent.silent = true;
                // One that never registered was not there before the reboot either.
                if agent.sim.facts.incarnation.is_none() {
                    agent.sim.facts.boot = boot.clone();
                }
            }
        }
        world.agents[place].sim.facts.boot = boot;
    }
    let agent = &mut world.agents[place];
    agent.sim.facts.sequence = Sequence::default();
    if register.loses_record {
        agent.sim.slots.values_mut().for_each(|slot| slot.record = Record::Lost);
    }
    if register.loses_slots {
        agent.sim.slots.clear();
    }
    Ok(world.register(place))
}

/// Something changed on a runner, and it says so.
pub(crate) fn report(world: &mut World, change: Report) -> Result<Taken, StepError> {
    let place = world.agent(&change.runner)?;
    // Habits first: what the step says of a slot is the last word.
    let sim = &mut world.agents[place].sim;
    sim.set_starts(change.starts.map_or(sim.starts, pace));
    sim.stops = change.stops.map_or(sim.stops, pace);
    let mut stale = BTreeMap::new();
    for (name, said) in &change.slots {
        let id = world.slot(name, KnownTo::Agent)?;
        if let Some(generation) = said.generation {
            stale.insert(id, Generation::new(generation));
        }
        change_slot(&mut world.agents[place], id, name, said)?;
    }
    for stray in &change.strays {
        add_stray(world, place, stray)?;
    }
    for (uuid, gpu) in &change.gpus {
        change_gpu(world, place, uuid, gpu)?;
    }
    let sim = &mut world.agents[place].sim;
    sim.attributes = change.attributes.unwrap_or(sim.attributes);
    let facts = &mut sim.facts;
    facts.pool = change.pool.unwrap_or_else(|| facts.pool.clone());
    facts.labels = change.labels.unwrap_or_else(|| std::mem::take(&mut facts.labels));
    facts.runtimes = change.runtimes.map_or_else(|| std::mem::take(&mut facts.runtimes), |text| text.kinds());
    facts.host.cpu = change.cpu_millicores.map_or(facts.host.cpu, Millicores::new);
    facts.host.ram = change.ram.unwrap_or(facts.host.ram);

    let mut report = world.report_of(&world.agents[place]);
    let plain = change.incarnation.is_none() && change.sequence.is_none() && change.boot.is_none() && stale.is_empty();
    report.incarnation = change.incarnation.map(Incarnation::new).or(report.incarnation);
    report.sequence = change.sequence.map_or(report.sequence, Sequence::new);
    report.boot = change.boot.unwrap_or(report.boot);
    for slot in &mut report.slots {
        slot.generation = stale.get(&slot.id).copied().unwrap_or(slot.generation);
    }
    let mut taken = world.send(&Command::Report(Box::new(report))).map(|answer| {
        // The first report of an agent registers it.
        if let (Answer::Reported { incarnation }, None) = (answer, world.agents[place].sim.facts.incarnation) {
            world.joined(place, incarnation);
        }
    });
    if plain && matches!(taken, Err(Refusal::NotRegistered { .. } | Refusal::UnknownRunner(_))) {
        // The server forgot the agent, which registers again, as a real one does.
        taken = world.register(place);
    } else if taken.is_ok() && plain {
        world.reported(place);
    } else if taken.is_ok() {
        let facts = &mut world.agents[place].sim.facts;
        facts.sequence = facts.sequence.next();
    }
    if taken.is_ok() {
        // The server takes a report for a sign of life, so the agent must obey from now on.
        world.agents[place].silent = false;
    }
    Ok(taken)
}

fn change_gpu(world: &mut World, place: usize, uuid: &DeviceUuid, change: &GpuChange) -> Result<(), StepError> {
    let sim = &mut world.agents[place].sim;
    let known = sim.gpus.iter().position(|gpu| gpu.uuid == *uuid);
    let index = match (known, change.memory) {
        (Some(index), _) => index,
        (None, Some(memory)) => {
            let text = GpuText {
                uuid: Some(uuid.clone()),
                index: None,
                name: None,
                memory,
                reserved: Bytes::ZERO,
                foreign: None,
                replicas: 1,
                parent: None,
                health: berth_domain::GpuHealth::Ok,
            };
            let index = sim.gpus.len();
            sim.gpus.push(gpu(sim.facts.runner.as_str(), index, &text).map_err(StepError::meaningless)?);
            index
        }
        (None, None) => {
            return Err(StepError::meaningless(format!(
                "{} has no GPU {uuid}; a new one needs its memory",
                sim.facts.runner
            )));
        }
    };
    let gpu = &mut sim.gpus[index];
    gpu.memory = change.memory.unwrap_or(gpu.memory);
    gpu.reserved = change.reserved.unwrap_or(gpu.reserved);
    gpu.health = change.health.unwrap_or(gpu.health);
    gpu.index = change.index.unwrap_or(gpu.index);
    gpu.name = change.name.clone().unwrap_or_else(|| gpu.name.clone());
    gpu.replicas = change.replicas.unwrap_or(gpu.replicas);
    gpu.contradicting_entry = change.also.or(gpu.contradicting_entry);
    gpu.listed = change.listed.unwrap_or(gpu.listed);
    if let Some(foreign) = change.foreign {
        world.foreign.set(&world.agents[place].sim.facts.machine, uuid, foreign);
    }
    Ok(())
}

fn change_slot(agent: &mut Agent, id: SlotId, name: &str, change: &SlotChange) -> Result<(), StepError> {
    let missing = StepError::meaningless(format!("{} has no slot of {name}", agent.sim.facts.runner));
    let slot = agent.sim.slots.get_mut(&id).ok_or(missing)?;
    if let Some(word) = change.state {
        slot.state = reported(word);
    }
    slot.uses = change.uses.clone().unwrap_or_else(|| std::mem::take(&mut slot.uses));
    slot.record = match change.mentioned {
        Some(true) => Record::Kept,
        Some(false) => Record::Lost,
        None => slot.record,
    };
    Ok(())
}

fn reported(word: SlotWord) -> ReportedState {
    match word {
        SlotWord::Starting => ReportedState::Starting,
        SlotWord::Ready => ReportedState::Ready,
        SlotWord::Stopping => ReportedState::Stopping,
    }
}

fn add_stray(world: &mut World, place: usize, stray: &StrayText) -> Result<(), StepError> {
    let id = match &stray.same_id_as {
        Some(other) => world.slot(other, KnownTo::Server)?,
        None => SlotId::new(world.fresh_id()),
    };
    let claim = |(uuid, bytes): (&DeviceUuid, &Bytes)| ReportedClaim { uuid: uuid.clone(), bytes: *bytes };
    let slot = SimulatedSlot {
        generation: Generation::new(stray.generation),
        model: stray.model.clone(),
        state: reported(stray.state.unwrap_or(SlotWord::Ready)),
        claims: stray.claims.iter().map(claim).collect(),
        uses: stray.uses.clone().unwrap_or_else(|| stray.claims.clone()),
        record: Record::Kept,
    };
    world.agents[place].sim.slots.insert(id, slot);
    world.strays.insert(stray.name.clone(), id);
    Ok(())
}

/// An agent's slots come up.
pub(crate) fn ready(world: &mut World, slots: &[String]) -> Result<Taken, StepError> {
    for name in slots {
        let taken = say(world, name, |slot| slot.state = ReportedState::Ready)?;
        if taken.is_err() {
            return Ok(taken);
        }
    }
    Ok(Ok(()))
}

/// An agent says that a slot is gone, and what it saw.
pub(crate) fn gone(world: &mut World, gone: &Gone) -> Result<Taken, StepError> {
    let evidence =
        Evidence { tree_gone: gone.tree_gone.unwrap_or(true), driver_clear: gone.driver_clear.unwrap_or(true) };
    if gone.reason.is_some() && gone.code.is_some() {
        return Err(StepError::meaningless("a slot came to its end by a reason or with an exit code, not both"));
    }
    let id = world.slot(&gone.slot, KnownTo::Agent)?;
    let place = holder(world, id)?;
    let agent = &mut world.agents[place];
    // Said again after it was acknowledged: the agent has it on record once more.
    let generation = agent.past.get(&id).copied().unwrap_or_default();
    let slot = agent.sim.slots.entry(id).or_insert_with(|| SimulatedSlot {
        generation,
        model: None,
        state: ReportedState::STOPPED,
        claims: Vec::new(),
        uses: BTreeMap::new(),
        record: Record::Kept,
    });
    if let Some(other) = gone.generation.map(Generation::new).filter(|other| *other != slot.generation) {
        return Ok(gone_before(world, place, id, evidence, other));
    }
    let why = match &slot.state {
        ReportedState::Failed(why) => SlotEnd::Failed(*why),
        ReportedState::Exited { code } => SlotEnd::Exited(*code),
        _ => gone.end(),
    };
    slot.state = ReportedState::Gone { why, evidence };
    slot.record = Record::Kept;
    if evidence.is_proof() {
        slot.uses.clear();
    }
    for (uuid, bytes) in &gone.leaves {
        let facts = &agent.sim.facts;
        if !agent.sim.gpus.iter().any(|gpu| gpu.uuid == *uuid) {
            return Err(StepError::meaningless(format!("runner {} has no GPU {uuid}", facts.runner)));
        }
        world.foreign.add(&facts.machine, uuid, *bytes);
    }
    tell(world, place)
}

/// One report speaks of another start of the slot; nothing becomes of the slot itself.
fn gone_before(world: &mut World, place: usize, id: SlotId, evidence: Evidence, generation: Generation) -> Taken {
    let mut report = world.report_of(&world.agents[place]);
    for said in report.slots.iter_mut().filter(|said| said.id == id) {
        (said.state, said.generation) = (ReportedState::Gone { why: SlotEnd::Asked, evidence }, generation);
    }
    let facts = &mut world.agents[place].sim.facts;
    facts.sequence = facts.sequence.next();
    world.send(&Command::Report(Box::new(report))).map(|_| ())
}

/// A slot comes to a bad end. Its memory is in use until it is stopped.
pub(crate) fn fail(world: &mut World, fail: &Fail) -> Result<Taken, StepError> {
    let reason = fail.reason.unwrap_or(FailureReason::Crashed);
    say(world, &fail.slot, |slot| slot.state = ReportedState::Failed(reason))
}

/// A job's process ends by itself.
pub(crate) fn exit(world: &mut World, exit: &Exit) -> Result<Taken, StepError> {
    say(world, &exit.slot, |slot| slot.state = ReportedState::Exited { code: exit.code })
}

/// An agent finds too little memory, and starts nothing.
pub(crate) fn refuse(world: &mut World, name: &str) -> Result<Taken, StepError> {
    say(world, name, |slot| {
        slot.state = ReportedState::Refused;
        slot.uses.clear();
    })
}

/// Others take memory behind the server's back: the next report shows it.
pub(crate) fn occupy(world: &mut World, devices: &BTreeMap<DeviceUuid, Bytes>) -> Result<(), StepError> {
    for (uuid, bytes) in devices {
        let has_it = |agent: &&Agent| agent.sim.gpus.iter().any(|gpu| gpu.uuid == *uuid);
        let mut machines = world.agents.iter().filter(has_it).map(|agent| &agent.sim.facts.machine).peekable();
        if machines.peek().is_none() {
            return Err(StepError::meaningless(format!("no runner has GPU {uuid}")));
        }
        machines.for_each(|machine| world.foreign.hide(machine, uuid, *bytes));
    }
    Ok(())
}

fn say(world: &mut World, name: &str, change: impl FnOnce(&mut SimulatedSlot)) -> Result<Taken, StepError> {
    let id = world.slot(name, KnownTo::Agent)?;
    let place = holder(world, id)?;
    let missing = StepError::otherwise(format!(
        "runner {} was not told of the slot of {name}",
        world.agents[place].sim.facts.runner
    ));
    change(world.agents[place].sim.slots.get_mut(&id).ok_or(missing)?);
    tell(world, place)
}

fn tell(world: &mut World, place: usize) -> Result<Taken, StepError> {
    if world.agents[place].silent {
        world.agents[place].news = true;
        return Ok(Ok(()));
    }
    Ok(world.speak(place))
}
