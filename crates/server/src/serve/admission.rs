//! Which connections may stay.
//!
//! A connection that has not authenticated yet is cheap to open for anybody, so there are few of them: so many from one
//! address, and so many in all. The next one does not wait: the oldest of them is closed in its favour. Clients that
//! authenticate do it with their first request, within milliseconds, so they are not among the oldest even where many
//! others hold connections open from the same address (a reverse proxy, say). From then on they do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::Limits;

/// How often the log says that connections were closed in favour of others.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Where connections come from, as far as it costs something to come from elsewhere.
///
/// An IPv6 network of 64 bits counts as one address: whoever has one address of it has them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
            v4 => v4,
        })
    }
}

impl Source {
    /// Returns the number that stands for it.
    #[must_use]
    pub fn to_bits(self) -> u128 {
        match self.0 {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }
}

/// All connections of the server.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    inner: Mutex<Inner>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    open: usize,
    /// Those that have not authenticated, oldest first.
    unauthenticated: BTreeMap<u64, Waiting>,
    by_source: HashMap<Source, BTreeSet<u64>>,
    closed: Closed,
}

#[derive(Debug)]
struct Waiting {
    source: Source,
    evicted: Arc<Notify>,
}

/// How many were closed since the log last said so.
#[derive(Debug, Default)]
struct Closed {
    count: u64,
    told: Option<Instant>,
}

/// The place of one connection. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    seat: Arc<Seat>,
    evicted: Arc<Notify>,
}

/// What requests know of the place of their connection.
#[derive(Debug)]
pub(super) struct Seat {
    admission: Arc<Admission>,
    number: u64,
    is_authenticated: AtomicBool,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, inner: Mutex::default(), left: Notify::new() })
    }

    /// Gives a place to a connection. Waits only while every place is taken by a connection that has authenticated.
    pub(super) async fn enter(self: &Arc<Self>, address: IpAddr) -> Place {
        loop {
            let left = self.left.notified();
            if let Some(place) = self.try_enter(address.into()) {
                return place;
            }
            left.await;
        }
    }

    fn try_enter(self: &Arc<Self>, source: Source) -> Option<Place> {
        let limits = self.limits.current();
        let mut inner = self.inner.lock();
        if inner.open >= limits.connections {
            inner.evict_oldest(None);
            return None;
        }
        let from_source = inner.by_source.get(&source).map_or(0, BTreeSet::len);
        if from_source >= limits.unauthenticated_per_address {
            inner.evict_oldest(Some(source));
        }
        if inner.unauthenticated.len() >= limits.unauthenticated_connections {
            inner.evict_oldest(None);
        }
        inner.open += 1;
        inner.next += 1;
        let (number, evicted) = (inner.next, Arc::new(Notify::new()));
        inner.unauthenticated.insert(number, Waiting { source, evicted: evicted.clone() });
        inner.by_source.entry(source).or_default().insert(number);
        drop(inner);
        let seat = Arc::new(Seat { admission: self.clone(), number, is_authenticated: AtomicBool::new(false) });
        Some(Place { admission: self.clone(), seat, evicted })
    }
}

impl Inner {
    /// Closes the oldest connection that has not authenticated, of one source or of all.
    fn evict_oldest(&mut self, of: Option<Source>) {
        let oldest = match of {
            Some(source) => self.by_source.get(&source).and_then(|numbers| numbers.first().copied()),
            None => self.unauthenticated.first_key_value().map(|(number, _)| *number),
        };
        let Some(waiting) = oldest.and_then(|number| self.remove(number)) else { return };
        waiting.evicted.notify_one();
        self.closed.count += 1;
        let now = Instant::now();
        if self.closed.told.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY) {
            self.closed.told = Some(now);
            let closed = std::mem::take(&mut self.closed.count);
            tracing::warn!(
                closed,
                unauthenticated = self.unauthenticated.len(),
                open = self.open,
                "connections that had not authenticated were closed in favour of newer ones: see \
                 limits.unauthenticated_per_address, unauthenticated_connections and connections"
            );
        }
    }

    /// Counts a connection no longer among those that have not authenticated.
    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.unauthenticated.remove(&number)?;
        if let Some(numbers) = self.by_source.get_mut(&waiting.source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_source.remove(&waiting.source);
            }
        }
        Some(waiting)
    }
}

impl Place {
    pub(super) fn seat(&self) -> Arc<Seat> {
        self.seat.clone()
    }

    /// Waits until the place is needed for another connection.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.admission.inner.lock();
        inner.remove(self.seat.number);
        inner.open -= 1;
        drop(inner);
        self.admission.left.notify_one();
    }
}

impl Seat {
    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Acquire)
    }

    /// Notes that a request on this connection has authenticated.
    pub(super) fn authenticate(&self) {
        if !self.is_authenticated.swap(true, Ordering::AcqRel) {
            self.admission.inner.lock().remove(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;

    fn admission(connections: usize, total: usize, per_address: usize) -> Arc<Admission> {
        Admission::new(Limits::new(LimitsConfig {
            connections,
            unauthenticated_connections: total,
            unauthenticated_per_address: per_address,
            ..LimitsConfig::default()
        }))
    }

    fn is_evicted(place: &Place) -> bool {
        use futures_util::FutureExt;
        place.evicted().now_or_never().is_some()
    }

    fn source(text: &str) -> Source {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn the_oldest_of_an_address_makes_room_and_who_authenticated_does_not() {
        let admission = admission(10, 10, 2);
        let enter = |address: &str| admission.try_enter(source(address)).unwrap();
        let (known, first, second) = (enter("10.0.0.1"), enter("10.0.0.1"), enter("10.0.0.2"));
        known.seat().authenticate();
        let third = enter("10.0.0.1");
        assert!(![&known, &first, &second, &third].into_iter().any(is_evicted), "two of an address may wait");
        let fourth = enter("10.0.0.1");
        assert!(is_evicted(&first), "the oldest of its address");
        assert!(![&known, &second, &third, &fourth].into_iter().any(is_evicted));
    }

    #[test]
    fn many_addresses_have_no_more_together_than_all_may() {
        let admission = admission(10, 3, 2);
        let places: Vec<Place> =
            (1..=5).map(|last| admission.try_enter(source(&format!("10.0.0.{last}"))).unwrap()).collect();
        assert_eq!(places.iter().map(is_evicted).collect::<Vec<_>>(), [true, true, false, false, false]);
    }

    #[test]
    fn a_full_house_makes_room_only_at_the_cost_of_who_has_not_authenticated() {
        let admission = admission(2, 10, 10);
        let (known, unknown) =
            (admission.try_enter(source("10.0.0.1")).unwrap(), admission.try_enter(source("10.0.0.2")).unwrap());
        known.seat().authenticate();
        assert!(admission.try_enter(source("10.0.0.3")).is_none());
        assert!(is_evicted(&unknown) && !is_evicted(&known));
        drop(unknown);
        let next = admission.try_enter(source("10.0.0.3")).unwrap();
        next.seat().authenticate();
        assert!(admission.try_enter(source("10.0.0.4")).is_none());
        assert!(!is_evicted(&known) && !is_evicted(&next), "those who authenticated stay");
    }

    #[test]
    fn what_left_is_forgotten() {
        let admission = admission(10, 10, 10);
        let place = admission.try_enter(source("10.0.0.1")).unwrap();
        drop(place);
        let inner = admission.inner.lock();
        assert!(inner.open == 0 && inner.unauthenticated.is_empty() && inner.by_source.is_empty());
    }

    #[test]
    fn a_network_of_64_bits_is_one_source() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
    }
}
