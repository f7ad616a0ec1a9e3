//! The heart of Berth: ledgers that cannot be overdrawn, and a scheduler that explains itself.
//!
//! It promises that no physical GPU is ever promised more memory than it has, in every state and after every event.
//! It may not touch a clock, randomness, I/O, threads or logs: time is an argument, ids come in with commands or are
//! made of numbers, and what people should read goes out as data.
//!
//! Data goes one way:
//!
//! ```text
//! Command -> decide(&State, &Command, now) -> Decision { events, report } -> apply(&mut State, &Event, at)
//! ```
//!
//! [`step()`] carries a command through: what is due first, then the command, then whatever it made possible. The
//! events of a step are what a journal keeps; replaying them with [`apply()`] gives the same state.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`Ledger`] | the account of one device, CPU or RAM; claims enter and leave it here |
//! | `state` | rows and what follows from them |
//! | `index` | where to look, so that a decision examines a handful of devices |
//! | `plan` | where a slot goes and which slots are evicted for it; changes nothing |
//! | `decide` | what a command means, in files by subject |
//! | `settle` | what a change made possible |
//! | `apply` | making an event true; cannot fail |
//! | `memory` | what models were seen to use, beside what they are charged |
//! | `desired` | what a runner should run |
//! | `explain` | why, as data and as text |
//! | [`invariants`] | what must be true, recomputed from scratch |
//! | [`view`] | what others may read; [`WorkChanges`] and [`FleetChanges`] tell which of it to read again |
//! | [`Snapshot`] | the whole state as data, so that a journal may forget its beginning |

mod apply;
mod changes;
mod command;
mod decide;
mod desired;
mod event;
mod explain;
mod index;
pub mod invariants;
mod lack;
mod ledger;
mod memory;
mod plan;
mod reason;
pub mod sabotage;
mod settings;
mod settle;
mod snapshot;
mod state;
mod step;
mod table;
#[cfg(test)]
mod tests;
pub mod view;

pub use apply::{apply, replay};
pub use changes::{FleetChanges, SlotRef, WorkChanges};
pub use command::{Answer, Command, Refusal};
pub use decide::{Decision, decide};
pub use event::{Attachment, Event, PlacedClaim, PlacedSlot, ReservedFor, ReservedPlace, RunnerTraits};
pub use explain::{ClaimRow, CountTried, CountVerdict, DeviceRow, Eviction, Help, Outcome, Report, Verdict};
pub use lack::{Lack, Offers, PinnedElsewhere, TooSmall};
pub use ledger::{Ask, Balance, Claim, Ledger, Phase, Quantity, Shortfall};
pub use memory::{CorrectionReason, MemoryVerdict};
pub use reason::{Cause, Closed, Exclusion, Proof, StopReason, UnknownReason, Unplaceable, WaitReason};
pub use settings::Settings;
pub use snapshot::Snapshot;
pub use state::{Admission, Liveness, OwnerPhase, PastAttempt, State};
pub use step::{Step, step, step_unaudited};
pub use table::SlotKey;
