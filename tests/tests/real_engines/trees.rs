//! The process trees of slots, looked at all the time, without asking the agent.
//!
//! vLLM's workers set their titles, which wipes the environment that other tests know processes by. So a process belongs
//! to a start of a slot if it carries the mark of that start, was seen in it before, has its parent in it, or is in a
//! session that one of it leads or led.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_tests::fleet::Machine;
use rustix::process::{Pid, Signal, kill_process};

/// A slot and which start of it.
type Start = (String, u64);

/// Looks until it is asked what it saw.
pub(crate) struct TreeWatch {
    machine: Machine,
    trees: Arc<Mutex<Trees>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TreeWatch {
    pub(crate) fn of(machine: &Machine) -> Self {
        let (stop, trees) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Trees::default())));
        let (stopped, watched, of) = (stop.clone(), trees.clone(), machine.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                watched.lock().unwrap().look(&of);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { machine: machine.clone(), trees, stop, thread: Some(thread) }
    }

    /// The processes of a slot that live now.
    pub(crate) fn pids(&self, slot: &str) -> Vec<u32> {
        let mut trees = self.trees.lock().unwrap();
        trees.look(&self.machine);
        trees.living.iter().filter(|(_, start)| start.0 == slot).map(|((pid, _), _)| *pid).collect()
    }

    /// It saw at least so many starts, and never two of them at once.
    #[track_caller]
    pub(crate) fn saw_one_at_a_time(mut self, at_least: usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let trees = self.trees.lock().unwrap();
        assert!(trees.starts.len() >= at_least, "{} starts were seen: {:?}", trees.starts.len(), trees.starts);
        assert!(trees.overlaps.is_empty(), "{} times: {}", trees.overlaps.len(), trees.overlaps[0]);
    }
}

/// Whatever a stage that failed left behind is ended: a machine knows processes by their environment alone.
impl Drop for TreeWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Ok(mut trees) = self.trees.lock() else { return };
        trees.look(&self.machine);
        for pid in trees.living.keys().filter_map(|(pid, _)| Pid::from_raw(pid.cast_signed())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[derive(Default)]
struct Trees {
    /// By pid and when the process was started: a number that is given again is somebody else.
    living: BTreeMap<(u32, u64), Start>,
    sessions: BTreeMap<u32, Start>,
    starts: BTreeSet<Start>,
    overlaps: Vec<String>,
}

impl Trees {
    fn look(&mut self, machine: &Machine) {
        let rows = rows();
        let marked: BTreeMap<u32, Start> =
            machine.living().into_iter().map(|process| (process.pid, (process.slot, process.generation))).collect();
        let mut found: BTreeMap<u32, Start> = BTreeMap::new();
        let mut count = usize::MAX;
        while count != found.len() {
            count = found.len();
            for row in &rows {
                let start = marked
                    .get(&row.pid)
                    .or_else(|| self.living.get(&(row.pid, row.ticks)))
                    .or_else(|| found.get(&row.parent))
                    .or_else(|| self.sessions.get(&row.session));
                if let Some(start) = start.cloned() {
                    if row.session == row.pid {
                        self.sessions.insert(row.pid, start.clone());
                    }
                    found.insert(row.pid, start);
                }
            }
        }
        let living = rows.iter().filter_map(|row| Some(((row.pid, row.ticks), found.get(&row.pid)?.clone()))).collect();
        self.note(living);
    }

    /// One look reads a process after the other, so that the last of one start and the first of the next may both be in
    /// it. Processes that are in two looks lived between them.
    fn note(&mut self, living: BTreeMap<(u32, u64), Start>) {
        let both: BTreeSet<&Start> =
            living.iter().filter(|(id, _)| self.living.contains_key(id)).map(|(_, s)| s).collect();
        if both.len() > 1 {
            self.overlaps.push(format!("{both:?} live at once: {living:?}"));
        }
        self.starts.extend(living.values().cloned());
        self.living = living;
    }
}

struct Row {
    pid: u32,
    parent: u32,
    session: u32,
    ticks: u64,
}

/// Whether a process lives. After its agent was killed, one that is dead is listed until the machine's first process waits
/// for it.
pub(crate) fn is_alive(pid: u32) -> bool {
    row(pid).is_some()
}

/// Everybody who lives, as the kernel lists them. The dead whom nobody waited for are not among them.
fn rows() -> Vec<Row> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| row(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn row(pid: u32) -> Option<Row> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may contain anything: state, parent, group, session, and as the twentieth the start.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let is_dead = matches!(fields[0], "Z" | "X");
    let number = |at: usize| fields.get(at)?.parse().ok();
    (!is_dead).then_some(Row { pid, parent: number(1)?, session: number(3)?, ticks: fields.get(19)?.parse().ok()? })
}
