//! Watching one GPU: its memory, processes, instances and errors.

use std::ffi::OsStr;

use berth_domain::{DeviceUuid, GpuHealth, GpuName, Timestamp};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{ComputeMode as DriverMode, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

use crate::inventory::Detail;
use crate::inventory::seen::{ComputeMode, EccSeen, GpuSeen, Telemetry};

use super::memory::MemoryReader;
use super::processes;
use super::trouble::{Trouble, needed, optional};
use super::worker::{Step, WorkerInbox};

/// More events than a driver has at once; a limit for a driver that repeats one for ever.
const EVENTS_AT_ONCE: usize = 64;

/// The request to a watcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) now: Timestamp,
    pub(super) detail: Detail,
}

/// What a watcher read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The GPU, then its MIG instances.
    pub(super) devices: Result<Vec<GpuSeen>, Trouble>,
    /// Errors that the driver reported since the last reading.
    pub(super) xids: Vec<u64>,
}

/// Watches one GPU until the requester is dropped. This is the body of the thread.
pub(super) fn watch(nvml: &Nvml, library: &OsStr, uuid: &DeviceUuid, inbox: &WorkerInbox<Question, Reading>) {
    let step = inbox.step();
    step.set("registering for events");
    let mut watcher = Watcher {
        nvml,
        uuid,
        step,
        events: register(nvml, uuid),
        memory: MemoryReader::new(library),
        telemetry: Telemetry::default(),
    };
    inbox.work(|question| {
        let xids = watcher.hear();
        let devices = watcher.read(question);
        watcher.step.set("nothing");
        Reading { devices, xids }
    });
}

struct Watcher<'a> {
    nvml: &'a Nvml,
    uuid: &'a DeviceUuid,
    step: &'a Step,
    events: Option<EventSet<'a>>,
    memory: MemoryReader,
    /// Telemetry as of the last full look.
    telemetry: Telemetry,
}

/// Registers for events. A driver without events has none to report.
fn register<'a>(nvml: &'a Nvml, uuid: &DeviceUuid) -> Option<EventSet<'a>> {
    let device = nvml.device_by_uuid(uuid.as_str()).ok()?;
    let set = nvml.create_event_set().ok()?;
    device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()
}

impl Watcher<'_> {
    /// Returns the errors that the driver reported since the last call.
    fn hear(&mut self) -> Vec<u64> {
        self.step.set("listening for events");
        let events = self.events.iter().flat_map(|set| std::iter::from_fn(|| set.wait(0).ok()));
        let xids = events.take(EVENTS_AT_ONCE).filter_map(|event| match event.event_data {
            Some(XidError::Value(xid)) => Some(xid),
            Some(XidError::Unknown) | None => None,
        });
        let xids: Vec<u64> = xids.collect();
        self.telemetry.last_xid = xids.last().copied().or(self.telemetry.last_xid);
        xids
    }

    fn read(&mut self, question: Question) -> Result<Vec<GpuSeen>, Trouble> {
        self.step.set("finding the GPU");
        let device = needed(self.nvml.device_by_uuid(self.uuid.as_str()), "finding the GPU")?;
        let gpu = self.device(&device, self.uuid.clone(), None, question.now)?;
        let mut devices = vec![gpu];
        self.instances(&device, question.now, &mut devices)?;
        if question.detail == Detail::Full {
            self.telemetry = Telemetry { last_xid: self.telemetry.last_xid, ..telemetry(&device, self.step)? };
        }
        if let Some(gpu) = devices.first_mut() {
            gpu.telemetry = self.telemetry.clone();
        }
        Ok(devices)
    }

    /// Reads what a GPU and a MIG instance have in common.
    fn device(
        &mut self,
        device: &Device<'_>,
        uuid: DeviceUuid,
        parent: Option<&GpuSeen>,
        taken: Timestamp,
    ) -> Result<GpuSeen, Trouble> {
        self.step.set("reading the name");
        let name = needed(device.name(), "reading the name")?;
        let index = match parent {
            Some(parent) => parent.index,
            None => u16::try_from(needed(device.index(), "reading the index")?).unwrap_or(u16::MAX),
        };
        self.step.set("reading memory");
        let memory = self.memory.read(device)?;
        self.step.set("listing processes");
        let processes = processes::read(device)?;
        Ok(GpuSeen {
            uuid,
            index,
            name: GpuName::new(&name).map_err(|error| Trouble::Unreadable(error.to_string()))?,
            parent: parent.map(|parent| parent.uuid.clone()),
            health: GpuHealth::Ok,
            trouble: None,
            memory,
            processes,
            telemetry: Telemetry::default(),
            taken,
        })
    }

    /// Adds the MIG instances of a GPU. Indices may be unused, and an instance may go while they are read.
    fn instances(&mut self, gpu: &Device<'_>, taken: Timestamp, devices: &mut Vec<GpuSeen>) -> Result<(), Trouble> {
        self.step.set("listing MIG instances");
        let mode = optional(gpu.mig_mode(), "reading the MIG mode")?;
        let Some(parent) = devices.first().cloned().filter(|_| mode.is_some_and(|mode| mode.current == 1)) else {
            return Ok(());
        };
        for index in 0..needed(gpu.mig_device_count(), "counting MIG instances")? {
            let instance = match gpu.mig_device_by_index(index) {
                Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
                found => needed(found, "finding a MIG instance")?,
            };
            let uuid = needed(instance.uuid(), "reading a MIG instance's UUID")?;
            let uuid = DeviceUuid::new(&uuid).map_err(|error| Trouble::Unreadable(error.to_string()))?;
            devices.push(self.device(&instance, uuid, Some(&parent), taken)?);
        }
        Ok(())
    }
}

fn telemetry(device: &Device<'_>, step: &Step) -> Result<Telemetry, Trouble> {
    step.set("reading load, heat and power");
    let errors = |kind| optional(device.total_ecc_errors(kind, EccCounter::Volatile), "counting memory errors");
    let corrected = errors(MemoryError::Corrected)?;
    let uncorrected = errors(MemoryError::Uncorrected)?;
    let mode = optional(device.compute_mode(), "reading the compute mode")?;
    Ok(Telemetry {
        utilization_percent: optional(device.utilization_rates(), "reading the load")?.map(|load| load.gpu),
        temperature_celsius: optional(device.temperature(TemperatureSensor::Gpu), "reading the temperature")?,
        power_milliwatts: optional(device.power_usage(), "reading the power")?,
        compute_mode: mode.map(|mode| match mode {
            DriverMode::Default => ComputeMode::Shared,
            DriverMode::ExclusiveThread | DriverMode::ExclusiveProcess => ComputeMode::Exclusive,
            DriverMode::Prohibited => ComputeMode::Prohibited,
        }),
        ecc: corrected.zip(uncorrected).map(|(corrected, uncorrected)| EccSeen { corrected, uncorrected }),
        last_xid: None,
        pci_bus_id: optional(device.pci_info(), "reading the place on the bus")?.map(|place| place.bus_id),
        numa_node: optional(device.numa_node_id(), "reading the NUMA node")?,
    })
}
