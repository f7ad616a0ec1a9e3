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
//! | a slot is gone when no process of its tree is left *and* the driver lists none of its pids | `end` |
//! | of a tree that nobody can look into nothing is concluded, and nothing is done about it | `slot` |

mod end;
mod slot;
mod start;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use berth_domain::{
    Bytes, ClusterId, DesiredAction, DesiredSlot, DeviceUuid, Epoch, Revision, SlotId, Span, Timestamp,
};

pub use slot::{End, Kept, Life};

use crate::process::ProcessId;

/// What the server wants of this runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Whose wish it is, and as of when.
    pub version: Version,
    /// What should run and what should stop.
    pub slots: Vec<DesiredSlot>,
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
pub struct Seen {
    /// Its processes, whoever their parents are now.
    pub tree: TreeSeen,
    /// How its first process ended, if that was seen.
    pub ended: Option<End>,
    /// Whether it answers: nothing yet, yes, or not any more.
    pub health: Health,
    /// Devices on which the driver still lists one of its pids.
    pub on_driver: Vec<DeviceUuid>,
    /// Between asking it to end and ending it, where its runtime says.
    pub grace: Option<Span>,
}

/// What is seen of a slot's processes. "Nobody" and "cannot be told" are different answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TreeSeen {
    /// It cannot be told: they are in another pid namespace, or `/proc` could not be read.
    #[default]
    Unknown,
    /// Looked for everywhere, and nobody is there.
    Empty,
    /// The oldest of them.
    Alive(ProcessId),
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

/// What is seen of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSeen {
    /// Which.
    pub uuid: DeviceUuid,
    /// What the driver says is free, or nothing while it does not answer.
    pub free: Option<Bytes>,
}

/// How patient the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Between asking a slot to end and ending it, where its runtime says nothing else.
    pub grace: Span,
    /// Between ending it by force and giving it up as unkillable.
    pub unkillable_after: Span,
    /// How long the driver may list a pid of a tree that is gone before the device counts as failed.
    pub driver_after: Span,
}

impl Default for Patience {
    fn default() -> Self {
        Self { grace: Span::from_secs(10), unkillable_after: Span::from_secs(60), driver_after: Span::from_secs(120) }
    }
}

/// Everything that matters for the next actions.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// The time.
    pub now: Timestamp,
    /// What the server wants, once it was heard.
    pub wish: Option<&'a Wish>,
    /// What is on record.
    pub kept: &'a BTreeMap<SlotId, Kept>,
    /// What is seen of what is on record.
    pub seen: &'a BTreeMap<SlotId, Seen>,
    /// The devices.
    pub devices: &'a [DeviceSeen],
    /// The cluster and the newest epoch that the agent has obeyed.
    pub obeys: Option<(ClusterId, Epoch)>,
    /// How patient it is.
    pub patience: Patience,
}

/// What to do. Each is put on record before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Put it on record, then start it.
    Start(Box<DesiredSlot>),
    /// Put on record that it was not started: there was too little memory.
    Refuse(Box<DesiredSlot>),
    /// An agent died before it could note the process that it had started: note this one.
    Found(SlotId, ProcessId),
    /// Note that it answers.
    Ready(SlotId),
    /// Ask its whole tree to end.
    Term(SlotId, End),
    /// End its whole tree.
    Kill(SlotId),
    /// Nobody of its tree is left; the driver has yet to agree.
    TreeGone(SlotId, End),
    /// It is gone, and proven so.
    Gone(SlotId),
    /// It cannot be ended, or the driver will not let go of it: its devices are out of order.
    GiveUp(SlotId),
    /// The server knows that it is gone, or nothing was ever started: forget it.
    Forget(SlotId),
    /// The server wants a slot stopped that is not on record: look for it, and put on record what is found.
    LookFor(Box<DesiredSlot>),
}

impl Action {
    /// Whether it counts on what the driver says now: what is free, or whom it no longer lists.
    #[must_use]
    pub fn needs_a_fresh_look(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Refuse(_) | Self::Gone(_))
    }
}

/// What to do next.
#[must_use]
pub fn reconcile(world: &World<'_>) -> Vec<Action> {
    let wish = world.wish.filter(|wish| is_obeyed(world, wish));
    let mut actions = Vec::new();
    for (id, kept) in world.kept {
        let wanted = wish.and_then(|wish| wish.slots.iter().find(|slot| slot.id == *id));
        let seen = world.seen.get(id).cloned().unwrap_or_default();
        actions.extend(slot::next(world, kept, &seen, wanted, wish.is_some()));
    }
    let Some(wish) = wish else { return actions };
    let mut starting = start::devices_with_a_start(world, &actions);
    for slot in &wish.slots {
        match (slot.action, world.kept.get(&slot.id)) {
            (DesiredAction::Run, None) => actions.extend(start::start(world, slot, &mut starting)),
            // A newer generation takes the place of one that is proven gone.
            (DesiredAction::Run, Some(kept)) if kept.is_replaced_by(slot) => {
                actions.extend(start::start(world, slot, &mut starting));
            }
            (DesiredAction::Stop, None) => actions.push(Action::LookFor(Box::new(slot.clone()))),
            _ => {}
        }
    }
    actions
}

/// A server of another cluster stops and starts nothing here without an operator; an older start of a server is none.
fn is_obeyed(world: &World<'_>, wish: &Wish) -> bool {
    world.obeys.is_none_or(|(cluster, epoch)| wish.version.cluster == cluster && wish.version.epoch >= epoch)
}
