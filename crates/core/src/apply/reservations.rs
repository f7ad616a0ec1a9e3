//! Places are kept free for those who have waited too long, and given up.

use berth_domain::{Span, Timestamp};

use crate::event::{ReservedFor, ReservedPlace};
use crate::state::{Claimant, Reservation, State, Timer};
use crate::table::{DeviceKey, RunnerKey};

/// How often reservations are looked at while anybody waits.
const REVIEW_EVERY: Span = Span::from_secs(1);

impl State {
    /// Has reservations looked at soon, if anybody might need one.
    pub(crate) fn arm_reservations(&mut self) {
        let anybody_waits = !self.queue.order.is_empty() || !self.understaffed.is_empty();
        let is_needed = anybody_waits || !self.queue.reservations.is_empty();
        if is_needed && self.timers.armed_at(Timer::Reservations).is_none() {
            self.timers.arm(Timer::Reservations, self.now.after(REVIEW_EVERY));
        }
    }

    pub(super) fn on_reservations_due(&mut self, at: Timestamp) {
        self.dirty.review_reservations();
        self.timers.disarm(Timer::Reservations);
        self.now = self.now.max(at);
        self.arm_reservations();
    }

    pub(super) fn on_reserved(&mut self, place: &ReservedPlace, at: Timestamp) {
        let (Some(owner), Some(runner)) = (self.claimant(&place.owner), self.runners.key(&place.runner)) else {
            return;
        };
        let model = match owner {
            Claimant::Workload(key) => self.workloads.get(key).map(|row| (row.model, row.submission.priority)),
            Claimant::Replica(key) => Some((key, berth_domain::Priority::default())),
        };
        let Some((model, priority)) = model else { return };
        let Some(pool) = self.models.get(model).map(|row| row.spec.constraints.pool.clone()) else { return };
        let Some(machine) = self.runners.get(runner).map(|row| row.machine) else { return };
        let since = self.reservation_of(owner).map_or(at, |row| row.since);
        // Reservations stand in the order in which they were made; one that is changed keeps its position.
        let position = self.queue.reservations.iter().position(|row| row.owner == owner);
        self.end_reservation(owner);
        let devices: Vec<DeviceKey> = place.devices.iter().filter_map(|uuid| self.devices.key(uuid)).collect();
        let reservation = Reservation {
            owner,
            pool,
            priority,
            runner,
            machine,
            devices,
            cpu: place.cpu,
            ram: place.ram,
            drains_host: place.drains_host,
            waits_for_unknown_jobs: place.waits_for_unknown_jobs,
            backfill: place.backfill,
            free_at: place.free_at,
            since,
        };
        let position = position.unwrap_or(self.queue.reservations.len());
        self.queue.reservations.insert(position, reservation);
        self.link_reservation(owner);
        self.arm_reservations();
    }

    pub(super) fn on_reservation_ended(&mut self, owner: &ReservedFor) {
        if let Some(owner) = self.claimant(owner) {
            self.end_reservation(owner);
        }
    }

    /// Ends the reservation that somebody has, if they have one.
    pub(super) fn end_reservation(&mut self, owner: Claimant) {
        let Some(position) = self.queue.reservations.iter().position(|row| row.owner == owner) else { return };
        let row = self.queue.reservations.remove(position);
        for device in &row.devices {
            if let Some(device) = self.devices.get_mut(*device).filter(|device| device.reserved_for == Some(owner)) {
                (device.reserved_for, device.backfill) = (None, false);
            }
        }
        if let Some(machine) = self.machines.get_mut(row.machine) {
            machine.reserved_for.retain(|other| *other != owner);
        }
        self.note_reservation(&row);
    }

    /// Closes the place that somebody has, and has everybody look who is concerned.
    fn link_reservation(&mut self, owner: Claimant) {
        self.mark_reservation(owner);
        if let Some(row) = self.reservation_of(owner).cloned() {
            self.note_reservation(&row);
        }
    }

    /// Closes the place that somebody has.
    pub(crate) fn mark_reservation(&mut self, owner: Claimant) {
        let Some(row) = self.reservation_of(owner).cloned() else { return };
        for device in &row.devices {
            if let Some(device) = self.devices.get_mut(*device) {
                (device.reserved_for, device.backfill) = (Some(owner), row.backfill);
            }
        }
        if row.cpu.get() > 0 || !row.ram.is_zero() {
            let machine = self.machines.get_mut(row.machine);
            machine.into_iter().for_each(|machine| machine.reserved_for.push(owner));
        }
    }

    /// A place was closed or opened: slots there are looked at, and so is everybody who waits for it.
    fn note_reservation(&mut self, row: &Reservation) {
        if let Claimant::Workload(workload) = row.owner {
            self.note_workload(workload);
        }
        for device in &row.devices {
            self.index.touch_device(*device);
            self.dirty.devices.insert(*device);
            self.link_device_slots(*device);
        }
        let runners: Vec<RunnerKey> = self.machines.get(row.machine).map(|row| row.runners.clone()).unwrap_or_default();
        if row.drains_host {
            runners.iter().for_each(|runner| self.link_runner_slots(*runner));
        }
        self.dirty.hosts.extend(runners);
    }
}
