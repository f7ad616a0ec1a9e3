//! What to do next: desired, observed and recorded in; actions out. Pure: no clock, no process, no file, no socket.
//!
//! Level-triggered: the whole of what should be is compared with the whole of what is, again and again. Asking twice
//! with the same answers asks for nothing new, because every action leaves a trace in the record before it is done.
//!
//! | rule | where |
//! | --- | --- |
//! | an older epoch, another cluster, an older generation changes nothing | [`reconcile`] |
//! | a slot that is not mentioned is kept | [`reconcile`] |
//! | nothing starts unless the driver shows enough free memory on each device | `start` |
//! | one start at a time on a device | `start` |
//! | a wish that is old starts nothing, and nothing starts that could not be put on record | `start` |
//! | nothing starts while a process carries the slot's mark | `unrecorded` |
//! | a slot is gone when no process of its tree is left *and* the driver lists none of its pids | `end` |
//! | to be asked about ends nothing and starts nothing | `slot`, `unrecorded` |
//! | of a tree that nobody can look into nothing is concluded, and nothing is done about it | `slot` |

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
    /// Whose wish it is, and as of when.
    pub version: Version,
    /// The server's proof that it gave this answer.
    pub code: Option<String>,
    /// When the request was sent that it answers: it says what the server wanted at that time or later.
    pub sent: Instant,
    /// What should run, what should stop, and what is asked about.
    pub slots: Vec<DesiredSlot>,
}

impl DesiredState {
    /// How old a wish may be for a start. A poll takes 25 seconds, so a server that is there says it again in time.
    ///
    /// An agent that was frozen, or cut off, may have been replaced by another one under its id. What that one started
    /// must not be started a second time for a wish of long ago.
    pub const MAX_AGE: Duration = Duration::from_secs(60);

    /// Whether it is too old to start anything for it. Stops, questions and what runs are not affected.
    #[must_use]
    pub fn is_expired(&self, monotonic: Instant) -> bool {
        monotonic.saturating_duration_since(self.sent) > Self::MAX_AGE
    }

    /// Whether both want the same, whenever they were asked for.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.version == other.version && self.slots == other.slots
    }
}

/// Which of all the things that servers ever wanted of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which server.
    pub cluster: ClusterId,
    /// Which start of it.
    pub epoch: Epoch,
    /// When it changed its mind last.
    pub revision: Revision,
}

impl Version {
    /// Whether the same server said this before the other.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.cluster == other.cluster && (self.epoch, self.revision) < (other.epoch, other.revision)
    }
}

/// What is seen of one slot that is on record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotObservation {
    /// Its processes, whoever their parents are now.
    pub tree: TreeState,
    /// How its first process ended, if that was seen.
    pub ended: Option<SlotEnd>,
    /// Whether it answers: nothing yet, yes, or not any more.
    pub health: Health,
    /// What the driver says of its pids.
    pub driver: DriverView,
    /// Between asking it to end and ending it, where its runtime says.
    pub grace: Option<Span>,
    /// The same for a slot that was not ready yet, where its runtime says.
    pub loading_grace: Option<Span>,
}

impl SlotObservation {
    /// What was seen of its end, and no more than that.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence { tree_gone: self.tree == TreeState::Empty, driver_clear: self.driver == DriverView::Clear }
    }
}

/// What is seen of a slot's processes. "Nobody" and "cannot be told" are different answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TreeState {
    /// It cannot be told: they are in another pid namespace, or `/proc` could not be read.
    #[default]
    Unknown,
    /// Looked for everywhere, and nobody is there.
    Empty,
    /// The oldest of them.
    Alive(ProcessId),
}

/// What the driver says of a slot's pids. "None of them" and "did not say" are different answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DriverView {
    /// It was not asked, or did not answer.
    #[default]
    Unknown,
    /// It lists none of them.
    Clear,
    /// Devices on which it lists one of them, or does not say who is on it.
    Busy(Vec<DeviceUuid>),
}

/// Whether a slot answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Not yet.
    #[default]
    Pending,
    /// It does.
    Ready,
    /// It should have by now, or does no longer.
    Failed(berth_domain::FailureReason),
}

/// What is seen of a slot that the server mentions and that is not on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchResult {
    /// Processes carry its mark.
    Found(MarkedStart),
    /// Everybody was looked at, and nobody carries its mark.
    NotFound {
        /// Why the driver does not rule out that somebody of it is on its devices. Nothing: it does.
        doubt: Option<String>,
    },
    /// It cannot be told whether anybody carries its mark, and this is why.
    Unknown(String),
}

impl SearchResult {
    /// What was seen of its end, and no more than that.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence {
            tree_gone: matches!(self, Self::NotFound { .. }),
            driver_clear: matches!(self, Self::NotFound { doubt: None }),
        }
    }
}

/// A slot that is not on record, of which it cannot be told whether it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Which start of it.
    pub generation: Generation,
    /// Why it cannot be told, in words for the server.
    pub why: String,
    /// When it was last looked for.
    pub looked: Instant,
}

