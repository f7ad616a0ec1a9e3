//! Applies the transitions of one agent and of its machine.

use std::collections::BTreeMap;

use berth_core::Command;
use berth_domain::{
    Bytes, Evidence, FailureReason, Generation, GpuHealth, Incarnation, ReportedClaim, ReportedState, RunnerReport,
    SlotEnd, SlotId,
};
use berth_sim::{Record, SimulatedSlot};

use crate::agent::Agent;
use crate::names;
use crate::system_under_test::{AssertionResult, SystemUnderTest};
use crate::transition::AgentTransition;
use crate::world;

impl SystemUnderTest {
    pub(crate) fn apply_to_agent(&mut self, number: usize, transition: &AgentTransition) -> AssertionResult {
        let machine = self.agents[number].runner.machine;
        let agent = &mut self.agents[number];
        let gpus = self.machines[machine].gpus.len();
        let gpu = |n: &u8| (gpus > 0).then(|| usize::from(*n) % gpus.max(1));
        let running = |n: &u8| agent.running(*n);
        let change = |slot: Option<SlotId>, state: ReportedState| slot.map(|slot| (slot, state));
        let changed = match transition {
            AgentTransition::Fail { slot } => change(running(slot), Agent::failure(*slot)),
            AgentTransition::EndTreeOnly { slot } => {
                let evidence = Evidence { tree_gone: true, driver_clear: false };
                change(running(slot), ReportedState::Gone { why: SlotEnd::Asked, evidence })
            }
            AgentTransition::Exit { slot, code } => change(running(slot), ReportedState::Exited { code: *code }),
            AgentTransition::ProveGone { slot } => {
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
        match transition {
            AgentTransition::FollowDesired => agent.work(&self.state),
            AgentTransition::RefuseStarts => agent.refuse(&self.state),
            AgentTransition::LoseRecord { slot } => {
                agent.running(*slot).into_iter().for_each(|slot| agent.lose_record(slot));
            }
            AgentTransition::FindRecords => {
                agent.sim.slots.values_mut().for_each(|slot| slot.record = Record::Kept);
            }
            AgentTransition::Restart => agent.restart(),
            AgentTransition::Overuse { slot, mib } => {
                agent.running(*slot).into_iter().for_each(|slot| agent.overuse(slot, Bytes::mib(*mib)));
            }
            AgentTransition::ToggleAttribution => agent.sim.attributes = !agent.sim.attributes,
            AgentTransition::Stray { gpu: n, gib, foreign_cluster } => {
                agent.foreign_cluster = *foreign_cluster;
                self.strays += 1;
                let uuid = gpu(n).map(|n| self.machines[machine].gpus[n].uuid.clone());
                let claims = uuid.into_iter().map(|uuid| ReportedClaim { uuid, bytes: Bytes::gib(*gib) }).collect();
                let mut stray = SimulatedSlot {
                    generation: Generation::new(1),
                    model: None,
                    state: ReportedState::Ready,
                    claims,
                    uses: BTreeMap::new(),
                    record: Record::Kept,
                };
                stray.use_percent(100);
                agent.sim.slots.insert(names::stray(self.strays), stray);
            }
            AgentTransition::Reboot => self.reboot(machine),
            AgentTransition::Foreign { gpu: n, gib } => {
                self.change_gpu(machine, gpu(n), |row| row.foreign = Bytes::gib(*gib));
            }
            AgentTransition::Health { gpu: n, health } => {
                let health = match health {
                    0 => GpuHealth::Lost,
                    1 => GpuHealth::Stale,
                    2 => GpuHealth::Failed,
                    _ => GpuHealth::Ok,
                };
                self.change_gpu(machine, gpu(n), |row| row.health = health);
            }
            AgentTransition::Unplug { gpu: n } => self.change_gpu(machine, gpu(n), |row| row.listed = !row.listed),
            AgentTransition::Resize { gpu: n, gib } => {
                self.change_gpu(machine, gpu(n), |row| row.total = Bytes::gib(*gib));
            }
            _ => {}
        }
        self.report_after(number, transition)
    }

    fn report_after(&mut self, number: usize, transition: &AgentTransition) -> AssertionResult {
        match (transition, self.agents[number].last.clone()) {
            (AgentTransition::RepeatReport, Some(last)) => self.send(Command::Report(Box::new(last))).map(|_| ()),
            (AgentTransition::ReportAsOlderIncarnation, Some(last)) => {
                let before = self.agents[number].sim.facts.incarnation.map_or(1, Incarnation::get).saturating_sub(1);
                let ghost = RunnerReport { incarnation: Some(Incarnation::new(before)), slots: Vec::new(), ..last };
                self.send(Command::Report(Box::new(ghost))).map(|_| ())
            }
            (AgentTransition::ReportOlderGeneration { slot }, _) => {
                let slot = self.agents[number].running(*slot);
                let kept = self.agents[number].clone();
                if let Some(process) = slot.and_then(|slot| self.agents[number].sim.slots.get_mut(&slot)) {
                    process.generation = Generation::new(process.generation.get().saturating_sub(1));
                    process.state = ReportedState::STOPPED;
                }
                self.report(number)?;
                // The report was about an older start; the slots are as they were.
                self.agents[number].sim.slots = kept.sim.slots;
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

    /// Reboots a machine: none of its processes is left, and each of its agents registers anew.
    fn reboot(&mut self, machine: usize) {
        self.machines[machine].boots += 1;
        for agent in self.agents.iter_mut().filter(|row| row.runner.machine == machine) {
            agent.sim.slots.clear();
            agent.restart();
        }
    }
}
