//! Events that the driver reports by itself.

use std::ffi::{c_uint, c_ulonglong};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t, nvmlEventTypeClock, nvmlEventTypeDoubleBitEccError,
    nvmlEventTypePState, nvmlEventTypeSingleBitEccError, nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use crate::error_code::ErrorCode;
use crate::library::{LOOK, Target, ask, ask_of, enter, guarded, library};
use crate::out::{DeviceIn, EventSetIn, Out, event_set_handle};
use crate::script::Gpu;

/// Makes an event set.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(set: Out<nvmlEventSet_t>) -> nvmlReturn_t {
    ask("nvmlEventSetCreate", |library, _| set.put(event_set_handle(library.sets.make())))
}

/// Frees an event set.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: EventSetIn) -> nvmlReturn_t {
    ask("nvmlEventSetFree", |library, _| library.sets.free(set.number()?))
}

/// Writes the types of events that a GPU supports.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetSupportedEventTypes(device: DeviceIn, types: Out<c_ulonglong>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetSupportedEventTypes", &Target::Handle(device), |_, device| {
        types.put(supported(device.whole()?))
    })
}

/// Registers a set for types of events of one GPU.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(device: DeviceIn, types: c_ulonglong, set: EventSetIn) -> nvmlReturn_t {
    ask_of("nvmlDeviceRegisterEvents", &Target::Handle(device), |library, device| {
        let gpu = device.whole()?;
        if types & !supported(gpu) != 0 {
            return Err(ErrorCode::NotSupported);
        }
        library.sets.register(set.number()?, &gpu.uuid, types)
    })
}

fn supported(gpu: &Gpu) -> u64 {
    let mut types = nvmlEventTypeXidCriticalError | nvmlEventTypePState | nvmlEventTypeClock;
    if gpu.ecc.is_some() {
        types |= nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
    }
    if gpu.mig.is_some() {
        types |= nvmlEventMigConfigChange;
    }
    u64::from(types)
}

/// Waits for an event, at most `timeout` milliseconds. Other calls go on meanwhile.
#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(set: EventSetIn, data: Out<nvmlEventData_t>, timeout: c_uint) -> nvmlReturn_t {
    guarded(|| {
        let deadline = Instant::now() + Duration::from_millis(u64::from(timeout));
        enter("nvmlEventSetWait_v2", &Target::Nobody)?;
        loop {
            {
                let mut library = library();
                let script = library.script()?;
                if let Some(event) = library.sets.next(set.number()?, &script)? {
                    return data.put(nvmlEventData_t {
                        device: library.handle(&event.gpu),
                        eventType: event.bit(),
                        eventData: event.xid,
                        gpuInstanceId: c_uint::MAX,
                        computeInstanceId: c_uint::MAX,
                    });
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorCode::Timeout);
            }
            thread::sleep(left.min(LOOK));
        }
    })
}
