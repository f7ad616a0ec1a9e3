//! Why: what was looked at, what was chosen, with the numbers of every ledger that mattered, and what would help.
//!
//! A [`Report`] is data. Its text form ([`Report`]'s `Display`) puts the dominant reason first.

mod argument_text;
mod build;
mod excluded;
mod help;
mod lack_text;
mod nearest;
mod report;
mod text;

pub(crate) use argument_text::ArgumentText;
pub(crate) use build::report;
pub use help::Help;
pub(crate) use lack_text::LackText;

pub use report::{ClaimRow, CountTried, CountVerdict, DeviceRow, Eviction, Outcome, Report, Verdict};
