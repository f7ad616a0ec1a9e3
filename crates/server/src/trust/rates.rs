//! How many requests one client may send.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::Caller;

/// A bucket for each client: a token where there is one, else an address.
#[derive(Debug)]
pub struct Rates {
    limiter: DefaultKeyedRateLimiter<u128>,
    clock: DefaultClock,
}

impl Rates {
    /// So many each second, and so many at once after a pause.
    #[must_use]
    pub fn new(per_second: u32, burst: u32) -> Self {
        let one = NonZeroU32::MIN;
        let quota = Quota::per_second(NonZeroU32::new(per_second).unwrap_or(one));
        let quota = quota.allow_burst(NonZeroU32::new(burst).unwrap_or(one));
        Self { limiter: RateLimiter::keyed(quota), clock: DefaultClock::default() }
    }

    /// Whether this client may send one more, or how long it should wait.
    pub fn check(&self, caller: Option<&Caller>, address: IpAddr) -> Result<(), Duration> {
        let key = match (caller.and_then(|caller| caller.token), address) {
            (Some(token), _) => token.0.as_u128(),
            (None, IpAddr::V4(v4)) => v4.to_ipv6_mapped().to_bits(),
            (None, IpAddr::V6(v6)) => v6.to_bits(),
        };
        self.limiter.check_key(&key).map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Forgets clients that have not been heard of.
    pub fn sweep(&self) {
        self.limiter.retain_recent();
    }
}
