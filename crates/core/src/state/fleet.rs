//! Machines, their runners and their devices.

use std::sync::Arc;

use berth_domain::{
    BootId, Bytes, DeviceUuid, GpuHealth, GpuName, Incarnation, MachineId, Millicores, Revision, RunnerId, Sequence,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::event::{Attachment, RunnerTraits};
use crate::index::{Depth, Profile, Spot, Standing, VictimKey};
use crate::ledger::{Balance, Ledger};
use crate::reason::{Closed, Exclusion};
use crate::state::work::Claimant;
use crate::table::{ClassKey, DeviceKey, MachineKey, Row, RunnerKey, SlotKey};

/// One machine and the account of its CPU and RAM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) id: MachineId,
    pub(crate) cpu: Ledger<Millicores>,
    pub(crate) ram: Ledger<Bytes>,
    pub(crate) runners: Vec<RunnerKey>,
    /// Whose CPU and RAM are kept free here.
    #[serde(skip)]
    pub(crate) reserved_for: SmallVec<[Claimant; 1]>,
    /// CPU and RAM of idle slots that may be evicted.
    #[serde(skip)]
    pub(crate) evictable_cpu: Millicores,
    #[serde(skip)]
    pub(crate) evictable_ram: Bytes,
}

impl Row<MachineId> for Machine {
    fn id(&self) -> MachineId {
        self.id.clone()
    }
}

/// Whether a runner is heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Liveness {
    /// Heard of lately.
    Ready,
    /// Silent for a while: nothing new.
    Suspect,
    /// Silent for long: its leases moved on.
    Lost,
}

/// What an operator wants of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// Takes work.
    Open,
    /// Takes nothing new.
    Cordoned,
    /// Finishes what it has.
    Draining {
        /// When patience ends.
        deadline: Option<Timestamp>,
        /// It has ended.
        overdue: bool,
    },
    /// Nothing is left.
    Drained,
    /// It is no more; only its unproven slots are remembered.
    Forgotten,
}

/// An agent and what it can use of its machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Runner {
    pub(crate) id: RunnerId,
    /// The order in which runners became known: the last tie-break of a ranking.
    pub(crate) ordinal: u32,
    pub(crate) machine: MachineKey,
    /// The boot of its machine that it last reported.
    pub(crate) boot: Option<BootId>,
    /// Boots that a late report must not bring back.
    pub(crate) past_boots: Vec<BootId>,
    /// The machine that it says it is on, while that belongs to another runner and nobody has said who is right.
    pub(crate) disputes: Option<MachineId>,
    pub(crate) incarnation: Incarnation,
    pub(crate) sequence: Sequence,
    pub(crate) traits: Option<Arc<RunnerTraits>>,
    pub(crate) liveness: Liveness,
    pub(crate) admission: Admission,
    /// Whether it reported since the server started.
    pub(crate) reported: bool,
    /// It reported since the history went back, if that ever happened.
    pub(crate) caught_up: bool,
    /// Its last word was that it obeyed an answer whose code is wrong.
    pub(crate) sent_invalid_code: bool,
    /// Why it takes nothing new, whatever its operator says: see [`State::link_bars`](crate::state::State).
    #[serde(skip)]
    pub(crate) barred: Option<Exclusion>,
    pub(crate) last_seen: Timestamp,
    /// Its loss was put off then: most of the fleet was silent with it.
    pub(crate) deferred: Timestamp,
    /// By index.
    pub(crate) devices: SmallVec<[DeviceKey; 8]>,
    pub(crate) slots: Vec<SlotKey>,
    pub(crate) disputed: Vec<DeviceUuid>,
    /// GPUs that it had since its machine was booted and no longer lists: work that needs one waits for it.
    #[serde(default)]
    pub(crate) missing: Vec<MissingGpu>,
    /// The last revision at which what it should run changed.
    pub(crate) desired: Revision,
    /// What its class counts it as.
    #[serde(skip)]
    pub(crate) standing: Option<(ClassKey, Standing, Arc<Profile>)>,
    /// Where it stands on the shelves of its class, one key for each lens of several GPUs.
    #[serde(skip)]
    pub(crate) spots: SmallVec<[Spot; 4]>,
}

impl Row<RunnerId> for Runner {
    fn id(&self) -> RunnerId {
        self.id.clone()
    }
}

impl Runner {
    /// Whether it takes anything new at all.
    pub(crate) fn is_open(&self) -> bool {
        self.is_heard() && self.admission == Admission::Open
    }

    /// Whether new work may count on it: it reports, and nothing speaks against what it says.
    pub(crate) fn is_heard(&self) -> bool {
        self.reported && self.liveness == Liveness::Ready && self.barred.is_none()
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        self.admission == Admission::Forgotten
    }
}

/// A GPU that a runner had and no longer lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingGpu {
    pub(crate) uuid: DeviceUuid,
    pub(crate) name: GpuName,
    pub(crate) capacity: Bytes,
}

/// One runner's view of a device, and where it stands on the shelves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachmentRow {
    pub(crate) runner: RunnerKey,
    pub(crate) attachment: Attachment,
    /// What the runner's driver says of it.
    pub(crate) health: GpuHealth,
    /// The runner is not lost: its word counts.
    pub(crate) is_heard: bool,
    #[serde(skip)]
    pub(crate) spots: Vec<Spot>,
    #[serde(skip)]
    pub(crate) victims: Vec<VictimKey>,
}

