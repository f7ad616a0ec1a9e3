//! What an agent does, and what befalls its machine, before it reports.

use berth_core::Command;
use berth_domain::{
    Bytes, Evidence, FailureReason, Generation, GpuHealth, Incarnation, ReportedClaim, ReportedState, RunnerReport,
    SlotEnd, SlotId,
};

use crate::acts::Deed;
use crate::agent::{Agent, Process};
use crate::names;
use crate::run::{Outcome, Run};
use crate::world;

impl Run {
    pub(crate) fn deed(&mut self, number: usize, deed: &Deed) -> Outcome {
        let machine = self.agents[number].runner.machine;
        let agent = &mut self.agents[number];
        let gpus = self.machines[machine].gpus.len();
        let gpu = |n: &u8| (gpus > 0).then(|| usize::from(*n) % gpus.max(1));
        let running = |n: &u8| agent.running(*n);
        let change = |slot: Option<SlotId>, state: ReportedState| slot.map(|slot| (slot, state));
        let changed = match deed {
            Deed::Fail { slot } => change(running(slot), Agent::failure(*slot)),
            Deed::HalfGone { slot } => {
                let evidence = Evidence { tree_gone: true, driver_clear: false };
                change(running(slot), ReportedState::Gone { why: SlotEnd::Asked, evidence })
            }
            Deed::Exit { slot, code } => change(running(slot), ReportedState::Exited { code: *code }),
            Deed::Vanish { slot } => {
                let why = match slot % 4 {
                    0 => SlotEnd::Failed(FailureReason::OutOfMemory),
                    1 => SlotEnd::Failed(FailureReason::Crashed),
                    2 => SlotEnd::Exited(i32::from(slot % 8 / 4)),
                    _ => SlotEnd::Asked,
                };
                change(running(slot), ReportedState::Gone { why, evidence: Evidence::COMPLETE })
            }
            _ => None,
        };
        if let Some((slot, state)) = changed {
            agent.put(slot, state);
        }
        match deed {
            Deed::Work => agent.work(&self.state),
            Deed::Refuse => agent.refuse(&self.state),
            Deed::Lose { slot } => {
                let lost = agent.running(*slot);
                lost.and_then(|slot| agent.processes.get_mut(&slot)).into_iter().for_each(|row| row.lost = true);
            }
            Deed::Find => agent.processes.values_mut().for_each(|row| (row.lost, row.sought) = (false, false)),
            Deed::Restart => (agent.incarnation, agent.sequence) = (None, 0),
            Deed::Overuse { slot, mib } => {
                let slot = agent.running(*slot);
                let process = slot.and_then(|slot| agent.processes.get_mut(&slot));
                process.into_iter().for_each(|row| row.beyond = Bytes::mib(*mib));
            }
            Deed::Blind => agent.blind = !agent.blind,
            Deed::Stray { gpu: n, gib, foreign_cluster } => {
                agent.foreign_cluster = *foreign_cluster;
                self.strays += 1;
                let uuid = gpu(n).map(|n| self.machines[machine].gpus[n].uuid.clone());
                let claims = uuid.into_iter().map(|uuid| ReportedClaim { uuid, bytes: Bytes::gib(*gib) }).collect();
                let process = Process {
                    generation: Generation::new(1),
                    state: ReportedState::Ready,
                    claims,
                    beyond: Bytes::ZERO,
                    lost: false,
                    sought: false,
                };
                agent.processes.insert(names::stray(self.strays), process);
            }
            Deed::Reboot => self.reboot(machine),
            Deed::Foreign { gpu: n, gib } => self.change_gpu(machine, gpu(n), |row| row.foreign = Bytes::gib(*gib)),
            Deed::Health { gpu: n, health } => {
                let health = match health {
                    0 => GpuHealth::Lost,
                    1 => GpuHealth::Stale,
                    2 => GpuHealth::Failed,
                    _ => GpuHealth::Ok,
                };
                self.change_gpu(machine, gpu(n), |row| row.health = health);
            }
            Deed::Unplug { gpu: n } => self.change_gpu(machine, gpu(n), |row| row.listed = !row.listed),
            Deed::Resize { gpu: n, gib } => self.change_gpu(machine, gpu(n), |row| row.total = Bytes::gib(*gib)),
            _ => {}
        }
        self.send_after(number, deed)
    }

    fn send_after(&mut self, number: usize, deed: &Deed) -> Outcome {
        match (deed, self.agents[number].last.clone()) {
            (Deed::Repeat, Some(last)) => self.send(Command::Report(Box::new(last))).map(|_| ()),
            (Deed::Ghost, Some(last)) => {
                let before = self.agents[number].incarnation.map_or(1, Incarnation::get).saturating_sub(1);
                let ghost = RunnerReport { incarnation: Some(Incarnation::new(before)), slots: Vec::new(), ..last };
                self.send(Command::Report(Box::new(ghost))).map(|_| ())
            }
            (Deed::Stale { slot }, _) => {
                let slot = self.agents[number].running(*slot);
                let kept = self.agents[number].clone();
                if let Some(process) = slot.and_then(|slot| self.agents[number].processes.get_mut(&slot)) {
                    process.generation = Generation::new(process.generation.get().saturating_sub(1));
                    process.state = ReportedState::STOPPED;
                }
                self.report(number)?;
                let (incarnation, sequence) = (self.agents[number].incarnation, self.agents[number].sequence);
                self.agents[number] = Agent { incarnation, sequence, ..kept };
                Ok(())
            }
            _ => self.report(number),
        }
    }

    fn change_gpu(&mut self, machine: usize, gpu: Option<usize>, change: impl FnOnce(&mut world::Gpu)) {
        if let Some(gpu) = gpu {
            change(&mut self.machines[machine].gpus[gpu]);
        }
    }

    /// A machine starts again: no process is left, and every agent registers anew.
    fn reboot(&mut self, machine: usize) {
        self.machines[machine].boots += 1;
        for agent in self.agents.iter_mut().filter(|row| row.runner.machine == machine) {
            agent.processes.clear();
            (agent.incarnation, agent.sequence) = (None, 0);
        }
    }
}
