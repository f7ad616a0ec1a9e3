//! The agent's eyes: one thread that looks at the machine, so that nothing else waits for the driver.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use berth_domain::{Bytes, DeviceUuid, Span};
use tokio::sync::watch;

use super::{Look, now};
use crate::inventory::{Detail, Gpus, InventorySettings, Machine};

/// How often it looks by itself, and how often at everything.
const USAGE_EVERY: Duration = Duration::from_secs(1);
const FULL_EVERY: u32 = 10;

/// What is asked of the eyes.
enum Ask {
    Look,
    /// A simulated GPU cannot see who uses it: it is told.
    Occupy {
        pid: u32,
        uuid: DeviceUuid,
        bytes: Bytes,
    },
}

/// The way to the thread that looks. It ends when this is dropped.
pub(super) struct Eyes {
    asks: Sender<Ask>,
    seen: watch::Receiver<(u64, Look)>,
}

impl Eyes {
    pub(super) fn open(settings: InventorySettings) -> std::io::Result<Self> {
        let (asks, asked) = channel();
        let (show, seen) = watch::channel((0, None));
        std::thread::Builder::new().name("eyes".into()).spawn(move || look(settings, &asked, &show))?;
        Ok(Self { asks, seen })
    }

    /// What was seen last.
    pub(super) fn inventory(&self) -> Look {
        self.seen.borrow().1.clone()
    }

    /// Look soon.
    pub(super) fn nudge(&self) {
        drop(self.asks.send(Ask::Look));
    }

    /// Looks now, and waits for it. False if it takes longer than it may.
    pub(super) async fn look_now(&mut self, deadline: Span) -> bool {
        let before = self.seen.borrow().0;
        self.nudge();
        let patience = Duration::from_millis(deadline.millis() * 2);
        // One look may be under way already, begun before the question.
        let newer = self.seen.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(patience, newer).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Tells a simulated GPU who uses it.
    pub(super) fn occupy(&self, pid: u32, uuid: DeviceUuid, bytes: Bytes) {
        drop(self.asks.send(Ask::Occupy { pid, uuid, bytes }));
    }
}

fn look(settings: InventorySettings, asked: &Receiver<Ask>, show: &watch::Sender<(u64, Look)>) {
    let mut machine = Machine::new(settings);
    let mut looks = 0u32;
    loop {
        let detail = if looks.is_multiple_of(FULL_EVERY) { Detail::Full } else { Detail::Usage };
        looks = looks.wrapping_add(1);
        match machine.look(now(), detail) {
            Ok(inventory) => show.send_modify(|(count, last)| {
                *count += 1;
                *last = Some(Arc::new(inventory));
            }),
            Err(error) => tracing::error!(%error, "the machine cannot be looked at"),
        }
        let first = match asked.recv_timeout(USAGE_EVERY) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for ask in first.into_iter().chain(asked.try_iter()) {
            if let (Ask::Occupy { pid, uuid, bytes }, Gpus::Simulated(gpus)) = (ask, &mut machine.gpus) {
                gpus.occupy(pid, &uuid, bytes);
            }
        }
    }
}
