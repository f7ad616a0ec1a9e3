//! The processes of slots as the kernel shows them, independent of what agents report.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::service::within;

/// In the environment of every process of a machine's slots: which machine.
pub(super) const HOME: &str = "BERTH_TEST_MACHINE";

/// A living process of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Living {
    /// Its pid.
    pub pid: u32,
    /// Its slot.
    pub slot: String,
    /// The generation of the slot.
    pub generation: u64,
}

/// Every living process of the slots of a machine.
pub(super) fn living(home: &Path) -> Vec<Living> {
    let mine = format!("{HOME}={}", home.display());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<Living> = pids.filter_map(|pid| look(pid, &mine)).collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn look(pid: u32, mine: &str) -> Option<Living> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environ = String::from_utf8_lossy(&environ);
    if !environ.split('\0').any(|pair| pair == mine) || !is_alive(pid) {
        return None;
    }
    let of = |name: &str| environ.split('\0').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    Some(Living { pid, slot: of("BERTH_SLOT_ID")?.to_owned(), generation: of("BERTH_SLOT_GENERATION")?.parse().ok()? })
}

/// Whether a process lives. One that is dead and not waited for does not.
pub(super) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// What living processes say that they use of a GPU.
pub(super) fn used(home: &Path, claims: &Path, uuid: &str) -> Vec<(u32, u64)> {
    let mine = format!("{HOME}={}", home.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(claims).unwrap().flatten() {
        let name = entry.file_name();
        let Some((pid, of)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
        let (Ok(pid), true) = (pid.parse(), of == uuid) else { continue };
        let bytes = fs::read_to_string(entry.path()).ok().and_then(|text| text.trim().parse().ok());
        // The pid may belong to another process by now.
        if look(pid, &mine).is_some() {
            found.extend(bytes.map(|bytes| (pid, bytes)));
        }
    }
    found
}

/// Sends a signal to one process.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Ends whatever is left of a machine's slots, each by its own pid.
pub(super) fn end_all(home: &Path) {
    let _ = within(std::time::Duration::from_secs(5), || {
        let left = living(home);
        for process in &left {
            send(process.pid, Signal::KILL);
        }
        left.is_empty().then_some(())
    });
}
