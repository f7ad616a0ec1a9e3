//! The inventory thread: one thread that reads the machine, so that no other part waits for the driver.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use berth_domain::{Bytes, DesiredGpu, DeviceUuid, Span};
use tokio::sync::watch;

use crate::clock::now;
use crate::inventory::{Detail, Gpus, Inventory, InventorySettings, Machine};

/// How often it reads usage by itself, and how often the full inventory.
const USAGE_EVERY: Duration = Duration::from_secs(2);
const FULL_EVERY: Duration = Duration::from_secs(10);

/// A request to the inventory thread.
enum InventoryRequest {
    /// Read the inventory. The number tells readings that were begun after the request from others.
    Look(u64),
    /// Note which process uses a simulated GPU, which has no driver that could see it.
    Occupy { pid: u32, uuid: DeviceUuid, bytes: Bytes },
}

/// The latest inventory, and the last request that had arrived when its reading began.
#[derive(Default)]
struct LatestInventory {
    answered_request: u64,
    inventory: Option<Arc<Inventory>>,
}

/// The handle of the inventory thread. The thread ends when this and each [`Occupancy`] are dropped.
pub(super) struct InventoryThread {
    requests: Sender<InventoryRequest>,
    last_request: u64,
    latest: watch::Receiver<LatestInventory>,
}

impl InventoryThread {
    pub(super) fn open(settings: InventorySettings) -> std::io::Result<Self> {
        let (requests, inbox) = channel();
        let (publish, latest) = watch::channel(LatestInventory::default());
        std::thread::Builder::new().name("inventory".into()).spawn(move || look(settings, &inbox, &publish))?;
        Ok(Self { requests, last_request: 0, latest })
    }

    /// Returns the latest inventory.
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.latest.borrow().inventory.clone()
    }

    /// Requests a reading, and does not wait for it.
    pub(super) fn look_soon(&mut self) {
        self.last_request += 1;
        drop(self.requests.send(InventoryRequest::Look(self.last_request)));
    }

    /// Requests a reading and waits for one that began after this call. Returns false on a timeout.
    pub(super) async fn look_now(&mut self, deadline: Span) -> bool {
        self.look_soon();
        let wanted = self.last_request;
        // One reading may be under way already, begun before the request.
        let limit = Duration::from_millis(deadline.millis().saturating_mul(2));
        let newer = self.latest.wait_for(|latest| latest.answered_request >= wanted);
        tokio::time::timeout(limit, newer).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Returns the way to tell simulated GPUs which process uses them.
    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy { requests: self.requests.clone() }
    }
}

/// Tells simulated GPUs which process uses them. Real ones are asked through their driver.
pub(super) struct Occupancy {
    requests: Sender<InventoryRequest>,
}

impl Occupancy {
    /// Notes that a process of a slot uses the slot's devices, each as far as it is claimed.
    pub(super) fn occupy(&self, pid: u32, gpus: &[DesiredGpu]) {
        for gpu in gpus {
            drop(self.requests.send(InventoryRequest::Occupy { pid, uuid: gpu.uuid.clone(), bytes: gpu.memory_bytes }));
        }
    }
}

fn look(settings: InventorySettings, inbox: &Receiver<InventoryRequest>, publish: &watch::Sender<LatestInventory>) {
    let mut machine = Machine::new(settings);
    let mut last_full: Option<Instant> = None;
    let mut answered_request = 0;
    loop {
        let is_due = last_full.is_none_or(|last| last.elapsed() >= FULL_EVERY);
        let detail = if is_due { Detail::Full } else { Detail::Usage };
        last_full = if is_due { Some(Instant::now()) } else { last_full };
        match machine.look(now(), detail) {
            Ok(inventory) => {
                drop(publish.send_replace(LatestInventory { answered_request, inventory: Some(Arc::new(inventory)) }));
            }
            Err(error) => tracing::error!(%error, "the machine cannot be looked at"),
        }
        let first = match inbox.recv_timeout(USAGE_EVERY) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        for ask in first.into_iter().chain(inbox.try_iter()) {
            match (ask, &mut machine.gpus) {
                (InventoryRequest::Look(number), _) => answered_request = number,
                (InventoryRequest::Occupy { pid, uuid, bytes }, Gpus::Simulated(gpus)) => {
                    gpus.occupy(pid, &uuid, bytes);
                }
                (InventoryRequest::Occupy { .. }, Gpus::Nvml(_)) => {}
            }
        }
    }
}
