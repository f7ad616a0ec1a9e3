//! NVML's manners, through the bare C functions: what the wrapper never does wrong must be refused all the same.

use std::ffi::{c_char, c_uint};
use std::mem::zeroed;
use std::ptr;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlReturn_t,
};

use crate::{GIB, Rig, one_gpu};

const SUCCESS: nvmlReturn_t = 0;
const UNINITIALIZED: nvmlReturn_t = 1;
const INVALID_ARGUMENT: nvmlReturn_t = 2;
const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
const VERSION_MISMATCH: nvmlReturn_t = 25;

fn handle(nvml: &Nvml) -> nvmlDevice_t {
    // SAFETY: the handle is only handed back to the library that made it.
    unsafe { nvml.device_by_index(0).unwrap().handle() }
}

#[test]
fn a_list_is_asked_for_twice() {
    let rig = Rig::new(&one_gpu("process = [{ pid = 11, used = 1 }, { pid = 12, used = 2 }]"));
    let nvml = rig.load();
    let device = handle(&nvml);
    // SAFETY: all pointers are null or point to what the count says.
    unsafe {
        let ask = |count: &mut c_uint, place: *mut nvmlProcessInfo_t| {
            nvml.lib().nvmlDeviceGetComputeRunningProcesses_v3(device, count, place)
        };
        let mut count = 0;
        assert_eq!((ask(&mut count, ptr::null_mut()), count), (INSUFFICIENT_SIZE, 2));
        let mut room: [nvmlProcessInfo_t; 3] = zeroed();
        count = 1;
        assert_eq!((ask(&mut count, room.as_mut_ptr()), count, room[0].pid), (INSUFFICIENT_SIZE, 2, 0));
        count = 3;
        assert_eq!((ask(&mut count, room.as_mut_ptr()), count), (SUCCESS, 2));
        assert_eq!(room.map(|process| process.pid), [11, 12, 0]);
        assert_eq!(room[0].gpuInstanceId, c_uint::MAX);
        count = 3;
        assert_eq!(ask(&mut count, ptr::null_mut()), INVALID_ARGUMENT);
        let nowhere = nvml.lib().nvmlDeviceGetComputeRunningProcesses_v3(device, ptr::null_mut(), room.as_mut_ptr());
        assert_eq!(nowhere, INVALID_ARGUMENT);
    }
}

#[test]
fn an_empty_list_succeeds_at_once() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let mut count = 0;
    // SAFETY: the count is there; no room is needed for nothing.
    let answer =
        unsafe { nvml.lib().nvmlDeviceGetGraphicsRunningProcesses_v3(handle(&nvml), &raw mut count, ptr::null_mut()) };
    assert_eq!((answer, count), (SUCCESS, 0));
}

#[test]
fn the_oldest_list_has_no_instances() {
    let rig = Rig::new(&one_gpu("process = [{ pid = 11, used = 1 }, { pid = 12 }]"));
    let nvml = rig.load();
    // SAFETY: the places are as large as the count says.
    let (answer, room) = unsafe {
        let mut room: [nvmlProcessInfo_v1_t; 2] = zeroed();
        let mut count = 2;
        let lib = nvml.lib();
        (lib.nvmlDeviceGetComputeRunningProcesses(handle(&nvml), &raw mut count, room.as_mut_ptr()), room)
    };
    assert_eq!(answer, SUCCESS);
    assert_eq!(room.map(|process| (process.pid, process.usedGpuMemory)), [(11, 1), (12, u64::MAX)]);
}

#[test]
fn the_version_of_a_structure_is_checked() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let good = c_uint::try_from(size_of::<nvmlMemory_v2_t>()).unwrap() | (2 << 24);
    for (version, expected) in [(good, SUCCESS), (0, VERSION_MISMATCH), (good | (1 << 24), VERSION_MISMATCH)] {
        // SAFETY: the structure is there, and all zeros is a value of it.
        let answer = unsafe {
            let mut memory: nvmlMemory_v2_t = zeroed();
            memory.version = version;
            nvml.lib().nvmlDeviceGetMemoryInfo_v2(handle(&nvml), &raw mut memory)
        };
        assert_eq!(answer, expected, "version {version:#x}");
    }
}

#[test]
fn the_older_call_counts_the_drivers_part_as_used() {
    let rig = Rig::new(&one_gpu("memory_reserved = \"1GiB\"\nmemory_used = \"2GiB\""));
    let nvml = rig.load();
    // SAFETY: the structure is there, and all zeros is a value of it.
    let (answer, memory) = unsafe {
        let mut memory: nvmlMemory_t = zeroed();
        (nvml.lib().nvmlDeviceGetMemoryInfo(handle(&nvml), &raw mut memory), memory)
    };
    assert_eq!(answer, SUCCESS);
    assert_eq!((memory.total, memory.used, memory.free), (80 * GIB, 3 * GIB, 77 * GIB));
}

#[test]
fn a_text_stays_within_its_buffer() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let mut buffer: [c_char; 8] = [1; 8];
    // "GPU-a" has five bytes, and one more for its end.
    for (length, expected) in [(0, INSUFFICIENT_SIZE), (5, INSUFFICIENT_SIZE), (6, SUCCESS)] {
        // SAFETY: the buffer is longer than every length.
        let answer = unsafe { nvml.lib().nvmlDeviceGetUUID(handle(&nvml), buffer.as_mut_ptr(), length) };
        assert_eq!(answer, expected, "length {length}");
        assert_eq!(buffer[6..], [1, 1]);
        assert_eq!(buffer[0] == 1, expected != SUCCESS);
    }
    // SAFETY: null is refused, not followed.
    assert_eq!(unsafe { nvml.lib().nvmlDeviceGetUUID(handle(&nvml), ptr::null_mut(), 96) }, INVALID_ARGUMENT);
}

#[test]
fn an_invalid_handle_is_refused() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let good = handle(&nvml);
    let mut index = 0;
    for (device, expected) in [
        (good, SUCCESS),
        (ptr::null_mut(), INVALID_ARGUMENT),
        (good.wrapping_byte_add(1), INVALID_ARGUMENT),
        (good.wrapping_byte_add(0x4000), INVALID_ARGUMENT),
        ((&raw mut index).cast(), INVALID_ARGUMENT),
    ] {
        // SAFETY: a handle is a number to the mock, never followed.
        assert_eq!(unsafe { nvml.lib().nvmlDeviceGetIndex(device, &raw mut index) }, expected);
    }
}

#[test]
fn nothing_works_after_the_last_stop() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let mut count = 0;
    // SAFETY: the count is there, and the library stays loaded while `nvml` lives.
    unsafe {
        let lib = nvml.lib();
        assert_eq!(lib.nvmlInit_v2(), SUCCESS);
        assert_eq!(lib.nvmlShutdown(), SUCCESS);
        assert_eq!(lib.nvmlDeviceGetCount_v2(&raw mut count), SUCCESS);
        assert_eq!(lib.nvmlShutdown(), SUCCESS);
        assert_eq!(lib.nvmlDeviceGetCount_v2(&raw mut count), UNINITIALIZED);
        assert_eq!(lib.nvmlShutdown(), UNINITIALIZED);
        assert_eq!(lib.nvmlInitWithFlags(0), SUCCESS);
        assert_eq!(lib.nvmlDeviceGetCount_v2(&raw mut count), SUCCESS);
    }
    assert_eq!(count, 1);
}
