//! Who waits for what to change. A change wakes those who wait for that very thing, and nobody else.

use std::hash::Hash;
use std::sync::Arc;

use dashmap::mapref::entry::Entry;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::Map;

/// Everybody who waits, by what they wait for.
#[derive(Debug)]
pub struct Waiters<K: Eq + Hash> {
    rooms: Map<K, Arc<Notify>>,
}

impl<K: Eq + Hash + Clone> Waiters<K> {
    pub(super) fn new() -> Self {
        Self { rooms: Map::default() }
    }

    /// Wakes those who wait for `key`.
    pub(crate) fn wake(&self, key: &K) {
        if let Some(room) = self.rooms.get(key) {
            room.notify_waiters();
        }
    }

    /// Looks until there is an answer, anew after each change of `key`. None, if it took too long.
    pub async fn wait_until<T>(&self, key: &K, deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let waiting = self.enter(key);
        loop {
            // The ear is open before the look: a change in between is not missed.
            let mut ear = std::pin::pin!(waiting.ear());
            ear.as_mut().enable();
            if let Some(answer) = look() {
                return Some(answer);
            }
            tokio::time::timeout_at(deadline, ear).await.ok()?;
        }
    }

    /// Waits for `key` from now on.
    pub fn enter(&self, key: &K) -> Waiting<'_, K> {
        let room = self.rooms.entry(key.clone()).or_default().clone();
        Waiting { waiters: self, key: key.clone(), room }
    }

    /// How many things are waited for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rooms.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rooms.is_empty()
    }
}

/// One who waits. The last to leave closes the room.
#[derive(Debug)]
pub struct Waiting<'a, K: Eq + Hash + Clone> {
    waiters: &'a Waiters<K>,
    key: K,
    room: Arc<Notify>,
}

impl<K: Eq + Hash + Clone> Waiting<'_, K> {
    /// Hears the next change from when it is enabled on.
    pub fn ear(&self) -> Notified<'_> {
        self.room.notified()
    }
}

impl<K: Eq + Hash + Clone> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        if let Entry::Occupied(entry) = self.waiters.rooms.entry(self.key.clone())
            && Arc::strong_count(entry.get()) <= 2
        {
            entry.remove();
        }
    }
}
