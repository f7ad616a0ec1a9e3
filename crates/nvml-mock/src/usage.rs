//! Memory use by process: what the script says, and what living programs claim.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use berth_domain::Bytes;

use crate::script::{Attribution, Gpu, Instance, Process, ProcessKind, Script};

/// A process as the driver lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pid: u32,
    pub(crate) used: Option<Bytes>,
    pub(crate) kind: ProcessKind,
    /// The GPU instance and compute instance, on a GPU with MIG.
    pub(crate) instance: Option<(u32, u32)>,
}

/// The memory in use on one GPU or one MIG instance.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) used: Bytes,
    pub(crate) listed: Vec<Listed>,
}

/// When each dead process was first found dead.
#[derive(Debug, Default)]
pub(crate) struct Deaths(HashMap<u32, Instant>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    Alive,
    /// The process is dead, and its memory is not free yet.
    Lingering,
    Gone,
}

impl Deaths {
    fn state_of(&mut self, pid: u32, delay: Duration) -> ProcessState {
        if is_alive(pid) {
            self.0.remove(&pid);
            return ProcessState::Alive;
        }
        let died = *self.0.entry(pid).or_insert_with(Instant::now);
        if died.elapsed() < delay { ProcessState::Lingering } else { ProcessState::Gone }
    }
}

/// Returns whether a process runs. A zombie does not: the driver took its memory back when it ended.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name is in brackets and may contain brackets; the state follows the last one.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

/// Looks at processes and claims as they are now.
pub(crate) struct Observer<'a> {
    pub(crate) script: &'a Script,
    pub(crate) claims: Option<&'a Path>,
    pub(crate) deaths: &'a mut Deaths,
}

impl Observer<'_> {
    /// Returns the use of a whole GPU, including its MIG instances.
    pub(crate) fn gpu(&mut self, gpu: &Gpu) -> Usage {
        let mut usage = self.pool(&gpu.uuid, gpu.memory_used, &gpu.processes, gpu.used_follows_processes, None);
        for instance in gpu.instances() {
            let part = self.whole_instance(instance);
            usage.used = usage.used.saturating_add(part.used);
            usage.listed.extend(part.listed);
        }
        usage.hide(gpu.attribution);
        usage
    }

    /// Returns the use of one MIG instance of a GPU.
    pub(crate) fn instance(&mut self, gpu: &Gpu, instance: &Instance) -> Usage {
        let mut usage = self.whole_instance(instance);
        usage.hide(gpu.attribution);
        usage
    }

    fn whole_instance(&mut self, instance: &Instance) -> Usage {
        let place = Some((instance.gpu_instance, instance.compute_instance));
        let Instance { uuid, memory_used, processes, used_follows_processes, .. } = instance;
        self.pool(uuid, *memory_used, processes, *used_follows_processes, place)
    }

    fn pool(
        &mut self,
        uuid: &str,
        stated: Bytes,
        processes: &[Process],
        follow: bool,
        instance: Option<(u32, u32)>,
    ) -> Usage {
        let mut usage = Usage { used: stated, listed: Vec::new() };
        for process in processes {
            if follow {
                self.count(&mut usage, process, instance);
            } else {
                usage.list(process, instance);
            }
        }
        for claim in self.claims.map(|directory| read_claims(directory, uuid)).unwrap_or_default() {
            self.count(&mut usage, &claim, instance);
        }
        usage
    }

    /// Counts a process while it lives, and after that for as long as the script's delay lasts.
    fn count(&mut self, usage: &mut Usage, process: &Process, instance: Option<(u32, u32)>) {
        let state = self.deaths.state_of(process.pid, Duration::from_millis(self.script.release_delay_ms));
        if state == ProcessState::Gone {
            return;
        }
        usage.used = usage.used.saturating_add(process.used.unwrap_or_default());
        if state == ProcessState::Alive || self.script.release_listed {
            usage.list(process, instance);
        }
    }
}

impl Usage {
    fn list(&mut self, process: &Process, instance: Option<(u32, u32)>) {
        let Process { pid, used, kind } = *process;
        self.listed.push(Listed { pid, used, kind, instance });
    }

    /// Removes what the driver would not attribute.
    fn hide(&mut self, attribution: Attribution) {
        match attribution {
            Attribution::Full => {}
            Attribution::Pids => self.listed.iter_mut().for_each(|listed| listed.used = None),
            Attribution::None => self.listed.clear(),
        }
    }
}

/// Reads the claims on one device, by pid: files `<pid>.<uuid>` with a size in them. A file without a size (yet) is a
/// process that uses nothing.
fn read_claims(directory: &Path, uuid: &str) -> Vec<Process> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut claims: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let (pid, of) = name.to_str()?.split_once('.')?;
            let pid = pid.parse().ok().filter(|_| of == uuid)?;
            let text = fs::read_to_string(entry.path()).ok()?;
            let used = text.trim().parse().unwrap_or(Bytes::ZERO);
            Some(Process { pid, used: Some(used), kind: ProcessKind::Compute })
        })
        .collect();
    claims.sort_by_key(|claim| claim.pid);
    claims
}
