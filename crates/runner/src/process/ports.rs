//! Ports for slots. A port is leased only if it is free at that moment; a program that then finds it taken ends, its
//! end is classified as such, and its next start gets another port.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;

/// All ports of the range are in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port from {} to {} is free", .range.start(), .range.end())]
pub struct NoFreePort {
    /// The configured range.
    pub range: RangeInclusive<u16>,
}

/// The ports of one agent.
#[derive(Clone, Debug)]
pub struct Ports {
    range: RangeInclusive<u16>,
    leased: BTreeSet<u16>,
    next: u16,
}

impl Ports {
    /// Returns the ports of a range, none of them leased.
    #[must_use]
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let next = *range.start();
        Self { range, leased: BTreeSet::new(), next }
    }

    /// Leases a port that no process listens on. Ports are leased in turn, so that one which was just released, or was
    /// just found taken, comes last.
    pub fn lease(&mut self) -> Result<u16, NoFreePort> {
        for _ in self.range.clone() {
            let port = self.next;
            self.next = if port >= *self.range.end() { *self.range.start() } else { port + 1 };
            if !self.leased.contains(&port) && is_free(port) {
                self.leased.insert(port);
                return Ok(port);
            }
        }
        Err(NoFreePort { range: self.range.clone() })
    }

    /// Marks the port of an adopted slot as leased.
    pub fn keep(&mut self, port: u16) {
        self.leased.insert(port);
    }

    /// Releases the port of a slot that is gone.
    pub fn release(&mut self, port: u16) {
        self.leased.remove(&port);
    }
}

/// Returns whether no process listens on a port, on any address. The sockets that try are closed at once.
fn is_free(port: u16) -> bool {
    let sixth = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).map(drop);
    // Without IPv6 the other family decides.
    let taken = sixth.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    !taken && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n9_a_port_in_use_is_skipped_and_no_port_is_leased_twice() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut only = Ports::new(port..=port);
        assert_eq!(only.lease(), Err(NoFreePort { range: port..=port }));
        drop(taken);
        assert_eq!(only.lease(), Ok(port));
        assert!(only.lease().is_err(), "a leased port was given again");
        only.release(port);
        assert_eq!(only.lease(), Ok(port));
    }

    #[test]
    fn ports_are_given_out_in_turn() {
        let mut ports = Ports::new(u16::MAX - 20..=u16::MAX);
        let first = ports.lease().unwrap();
        ports.release(first);
        assert_ne!(ports.lease().unwrap(), first);
        ports.keep(u16::MAX);
        let rest: BTreeSet<u16> = std::iter::from_fn(|| ports.lease().ok()).collect();
        assert!(!rest.contains(&u16::MAX) && rest.contains(&first));
    }
}
