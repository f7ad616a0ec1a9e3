//! What is known of one connection: whether it has authenticated, and whether it does anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::admission::Seat;
use super::millis;
use crate::config::LimitsConfig;

/// One connection, as its requests share it.
#[derive(Debug)]
pub(super) struct Connection {
    seat: Arc<Seat>,
    opened: Instant,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    in_flight: usize,
    /// How many of these have not authenticated.
    unauthenticated: usize,
    /// Since when nothing is in flight.
    idle_since: Instant,
}

impl Connection {
    pub(super) fn new(seat: Arc<Seat>) -> Arc<Self> {
        let now = Instant::now();
        let activity = Mutex::new(Activity { in_flight: 0, unauthenticated: 0, idle_since: now });
        Arc::new(Self { seat, opened: now, activity })
    }

    /// When the connection has been of no use for too long, as far as it can be told now.
    pub(super) fn overdue_at(&self, limits: &LimitsConfig) -> Instant {
        let activity = self.activity.lock();
        let is_idle = activity.in_flight == 0;
        if self.seat.is_authenticated() {
            let since = if is_idle { activity.idle_since } else { Instant::now() };
            return since + millis(limits.idle_timeout);
        }
        let end = self.opened + millis(limits.unauthenticated_lifetime);
        let idle = if is_idle { activity.idle_since } else { Instant::now() } + millis(limits.header_timeout);
        end.min(idle)
    }
}

/// One request and its answer, until the last byte of the answer was handed over.
#[derive(Debug)]
pub struct Exchange {
    connection: Arc<Connection>,
    is_unauthenticated: AtomicBool,
}

impl Exchange {
    pub(super) fn begin(connection: &Arc<Connection>) -> Arc<Self> {
        connection.activity.lock().in_flight += 1;
        Arc::new(Self { connection: connection.clone(), is_unauthenticated: AtomicBool::new(false) })
    }

    /// Notes that this request has authenticated, and with it its connection.
    pub(crate) fn authenticate(&self) {
        self.connection.seat.authenticate();
    }

    /// Notes that this request has not authenticated. Returns false if there are `limit` such requests on its
    /// connection already.
    pub(crate) fn enter_unauthenticated(&self, limit: usize) -> bool {
        let mut activity = self.connection.activity.lock();
        if activity.unauthenticated >= limit {
            return false;
        }
        if !self.is_unauthenticated.swap(true, Ordering::AcqRel) {
            activity.unauthenticated += 1;
        }
        true
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut activity = self.connection.activity.lock();
        activity.in_flight -= 1;
        activity.unauthenticated -= usize::from(*self.is_unauthenticated.get_mut());
        activity.idle_since = Instant::now();
    }
}

/// How long a connection that is told to end may take for it.
pub(super) const GRACE: Duration = Duration::from_secs(2);
