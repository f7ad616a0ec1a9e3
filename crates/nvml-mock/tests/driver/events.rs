//! Events.

use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{EventSet, Nvml};

use crate::{A, Rig, one_gpu};

fn xid(id: u64, xid: u64) -> String {
    format!("[[event]]\nid = {id}\ngpu = \"{A}\"\nxid = {xid}\n")
}

fn registered(nvml: &Nvml) -> EventSet<'_> {
    let gpu = nvml.device_by_index(0).unwrap();
    assert!(gpu.supported_event_types().unwrap().contains(EventTypes::CRITICAL_XID_ERROR));
    gpu.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set().unwrap()).map_err(|e| e.error).unwrap()
}

fn heard(set: &EventSet<'_>) -> Option<u64> {
    match set.wait(0) {
        Ok(event) => {
            assert_eq!(event.device.uuid().unwrap(), A);
            assert_eq!(event.event_type, EventTypes::CRITICAL_XID_ERROR);
            match event.event_data {
                Some(XidError::Value(xid)) => Some(xid),
                other => panic!("no Xid: {other:?}"),
            }
        }
        Err(NvmlError::Timeout) => None,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn an_xid_is_heard_once_by_each_set() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let (one, other) = (registered(&nvml), registered(&nvml));
    assert_eq!(heard(&one), None);
    rig.driver.rewrite(&format!("{}{}", one_gpu(""), xid(1, 79))).unwrap();
    assert_eq!((heard(&one), heard(&one)), (Some(79), None));
    rig.driver.rewrite(&format!("{}{}{}", one_gpu("temperature = 3"), xid(1, 79), xid(2, 48))).unwrap();
    assert_eq!((heard(&one), heard(&one)), (Some(48), None));
    assert_eq!((heard(&other), heard(&other), heard(&other)), (Some(79), Some(48), None));
}

#[test]
fn a_wait_ends_when_something_happens() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let set = registered(&nvml);
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let begun = Instant::now();
            let event = set.wait(20_000).map(|event| event.event_data);
            (event, begun.elapsed())
        });
        // The waiting call keeps nobody out.
        assert_eq!(nvml.device_count().unwrap(), 1);
        rig.driver.rewrite(&format!("{}{}", one_gpu(""), xid(7, 63))).unwrap();
        let (event, took) = waiting.join().unwrap();
        assert!(matches!(event, Ok(Some(XidError::Value(63)))), "{event:?}");
        assert!(took < Duration::from_secs(10), "took {took:?}");
    });
}

#[test]
fn a_wait_without_an_event_ends_in_time() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let set = registered(&nvml);
    let begun = Instant::now();
    assert!(matches!(set.wait(50), Err(NvmlError::Timeout)));
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn a_set_gets_only_events_that_it_registered_for() {
    let rig = Rig::new(&format!("{}{}", one_gpu(""), xid(1, 31)));
    let nvml = rig.load();
    let set = nvml.create_event_set().unwrap();
    assert!(matches!(set.wait(0), Err(NvmlError::Timeout)));
    // A GPU without error correction has no such events.
    let gpu = nvml.device_by_index(0).unwrap();
    let refused = gpu.register_events(EventTypes::SINGLE_BIT_ECC_ERROR, set).map_err(|e| e.error);
    assert!(matches!(refused, Err(NvmlError::NotSupported)));
}

#[test]
fn n12_a_lost_gpu_ends_the_wait_after_its_last_event() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let set = registered(&nvml);
    rig.driver.rewrite(&format!("{}{}", one_gpu("lost = true"), xid(1, 79))).unwrap();
    assert!(matches!(set.wait(0).map(|event| event.event_data), Ok(Some(XidError::Value(79)))));
    assert!(matches!(set.wait(5_000), Err(NvmlError::GpuLost)));
}

#[test]
fn a_set_is_freed_once() {
    let rig = Rig::new(&one_gpu(""));
    let nvml = rig.load();
    let set = nvml.create_event_set().unwrap();
    // SAFETY: the handle is only handed back to the library that made it.
    let handle = unsafe { set.handle() };
    set.release_events().unwrap();
    // SAFETY: a handle is a number to the mock; a freed one is refused, not followed.
    let again = unsafe { nvml.lib().nvmlEventSetFree(handle) };
    assert_eq!(again, 2, "a set that is gone is an invalid argument");
}