impl Doubt {
    /// After so long it is looked for again.
    pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
}

/// What is seen of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceObservation {
    /// Which.
    pub uuid: DeviceUuid,
    /// What the driver says is free, or nothing while it does not answer.
    pub free: Option<Bytes>,
}

/// How patient the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Between asking a slot to end and ending it, where its runtime says nothing else.
    pub grace: Span,
    /// The same for a slot that was not ready yet; the shorter of the two counts.
    pub loading_grace: Span,
    /// Between ending it by force and giving it up as unkillable.
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

/// Everything that matters for the next actions.
#[derive(Clone, Debug)]
pub struct ReconcileInput<'a> {
    /// The time of day.
    pub now: Timestamp,
    /// The time on a clock that nobody sets.
    pub monotonic: Instant,
    /// What the server wants, once it was heard.
    pub desired: Option<&'a DesiredState>,
    /// What is on record.
    pub records: &'a BTreeMap<SlotId, SlotRecord>,
    /// What is seen of what is on record.
    pub seen: &'a BTreeMap<SlotId, SlotObservation>,
    /// What is seen of what is not on record, as far as it was looked for: see [`Action::Search`].
    pub searched: &'a BTreeMap<SlotId, SearchResult>,
    /// What could not be told when it was last looked for.
    pub doubts: &'a BTreeMap<SlotId, Doubt>,
    /// The devices.
    pub devices: &'a [DeviceObservation],
    /// The cluster and the newest epoch that the agent has obeyed.
    pub binding: Option<(ClusterId, Epoch)>,
    /// Whether the record can be written: what is not on record must not be started.
    pub can_record: bool,
    /// How patient it is.
    pub timeouts: Timeouts,
}

/// What to do. Each is put on record before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put it on record, then start it.
    Start(Box<DesiredSlot>),
    /// Put on record that it was not started: there was too little memory.
    Refuse(Box<DesiredSlot>),
    /// A question rather than an action: look for the mark of this slot, which is not on record, and decide once more
    /// with what was found ([`ReconcileInput::searched`]). Marks are in the environment of every process, so they are read only for
    /// those who need them.
    Search(Box<DesiredSlot>),
    /// Put a slot on record of which a process was found, and watch it from now on.
    Adopt(Box<SlotRecord>),
    /// Put on record that there is no trace of a slot.
    RecordAbsence(Box<SlotRecord>),
    /// Note that it cannot be told whether a slot exists that is not on record. It is reported, and concludes nothing.
    NoteDoubt(SlotId, Doubt),
    /// Note how a slot is run that was found without a record.
    CompleteRecord(Box<DesiredSlot>),
    /// An agent died before it could note the process that it had started: note this one.
    NoteProcess(SlotId, ProcessId),
    /// Note that it answers.
    Ready(SlotId),
    /// Ask its whole tree to end.
    Term(SlotId, SlotEnd),
    /// End its whole tree.
    Kill(SlotId),
    /// Nobody of its tree is left; the driver has yet to agree.
    TreeGone(SlotId, SlotEnd),
    /// It is gone, and this was seen of it.
    Gone(SlotId, Evidence),
    /// It cannot be ended, or the driver will not let go of it: its devices are out of order.
    GiveUp(SlotId),
    /// The server knows that it is gone, or nothing was ever started: forget it.
    Forget(SlotId),
}

impl Action {
    /// Whether it, or what follows from it, counts on what the driver says now: what is free, or whom it no longer lists.
    #[must_use]
    pub fn needs_fresh_observation(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Refuse(_) | Self::Search(_) | Self::RecordAbsence(_) | Self::Gone(..))
    }

    /// Returns the slot that should be looked for, if that is what this action asks.
    #[must_use]
    pub fn searched_slot(&self) -> Option<&DesiredSlot> {
        if let Self::Search(slot) = self { Some(slot) } else { None }
    }
}

/// What to do next.
#[must_use]
pub fn reconcile(input: &ReconcileInput<'_>) -> Vec<Action> {
    let desired = input.desired.filter(|desired| is_bound_to(input, desired));
    let mut actions = Vec::new();
    for (id, record) in input.records {
        let wanted = desired.and_then(|desired| desired.slots.iter().find(|slot| slot.id == *id));
        let seen = input.seen.get(id).cloned().unwrap_or_default();
        actions.extend(slot::next(input, record, &seen, wanted, desired.is_some()));
    }
    let Some(desired) = desired else { return actions };
    let mut starting = start::devices_with_a_start(input, &actions);
    // A newer generation takes the place of one that is proven gone.
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

/// A server of another cluster stops and starts nothing here without an operator; an older start of a server is none.
fn is_bound_to(input: &ReconcileInput<'_>, desired: &DesiredState) -> bool {
    input.binding.is_none_or(|(cluster, epoch)| desired.version.cluster == cluster && desired.version.epoch >= epoch)
}
