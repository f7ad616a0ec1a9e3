//! Ending a tree, as a matter of time and of who is left. Pure: it looks at nobody and signals nobody.

use std::collections::BTreeSet;

use berth_domain::{Span, Timestamp};

use super::id::ProcessId;

/// How patient an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopLimits {
    /// Between asking and forcing.
    pub grace: Span,
    /// How long it may resist force before it counts as unkillable.
    pub unkillable_after: Span,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ask all to end.
    Term,
    /// Nothing.
    Wait,
    /// End all by force.
    Kill,
    /// End all by force, and say that it does not help.
    Unkillable,
    /// Nobody is left.
    Ended,
}

/// One end in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    limits: StopLimits,
    asked: Timestamp,
    told: BTreeSet<ProcessId>,
    forced: Option<Timestamp>,
}

impl Stop {
    /// An end that begins now.
    #[must_use]
    pub fn begin(limits: StopLimits, now: Timestamp) -> Self {
        Self { limits, asked: now, told: BTreeSet::new(), forced: None }
    }

    /// Whether it has come to force.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// What to do, given who is left. Force is repeated at every look: a tree may grow while it is being felled. One
    /// that resisted for long is not given up: if it ends after all, it has ended.
    pub fn step(&mut self, now: Timestamp, left: &[ProcessId]) -> Order {
        if left.is_empty() {
            return Order::Ended;
        }
        if let Some(forced) = self.forced {
            let resisted = now.since(forced) >= self.limits.unkillable_after;
            return if resisted { Order::Unkillable } else { Order::Kill };
        }
        if now.since(self.asked) >= self.limits.grace {
            self.forced = Some(now);
            return Order::Kill;
        }
        let before = self.told.len();
        self.told.extend(left.iter().cloned());
        if self.told.len() > before { Order::Term } else { Order::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_domain::BootId;

    const LIMITS: StopLimits = StopLimits { grace: Span::from_secs(10), unkillable_after: Span::from_secs(60) };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn processes(pids: &[u32]) -> Vec<ProcessId> {
        let boot = BootId::new("b").unwrap();
        pids.iter().map(|&pid| ProcessId { pid, start_ticks: 1, pid_namespace: 1, boot: boot.clone() }).collect()
    }

    #[test]
    fn n10_asked_once_then_forced_again_and_again_then_unkillable_and_ended_after_all() {
        let mut stop = Stop::begin(LIMITS, at(0));
        let both = processes(&[1, 2]);
        assert_eq!(stop.step(at(0), &both), Order::Term);
        assert_eq!(stop.step(at(1), &both), Order::Wait, "TERM is said once to each");
        assert_eq!(stop.step(at(2), &processes(&[2, 3])), Order::Term, "a child that came later is asked too");
        assert_eq!(stop.step(at(10), &both), Order::Kill);
        assert_eq!(stop.step(at(11), &processes(&[9])), Order::Kill, "whoever is there then");
        assert_eq!(stop.step(at(70), &processes(&[9])), Order::Unkillable);
        assert_eq!(stop.step(at(99), &[]), Order::Ended);
    }

    #[test]
    fn without_grace_force_comes_first() {
        let mut stop = Stop::begin(StopLimits { grace: Span::ZERO, ..LIMITS }, at(5));
        assert_eq!(stop.step(at(5), &processes(&[1])), Order::Kill);
    }
}
