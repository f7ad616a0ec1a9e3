//! Deciding what to do next, from the desired state, what is observed and what is on record. Pure: no clock, no
//! process, no file, no socket.
//!
//! Reconciliation is level-triggered: the whole desired state is compared with the whole observed state, again and
//! again. Reconciling twice with the same input returns nothing new, because each action is on record before it is
//! done.
//!
//! | rule | where |
//! | --- | --- |
//! | an older epoch, another cluster, an older generation changes nothing | [`reconcile`] |
//! | a slot that is absent from the desired state is kept | [`reconcile`] |
//! | nothing starts unless the driver shows enough free memory on each device | `start` |
//! | one start at a time on a device | `start` |
//! | an expired desired state starts nothing, and nothing starts that could not be put on record | `start` |
//! | nothing starts while a process carries the slot's mark | `unrecorded` |
//! | a slot is gone when no process of its tree is left *and* the driver lists none of its pids | `end` |
//! | a slot that the server only asks about is neither ended nor started | `slot`, `unrecorded` |
//! | while the processes of a slot are unknown, nothing is concluded or done about it | `slot` |

mod assignment;
mod end;
mod local_state;
mod slot;
mod start;
#[cfg(test)]
mod tests;
mod unrecorded;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use berth_domain::{
    Bytes, ClusterId, DesiredAction, DesiredSlot, DeviceUuid, Epoch, Evidence, Generation, Revision, SlotEnd, SlotId,
    Span, Timestamp,
};

pub use assignment::Assignment;
pub use local_state::LocalState;
pub use slot::SlotRecord;

use crate::process::{MarkedStart, ProcessId};

/// What the server wants of this runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredState {
    /// The server, and the revision of its answer.
    pub version: Version,
    /// The server's proof that it gave this answer.
    pub code: Option<String>,
    /// When the request was sent: the answer is what the server wanted at that time or later.
    pub sent: Instant,
    /// The slots that should run or stop, or that the server asks about.
    pub slots: Vec<DesiredSlot>,
}

impl DesiredState {
    /// The maximum age of a desired state for a start. A poll takes 25 seconds, so a server that can be reached repeats
    /// it in time.
    ///
    /// An agent that was frozen, or cut off, may have been replaced by another one under its id. What that one started
    /// must not be started a second time because of an old answer.
    pub const MAX_AGE: Duration = Duration::from_secs(60);

    /// Returns whether it is too old to start anything. Stops, questions and running slots are not affected.
    #[must_use]
    pub fn is_expired(&self, monotonic: Instant) -> bool {
        monotonic.saturating_duration_since(self.sent) > Self::MAX_AGE
    }

    /// Returns whether both want the same, whenever they were requested.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.version == other.version && self.slots == other.slots
    }
}

/// The version of a desired state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The cluster of the server.
    pub cluster: ClusterId,
    /// The start of the server.
    pub epoch: Epoch,
    /// The revision of the runner's slots.
    pub revision: Revision,
}

impl Version {
    /// Returns whether the same server sent this version before the other.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.cluster == other.cluster && (self.epoch, self.revision) < (other.epoch, other.revision)
    }
}

/// What is observed of one slot that is on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotObservation {
    /// The processes of the slot.
    pub tree: TreeState,
    /// How its first process ended, if that was observed.
    pub ended: Option<SlotEnd>,
    /// The slot's health.
    pub health: Health,
    /// What the driver says of its pids.
    pub driver: DriverView,
    /// The time between SIGTERM and SIGKILL, where its runtime states one.
    pub grace: Option<Span>,
    /// The same for a slot that was not ready yet, where its runtime states one.
    pub loading_grace: Option<Span>,
}

impl SlotObservation {
    /// Returns the evidence of the slot's end: no more than was observed.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence { tree_gone: self.tree == TreeState::Empty, driver_clear: self.driver == DriverView::Clear }
    }
}

/// The processes of a slot. "None" and "unknown" are different answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TreeState {
    /// Unknown: they are in another pid namespace, or `/proc` could not be read.
    #[default]
    Unknown,
    /// A thorough look found no process.
    Empty,
    /// Processes live; this is the oldest of them.
    Alive(ProcessId),
}

/// What the driver says of a slot's pids. "None of them" and "unknown" are different answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DriverView {
    /// The driver was not asked, or did not answer.
    #[default]
    Unknown,
    /// The driver lists none of them.
    Clear,
    /// Devices on which the driver lists one of them, or does not list processes.
    Busy(Vec<DeviceUuid>),
}

/// The health of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// The slot does not answer yet.
    #[default]
    Pending,
    /// The slot answers.
    Ready,
    /// The slot should have answered by now, or no longer does.
    Failed(berth_domain::FailureReason),
}

/// The result of the search for a slot that the server mentions and that is not on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// Processes carry its mark.
    Found(MarkedStart),
    /// No process of the machine carries its mark.
    NotFound {
        /// Why the driver does not rule out that a process of the slot is on its devices; `None` if it does.
        doubt: Option<String>,
    },
    /// The search failed, with the reason.
    Unknown(String),
}

impl SearchResult {
    /// Returns the evidence of the slot's end: no more than was observed.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence {
            tree_gone: matches!(self, Self::NotFound { .. }),
            driver_clear: matches!(self, Self::NotFound { doubt: None }),
        }
    }
}

/// A slot that is not on record and may or may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The slot's generation.
    pub generation: Generation,
    /// Why it is unknown, as text for the server.
    pub why: String,
    /// When it was last searched for.
    pub looked: Instant,
}

impl Doubt {
    /// How long to wait before the next search.
    pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
}

/// What is observed of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceObservation {
    /// The device.
    pub uuid: DeviceUuid,
    /// The free memory, or `None` while the driver does not answer.
    pub free: Option<Bytes>,
}

