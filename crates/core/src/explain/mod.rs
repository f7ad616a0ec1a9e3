//! Why: what was looked at, what was chosen, with the numbers of every ledger that mattered, and what would help.
//!
//! A [`Report`] is data. Its text form ([`Report`]'s `Display`) puts the dominant reason first.

mod help;
mod report;
mod text;

pub use help::Help;
pub(crate) use report::report;
pub use report::{ClaimRow, CountTried, CountVerdict, DeviceRow, Eviction, Outcome, Report, Verdict};
