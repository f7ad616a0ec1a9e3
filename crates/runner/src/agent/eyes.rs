//! The agent's eyes: one thread that looks at the machine, so that nothing else waits for the driver.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use berth_domain::{Bytes, DesiredGpu, DeviceUuid, Span};
use tokio::sync::watch;

use super::{Look, now};
use crate::inventory::{Detail, Gpus, InventorySettings, Machine};

/// How often it looks by itself, and how often at everything.
const USAGE_EVERY: Duration = Duration::from_secs(2);
const FULL_EVERY: Duration = Duration::from_secs(10);

/// What is asked of the eyes.
enum Ask {
    /// Look; the number tells looks that were begun after the question from others.
    Look(u64),
    /// A simulated GPU cannot see who uses it: it is told.
    Occupy { pid: u32, uuid: DeviceUuid, bytes: Bytes },
}

/// What was seen, and the last question that had been asked when the look began.
#[derive(Default)]
struct Sight {
    answers: u64,
    look: Look,
}

/// The way to the thread that looks. It ends when this and every [`Occupancy`] are dropped.
pub(super) struct Eyes {
    asks: Sender<Ask>,
    asked: u64,
    sight: watch::Receiver<Sight>,
}

impl Eyes {
    pub(super) fn open(settings: InventorySettings) -> std::io::Result<Self> {
        let (asks, inbox) = channel();
        let (show, sight) = watch::channel(Sight::default());
        std::thread::Builder::new().name("eyes".into()).spawn(move || look(settings, &inbox, &show))?;
        Ok(Self { asks, asked: 0, sight })
    }

    /// What was seen last.
    pub(super) fn inventory(&self) -> Look {
        self.sight.borrow().look.clone()
    }

    /// Look soon.
    pub(super) fn nudge(&mut self) {
        self.asked += 1;
        drop(self.asks.send(Ask::Look(self.asked)));
    }

    /// Looks now, and waits for a look that began after this call. False if it takes longer than it may.
    pub(super) async fn look_now(&mut self, deadline: Span) -> bool {
        self.nudge();
        let wanted = self.asked;
        // One look may be under way already, begun before the question.
        let patience = Duration::from_millis(deadline.millis().saturating_mul(2));
        let newer = self.sight.wait_for(|sight| sight.answers >= wanted);
        tokio::time::timeout(patience, newer).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Returns the way to tell simulated GPUs which process uses them.
    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { asks: self.asks.clone() }
    }
}

/// Tells simulated GPUs which process uses them. Real ones are asked through their driver.
pub(super) struct Occupancy {
    asks: Sender<Ask>,
}

impl Occupancy {
    /// Notes that a process of a slot uses the slot's devices, each as far as it is claimed.
    pub(super) fn occupy(&self, pid: u32, gpus: &[DesiredGpu]) {
        for gpu in gpus {
            drop(self.asks.send(Ask::Occupy { pid, uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes }));
        }
    }
}

fn look(settings: InventorySettings, inbox: &Receiver<Ask>, show: &watch::Sender<Sight>) {
    let mut machine = Machine::new(settings);
    let mut last_full: Option<Instant> = None;
    let mut answers = 0;
    loop {
        let is_due = last_full.is_none_or(|last| last.elapsed() >= FULL_EVERY);
        let detail = if is_due { Detail::Full } else { Detail::Usage };
        last_full = if is_due { Some(Instant::now()) } else { last_full };
        match machine.look(now(), detail) {
            Ok(inventory) => drop(show.send_replace(Sight { answers, look: Some(Arc::new(inventory)) })),
            Err(error) => tracing::error!(%error, "the machine cannot be looked at"),
        }
        let first = match inbox.recv_timeout(USAGE_EVERY) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for ask in first.into_iter().chain(inbox.try_iter()) {
            match (ask, &mut machine.gpus) {
                (Ask::Look(number), _) => answers = number,
                (Ask::Occupy { pid, uuid, bytes }, Gpus::Simulated(gpus)) => gpus.occupy(pid, &uuid, bytes),
                (Ask::Occupy { .. }, Gpus::Nvml(_)) => {}
            }
        }
    }
}
