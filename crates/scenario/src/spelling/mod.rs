//! Names are checked before the first step runs: every name in a step must be that of something in the file, also where
//! the step expects that there is none of it. Words of closed lists are checked earlier, while the file is read.

mod expectations;
mod roster;

use berth_domain::{DeviceUuid, ModelSpec};

pub(crate) use roster::Roster;

use crate::agent::Agent;
use crate::format::values::Word;
use crate::format::{Report, Verb};
use crate::run::Step;
use crate::vocabulary::RefusalCodes;

/// Why a name cannot be meant.
type Checked = Result<(), String>;

/// Checks all steps in order; an error comes with the place of its step.
pub(crate) fn check(agents: &[Agent], models: &[ModelSpec], steps: &[Step]) -> Result<(), (usize, String)> {
    let mut roster = Roster::new(agents, models, steps);
    for (place, step) in steps.iter().enumerate() {
        check_step(&mut roster, step).map_err(|problem| (place, problem))?;
    }
    Ok(())
}

fn check_step(roster: &mut Roster, step: &Step) -> Checked {
    let is_refused_as = |code: &str| step.refused.as_ref().map(Word::<RefusalCodes>::as_str) == Some(code);
    // A step that must be refused because a name is unknown may use that name.
    let (any_model, any_runner) = (is_refused_as("unknown_model"), is_refused_as("unknown_runner"));
    let any_device = is_refused_as("unknown_device");
    match &step.verb {
        Verb::Submit(submit) => {
            any_model.then_some(()).map_or_else(|| roster.model(submit.model.as_str()), Ok)?;
            submit.same_as.iter().try_for_each(|name| roster.workload(name))?;
            roster.submit(submit, step.refused.is_some());
            Ok(())
        }
        Verb::Cancel(name) => roster.workload(name),
        Verb::Heartbeat(beat) => roster.workload(&beat.workload),
        Verb::Complete(done) => roster.workload(&done.workload),
        Verb::DeleteModel(_) if any_model => Ok(()),
        Verb::DeleteModel(model) => roster.model(model.as_str()),
        Verb::Register(register) => roster.runner(register.runner.as_str()),
        Verb::Report(report) => check_report(roster, report),
        Verb::Silence(runners) | Verb::Return(runners) | Verb::Join(runners) => {
            runners.0.iter().try_for_each(|runner| roster.runner(runner.as_str()))
        }
        Verb::Cordon(_) | Verb::Uncordon(_) | Verb::Drain(_) | Verb::Forget(_) if any_runner => Ok(()),
        Verb::Cordon(runner) | Verb::Uncordon(runner) => roster.runner(runner.as_str()),
        Verb::Drain(drain) => roster.runner(drain.runner.as_str()),
        Verb::Forget(forget) => roster.runner(forget.runner.as_str()),
        Verb::CordonDevice(_) | Verb::UncordonDevice(_) if any_device => Ok(()),
        Verb::CordonDevice(uuid) | Verb::UncordonDevice(uuid) => roster.device(uuid.as_str()),
        Verb::Occupy(devices) if devices.is_empty() => Err("occupy names no GPU".to_owned()),
        Verb::Occupy(devices) => check_devices(roster, devices.keys()),
        Verb::StopSlot(slot) | Verb::Refuse(slot) => roster.slot(slot),
        Verb::ForceRelease(force) => roster.slot(&force.slot),
        Verb::Ready(slots) => slots.0.iter().try_for_each(|slot| roster.slot(slot)),
        Verb::Fail(fail) => roster.slot(&fail.slot),
        Verb::Exit(exit) => roster.slot(&exit.slot),
        Verb::Gone(gone) => {
            roster.slot(&gone.slot)?;
            check_devices(roster, gone.leaves.keys())
        }
        Verb::Expect(expect) => expectations::check(roster, expect),
        Verb::PutModel(_) | Verb::Advance(_) | Verb::Pause(_) | Verb::Restart(_) | Verb::Wipe(_) => Ok(()),
    }
}

fn check_report(roster: &mut Roster, report: &Report) -> Checked {
    roster.runner(report.runner.as_str())?;
    check_devices(roster, report.gpus.keys())?;
    for (slot, change) in &report.slots {
        roster.slot(slot)?;
        check_devices(roster, change.uses.iter().flat_map(|uses| uses.keys()))?;
    }
    for stray in &report.strays {
        check_devices(roster, stray.claims.keys().chain(stray.uses.iter().flat_map(|uses| uses.keys())))?;
        stray.same_id_as.iter().try_for_each(|slot| roster.slot(slot))?;
        roster.add_stray(&stray.name);
    }
    Ok(())
}

fn check_devices<'a>(roster: &Roster, mut devices: impl Iterator<Item = &'a DeviceUuid>) -> Checked {
    devices.try_for_each(|uuid| roster.device(uuid.as_str()))
}
