//! The time of day. The pure parts of the crate get it as an argument.

use std::time::{SystemTime, UNIX_EPOCH};

use berth_domain::Timestamp;

/// Returns the time of day.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
