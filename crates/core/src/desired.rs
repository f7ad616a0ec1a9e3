//! What a runner should run: each slot is to be run, stopped or accounted for.

use berth_domain::{DesiredAction, DesiredGpu, DesiredSlot, RunSpec, RunnerId, SlotState, WorkloadKind};

use crate::state::{Slot, State};

impl State {
    /// Decides what a runner should make true.
    ///
    /// An agent keeps a slot that is not mentioned, so slots that wait for their turn are left out. A slot of which it is
    /// not known whether it exists is to be accounted for.
    #[must_use]
    pub fn desired(&self, runner: &RunnerId) -> Vec<DesiredSlot> {
        let Some((_, row)) = self.runners.find(runner) else { return Vec::new() };
        // A slot that is not mentioned is kept. Nothing is started or stopped on what is known from an older copy: slots
        // may have gone since, and the runner's first report says which.
        if self.history.has_gone_back() || !row.caught_up {
            return Vec::new();
        }
        row.slots.iter().filter_map(|key| self.slots.get(*key)).filter_map(|slot| self.desired_slot(slot)).collect()
    }

    fn desired_slot(&self, slot: &Slot) -> Option<DesiredSlot> {
        let action = match slot.state {
            SlotState::Starting | SlotState::Ready | SlotState::Draining => DesiredAction::Run(self.run_spec(slot)?),
            SlotState::Stopping | SlotState::Failed => DesiredAction::Stop,
            // A stray of another cluster is not ours to ask about.
            SlotState::Unknown if slot.is_stray() => return None,
            SlotState::Unknown => DesiredAction::Account,
            SlotState::Promised | SlotState::Pending => return None,
        };
        let gpu = |gpu: &crate::state::SlotGpu| {
            Some(DesiredGpu { uuid: self.devices.get(gpu.device)?.uuid.clone(), memory_bytes: gpu.bytes })
        };
        let gpus = slot.gpus.iter().filter_map(gpu).collect();
        Some(DesiredSlot { id: slot.id, generation: slot.generation, gpus, action })
    }

    fn run_spec(&self, slot: &Slot) -> Option<Box<RunSpec>> {
        let spec = slot.spec.as_deref()?;
        let job = slot.job.and_then(|key| self.workloads.get(key)).map(|row| row.submission.job.args.clone());
        Some(Box::new(RunSpec {
            model: spec.name.clone(),
            runtime: spec.constraints.runtime.clone(),
            kind: if slot.is_job { WorkloadKind::Job } else { WorkloadKind::Lease },
            model_args: spec.args.len(),
            args: spec.args.iter().cloned().chain(job.unwrap_or_default()).collect(),
            cpu_millicores: slot.cpu,
            ram_bytes: slot.ram,
            concurrency: spec.concurrency,
        }))
    }
}
