//! Checks all the time that the memory of living processes is charged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Fleet, Machine};
use crate::service::{Api, ledgers};

/// A thread that compares the ledger with the living processes until it is asked for the result.
#[derive(Debug)]
pub struct LedgerWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(u32, Vec<String>)>>,
}

impl LedgerWatch {
    /// Watches the GPUs of a machine. While the server does not answer nothing is compared.
    #[must_use]
    pub fn of(machine: &Machine, fleet: &Fleet, gpus: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, machine, api) = (stop.clone(), machine.clone(), fleet.api.clone());
        let thread = std::thread::spawn(move || {
            let (mut looks, mut wrong) = (0, Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                for uuid in (0..gpus).map(|index| machine.uuid(index)) {
                    if let Some(found) = look(&machine, &api, &uuid) {
                        looks += 1;
                        wrong.extend(found);
                    }
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            (looks, wrong)
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the watch. Fails if memory in use was not charged, or if nothing was compared.
    #[track_caller]
    pub fn saw_nothing_wrong(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let (looks, wrong) = self.thread.take().expect("it looks").join().expect("the watch failed");
        assert!(looks > 0, "it never looked");
        assert!(wrong.is_empty(), "{} of {looks} looks: {}", wrong.len(), wrong[0]);
    }
}

impl Drop for LedgerWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Compares once. A process that lived before and after the ledger was read lived at that moment, so it must be charged.
fn look(machine: &Machine, api: &Api, uuid: &str) -> Option<Option<String>> {
    let before: BTreeMap<u32, u64> = machine.used(uuid).into_iter().collect();
    let reply = api.ask("GET", "/scheduler/ledger").try_send().ok().filter(|reply| reply.status == 200)?;
    let device = reply.body["devices"].as_array()?.iter().find(|device| device["uuid"] == uuid)?;
    let after = machine.used(uuid);
    let lived: u64 = after.iter().filter(|(pid, bytes)| before.get(pid) == Some(bytes)).map(|(_, bytes)| bytes).sum();
    let charged = ledgers::number(&device["held_bytes"]) + ledgers::number(&device["releasing_bytes"]);
    Some((charged < lived).then(|| format!("{lived} bytes are in use by {after:?}, charged are {charged}: {device}")))
}
