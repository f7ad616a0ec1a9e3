//! What a subtree of a shelf could give, so that a search can pass over it.

use berth_domain::{Bytes, GpuMemory, Millicores};
use smallvec::SmallVec;

use super::ranked::Summary;
use crate::table::{DeviceKey, ModelKey, RunnerKey, SlotKey};

/// A place on a shelf: a runner, or (to pack one GPU) a device on a runner. The order is the ranking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpotKey {
    /// Spread: the claimed share. Pack: the room. For several GPUs that of the worst of the best.
    pub(crate) rank: u64,
    /// The device's index, so that equal runners are filled side by side and not one after the other.
    pub(crate) index: u16,
    /// The runner that was known first.
    pub(crate) ordinal: u32,
    pub(crate) runner: RunnerKey,
    /// Only to pack one GPU.
    pub(crate) device: DeviceKey,
}

/// A place on one of the shelves of a class, and what it could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The number of the shelf's lens.
    pub(crate) lens: u32,
    pub(crate) key: SpotKey,
    pub(crate) reach: Reach,
}

impl Spot {
    /// Whether another is the same place on the same shelf.
    pub(crate) fn is_where(&self, other: &Self) -> bool {
        self.lens == other.lens && self.key == other.key
    }
}

/// How soon memory must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Soon {
    /// Both lines leave it now.
    Now,
    /// The future line leaves it: others are releasing.
    Later,
    /// The future line would leave it if every idle slot went.
    Cleared,
}

/// What the places of a subtree could give at most. For several GPUs: the n-th best of a runner's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) room: u64,
    later: u64,
    /// What it could give if every idle slot went; and whose they are, since a model does not evict itself.
    cleared: Contested,
    /// The best single device, for needs that differ from GPU to GPU.
    best_room: u64,
    best_cleared: u64,
    room_share: u32,
    cleared_share: u32,
    whole: u16,
    whole_later: u16,
    whole_cleared: u16,
    cpu: u32,
    cpu_cleared: u32,
    ram: u64,
    ram_cleared: u64,
}

impl Summary for Reach {
    fn merge(&mut self, other: &Self) {
        self.room = self.room.max(other.room);
        self.later = self.later.max(other.later);
        self.cleared.merge(&other.cleared);
        self.best_room = self.best_room.max(other.best_room);
        self.best_cleared = self.best_cleared.max(other.best_cleared);
        self.room_share = self.room_share.max(other.room_share);
        self.cleared_share = self.cleared_share.max(other.cleared_share);
        self.whole = self.whole.max(other.whole);
        self.whole_later = self.whole_later.max(other.whole_later);
        self.whole_cleared = self.whole_cleared.max(other.whole_cleared);
        self.cpu = self.cpu.max(other.cpu);
        self.ram = self.ram.max(other.ram);
        self.cpu_cleared = self.cpu_cleared.max(other.cpu_cleared);
        self.ram_cleared = self.ram_cleared.max(other.ram_cleared);
    }
}

/// What one device could give, soon and later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) share: u32,
    pub(crate) room: u64,
    pub(crate) later: u64,
    pub(crate) cleared: u64,
    /// The one model whose idle slots are all that could be cleared.
    pub(crate) cleared_of: Option<ModelKey>,
    pub(crate) room_share: u32,
    pub(crate) cleared_share: u32,
    pub(crate) whole: bool,
    pub(crate) whole_later: bool,
    pub(crate) whole_cleared: bool,
    /// Whether it takes anything new.
    pub(crate) open: bool,
}

/// What a machine's host could give.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostDepth {
    pub(crate) cpu: u64,
    pub(crate) ram: u64,
    pub(crate) cpu_cleared: u64,
    pub(crate) ram_cleared: u64,
    pub(crate) share: u32,
}

impl Reach {
    /// One device on one runner.
    pub(crate) fn of_device(depth: &Depth, host: &HostDepth) -> Self {
        Self {
            room: depth.room,
            later: depth.later,
            cleared: Contested::new(depth.cleared, depth.cleared_of, depth.later),
            best_room: depth.room,
            best_cleared: depth.cleared,
            room_share: depth.room_share,
            cleared_share: depth.cleared_share,
            whole: depth.whole.into(),
            whole_later: depth.whole_later.into(),
            whole_cleared: depth.whole_cleared.into(),
            ..Self::of_host(host)
        }
    }

    /// A runner's host, for slots without a GPU.
    pub(crate) fn of_host(host: &HostDepth) -> Self {
        Self {
            cpu: clamp(host.cpu),
            ram: host.ram,
            cpu_cleared: clamp(host.cpu_cleared),
            ram_cleared: host.ram_cleared,
            ..Self::default()
        }
    }

