//! Inventories with simulated GPUs.

use berth_domain::{Bytes, GpuHealth, MachineId};
use berth_runner::inventory::{Detail, DriverStatus, Gpus, InventorySettings, Machine, SimulatedGpus};

use crate::{Sleeper, at, until, uuid};

fn settings() -> InventorySettings {
    toml::from_str(
        "machine_id = \"test-machine\"\n\
         [[simulated]]\nuuid = \"GPU-sim-0\"\nname = \"Simulated\"\nmemory = \"80GiB\"\nused = \"1GiB\"\n\
         [[simulated]]\nuuid = \"GPU-sim-1\"\nname = \"Simulated\"\nmemory = \"80GiB\"\nreserved = \"512MiB\"\n",
    )
    .unwrap()
}

#[test]
fn a_machine_with_simulated_gpus_has_an_inventory() {
    let mut machine = Machine::new(settings());
    let inventory = machine.look(at(5), Detail::Full).unwrap();
    assert_eq!(inventory.driver, DriverStatus::Simulated);
    assert_eq!(inventory.taken, at(5));
    let told: Vec<_> =
        inventory.gpus.iter().map(|gpu| (gpu.uuid.as_str(), gpu.index, gpu.memory.used, gpu.health)).collect();
    assert_eq!(told, [("GPU-sim-0", 0, Bytes::gib(1), GpuHealth::Ok), ("GPU-sim-1", 1, Bytes::ZERO, GpuHealth::Ok)]);
    assert_eq!(inventory.gpus[1].memory.reserved, Bytes::mib(512));
    assert_eq!(inventory.host.machine, MachineId::new("test-machine").unwrap());
    assert!(inventory.host.cpu.get() > 0 && inventory.host.ram > Bytes::ZERO);
}

#[test]
fn a_process_occupies_a_simulated_gpu_while_it_lives() {
    let mut gpus = SimulatedGpus::new(settings().simulated);
    let mut process = Sleeper::start();
    gpus.occupy(process.pid(), &uuid("GPU-sim-0"), Bytes::gib(30));
    let seen = gpus.look(at(1));
    assert_eq!((seen.gpus[0].memory.used, seen.gpus[1].memory.used), (Bytes::gib(31), Bytes::ZERO));
    assert!(!seen.gpus[0].processes.is_clear_of(&[process.pid()].into()));
    process.kill();
    until("the memory is back", || gpus.look(at(2)).gpus[0].memory.used == Bytes::gib(1));
    assert!(gpus.look(at(3)).gpus[0].processes.is_clear_of(&[process.pid()].into()));
}

#[test]
fn a_typo_in_the_settings_is_an_error_and_simulated_goes_first() {
    assert!(toml::from_str::<InventorySettings>("libary = \"x\"").is_err());
    assert!(matches!(Gpus::new(settings()), Gpus::Simulated(_)));
    assert!(matches!(Gpus::new(InventorySettings::default()), Gpus::Nvml(_)));
}
