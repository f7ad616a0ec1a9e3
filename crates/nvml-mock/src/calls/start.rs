//! Starting and stopping the library, and facts about the whole machine.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::library::{ask, start};
use crate::out::{Out, TextOut};

/// Starts the library.
#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    start("nvmlInit_v2")
}

/// Starts the library; the mock ignores the flags.
#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    start("nvmlInitWithFlags")
}

/// Ends one start of the library.
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    ask("nvmlShutdown", |library, _| {
        library.stop();
        Ok(())
    })
}

/// Writes the driver's version.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(version: TextOut, length: c_uint) -> nvmlReturn_t {
    ask("nvmlSystemGetDriverVersion", |_, script| version.put(length, &script.driver_version))
}

/// Writes the library's version.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetNVMLVersion(version: TextOut, length: c_uint) -> nvmlReturn_t {
    ask("nvmlSystemGetNVMLVersion", |_, script| version.put(length, &script.nvml_version))
}

/// Writes CUDA's version: thousands are the major one, tens the minor.
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<c_int>) -> nvmlReturn_t {
    ask("nvmlSystemGetCudaDriverVersion_v2", |_, script| version.put(script.cuda_version))
}
