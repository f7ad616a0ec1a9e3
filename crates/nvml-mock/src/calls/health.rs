//! The condition of a GPU: load, temperature, power, memory errors.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT, nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED, nvmlComputeMode_t,
    nvmlEccCounterType_enum_NVML_AGGREGATE_ECC as AGGREGATE, nvmlEccCounterType_enum_NVML_VOLATILE_ECC as VOLATILE,
    nvmlEccCounterType_t, nvmlEnableState_t, nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED as CORRECTED,
    nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_UNCORRECTED as UNCORRECTED, nvmlMemoryErrorType_t,
    nvmlMemoryLocation_t, nvmlReturn_t, nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU, nvmlTemperatureSensors_t,
    nvmlUtilization_t,
};

use crate::error_code::{ErrorCode, NvmlResult};
use crate::library::{Device, Target, ask_of};
use crate::out::{DeviceIn, Out};
use crate::script::{ComputeMode, Gpu};

/// Writes the load in per cent.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetUtilizationRates(device: DeviceIn, rates: Out<nvmlUtilization_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetUtilizationRates", &Target::Handle(device), |_, device| {
        let whole = device.whole()?;
        let gpu = whole.utilization.ok_or(ErrorCode::NotSupported)?;
        rates.put(nvmlUtilization_t { gpu, memory: whole.memory_utilization.unwrap_or_default() })
    })
}

/// Writes the temperature in degrees Celsius.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(
    device: DeviceIn,
    sensor: nvmlTemperatureSensors_t,
    degrees: Out<c_uint>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetTemperature", &Target::Handle(device), |_, device| {
        if sensor != nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU {
            return Err(ErrorCode::InvalidArgument);
        }
        put_if_known(device, |gpu| gpu.temperature, degrees)
    })
}

/// Writes the power draw in milliwatts.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: DeviceIn, power: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetPowerUsage", &Target::Handle(device), |_, device| {
        put_if_known(device, |gpu| gpu.power_mw, power)
    })
}

/// Writes the power limit in milliwatts.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEnforcedPowerLimit(device: DeviceIn, limit: Out<c_uint>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetEnforcedPowerLimit", &Target::Handle(device), |_, device| {
        put_if_known(device, |gpu| gpu.power_limit_mw, limit)
    })
}

fn put_if_known(device: Device<'_>, number: fn(&Gpu) -> Option<u32>, place: Out<c_uint>) -> NvmlResult {
    place.put(number(device.whole()?).ok_or(ErrorCode::NotSupported)?)
}

/// Writes the compute mode.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeMode(device: DeviceIn, mode: Out<nvmlComputeMode_t>) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetComputeMode", &Target::Handle(device), |_, device| {
        mode.put(match device.whole()?.compute_mode {
            ComputeMode::Default => nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT,
            ComputeMode::Prohibited => nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED,
            ComputeMode::ExclusiveProcess => nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
        })
    })
}

/// Writes whether ECC is on, now and after the next reset.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEccMode(
    device: DeviceIn,
    current: Out<nvmlEnableState_t>,
    pending: Out<nvmlEnableState_t>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetEccMode", &Target::Handle(device), |_, device| {
        let ecc = device.whole()?.ecc.ok_or(ErrorCode::NotSupported)?;
        current.put(nvmlEnableState_t::from(ecc.enabled))?;
        pending.put(nvmlEnableState_t::from(ecc.enabled))
    })
}

/// Writes the number of memory errors.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: DeviceIn,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    count: Out<c_ulonglong>,
) -> nvmlReturn_t {
    ask_of("nvmlDeviceGetTotalEccErrors", &Target::Handle(device), |_, device| {
        count.put(ecc_count(device, kind, counter)?)
    })
}

/// Writes the number of memory errors in one location; the mock counts all of them in device memory.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryErrorCounter(
    device: DeviceIn,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    location: nvmlMemoryLocation_t,
    count: Out<c_ulonglong>,
) -> nvmlReturn_t {
    use nvml_wrapper_sys::bindings::nvmlMemoryLocation_enum_NVML_MEMORY_LOCATION_DEVICE_MEMORY as DEVICE_MEMORY;
    ask_of("nvmlDeviceGetMemoryErrorCounter", &Target::Handle(device), |_, device| {
        let all = ecc_count(device, kind, counter)?;
        count.put(if location == DEVICE_MEMORY { all } else { 0 })
    })
}

fn ecc_count(device: Device<'_>, kind: nvmlMemoryErrorType_t, counter: nvmlEccCounterType_t) -> NvmlResult<u64> {
    let ecc = device.whole()?.ecc.filter(|ecc| ecc.enabled).ok_or(ErrorCode::NotSupported)?;
    match (kind, counter) {
        (CORRECTED, VOLATILE) => Ok(ecc.corrected_volatile),
        (UNCORRECTED, VOLATILE) => Ok(ecc.uncorrected_volatile),
        (CORRECTED, AGGREGATE) => Ok(ecc.corrected_aggregate),
        (UNCORRECTED, AGGREGATE) => Ok(ecc.uncorrected_aggregate),
        _ => Err(ErrorCode::InvalidArgument),
    }
}
