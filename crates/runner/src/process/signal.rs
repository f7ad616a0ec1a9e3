//! Signals that reach the process that is meant, and no other.

use rustix::io::Errno;
use rustix::process::{self, Pid, PidfdFlags};

use super::id::ProcessId;
use super::table::Row;

pub(super) use rustix::process::Signal;

/// Sends a signal to a process, if the pid still is that process. The result is not returned: callers look at the
/// process again.
pub(super) fn send(to: &ProcessId, signal: Signal) {
    let Some(pid) = pid(to.pid) else { return };
    match process::pidfd_open(pid, PidfdFlags::empty()) {
        // The pidfd refers to the process that has the pid now; if that is the right one, it cannot change any more.
        Ok(descriptor) if to.is_alive().unwrap_or(false) => {
            let _ = process::pidfd_send_signal(&descriptor, signal);
        }
        Err(Errno::NOSYS | Errno::PERM) if to.is_alive().unwrap_or(false) => {
            let _ = process::kill_process(pid, signal);
        }
        _ => {}
    }
}

/// Sends a signal to a group other than the agent's own.
///
/// The agent's group is read from `/proc` and not with `getpgrp`: a group that was begun outside this pid namespace has
/// the number 0 here, which the wrapper of that system call takes for impossible.
pub(super) fn send_to_group(group: u32, signal: Signal) {
    let Ok(Some(agent)) = Row::read(std::process::id()) else { return };
    let Some(to) = pid(group) else { return };
    if !to.is_init() && agent.group != group {
        let _ = process::kill_process_group(to, signal);
    }
}

/// Returns whether a group has any process, including zombies, at one instant.
pub(super) fn group_exists(group: u32) -> bool {
    // Any error but "no such group" may mean that there is one.
    pid(group).is_some_and(|group| process::test_kill_process_group(group) != Err(Errno::SRCH))
}

pub(super) fn pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
