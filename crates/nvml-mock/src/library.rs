//! The library's state, and the entry of each call.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t};

use crate::error_code::{ErrorCode, NvmlResult};
use crate::events::EventSets;
use crate::out::{DeviceIn, device_handle};
use crate::script::{FaultEffect, Gpu, Hang, Instance, Script};
use crate::source::Source;
use crate::usage::{Deaths, Observer, Usage};

/// How often a waiting call looks at the script.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

/// The state of the library. A call holds it while it computes its result, and not while it waits.
#[derive(Debug, Default)]
pub(crate) struct Library {
    starts: u32,
    source: Option<Source>,
    /// The UUID behind each handle that was given out. Handles stay valid when the script changes.
    handles: Vec<Arc<str>>,
    deaths: Deaths,
    /// How often each fault of this reading of the script was applied.
    strikes: BTreeMap<(u64, usize), u32>,
    pub(crate) sets: EventSets,
}

static LIBRARY: LazyLock<Mutex<Library>> = LazyLock::new(Mutex::default);

/// Locks the library. A panic in a call leaves no inconsistent state.
pub(crate) fn library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a call is about.
#[derive(Clone)]
pub(crate) enum Target {
    Nobody,
    Handle(DeviceIn),
    Index(u32),
    Uuid(String),
    Bus(String),
}

/// The device that a call is about, as the script has it now.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) script: &'a Script,
    pub(crate) gpu: &'a Gpu,
    pub(crate) instance: Option<&'a Instance>,
}

impl<'a> Device<'a> {
    /// Returns the GPU, if this is one and not a MIG instance.
    pub(crate) fn whole(self) -> NvmlResult<&'a Gpu> {
        if self.instance.is_some() { Err(ErrorCode::NotSupported) } else { Ok(self.gpu) }
    }

    pub(crate) fn uuid(self) -> &'a str {
        self.instance.map_or(&self.gpu.uuid, |instance| &instance.uuid)
    }
}

/// Runs a call that is about no device.
pub(crate) fn ask(function: &str, body: impl FnOnce(&mut Library, &Script) -> NvmlResult) -> nvmlReturn_t {
    guarded(|| {
        let script = enter(function, &Target::Nobody)?;
        body(&mut library(), &script)
    })
}

/// Runs a call about one device.
pub(crate) fn ask_of(
    function: &str,
    target: &Target,
    body: impl FnOnce(&mut Library, Device<'_>) -> NvmlResult,
) -> nvmlReturn_t {
    guarded(|| {
        let script = enter(function, target)?;
        let mut library = library();
        let uuid = library.uuid_of(&script, target)?.ok_or(ErrorCode::InvalidArgument)?;
        let device = Library::device(&script, &uuid)?;
        body(&mut library, device)
    })
}

/// Converts a result into NVML's code. A panic must not unwind into C.
pub(crate) fn guarded(body: impl FnOnce() -> NvmlResult) -> nvmlReturn_t {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => nvmlReturn_enum_NVML_SUCCESS,
        Ok(Err(error_code)) => error_code.code(),
        Err(_) => ErrorCode::Unknown.code(),
    }
}

/// Checks that the library was started, that the script can be read, and that no fault applies. A call that hangs does
/// so here, with nothing locked.
pub(crate) fn enter(function: &str, target: &Target) -> NvmlResult<Arc<Script>> {
    loop {
        let Entry { script, reading, effect } = {
            let mut library = library();
            if library.starts == 0 {
                return Err(ErrorCode::Uninitialized);
            }
            library.entry(function, target)?
        };
        match effect {
            None => return Ok(script),
            Some(FaultEffect::Error(error_code)) => return Err(error_code),
            Some(FaultEffect::Delay(delay)) => {
                thread::sleep(delay);
                return Ok(script);
            }
            Some(FaultEffect::Hang(Hang::Forever)) => loop {
                thread::park();
            },
            // The new script decides again, and may keep the call hanging.
            Some(FaultEffect::Hang(Hang::UntilChange)) => {
                while library().reading()?.1 == reading {
                    thread::sleep(LOOK);
                }
            }
        }
    }
}

/// The state that a call finds when it enters.
struct Entry {
    script: Arc<Script>,
    reading: u64,
    effect: Option<FaultEffect>,
}

/// Starts the library, or adds a start if it is started already.
pub(crate) fn start(function: &str) -> nvmlReturn_t {
    guarded(|| {
        {
            let mut library = library();
            if library.starts == 0 {
                library.source = Some(Source::find()?);
            }
            library.starts += 1;
        }
        enter(function, &Target::Nobody).map(drop).inspect_err(|_| library().stop())
    })
}

