//! Looking for slots that are not on record: by their marks, and by what the driver lists on their devices.
//!
//! Without a record nobody knows which pids a slot had. So "the driver lists none of its pids" means here that everybody
//! whom it lists on the slot's devices is known to be somebody else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Instant;

use berth_domain::{DesiredAction, DesiredSlot, DeviceUuid, GpuHealth, SlotId};

use super::Agent;
use crate::inventory::{DriverSeen, GpuSeen, Inventory, ProcessesSeen};
use crate::process::{ProcessTable, carriers, is_legible, sees_every_process};
use crate::reconcile::{Doubt, Trace};

impl Agent {
    /// Looks for slots on everybody. One table serves all of them.
    pub(super) fn look_for(
        &self,
        table: &ProcessTable,
        inventory: Option<&Inventory>,
        slots: &[DesiredSlot],
    ) -> BTreeMap<SlotId, Trace> {
        let trace = |slot: &DesiredSlot| {
            let found = self.trace(table, inventory, slot);
            found.unwrap_or_else(|error| Trace::Unknown(format!("processes cannot be looked at: {error}")))
        };
        slots.iter().map(|slot| (slot.id, trace(slot))).collect()
    }

    fn trace(&self, table: &ProcessTable, inventory: Option<&Inventory>, slot: &DesiredSlot) -> io::Result<Trace> {
        // A table is not read at one instant, so somebody who forks all the time may be missing in it.
        for table in [table, table.again()?] {
            if let Some(carrier) = carriers(table, &self.settings.id, slot.id, &self.users)?.into_iter().next() {
                return Ok(Trace::Carried(carrier));
            }
        }
        let doubt = match inventory {
            None => Some("the driver was not looked at yet".to_owned()),
            Some(inventory) => self.doubt_on_devices(table, inventory, slot)?,
        };
        Ok(Trace::Nobody { doubt })
    }

    /// Why somebody of a slot may be on its devices though nobody carries its mark.
    fn doubt_on_devices(
        &self,
        table: &ProcessTable,
        inventory: &Inventory,
        slot: &DesiredSlot,
    ) -> io::Result<Option<String>> {
        let uuids: BTreeSet<&DeviceUuid> = slot.gpus.iter().map(|gpu| &gpu.uuid).collect();
        for uuid in uuids {
            let doubt = match (inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid), &inventory.driver) {
                (Some(gpu), _) => self.doubt_on(table, gpu)?,
                (None, DriverSeen::Absent(why)) => Some(format!("the driver cannot be asked about {uuid}: {why}")),
                (None, _) if !inventory.notes.is_empty() => {
                    Some(format!("the driver does not show {uuid}: {}", inventory.notes.join("; ")))
                }
                // A device that the driver does not have holds nothing.
                (None, _) => None,
            };
            if doubt.is_some() {
                return Ok(doubt);
            }
        }
        Ok(None)
    }

    fn doubt_on(&self, table: &ProcessTable, gpu: &GpuSeen) -> io::Result<Option<String>> {
        let uuid = &gpu.uuid;
        match (gpu.health, &gpu.processes) {
            (GpuHealth::Ok, ProcessesSeen::Listed(listed)) => {
                for process in listed {
                    if let Some(why) = self.doubt_about(table, process.pid)? {
                        return Ok(Some(format!("the driver lists process {} on {uuid}, and {why}", process.pid)));
                    }
                }
            }
            (GpuHealth::Ok, ProcessesSeen::Unknown) => {
                return Ok(Some(format!("the driver does not say which processes use {uuid}")));
            }
            // A device that is lost holds nothing that anybody could get.
            (GpuHealth::Lost, _) => return Ok(None),
            (GpuHealth::Stale | GpuHealth::Failed, _) => {
                let why = gpu.trouble.as_deref().unwrap_or("it does not say why");
                return Ok(Some(format!("the driver does not answer for {uuid}: {why}")));
            }
        }
        // In a pid namespace of its own the agent does not see everybody, and the driver may list nobody for them.
        let is_explained = gpu.used_by(&BTreeSet::new(), |pid| table.get(pid).is_some()).is_some();
        let doubt = || format!("memory of {uuid} is in use, and the driver does not say by whom");
        Ok((!is_explained && !sees_every_process()).then(doubt))
    }

    /// Why a process that the driver lists may be of a slot that is not on record.
    fn doubt_about(&self, table: &ProcessTable, pid: u32) -> io::Result<Option<&'static str>> {
        if self.live.values().any(|live| live.pids.contains(&pid)) {
            return Ok(None);
        }
        if table.get(pid).is_none() {
            return Ok(Some("no such process can be seen from here"));
        }
        Ok((!is_legible(pid)?).then_some("its environment does not say whose it is"))
    }

    /// Nobody could be looked at: of no slot can anything be told.
    pub(super) fn cannot_look(&mut self, error: &io::Error) {
        let why = format!("/proc cannot be read: {error}");
        tracing::error!(%error, "/proc cannot be read: nothing is concluded and nothing is done");
        for live in self.live.values_mut() {
            self.news |= live.unknown.as_ref() != Some(&why);
            live.unknown = Some(why.clone());
        }
        self.doubt_asked(&why);
    }

    /// Notes of all slots that the server asks about, and that are not on record, why they could not be looked for.
    pub(super) fn doubt_asked(&mut self, why: &str) {
        let slots = self.wish.iter().flat_map(|wish| &wish.slots);
        let is_asked = |slot: &&DesiredSlot| {
            let kept = self.record.kept().get(&slot.id);
            let is_unrecorded = kept.is_none_or(|kept| kept.is_replaced_by(slot));
            is_unrecorded && matches!(slot.action, DesiredAction::Stop | DesiredAction::Account)
        };
        let asked: Vec<_> = slots.filter(is_asked).map(|slot| (slot.id, slot.generation)).collect();
        for (id, generation) in asked {
            self.doubt(id, Doubt { generation, why: why.to_owned(), looked: Instant::now() });
        }
    }

    /// Forgets doubts about slots that are on record by now, or that nobody asks about any more.
    pub(super) fn drop_settled_doubts(&mut self) {
        let (wish, kept) = (&self.wish, self.record.kept());
        self.doubts.retain(|id, doubt| {
            let is_wanted = |slot: &DesiredSlot| slot.id == *id && slot.generation == doubt.generation;
            let is_settled = kept.get(id).is_some_and(|kept| kept.generation >= doubt.generation);
            !is_settled && wish.as_ref().is_some_and(|wish| wish.slots.iter().any(is_wanted))
        });
    }
}
