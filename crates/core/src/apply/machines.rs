//! Machines: who is on which, who says so, and boots.
//!
//! A machine id belongs to the runner that registered it first. Another runner shares the machine, its GPUs and its host
//! ledger only if its token or an operator says so; until then it is on a machine of its own ([`apart`]) and takes nothing.

use berth_domain::{BootId, Bytes, MachineId, Millicores, RunnerId};
use smallvec::SmallVec;

use crate::ledger::Ledger;
use crate::state::{Machine, State};
use crate::table::{MachineKey, RunnerKey};

/// Boots of a runner's machine that are remembered as over.
const PAST_BOOTS: usize = 16;

impl State {
    /// The machine of this id, made with an empty host where it is new.
    pub(super) fn machine_or_new(&mut self, id: &MachineId) -> MachineKey {
        self.machines.key(id).unwrap_or_else(|| {
            self.machines.insert(Machine {
                id: id.clone(),
                cpu: Ledger::new(Millicores::ZERO),
                ram: Ledger::new(Bytes::ZERO),
                runners: Vec::new(),
                reserved_for: SmallVec::new(),
                evictable_cpu: Millicores::ZERO,
                evictable_ram: Bytes::ZERO,
            })
        })
    }

    /// What a runner ran before a boot is gone, and what was seen of its devices is from another life.
    pub(super) fn on_booted(&mut self, id: &RunnerId, boot: &BootId) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        let Some(before) = row.boot.replace(boot.clone()) else { return };
        row.past_boots.push(before);
        if row.past_boots.len() > PAST_BOOTS {
            row.past_boots.remove(0);
        }
        row.reported = false;
        // A GPU that a machine does not list after a boot is not in it any more.
        row.missing.clear();
        let devices = row.devices.clone();
        self.index.touch_runner(key);
        for device in devices {
            if let Some(row) = self.devices.get_mut(device) {
                row.lower_sample = None;
                row.baseline = Bytes::ZERO;
                row.ledger.set_foreign(Bytes::ZERO);
            }
            self.index.touch_device(device);
        }
    }

    pub(super) fn on_machine_disputed(&mut self, id: &RunnerId, machine: &MachineId) {
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        row.disputes = Some(machine.clone());
        let own = row.machine;
        self.link_bars(own);
    }

    /// The word is kept, so that it counts whenever the runner reports. One that is on another machine is in dispute
    /// with nobody.
    pub(super) fn on_machine_judged(&mut self, id: &RunnerId, machine: &MachineId, is_same: bool) {
        self.machine_words.insert(id.clone(), (machine.clone(), is_same));
        let Some(key) = self.runners.key(id) else { return };
        let Some(row) = self.runners.get_mut(key) else { return };
        if !is_same {
            row.disputes = None;
        }
        let own = row.machine;
        self.link_bars(own);
        self.call(id);
    }

    pub(super) fn on_moved(&mut self, id: &RunnerId, machine: &MachineId) {
        let to = self.machine_or_new(machine);
        let Some(key) = self.runners.key(id) else { return };
        if let Some(row) = self.runners.get_mut(key) {
            row.disputes = None;
        }
        self.move_runner(key, to);
        self.link_bars(to);
    }

    /// Puts a runner on another machine, with the devices that only it has. Devices that others have too stay with them.
    pub(super) fn move_runner(&mut self, key: RunnerKey, to: MachineKey) {
        let Some(row) = self.runners.get_mut(key) else { return };
        let from = std::mem::replace(&mut row.machine, to);
        let devices = row.devices.clone();
        if from == to {
            return;
        }
        self.leave_machine(key, from);
        self.join_machine(key, to);
        for device in devices {
            let is_shared = self.devices.get(device).is_some_and(|row| row.attachments.len() > 1);
            if is_shared {
                self.leave_device(key, device);
                if let Some(row) = self.runners.get_mut(key) {
                    row.devices.retain(|other| *other != device);
                }
            } else if let Some(row) = self.devices.get_mut(device) {
                row.machine = to;
            }
            self.index.touch_device(device);
        }
        self.remove_machine(from);
        self.link_bars(from);
        self.index.touch_runner(key);
    }

    /// Removes a machine that nobody is on.
    pub(super) fn remove_machine(&mut self, machine: MachineKey) {
        if self.machines.get(machine).is_some_and(|row| row.runners.is_empty()) {
            self.machines.remove(machine);
        }
    }
}
