//! The limits of the agent's control group, in either version.
//!
//! A limit of any ancestor applies, so the smallest of them is taken. A file that does not exist, or that cannot be
//! read, limits nothing.

use std::fs;
use std::path::{Path, PathBuf};

use berth_domain::{Bytes, Millicores};

/// The limits of the group; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) cpu: Option<Millicores>,
    pub(super) ram: Option<Bytes>,
}

/// Version 1 writes "no limit" as the largest multiple of a page; no real limit is near it.
const NO_LIMIT: u64 = 1 << 62;

/// One mounted hierarchy: its mount point, its root, and its controllers (`None`: version 2).
struct Mount {
    point: PathBuf,
    root: String,
    controllers: Option<Vec<String>>,
}

/// Returns the limits of the calling process, on the machine below `root`.
pub(super) fn limits(root: &Path) -> Limits {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(|line| mount(root, line)).collect();
    let mut limits = Limits::default();
    for (controllers, group) in groups.lines().filter_map(group) {
        let Some(mount) = mounts.iter().find(|mount| mount.has(controllers)) else { continue };
        for directory in mount.way_up(group) {
            limits.tighten(&directory, mount.controllers.is_none());
        }
    }
    limits
}

impl Limits {
    fn tighten(&mut self, directory: &Path, version_2: bool) {
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let (cpu, ram) = if version_2 {
            (cpu_max(&read("cpu.max")), read("memory.max").trim().parse().ok())
        } else {
            let quota = format!("{} {}", read("cpu.cfs_quota_us").trim(), read("cpu.cfs_period_us").trim());
            (cpu_max(&quota), read("memory.limit_in_bytes").trim().parse().ok())
        };
        let ram = ram.filter(|bytes| *bytes < NO_LIMIT).map(Bytes::new);
        self.cpu = self.cpu.into_iter().chain(cpu).min();
        self.ram = self.ram.into_iter().chain(ram).min();
    }
}

/// Parses `quota period`, both in microseconds; `max` or a negative quota is no limit. Fractions of a millicore are
/// dropped.
fn cpu_max(text: &str) -> Option<Millicores> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    Some(Millicores::new(quota.checked_mul(1000)?.checked_div(period)?))
}

/// Parses `hierarchy:controllers:path`.
fn group(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    Some((parts.next()?, parts.next()?))
}

/// Parses a line of `mountinfo`, if it is about control groups.
fn mount(root: &Path, line: &str) -> Option<Mount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1)?);
    let mut place = place.split(' ').skip(3);
    let (part, point) = (place.next()?, place.next()?);
    let controllers = match kind {
        "cgroup2" => None,
        "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
        _ => return None,
    };
    Some(Mount { point: root.join(point.trim_start_matches('/')), root: part.to_owned(), controllers })
}

impl Mount {
    /// Returns whether this is the hierarchy with these controllers; version 2 has an empty list.
    fn has(&self, controllers: &str) -> bool {
        match &self.controllers {
            None => controllers.is_empty(),
            Some(own) => controllers.split(',').all(|controller| own.iter().any(|known| known == controller)),
        }
    }

    /// Returns the directory of a group and all above it, up to the mount point. In a container the group's path may be
    /// one outside the container; then the mount itself is the group.
    fn way_up(&self, group: &str) -> Vec<PathBuf> {
        let below = if self.root == "/" { Some(group) } else { group.strip_prefix(self.root.as_str()) };
        let below = Path::new(below.unwrap_or_default().trim_start_matches('/'));
        if below.components().any(|part| part.as_os_str() == "..") {
            return vec![self.point.clone()];
        }
        let directory = self.point.join(below);
        directory.ancestors().take_while(|above| above.starts_with(&self.point)).map(Path::to_owned).collect()
    }
}
