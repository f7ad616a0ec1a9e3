//! What others should look at again: the rows that a step touched, as views.
//!
//! A row that was touched may look as it did; one that was not touched does. Positions in the queue are not part of
//! it: one that leaves moves all that wait behind it.

use std::sync::Arc;

use berth_domain::{DeviceUuid, MachineId, ModelName, RunnerId, SlotId, WorkloadId};

use crate::state::State;
use crate::view::{DeviceView, HostView, ModelView, RunnerView, SlotView, WorkloadView};

/// The rows of a table that are gone, unless their id means another row by now; then those that are there.
macro_rules! changes {
    ($state:ident, $table:ident, $view:expr) => {{
        let changed = $state.$table.take_changed();
        let gone = changed.removed.into_iter().filter(|id| $state.$table.key(id).is_none());
        let mut list: Vec<_> = gone.map(|id| (id, None)).collect();
        let there = changed.touched.into_iter().filter_map(|key| Some((key, $state.$table.get(key)?)));
        list.extend(there.filter_map($view));
        list
    }};
}

/// How a slot is found: the server's own by id, a stray by its runner too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotRef {
    /// Its id.
    pub id: SlotId,
    /// The runner that has it, if the server did not make it.
    pub stray_on: Option<RunnerId>,
}

/// Workloads and slots that were touched, as they are now; `None` for those that are no more.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is named by what it lists")]
pub struct WorkChanges {
    pub workloads: Vec<(WorkloadId, Option<Arc<WorkloadView>>)>,
    pub slots: Vec<(SlotRef, Option<Arc<SlotView>>)>,
    /// Runners whose agents should ask again: what they should run changed, or who they are.
    pub called: Vec<RunnerId>,
}

/// The rest of the rows that were touched, as they are now; `None` for those that are no more.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is named by what it lists")]
pub struct FleetChanges {
    pub runners: Vec<(RunnerId, Option<Arc<RunnerView>>)>,
    pub devices: Vec<(DeviceUuid, Option<Arc<DeviceView>>)>,
    pub hosts: Vec<(MachineId, Option<Arc<HostView>>)>,
    pub models: Vec<(ModelName, Option<Arc<ModelView>>)>,
}

impl State {
    /// Keeps note of changes from now on, beginning with everything there is.
    pub fn watch(&mut self) {
        macro_rules! watch {
            ($($table:ident),*) => {$(
                self.$table.watch();
                self.$table.keys().into_iter().for_each(|key| self.$table.note(key));
            )*};
        }
        watch!(workloads, slots, runners, devices, machines, models);
        self.called.get_or_insert_default();
    }

    /// Which workloads and slots changed since this was last asked. Nothing is noted before [`State::watch`].
    pub fn take_work_changes(&mut self) -> WorkChanges {
        let workloads =
            changes!(self, workloads, |(key, row)| { Some((row.id, Some(Arc::new(self.workload_view(key, row))))) });
        let mut called = self.called.as_mut().map(std::mem::take).unwrap_or_default();
        called.sort_unstable();
        called.dedup();
        WorkChanges { workloads, slots: self.changed_slots(), called }
    }

    /// What else changed since this was last asked, however many steps ago.
    pub fn take_fleet_changes(&mut self) -> FleetChanges {
        let runners =
            changes!(self, runners, |(key, row)| Some((row.id.clone(), Some(Arc::new(self.runner_view(key)?)))));
        let devices =
            changes!(self, devices, |(_, row)| Some((row.uuid.clone(), Some(Arc::new(self.device_view(row))))));
        let hosts = changes!(self, machines, |(_, row)| Some((row.id.clone(), Some(Arc::new(self.host_view(row))))));
        let models = changes!(self, models, |(_, row)| Some((row.name.clone(), Some(Arc::new(self.model_view(row))))));
        FleetChanges { runners, devices, hosts, models }
    }

    /// Notes that a runner's agent should ask again.
    pub(crate) fn call(&mut self, runner: &RunnerId) {
        if let Some(called) = &mut self.called {
            called.push(runner.clone());
        }
    }

    fn changed_slots(&mut self) -> Vec<(SlotRef, Option<Arc<SlotView>>)> {
        let changed = self.slots.take_changed();
        let runner = |key| self.runners.get(key).map(|row| row.id.clone());
        let gone = changed.removed.into_iter().filter(|name| self.slots.key(name).is_none());
        // A stray whose runner is gone went with it: whoever drops the runner drops its strays.
        let mut list: Vec<_> = gone
            .filter_map(|name| match name.stray_on {
                None => Some((SlotRef { id: name.id, stray_on: None }, None)),
                Some(key) => Some((SlotRef { id: name.id, stray_on: Some(runner(key)?) }, None)),
            })
            .collect();
        list.extend(changed.touched.into_iter().filter_map(|key| {
            let row = self.slots.get(key)?;
            let stray_on = row.is_stray().then(|| runner(row.runner)).flatten();
            Some((SlotRef { id: row.id, stray_on }, Some(Arc::new(self.slot_view(row)?))))
        }));
        list
    }
}