    /// The best `count` devices of one runner.
    pub(crate) fn of_set(sorted: &SortedDepths, count: usize, host: &HostDepth) -> Self {
        let nth = |values: &[u64]| count.checked_sub(1).and_then(|position| values.get(position)).copied().unwrap_or(0);
        let share =
            |values: &[u32]| count.checked_sub(1).and_then(|position| values.get(position)).copied().unwrap_or(0);
        Self {
            room: nth(&sorted.room),
            later: nth(&sorted.later),
            cleared: Contested::new(nth(&sorted.cleared), sorted.cleared_of, nth(&sorted.later)),
            best_room: sorted.room.first().copied().unwrap_or(0),
            best_cleared: sorted.cleared.first().copied().unwrap_or(0),
            room_share: share(&sorted.room_share),
            cleared_share: share(&sorted.cleared_share),
            whole: sorted.whole,
            whole_later: sorted.whole_later,
            whole_cleared: sorted.whole_cleared,
            ..Self::of_host(host)
        }
    }

    /// Whether a place here might give `needs` (the least of its asks) and the host's part that soon, without clearing
    /// slots of the model `own`.
    pub(crate) fn may(&self, wish: &Wish, soon: Soon, own: Option<ModelKey>) -> bool {
        let host = match soon {
            Soon::Now => self.cpu >= clamp(wish.cpu.get()) && self.ram >= wish.ram.get(),
            Soon::Later | Soon::Cleared => {
                self.cpu_cleared >= clamp(wish.cpu.get()) && self.ram_cleared >= wish.ram.get()
            }
        };
        let best = if soon == Soon::Now { self.best_room } else { self.best_cleared };
        host && best >= wish.most.get() && self.may_memory(wish, soon, own)
    }

    /// The same without the host.
    pub(crate) fn may_memory(&self, wish: &Wish, soon: Soon, own: Option<ModelKey>) -> bool {
        match (wish.least, soon) {
            (None, _) => true,
            (Some(GpuMemory::Bytes(bytes)), Soon::Now) => self.room >= bytes.get(),
            (Some(GpuMemory::Bytes(bytes)), Soon::Later) => self.later >= bytes.get(),
            (Some(GpuMemory::Bytes(bytes)), Soon::Cleared) => self.cleared.without(own) >= bytes.get(),
            (Some(GpuMemory::Fraction(part)), Soon::Now) => self.room_share >= part.millionths(),
            (Some(GpuMemory::Fraction(part)), Soon::Later | Soon::Cleared) => self.cleared_share >= part.millionths(),
            (Some(GpuMemory::Whole(_)), Soon::Now) => self.whole >= wish.count,
            (Some(GpuMemory::Whole(_)), Soon::Later) => self.whole_later >= wish.count,
            (Some(GpuMemory::Whole(_)), Soon::Cleared) => self.whole_cleared >= wish.count,
        }
    }
}

/// Both sides of a comparison are cut at the same height, so it stays true for all that could fit.
fn clamp(millicores: u64) -> u32 {
    u32::try_from(millicores).unwrap_or(u32::MAX)
}

/// What a search looks for, reduced to what a subtree can answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) count: u16,
    /// The smallest ask of any GPU; none for slots without a GPU.
    pub(crate) least: Option<GpuMemory>,
    /// The largest ask in bytes of any GPU.
    pub(crate) most: Bytes,
    pub(crate) cpu: Millicores,
    pub(crate) ram: Bytes,
}

/// What the devices of a runner could give, best first in each respect.
#[derive(Debug, Default)]
pub(crate) struct SortedDepths {
    /// Least claimed first, each with its index.
    pub(crate) share: SmallVec<[(u32, u16); 8]>,
    pub(crate) room: SmallVec<[u64; 8]>,
    later: SmallVec<[u64; 8]>,
    cleared: SmallVec<[u64; 8]>,
    room_share: SmallVec<[u32; 8]>,
    cleared_share: SmallVec<[u32; 8]>,
    whole: u16,
    whole_later: u16,
    whole_cleared: u16,
    /// The one model whose idle slots are all that could be cleared.
    cleared_of: Option<ModelKey>,
}

