//! What the machine has beside its GPUs: this one, and others made of files.

use std::fs;
use std::path::Path;

use berth_domain::{Bytes, MachineId, Millicores};
use berth_runner::inventory::{HostError, HostSeen, HostSource};
use tempfile::TempDir;

/// A machine of four cores and 16 GiB, with files added to it.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    let usual = [
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("proc/sys/kernel/random/boot_id", "b0b0b0b0-0000-4000-8000-000000000001\n"),
        ("proc/self/status", "Name:\tberth\nCpus_allowed_list:\t0-3\n"),
        ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n"),
    ];
    for (path, text) in usual.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn look(root: &Path) -> HostSeen {
    HostSource::under(root, None).look().unwrap()
}

#[test]
fn a_machine_without_limits_has_all_it_has() {
    let root = machine(&[]);
    let host = look(root.path());
    assert_eq!((host.cpu, host.ram, host.ram_available), (Millicores::new(4000), Bytes::gib(16), Bytes::gib(8)));
    assert_eq!(host.machine.as_str(), "0123456789abcdef0123456789abcdef");
    assert_eq!(host.boot.as_str(), "b0b0b0b0-0000-4000-8000-000000000001");
    assert_eq!((host.report().cpu, host.report().ram), (host.cpu, host.ram));
}

#[test]
fn r7_the_least_limit_on_the_way_up_binds() {
    let group = "sys/fs/cgroup/berth.slice/agent";
    let root = machine(&[
        ("proc/self/cgroup", "0::/berth.slice/agent\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"),
        (&format!("{group}/cpu.max"), "max 100000\n"),
        (&format!("{group}/memory.max"), "4294967296\n"),
        ("sys/fs/cgroup/berth.slice/cpu.max", "250000 100000\n"),
        ("sys/fs/cgroup/berth.slice/memory.max", "max\n"),
    ]);
    let host = look(root.path());
    assert_eq!((host.cpu, host.ram), (Millicores::new(2500), Bytes::gib(4)));
}

#[test]
fn r7_a_limit_above_what_there_is_gives_nothing_more() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/cpu.max", "6400000 100000\n"),
        ("sys/fs/cgroup/memory.max", "1099511627776\n"),
    ]);
    let host = look(root.path());
    assert_eq!((host.cpu, host.ram), (Millicores::new(4000), Bytes::gib(16)));
}

#[test]
fn r7_the_first_version_of_control_groups_limits_too() {
    let root = machine(&[
        ("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n1:name=systemd:/box\n0::/\n"),
        (
            "proc/self/mountinfo",
            "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
        ),
        ("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2147483648\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let host = look(root.path());
    assert_eq!((host.cpu, host.ram), (Millicores::new(1500), Bytes::gib(2)));
}

#[test]
fn in_a_container_the_mount_is_the_group() {
    for (group, part) in [("/docker/abc", "/docker/abc"), ("/../../agent", "/"), ("/elsewhere", "/docker/abc")] {
        let mountinfo = format!("30 23 0:26 {part} /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
        let root = machine(&[
            ("proc/self/cgroup", &format!("0::{group}\n")),
            ("proc/self/mountinfo", &mountinfo),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ]);
        assert_eq!(look(root.path()).ram, Bytes::gib(1), "{group} below {part}");
    }
}

#[test]
fn a_machine_without_a_name_must_be_given_one() {
    let root = machine(&[("etc/machine-id", "uninitialized\n")]);
    assert!(matches!(HostSource::under(root.path(), None).look(), Err(HostError::Nameless)));
    let named = HostSource::under(root.path(), Some(MachineId::new("rack-7").unwrap()));
    assert_eq!(named.look().unwrap().machine.as_str(), "rack-7");
    fs::create_dir_all(root.path().join("var/lib/dbus")).unwrap();
    fs::write(root.path().join("var/lib/dbus/machine-id"), "fedcba\n").unwrap();
    assert_eq!(look(root.path()).machine.as_str(), "fedcba");
}

#[test]
fn what_cannot_be_read_is_named() {
    let root = machine(&[("proc/meminfo", "MemTotal: lots\n")]);
    let said = HostSource::under(root.path(), None).look().unwrap_err().to_string();
    assert!(said.contains("meminfo") && said.contains("MemTotal"), "{said}");
    fs::remove_file(root.path().join("proc/self/status")).unwrap();
    fs::write(root.path().join("proc/meminfo"), "MemTotal: 1 kB\nMemAvailable: 1 kB\n").unwrap();
    let said = HostSource::under(root.path(), None).look().unwrap_err().to_string();
    assert!(said.contains("proc/self/status"), "{said}");
}

#[test]
fn this_machine_can_be_looked_at() {
    let host = HostSource::new(Some(MachineId::new("here").unwrap())).look().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(host.boot.as_str(), boot.trim());
    let cores = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    // The standard library rounds a limit down to whole cores.
    assert_eq!((host.cpu.get() / 1000).max(1), cores);
    assert!(host.ram > Bytes::mib(64) && host.ram_available <= host.ram);
}
