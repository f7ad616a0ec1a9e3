//! What others may read of the state: plain data, in a fixed order.
//!
//! One file for each subject. What a runner should run is decided in [`crate::desired`], not here.

mod devices;
mod explanations;
mod history;
mod models;
mod runners;
mod slots;
mod workloads;

pub use devices::{ClaimView, DeviceView, HostView};
pub use history::HistoryView;
pub use models::{MemoryView, ModelView};
pub use runners::RunnerView;
pub use slots::SlotView;
pub use workloads::{DemandView, ReservationView, WorkloadView};

/// Sorts rows for a listing: its order must not depend on where rows are stored.
fn sorted<T, K: Ord>(mut rows: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    rows.sort_by_key(key);
    rows
}
