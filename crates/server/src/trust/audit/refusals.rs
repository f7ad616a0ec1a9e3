//! Which refused requests go on record.
//!
//! Whoever is refused can be refused a thousand times a second, and must not fill the disk by it. In each minute so many
//! are put on record one by one, of one client no more than a share of them; the others are counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

const WINDOW: Duration = Duration::from_secs(60);
/// One client gets this part of what goes on record in a minute.
const SHARE: u32 = 6;

/// What comes of one refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// It goes on record, with the number of those before it that did not.
    Record {
        /// How many were only counted since the last one that was recorded.
        counted_before: u64,
    },
    /// It is counted.
    Count,
}

/// The refusals of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    recorded: u32,
    by_client: BTreeMap<u128, u32>,
    only_counted: u64,
}

impl Refusals {
    /// Judges a refusal of a client. At most `per_minute` go on record in a minute.
    pub(crate) fn judge(&self, client: u128, per_minute: u32, now: Instant) -> Sampled {
        let mut window = self.0.lock();
        if window.begun.is_none_or(|begun| now.duration_since(begun) >= WINDOW) {
            window.begun = Some(now);
            window.recorded = 0;
            window.by_client.clear();
        }
        let share = (per_minute / SHARE).max(1);
        let of_client = window.by_client.get(&client).copied().unwrap_or_default();
        if window.recorded >= per_minute || of_client >= share {
            window.only_counted += 1;
            return Sampled::Count;
        }
        window.recorded += 1;
        window.by_client.insert(client, of_client + 1);
        Sampled::Record { counted_before: std::mem::take(&mut window.only_counted) }
    }

    /// Takes the number of those that were only counted.
    pub(crate) fn take_counted(&self) -> u64 {
        std::mem::take(&mut self.0.lock().only_counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_its_share_and_all_have_their_limit() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let mut counted = 0;
        let mut recorded = |client: u128, times: u32, at: Instant| {
            let judged = (0..times).map(|_| refusals.judge(client, 12, at));
            let records: Vec<u64> = judged
                .filter_map(|sampled| match sampled {
                    Sampled::Record { counted_before } => Some(counted_before),
                    Sampled::Count => None,
                })
                .collect();
            counted += records.iter().sum::<u64>();
            records.len()
        };
        assert_eq!(recorded(1, 100, now), 2, "a sixth of them");
        assert_eq!((2..100).map(|client| recorded(client, 3, now)).sum::<usize>(), 10, "and twelve in all");
        let later = now + WINDOW;
        assert_eq!(recorded(1, 1, later), 1, "a new minute");
        assert_eq!(counted, 100 + 98 * 3 - 12, "the others are counted");
        assert_eq!(refusals.take_counted(), 0);
        assert_eq!(refusals.judge(1, 0, later), Sampled::Count);
        assert_eq!(refusals.take_counted(), 1);
    }
}
