//! The last events, for those who follow. Whoever follows reads at their own pace from a ring; nobody is waited for.

use std::collections::VecDeque;

use berth_core::Event;
use berth_domain::{Revision, Timestamp};
use parking_lot::RwLock;
use tokio::sync::watch;

use super::subject::Subject;

/// A durable event as it is published: with its revision, its time and the names behind its ids.
#[derive(Clone, Debug)]
pub struct PublishedEvent {
    /// Its number.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// What.
    pub event: Event,
    /// The names behind its ids.
    pub subject: Subject,
}

/// The last events.
#[derive(Debug)]
pub struct Stream {
    kept: usize,
    ring: RwLock<VecDeque<PublishedEvent>>,
    latest: watch::Sender<Revision>,
}

/// What comes after a revision.
#[derive(Debug)]
pub enum Next {
    /// These, in order; none if nothing happened since.
    Events(Vec<PublishedEvent>),
    /// Some of it is no longer kept: read the listings again and follow from this revision.
    Gap(Revision),
}

impl Stream {
    pub(super) fn new(kept: usize) -> Self {
        Self { kept: kept.max(1), ring: RwLock::new(VecDeque::new()), latest: watch::Sender::new(Revision::default()) }
    }

    pub(super) fn push(&self, events: Vec<PublishedEvent>, revision: Revision) {
        if !events.is_empty() {
            let mut ring = self.ring.write();
            ring.extend(events);
            let surplus = ring.len().saturating_sub(self.kept);
            ring.drain(..surplus);
        }
        self.latest.send_if_modified(|latest| std::mem::replace(latest, revision) != revision);
    }

    /// At most `limit` of what comes after `revision`.
    #[must_use]
    pub fn after(&self, revision: Revision, limit: usize) -> Next {
        let ring = self.ring.read();
        let latest = *self.latest.borrow();
        if revision >= latest {
            return if revision > latest { Next::Gap(latest) } else { Next::Events(Vec::new()) };
        }
        match ring.front() {
            Some(first) if first.revision.get() <= revision.get() + 1 => {
                let from = ring.partition_point(|happened| happened.revision <= revision);
                Next::Events(ring.iter().skip(from).take(limit).cloned().collect())
            }
            _ => Next::Gap(latest),
        }
    }

    /// Hears of every new revision.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Revision> {
        self.latest.subscribe()
    }
}
