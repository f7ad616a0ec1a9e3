//! How GPUs are joined.

use berth_nvml_mock::EXAMPLE;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::error::NvmlError;

use crate::Rig;

#[test]
fn levels_are_those_of_the_script_both_ways_and_the_system_else() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let level = |one, other| {
        let [one, other] = [one, other].map(|index| nvml.device_by_index(index).unwrap());
        one.topology_common_ancestor(other).unwrap()
    };
    assert_eq!(level(0, 1), TopologyLevel::Single);
    assert_eq!(level(1, 0), TopologyLevel::Single);
    assert_eq!(level(0, 2), TopologyLevel::System);
    assert_eq!(level(0, 0), TopologyLevel::Internal);
}

#[test]
fn the_nearest_gpus_are_listed_by_level() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let near = |level| -> Vec<u32> {
        let first = nvml.device_by_index(0).unwrap();
        first.topology_nearest_gpus(level).unwrap().iter().map(|gpu| gpu.index().unwrap()).collect()
    };
    assert_eq!(near(TopologyLevel::Single), [1]);
    assert_eq!(near(TopologyLevel::System), [2]);
    assert_eq!(near(TopologyLevel::Node), [0u32; 0]);
}

#[test]
fn nvlinks_lead_to_the_peer() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let first = nvml.device_by_index(0).unwrap();
    let active: Vec<u32> = (0..18).filter(|link| first.link_wrapper_for(*link).is_active().unwrap()).collect();
    assert_eq!(active, [0, 1, 2, 3]);
    let peer = first.link_wrapper_for(3).remote_pci_info().unwrap();
    assert_eq!(peer.bus_id, nvml.device_by_index(1).unwrap().pci_info().unwrap().bus_id);
    assert!(matches!(first.link_wrapper_for(4).remote_pci_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(first.link_wrapper_for(18).is_active(), Err(NvmlError::InvalidArg)));
    let alone = nvml.device_by_index(2).unwrap();
    assert!(matches!(alone.link_wrapper_for(0).is_active(), Err(NvmlError::NotSupported)));
}

#[test]
fn peer_access_is_as_scripted() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let [first, second, third] = [0, 1, 2].map(|index| nvml.device_by_index(index).unwrap());
    assert_eq!(first.p2p_status(&second, P2pCapabilitiesIndex::Read).unwrap(), P2pStatus::Ok);
    assert_eq!(first.p2p_status(&second, P2pCapabilitiesIndex::NvLink).unwrap(), P2pStatus::Ok);
    assert_eq!(first.p2p_status(&third, P2pCapabilitiesIndex::NvLink).unwrap(), P2pStatus::NotSupported);
}

#[test]
fn a_gpu_is_near_to_cpus_and_a_node() {
    let rig = Rig::new(EXAMPLE);
    let nvml = rig.load();
    let first = nvml.device_by_index(0).unwrap();
    assert_eq!(first.numa_node_id().unwrap(), 0);
    assert_eq!(first.cpu_affinity(2).unwrap(), [0b1111, 0]);
}