impl Library {
    /// Ends one start.
    pub(crate) fn stop(&mut self) {
        self.starts = self.starts.saturating_sub(1);
    }

    /// Returns the current script.
    pub(crate) fn script(&mut self) -> NvmlResult<Arc<Script>> {
        self.reading().map(|(script, _)| script)
    }

    fn reading(&mut self) -> NvmlResult<(Arc<Script>, u64)> {
        self.source.as_mut().ok_or(ErrorCode::Uninitialized)?.current()
    }

    /// Returns the script, and the fault that applies to this call.
    fn entry(&mut self, function: &str, target: &Target) -> NvmlResult<Entry> {
        let (script, reading) = self.reading()?;
        let uuid = self.uuid_of(&script, target).ok().flatten();
        let struck = script.faults.iter().enumerate().find(|(number, fault)| {
            let aimed = fault.gpu.as_deref().is_none_or(|gpu| {
                uuid.as_deref().and_then(|uuid| script.find(uuid)).is_some_and(|(found, instance)| {
                    found.uuid == gpu || instance.is_some_and(|instance| instance.uuid == gpu)
                })
            });
            let struck = self.strikes.get(&(reading, *number)).copied().unwrap_or_default();
            fault.concerns(function) && aimed && fault.times.is_none_or(|times| struck < times)
        });
        let Some((number, fault)) = struck else { return Ok(Entry { script, reading, effect: None }) };
        let effect = Some(fault.effect());
        *self.strikes.entry((reading, number)).or_default() += 1;
        Ok(Entry { script, reading, effect })
    }

    /// Returns the UUID that a call means.
    fn uuid_of(&self, script: &Script, target: &Target) -> NvmlResult<Option<Arc<str>>> {
        let found = match target {
            Target::Nobody => return Ok(None),
            Target::Handle(handle) => {
                return self.handles.get(handle.number()?).cloned().map(Some).ok_or(ErrorCode::InvalidArgument);
            }
            Target::Index(index) => script.at(*index).ok_or(ErrorCode::InvalidArgument)?.uuid.as_str(),
            Target::Uuid(uuid) => script.find(uuid).map(|_| uuid.as_str()).ok_or(ErrorCode::NotFound)?,
            Target::Bus(bus) => {
                let at = script.gpus.iter().find(|gpu| same_bus(gpu.pci_bus_id(), bus));
                at.ok_or(ErrorCode::NotFound)?.uuid.as_str()
            }
        };
        Ok(Some(Arc::from(found)))
    }

    /// Returns the device with this UUID. A device that is no longer in the script counts as lost.
    pub(crate) fn device<'a>(script: &'a Script, uuid: &str) -> NvmlResult<Device<'a>> {
        let (gpu, instance) = script.find(uuid).filter(|(gpu, _)| !gpu.lost).ok_or(ErrorCode::GpuIsLost)?;
        Ok(Device { script, gpu, instance })
    }

    /// Returns the device behind a second handle of a call.
    pub(crate) fn other<'a>(&self, script: &'a Script, handle: DeviceIn) -> NvmlResult<Device<'a>> {
        let uuid = self.uuid_of(script, &Target::Handle(handle))?.ok_or(ErrorCode::InvalidArgument)?;
        Self::device(script, &uuid)
    }

    /// Returns the handle of a UUID: the same one at each call.
    pub(crate) fn handle(&mut self, uuid: &str) -> nvmlDevice_t {
        let number = self.handles.iter().position(|known| &**known == uuid).unwrap_or_else(|| {
            self.handles.push(Arc::from(uuid));
            self.handles.len() - 1
        });
        device_handle(number)
    }

    /// Returns the current memory use of a device, by process.
    pub(crate) fn usage(&mut self, device: Device<'_>) -> Usage {
        let claims = self.source.as_ref().map(|source| source.claims(device.script));
        self.observe(device, claims.as_deref())
    }

    /// Returns the same without claims, which belong to computing processes: reading them takes time.
    pub(crate) fn usage_by_script(&mut self, device: Device<'_>) -> Usage {
        self.observe(device, None)
    }

    fn observe(&mut self, device: Device<'_>, claims: Option<&Path>) -> Usage {
        let mut observer = Observer { script: device.script, claims, deaths: &mut self.deaths };
        match device.instance {
            Some(instance) => observer.instance(device.gpu, instance),
            None => observer.gpu(device.gpu),
        }
    }
}

/// Compares bus ids, which have four or eight digits of domain, in small letters or large ones.
fn same_bus(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.trim_start_matches('0').to_ascii_lowercase();
    plain(one) == plain(other)
}
