//! Devices and hosts with their ledgers.

use berth_domain::{Bytes, DeviceUuid, GpuName, MachineId, Millicores, Priority, RunnerId, SlotId};

use super::sorted;
use crate::ledger::{Balance, Phase};
use crate::reason::Closed;
use crate::state::{AttachmentRow, Device, Runner, State, offered};

/// A claim of a device's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimView {
    /// The slot that the claim belongs to.
    pub slot: SlotId,
    /// Whether the memory is held, being released or promised.
    pub phase: Phase,
    /// The size of the claim.
    pub bytes: Bytes,
}

/// A device and its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceView {
    /// The UUID of the physical GPU or MIG instance.
    pub uuid: DeviceUuid,
    /// What the driver calls it.
    pub name: GpuName,
    /// The GPU it is a MIG instance of.
    pub parent: Option<DeviceUuid>,
    /// Runners that have it, with its index there.
    pub runners: Vec<(RunnerId, u16)>,
    /// How often it is advertised.
    pub replicas: u16,
    /// Entries for it disagree about its size.
    pub sizes_differ: bool,
    /// The numbers of its ledger.
    pub balance: Balance<Bytes>,
    /// Why it takes nothing new.
    pub closed: Option<Closed>,
    /// It is kept free for work of this priority.
    pub reserved_for: Option<Priority>,
    /// It is kept free, but work that can leave in time may use it meanwhile.
    pub backfill: bool,
    /// Whether its claims and foreign use exceed its capacity, now or once promises are kept.
    pub overcommitted: bool,
    /// Whether the driver tells foreign use from our own.
    pub attributed: bool,
    /// The claims of its ledger, in the order in which they were made.
    pub claims: Vec<ClaimView>,
}

/// A machine's host and its ledgers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostView {
    /// The machine that the host is of.
    pub machine: MachineId,
    /// The runners of the machine, in the order in which they registered.
    pub runners: Vec<RunnerId>,
    /// The numbers of its CPU ledger.
    pub cpu: Balance<Millicores>,
    /// The numbers of its RAM ledger.
    pub ram: Balance<Bytes>,
}

impl State {
    /// Lists all devices, ordered by UUID.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceView> {
        sorted(self.devices.iter().map(|(_, row)| self.device_view(row)).collect(), |view| view.uuid.clone())
    }

    /// Finds a device by its UUID.
    #[must_use]
    pub fn device(&self, uuid: &DeviceUuid) -> Option<DeviceView> {
        self.devices.find(uuid).map(|(_, row)| self.device_view(row))
    }

    /// Finds the first runner that has a device.
    #[must_use]
    pub fn runner_of_device(&self, uuid: &DeviceUuid) -> Option<RunnerId> {
        let (_, device) = self.devices.find(uuid)?;
        device.attachments.first().and_then(|row| self.runners.get(row.runner)).map(|runner| runner.id.clone())
    }

    /// Returns the numbers of a device if it is overcommitted.
    #[must_use]
    pub fn overcommitted(&self, uuid: &DeviceUuid) -> Option<Balance<Bytes>> {
        let (_, device) = self.devices.find(uuid)?;
        device.ledger.is_overcommitted().then(|| device.balance())
    }

    /// Lists all hosts, ordered by machine.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostView> {
        sorted(self.machines.iter().map(|(_, row)| self.host_view(row)).collect(), |view| view.machine.clone())
    }

    pub(crate) fn host_view(&self, machine: &crate::state::Machine) -> HostView {
        let runners = machine.runners.iter().filter_map(|key| self.runners.get(*key));
        HostView {
            machine: machine.id.clone(),
            runners: runners.map(|row| row.id.clone()).collect(),
            cpu: machine.cpu.balance(),
            ram: machine.ram.balance(),
        }
    }

    /// Says why a device takes nothing new, the state of its runners included.
    pub(crate) fn why_closed(&self, device: &Device) -> Option<Closed> {
        let is_open = |row: &AttachmentRow| self.runners.get(row.runner).is_some_and(Runner::is_open);
        match device.closed() {
            Some(why) if !why.keeps_its_offer() => Some(why),
            _ if !device.attachments.iter().any(is_open) => Some(Closed::RunnerClosed),
            closed => closed,
        }
    }

    /// Returns the numbers of a device; nothing is free where it takes nothing new.
    pub(crate) fn balance_of(&self, device: &Device) -> Balance<Bytes> {
        offered(device.ledger.balance(), self.why_closed(device))
    }

    pub(crate) fn device_view(&self, device: &Device) -> DeviceView {
        let runner = |row: &AttachmentRow| Some((self.runners.get(row.runner)?.id.clone(), row.attachment.index));
        let claim = |claim: &crate::ledger::Claim<Bytes>| {
            Some(ClaimView { slot: self.slots.get(claim.slot)?.id, phase: claim.phase, bytes: claim.amount })
        };
        DeviceView {
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            parent: device.parent.clone(),
            runners: device.attachments.iter().filter_map(runner).collect(),
            replicas: device.replicas(),
            sizes_differ: device
                .attachments
                .iter()
                .any(|row| row.attachment.sizes_differ || row.attachment.capacity != device.ledger.capacity()),
            balance: device.balance(),
            closed: device.closed(),
            reserved_for: device.reserved_for.and_then(|owner| self.reservation_of(owner)).map(|row| row.priority),
            backfill: device.backfill,
            overcommitted: device.ledger.is_overcommitted(),
            attributed: device.attributed,
            claims: device.ledger.claims().iter().filter_map(claim).collect(),
        }
    }
}
