//! The time of day. The only place where the server reads it for a decision.

use std::time::{SystemTime, UNIX_EPOCH};

use berth_domain::Timestamp;

/// Now, in milliseconds since the Unix epoch.
#[must_use]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
