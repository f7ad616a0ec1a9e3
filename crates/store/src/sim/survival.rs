//! Which part of the pending changes survives a crash.

use std::{iter, ops::Range};

use super::world::PendingChange;

/// The unit that disks write as a whole.
const SECTOR: usize = 512;
/// Writes with more sectors than this are torn only at some of them.
const MOST_SECTORS: usize = 24;

/// What survives of each pending change, oldest first. Changes that are not listed are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survival(pub Vec<Surviving>);

/// What survives of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Surviving {
    /// The change is lost.
    Nothing,
    /// These bytes of a write survive.
    Parts(Vec<Range<usize>>),
    /// The whole change survives.
    All,
}

impl Survival {
    /// Returns a survival that loses all pending changes.
    #[must_use]
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    fn by(count: usize, kept: impl Fn(usize) -> bool) -> Self {
        Self((0..count).map(|at| if kept(at) { Surviving::All } else { Surviving::Nothing }).collect())
    }

    fn with(mut self, at: usize, kept: Surviving) -> Self {
        self.0[at] = kept;
        self
    }
}

/// Lists the survivals worth trying: nothing; everything; each prefix of the changes; each change alone; all but each;
/// and each write torn, with all others lost and with all others kept: at each sector from the front and from the back,
/// each sector alone, all but each sector, and in the middle of sectors from the front.
#[must_use]
pub fn survivals(pending: &[PendingChange]) -> Vec<Survival> {
    let count = pending.len();
    let mut list = vec![Survival::by(count, |_| false)];
    if count == 0 {
        return list;
    }
    list.push(Survival::by(count, |_| true));
    for at in 0..count {
        list.push(Survival::by(count, |other| other == at));
        list.push(Survival::by(count, |other| other != at));
        list.push(Survival::by(count, |other| other < at));
    }
    for (at, change) in pending.iter().enumerate() {
        let Some((offset, bytes)) = change.write else { continue };
        for parts in tears(offset, bytes) {
            for others in [false, true] {
                list.push(Survival::by(count, |_| others).with(at, Surviving::Parts(parts.clone())));
            }
        }
    }
    list
}

/// Lists the ways to tear a write.
fn tears(offset: u64, bytes: usize) -> Vec<Vec<Range<usize>>> {
    let sectors = sectors(offset, bytes);
    let step = sectors.len().div_ceil(MOST_SECTORS).max(1);
    let mut list = Vec::new();
    for (at, sector) in sectors.iter().enumerate().step_by(step) {
        if at > 0 {
            list.push(one(0..sector.start));
            list.push(one(sector.start..bytes));
        }
        if sectors.len() > 2 {
            list.push(vec![sector.clone()]);
            list.push(vec![0..sector.start, sector.end..bytes]);
        }
        // Not at a sector boundary: a process that is killed during a write leaves this.
        list.push(one(0..sector.start + sector.len() / 2));
    }
    list.extend([1, 7, 40, bytes.saturating_sub(1)].into_iter().filter(|end| *end < bytes).map(|end| one(0..end)));
    list
}

fn one(part: Range<usize>) -> Vec<Range<usize>> {
    iter::once(part).collect()
}

/// Splits a write by the sectors of the file that it touches.
fn sectors(offset: u64, bytes: usize) -> Vec<Range<usize>> {
    let into = usize::try_from(offset % SECTOR as u64).unwrap_or(0);
    let mut list = Vec::new();
    let mut at = 0;
    while at < bytes {
        let next = (at + SECTOR - (into + at) % SECTOR).min(bytes);
        list.push(at..next);
        at = next;
    }
    list
}