/// How long each step of ending a slot may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Between SIGTERM and SIGKILL, where the slot's runtime states nothing else.
    pub grace: Span,
    /// The same for a slot that was not ready yet; the shorter of the two counts.
    pub loading_grace: Span,
    /// Between SIGKILL and giving the slot up as unkillable.
    pub unkillable_after: Span,
    /// How long the driver may list a pid of a tree that is gone before the device counts as failed.
    pub driver_after: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            grace: Span::from_secs(10),
            loading_grace: Span::from_secs(2),
            unkillable_after: Span::from_secs(60),
            driver_after: Span::from_secs(120),
        }
    }
}

/// The input of one reconciliation.
#[derive(Clone, Debug)]
pub struct ReconcileInput<'a> {
    /// The time of day.
    pub now: Timestamp,
    /// The time of a monotonic clock.
    pub monotonic: Instant,
    /// What the server wants, once it answered.
    pub desired: Option<&'a DesiredState>,
    /// The slots on record.
    pub records: &'a BTreeMap<SlotId, SlotRecord>,
    /// What is observed of the slots on record.
    pub seen: &'a BTreeMap<SlotId, SlotObservation>,
    /// The results of searches for slots that are not on record, as far as they were searched for: see
    /// [`Action::Search`].
    pub searched: &'a BTreeMap<SlotId, SearchResult>,
    /// The slots that may or may not exist, as of their last search.
    pub doubts: &'a BTreeMap<SlotId, Doubt>,
    /// What is observed of the devices.
    pub devices: &'a [DeviceObservation],
    /// The cluster and the newest epoch that the agent acted for.
    pub binding: Option<(ClusterId, Epoch)>,
    /// Whether the record can be written: a slot that is not on record must not be started.
    pub can_record: bool,
    /// How long each step of ending a slot may take.
    pub timeouts: Timeouts,
}

/// What to do next. Each action is put on record before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Puts the slot on record, then starts it.
    Start(Box<DesiredSlot>),
    /// Records that the slot was not started, because there was too little memory.
    Refuse(Box<DesiredSlot>),
    /// Asks for a search for the mark of this slot, which is not on record, and for another decision with its result
    /// ([`ReconcileInput::searched`]). Marks are in the environments of processes, so they are read only when needed.
    Search(Box<DesiredSlot>),
    /// Puts a slot on record of which a process was found, and watches it from now on.
    Adopt(Box<SlotRecord>),
    /// Records that there is no trace of a slot.
    RecordAbsence(Box<SlotRecord>),
    /// Notes that a slot which is not on record may or may not exist. It is reported, and concludes nothing.
    NoteDoubt(SlotId, Doubt),
    /// Completes the record of a slot that was found running.
    CompleteRecord(Box<DesiredSlot>),
    /// Notes the process of a slot whose agent died before it could note it.
    NoteProcess(SlotId, ProcessId),
    /// Records that the slot answers.
    Ready(SlotId),
    /// Sends SIGTERM to the slot's processes.
    Term(SlotId, SlotEnd),
    /// Sends SIGKILL to the slot's processes.
    Kill(SlotId),
    /// Records that no process of the slot is left; the driver has yet to confirm it.
    TreeGone(SlotId, SlotEnd),
    /// Records that the slot is gone, with the evidence.
    Gone(SlotId, Evidence),
    /// Gives the slot up: it cannot be killed, or the driver still lists it. Its devices count as failed.
    GiveUp(SlotId),
    /// Removes the slot's record: the server knows that it is gone, or nothing was ever started.
    Forget(SlotId),
}

impl Action {
    /// Returns whether the action, or what follows from it, relies on what the driver says now: free memory, or that it
    /// no longer lists a process.
    #[must_use]
    pub fn needs_fresh_observation(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Refuse(_) | Self::Search(_) | Self::RecordAbsence(_) | Self::Gone(..))
    }

    /// Returns the slot to search for, if this action asks for a search.
    #[must_use]
    pub fn searched_slot(&self) -> Option<&DesiredSlot> {
        if let Self::Search(slot) = self { Some(slot) } else { None }
    }
}

/// Decides what to do next.
#[must_use]
pub fn reconcile(input: &ReconcileInput<'_>) -> Vec<Action> {
    let desired = input.desired.filter(|desired| is_acted_on(input, desired));
    let mut actions = Vec::new();
    for (id, record) in input.records {
        let wanted = desired.and_then(|desired| desired.slots.iter().find(|slot| slot.id == *id));
        let seen = input.seen.get(id).cloned().unwrap_or_default();
        actions.extend(slot::next(input, record, &seen, wanted, desired.is_some()));
    }
    let Some(desired) = desired else { return actions };
    let mut starting = start::devices_with_a_start(input, &actions);
    // A newer generation replaces one that is proven gone.
    let is_unrecorded =
        |slot: &&DesiredSlot| input.records.get(&slot.id).is_none_or(|record| record.is_replaced_by(slot));
    for slot in desired.slots.iter().filter(is_unrecorded) {
        actions.extend(match slot.action {
            DesiredAction::Run(_) => start::start(input, desired, slot, &mut starting),
            DesiredAction::Stop => unrecorded::account(input, slot, SlotEnd::Asked),
            DesiredAction::Account => unrecorded::account(input, slot, SlotEnd::NoTrace),
        });
    }
    actions
}

/// Returns whether the agent acts on a desired state: not on that of another cluster, nor on that of an older start of
/// its server.
fn is_acted_on(input: &ReconcileInput<'_>, desired: &DesiredState) -> bool {
    input.binding.is_none_or(|(cluster, epoch)| desired.version.cluster == cluster && desired.version.epoch >= epoch)
}