/// How bad a driver's word is.
pub(crate) const fn badness(health: GpuHealth) -> u8 {
    match health {
        GpuHealth::Ok => 0,
        GpuHealth::Stale => 1,
        GpuHealth::Failed => 2,
        GpuHealth::Lost => 3,
    }
}

/// The numbers of a device, with nothing free where it takes nothing new.
pub(crate) fn offered(balance: Balance<Bytes>, closed: Option<Closed>) -> Balance<Bytes> {
    match closed {
        Some(why) if !why.keeps_its_offer() => Balance { free: Bytes::ZERO, ..balance },
        _ => balance,
    }
}

/// One physical pool of GPU memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) uuid: DeviceUuid,
    pub(crate) name: GpuName,
    pub(crate) machine: MachineKey,
    pub(crate) parent: Option<DeviceUuid>,
    pub(crate) ledger: Ledger<Bytes>,
    pub(crate) attachments: SmallVec<[AttachmentRow; 1]>,
    pub(crate) cordoned: bool,
    pub(crate) backing_off: bool,
    /// How many of its MIG instances are known.
    pub(crate) instances: u16,
    /// Whom it is kept free for.
    #[serde(skip)]
    pub(crate) reserved_for: Option<Claimant>,
    /// It will be long before they can use it: work that can leave in time may.
    #[serde(skip)]
    pub(crate) backfill: bool,
    /// Whether foreign use is told apart from our own by the driver.
    pub(crate) attributed: bool,
    /// Foreign use before our first slot: the least it can be where the driver cannot tell.
    pub(crate) baseline: Bytes,
    /// A lower sample that the next one must confirm.
    pub(crate) lower_sample: Option<Bytes>,
    /// What was last seen in use, by whomever. Not kept over a restart.
    #[serde(skip)]
    pub(crate) last_used: Option<Bytes>,
    /// Claims that left since then: what their processes did not give back is foreign.
    #[serde(skip)]
    pub(crate) left_since: Bytes,
    /// Bytes of idle slots that may be evicted.
    #[serde(skip)]
    pub(crate) evictable: Bytes,
    #[serde(skip)]
    pub(crate) evictable_slots: u16,
    /// What it could give, as the index knows it.
    #[serde(skip)]
    pub(crate) depth: Depth,
}

impl Row<DeviceUuid> for Device {
    fn id(&self) -> DeviceUuid {
        self.uuid.clone()
    }
}

impl Device {
    /// Why it takes nothing new, or `None` if it does.
    pub(crate) fn closed(&self) -> Option<Closed> {
        Some(match self.health() {
            _ if self.attachments.is_empty() => Closed::Missing,
            GpuHealth::Lost => Closed::Lost,
            GpuHealth::Failed => Closed::Quarantined,
            GpuHealth::Stale => Closed::Stale,
            GpuHealth::Ok if self.instances > 0 => Closed::MigParent,
            GpuHealth::Ok if self.cordoned => Closed::Cordoned,
            GpuHealth::Ok if self.ledger.is_overcommitted() => Closed::Overcommitted,
            GpuHealth::Ok if self.backing_off => Closed::BackingOff,
            GpuHealth::Ok if self.reserved_for.is_some() && !self.backfill => Closed::Reserved,
            GpuHealth::Ok => return None,
        })
    }

    /// Its numbers, to show. What nobody can be given is not free.
    pub(crate) fn balance(&self) -> Balance<Bytes> {
        offered(self.ledger.balance(), self.closed())
    }

    /// The worst that any of its runners says of it, lost runners aside. While all are lost, their last words stand.
    pub(crate) fn health(&self) -> GpuHealth {
        // Nearly every device has one runner, and this is asked for every device that a search looks at.
        if let [only] = self.attachments.as_slice() {
            return only.health;
        }
        let worst = |is_counted: fn(&AttachmentRow) -> bool| {
            self.attachments
                .iter()
                .filter(|row| is_counted(row))
                .map(|row| row.health)
                .max_by_key(|health| badness(*health))
        };
        worst(|row| row.is_heard).or_else(|| worst(|_| true)).unwrap_or_default()
    }

    /// Whether a slot that has its memory may be started on it: somebody has it, the driver has nothing to say against
    /// it, and others did not take what was promised.
    pub(crate) fn takes_starts(&self) -> bool {
        self.health() == GpuHealth::Ok && !self.attachments.is_empty() && !self.ledger.is_overcommitted()
    }

    pub(crate) fn is_mig(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) fn attachment_on(&self, runner: RunnerKey) -> Option<&AttachmentRow> {
        self.attachments.iter().find(|row| row.runner == runner)
    }

    pub(crate) fn replicas(&self) -> u16 {
        self.attachments.iter().map(|row| row.attachment.replicas).fold(0, u16::saturating_add)
    }

    /// The smallest size anybody reports.
    pub(crate) fn smallest_capacity(&self) -> Bytes {
        self.attachments.iter().map(|row| row.attachment.capacity).min().unwrap_or_else(|| self.ledger.capacity())
    }
}
