//! How many requests one client may send.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use parking_lot::RwLock;

use super::Caller;
use crate::config::LimitsConfig;
use crate::serve::admission::Source;

/// A bucket for each client: a token where there is one, else an address.
#[derive(Debug)]
pub struct Rates {
    limiter: RwLock<Limiter>,
    clock: DefaultClock,
}

#[derive(Debug)]
struct Limiter {
    per_second: u32,
    burst: u32,
    buckets: DefaultKeyedRateLimiter<u128>,
}

impl Limiter {
    fn new(per_second: u32, burst: u32) -> Self {
        let one = NonZeroU32::MIN;
        let quota = Quota::per_second(NonZeroU32::new(per_second).unwrap_or(one));
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap_or(one));
        Self { per_second, burst, buckets: RateLimiter::keyed(quota) }
    }
}

impl Rates {
    /// So many each second, and so many at once after a pause.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self { limiter: RwLock::new(Limiter::new(per_second, burst)), clock: DefaultClock::default() }
    }

    /// Takes over the rates of new limits. Clients begin anew only if the rates have changed.
    pub fn set(&self, limits: &LimitsConfig) {
        let LimitsConfig { requests_per_second, burst, .. } = *limits;
        let mut limiter = self.limiter.write();
        if (limiter.per_second, limiter.burst) != (requests_per_second, burst) {
            *limiter = Limiter::new(requests_per_second, burst);
        }
    }

    /// Whether this client may send one more, or how long it should wait.
    pub fn check(&self, caller: Option<&Caller>, address: IpAddr) -> Result<(), Duration> {
        let token = caller.and_then(|caller| caller.token);
        let key = token.map_or_else(|| Source::from(address).to_bits(), |token| token.0.as_u128());
        let limiter = self.limiter.read();
        limiter.buckets.check_key(&key).map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Forgets clients that have not been heard of.
    pub fn sweep(&self) {
        self.limiter.read().buckets.retain_recent();
    }
}
