//! Searching for slots that are not on record: by their marks, and by what the driver lists on their devices.
//!
//! Without a record it is unknown which pids a slot had. So "the driver lists none of its pids" means here that each
//! process that it lists on the slot's devices is known to belong to something else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use berth_domain::{DesiredSlot, DeviceUuid, GpuHealth, RunnerId, SlotId};

use super::live::LiveSlot;
use super::observe::Observer;
use super::slots::Slots;
use crate::inventory::{DriverStatus, GpuSeen, Inventory, ProcessesSeen};
use crate::process::{ProcessTable, find_marked_starts, has_readable_environment, sees_every_process};
use crate::reconcile::SearchResult;
use crate::runtime::UserId;

impl Observer {
    /// Searches for slots that are not on record. One process table serves all of them.
    pub(super) fn look_for(
        &self,
        slots: &Slots,
        table: &ProcessTable,
        inventory: Option<&Inventory>,
        wanted: &[DesiredSlot],
    ) -> BTreeMap<SlotId, SearchResult> {
        let search = Search { runner: &self.runner, users: &self.users, live: &slots.live, table, inventory };
        let result = |slot: &DesiredSlot| {
            let found = search.run(slot);
            found.unwrap_or_else(|error| SearchResult::Unknown(format!("processes cannot be looked at: {error}")))
        };
        wanted.iter().map(|slot| (slot.id, result(slot))).collect()
    }
}

/// What one search looks at.
struct Search<'a> {
    runner: &'a RunnerId,
    users: &'a BTreeSet<UserId>,
    /// The slots whose processes are known.
    live: &'a BTreeMap<SlotId, LiveSlot>,
    table: &'a ProcessTable,
    inventory: Option<&'a Inventory>,
}

impl Search<'_> {
    fn run(&self, slot: &DesiredSlot) -> io::Result<SearchResult> {
        // A table is not read at one instant, so a process that forks all the time may be missing in it.
        for table in [self.table, self.table.again()?] {
            if let Some(found) = find_marked_starts(table, self.runner, slot.id, self.users)?.into_iter().next() {
                return Ok(SearchResult::Found(found));
            }
        }
        let doubt = match self.inventory {
            None => Some("the driver was not looked at yet".to_owned()),
            Some(inventory) => self.doubt_on_devices(inventory, slot)?,
        };
        Ok(SearchResult::NotFound { doubt })
    }

    /// Returns why a process of a slot may be on its devices though no process carries its mark.
    fn doubt_on_devices(&self, inventory: &Inventory, slot: &DesiredSlot) -> io::Result<Option<String>> {
        let uuids: BTreeSet<&DeviceUuid> = slot.gpus.iter().map(|gpu| &gpu.uuid).collect();
        for uuid in uuids {
            let doubt = match (inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid), &inventory.driver) {
                (Some(gpu), _) => self.doubt_on(gpu)?,
                (None, DriverStatus::Absent(why)) => Some(format!("the driver cannot be asked about {uuid}: {why}")),
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

    fn doubt_on(&self, gpu: &GpuSeen) -> io::Result<Option<String>> {
        let uuid = &gpu.uuid;
        match (gpu.health, &gpu.processes) {
            (GpuHealth::Ok, ProcessesSeen::Listed(listed)) => {
                for process in listed {
                    if let Some(why) = self.doubt_about(process.pid)? {
                        return Ok(Some(format!("the driver lists process {} on {uuid}, and {why}", process.pid)));
                    }
                }
            }
            (GpuHealth::Ok, ProcessesSeen::Unknown) => {
                return Ok(Some(format!("the driver does not say which processes use {uuid}")));
            }
            // A lost device holds no memory that could be used.
            (GpuHealth::Lost, _) => return Ok(None),
            (GpuHealth::Stale | GpuHealth::Failed, _) => {
                let why = gpu.trouble.as_deref().unwrap_or("it does not say why");
                return Ok(Some(format!("the driver does not answer for {uuid}: {why}")));
            }
        }
        // In a pid namespace of its own the agent does not see all processes, and the driver may list none of the
        // others.
        let is_explained = gpu.used_by(&BTreeSet::new(), |pid| self.table.get(pid).is_some()).is_some();
        let doubt = || format!("memory of {uuid} is in use, and the driver does not say by whom");
        Ok((!is_explained && !sees_every_process()).then(doubt))
    }

    /// Returns why a process that the driver lists may belong to a slot that is not on record.
    fn doubt_about(&self, pid: u32) -> io::Result<Option<&'static str>> {
        if self.live.values().any(|live| live.pids.contains(&pid)) {
            return Ok(None);
        }
        if self.table.get(pid).is_none() {
            return Ok(Some("no such process can be seen from here"));
        }
        Ok((!has_readable_environment(pid)?).then_some("its environment does not say whose it is"))
    }
}
