//! A `libnvidia-ml.so` for machines without a GPU.
//!
//! The crate builds `libberth_nvml_mock.so`, a C library with the functions of NVML that an agent needs. A program that
//! loads it by its path (`Nvml::builder().lib_path(..)` of nvml-wrapper) runs the same code as on a machine with GPUs,
//! from the symbol to the last field, and sees what a *script* says. Tests rewrite the script while the program runs.
//!
//! The library follows NVML's conventions: lists are asked for twice (`INSUFFICIENT_SIZE` and the count, then the
//! list), versions of structures are checked, texts stay within their buffers, calls fail before `nvmlInit_v2` and
//! after the last `nvmlShutdown`, handles stay valid as long as the process runs, and a lost GPU is counted but calls
//! about it fail. It touches no GPU, starts no thread and writes no file. It is the only crate with unsafe code, all of
//! it in `out.rs` except for the attributes that export functions by name.
//!
//! # The path of a call
//!
//! ```text
//! nvmlDeviceGetX ──> library: started? ──> source: did the script change? ──> a fault? ──> the device, or lost
//!                                                                              │ error, hang, delay
//!                                   out: pointers <── answer <── calls: one look at the script, usage, event sets
//! ```
//!
//! A call that hangs or waits for an event holds no lock: other calls go on.
//!
//! # The script's location
//!
//! The variable `BERTH_NVML_SCRIPT` names the script; else it is the file beside the library with the library's name
//! and `.toml` or `.json` in place of `.so`. Without a script, the library reports that no driver is loaded
//! (`DRIVER_NOT_LOADED`). Each call checks whether the script changed and reads it again if so; replace it by renaming,
//! so that no call reads half of it. A script that cannot be read is reported on standard error, and calls return
//! `UNKNOWN` until it is repaired. Unknown fields are errors.
//!
//! In tests, [`ScriptedDriver`] does all this; each copy of the library that a process loads has state of its own.
//!
//! # Memory in use
//!
//! The memory in use of a GPU is `memory_used` of the script, plus
//!
//! - the processes of the script, if `used_follows_processes` is set: a pid counts and is listed while it is alive (a
//!   zombie is not). Otherwise they are listed as they stand and add nothing: pids may be invented.
//! - **claims**: a program states that it uses memory by writing a file `<pid>.<uuid>` into the directory that
//!   `BERTH_NVML_CLAIMS` names (else the script's `claims`, beside the script), with a size in it: bytes, or `10GiB`. It
//!   counts as a process that computes on that GPU, or MIG instance, while the pid is alive.
//!
//! After a process died, its memory is free once `release_delay_ms` has passed since the first call that found it dead.
//! Several scripts may share claims: that is how two agents see one GPU. Used memory is not capped at the total, so
//! that an overcommitment is visible.
//!
//! # An example with all fields
//!
//! ```toml
#![doc = include_str!("../example.toml")]
//! ```
//!
//! Errors are named as in NVML, in small letters: `uninitialized`, `invalid_argument`, `not_supported`, `no_permission`,
//! `not_found`, `insufficient_size`, `driver_not_loaded`, `timeout`, `irq_issue`, `function_not_found`, `gpu_is_lost`,
//! `reset_required`, `operating_system`, `lib_rm_version_mismatch`, `in_use`, `memory`, `no_data`,
//! `argument_version_mismatch`, `unknown`. An old driver is one where `nvmlDeviceGetMemoryInfo_v2` or
//! `nvmlDeviceGet*RunningProcesses_v3` says `function_not_found`; a mismatch of driver and library is
//! `lib_rm_version_mismatch` at `nvmlInit*`. Kinds of events are `xid`, `single_bit_ecc`, `double_bit_ecc` and
//! `mig_config_change`; kinds of processes `compute`, `graphics` and `mps`; compute modes `default`, `prohibited` and
//! `exclusive_process`.

mod calls;
mod error_code;
mod events;
mod library;
mod out;
mod script;
mod scripted;
mod source;
mod usage;

pub use script::ScriptError;
pub use scripted::ScriptedDriver;
pub use source::{CLAIMS_VARIABLE, SCRIPT_VARIABLE};

/// The example script above.
pub const EXAMPLE: &str = include_str!("../example.toml");