impl SortedDepths {
    /// Sorts what some model may ask about: shares of the room only matter to fractions, and where nothing is releasing
    /// or idle there is no later.
    pub(crate) fn of(depths: impl Iterator<Item = (u16, Depth)>, fractions: bool) -> Self {
        let mut sorted = Self::default();
        let mut only_now = true;
        let mut owners: SmallVec<[Option<ModelKey>; 2]> = SmallVec::new();
        for (index, depth) in depths {
            if depth.cleared > depth.later && !owners.contains(&depth.cleared_of) {
                owners.push(depth.cleared_of);
            }
            sorted.share.push((depth.share, index));
            sorted.room.push(depth.room);
            sorted.later.push(depth.later);
            sorted.cleared.push(depth.cleared);
            only_now &= depth.room == depth.cleared;
            if fractions {
                sorted.room_share.push(depth.room_share);
                sorted.cleared_share.push(depth.cleared_share);
            }
            sorted.whole += u16::from(depth.whole);
            sorted.whole_later += u16::from(depth.whole_later);
            sorted.whole_cleared += u16::from(depth.whole_cleared);
        }
        sorted.cleared_of = if let [Some(owner)] = owners.as_slice() { Some(*owner) } else { None };
        sorted.share.sort_unstable();
        sorted.room.sort_unstable_by(|a, b| b.cmp(a));
        if only_now {
            sorted.later.clone_from(&sorted.room);
            sorted.cleared.clone_from(&sorted.room);
        } else {
            sorted.later.sort_unstable_by(|a, b| b.cmp(a));
            sorted.cleared.sort_unstable_by(|a, b| b.cmp(a));
        }
        for values in [&mut sorted.room_share, &mut sorted.cleared_share] {
            values.sort_unstable_by(|a, b| b.cmp(a));
        }
        sorted
    }

    pub(crate) fn len(&self) -> usize {
        self.room.len()
    }

    /// The claimed share (and index) of the worst of the `count` least claimed: what a set of that many is at best.
    pub(crate) fn best_share(&self, count: usize) -> (u32, u16) {
        count.checked_sub(1).and_then(|position| self.share.get(position)).copied().unwrap_or((u32::MAX, 0))
    }
}

/// An idle slot on a device, cheapest first: fewest bytes, then longest idle, then the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VictimKey {
    pub(crate) bytes: u64,
    pub(crate) idle_since: u64,
    pub(crate) number: u64,
    pub(crate) slot: SlotKey,
    pub(crate) device: DeviceKey,
    pub(crate) runner: RunnerKey,
}

/// The most that somebody could give, and the most that somebody else could: a model does not evict itself, so a search
/// asks for the most without one model's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contested {
    most: u64,
    /// Whose it is alone; nobody's in particular if `None`.
    of: Option<ModelKey>,
    /// The most of anybody else.
    second: u64,
}

impl Contested {
    /// So much; without the slots of the model that it is `of`, so much less.
    pub(crate) fn new(most: u64, of: Option<ModelKey>, without: u64) -> Self {
        let of = of.filter(|_| without < most);
        Self { most, of, second: if of.is_some() { without } else { 0 } }
    }

    /// The most without what is of this model alone.
    pub(crate) fn without(&self, own: Option<ModelKey>) -> u64 {
        if self.of.is_some() && self.of == own { self.second } else { self.most }
    }
}

impl Summary for Contested {
    #[inline]
    fn merge(&mut self, other: &Self) {
        // Neither value belongs to one model alone, so `second` is never read.
        if self.of.is_none() && other.of.is_none() {
            self.most = self.most.max(other.most);
            return;
        }
        let is_first = (self.most, self.of) >= (other.most, other.of);
        let (winner, loser) = if is_first { (*self, *other) } else { (*other, *self) };
        // If both belong to the same model, only the second value of the loser is of anybody else.
        let of_others = if loser.of.is_some() && loser.of == winner.of { loser.second } else { loser.most };
        let second = if winner.of.is_some() { winner.second.max(of_others) } else { 0 };
        *self = Self { second, ..winner };
    }
}

/// The most that stopping one slot of a subtree would leave on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) bytes: Contested,
    pub(crate) share: Contested,
    pub(crate) whole: Contested,
}

impl Summary for Gain {
    fn merge(&mut self, other: &Self) {
        self.bytes.merge(&other.bytes);
        self.share.merge(&other.share);
        self.whole.merge(&other.whole);
    }
}

impl Gain {
    /// Whether stopping one slot here, not of the model `own`, might be enough.
    pub(crate) fn may(&self, need: GpuMemory, own: Option<ModelKey>) -> bool {
        match need {
            GpuMemory::Bytes(bytes) => self.bytes.without(own) >= bytes.get(),
            GpuMemory::Fraction(part) => self.share.without(own) >= u64::from(part.millionths()),
            GpuMemory::Whole(_) => self.whole.without(own) > 0,
        }
    }
}

/// Nothing to know but how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count;

impl Summary for Count {
    fn merge(&mut self, _: &Self) {}
}
