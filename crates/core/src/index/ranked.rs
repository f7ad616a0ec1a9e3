//! An ordered set that can skip what cannot fit.
//!
//! The scheduler keeps things in an order of preference and asks, many times per decision, "which is the first in this
//! order that could do?". A plain ordered map answers by looking at every entry before the right one. [`Ranked`] is a
//! B+tree whose inner nodes hold, for each child, the merged [`Summary`] of all entries below it: a subtree whose
//! summary already says "no" is skipped whole, so the answer takes time logarithmic in the number of entries. The
//! number of entries below each child is kept as well, for ranks.
//!
//! The shape depends only on the sequence of changes, never on addresses or hashing: a replay walks the same nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// Slots per node, by measurement with 16-byte keys and 80-byte summaries: 8 makes the tree too deep for changes, and
/// 32 makes a search for a rare fit look at too many summaries.
const CAP: usize = 16;

/// A child with fewer slots than this looks for a neighbour to merge with.
const SPARSE: usize = CAP / 2;

/// The most slots a merge may fill: the room left keeps the next insertions from splitting again.
const MERGED: usize = CAP * 3 / 4;

/// What a subtree knows of its entries. `merge` must be associative and commutative, with `Default` as its identity,
/// because the tree merges in whatever groups its nodes happen to have.
pub(crate) trait Summary: Copy + Default + PartialEq {
    /// Widens `self` to cover `other` too.
    fn merge(&mut self, other: &Self);
}

/// An ordered set of keys, each with a summary; the module's text says what for.
#[derive(Clone, Debug)]
pub(crate) struct Ranked<K, S> {
    nodes: Vec<Node<K, S>>,
    /// Nodes out of use, taken before new ones are made.
    free: Vec<usize>,
    root: usize,
    /// Levels of inner nodes. All leaves are equally deep, so this tells leaf from inner and no node needs to.
    height: usize,
}

/// A leaf or an inner node. In a leaf a slot is an entry (its count is 1, its kid unused); in an inner node it describes
/// a child by its smallest key, number of entries and merged summary.
///
/// One array per field, so that a search by key does not drag the summaries through the cache.
#[derive(Clone, Debug)]
struct Node<K, S> {
    len: usize,
    keys: [K; CAP],
    kids: [usize; CAP],
    counts: [usize; CAP],
    sums: [S; CAP],
}

/// One slot of a node, on its way in or between nodes.
#[derive(Clone, Copy)]
struct Slot<K, S> {
    key: K,
    kid: usize,
    count: usize,
    sum: S,
}

/// What an insertion did to a child, for its parent to follow.
enum Inserted {
    Replaced,
    Added,
    /// Added, and the child's upper half moved to this new node.
    Split(usize),
}

/// What [`Ranked::top`] has yet to open or hand out: best score first, then smallest key. No two candidates overlap, so
/// their keys differ and the other fields never decide.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate<K> {
    score: u64,
    key: Reverse<K>,
    height: usize,
    node: usize,
    slot: usize,
}

impl<K: Copy + Ord + Default, S: Summary> Node<K, S> {
    fn empty() -> Self {
        Node { len: 0, keys: [K::default(); CAP], kids: [0; CAP], counts: [0; CAP], sums: [S::default(); CAP] }
    }

    fn keys(&self) -> &[K] {
        &self.keys[..self.len]
    }

    fn sums(&self) -> &[S] {
        &self.sums[..self.len]
    }

    fn count(&self) -> usize {
        self.counts[..self.len].iter().sum()
    }

    fn merged(&self) -> S {
        let mut merged = S::default();
        self.sums().iter().for_each(|sum| merged.merge(sum));
        merged
    }

    /// The child under which `key` is or would be. Keys below the first child's belong to it too.
    fn child_for(&self, key: &K) -> usize {
        self.keys().partition_point(|k| k <= key).saturating_sub(1)
    }

    /// Opens a gap at `at` and fills it; the caller has made sure there is room.
    fn insert(&mut self, at: usize, slot: Slot<K, S>) {
        self.shift(at, at + 1);
        self.len += 1;
        self.set(at, slot);
    }

    fn remove(&mut self, at: usize) {
        self.shift(at + 1, at);
        self.len -= 1;
    }

    fn set(&mut self, at: usize, slot: Slot<K, S>) {
        self.keys[at] = slot.key;
        self.kids[at] = slot.kid;
        self.counts[at] = slot.count;
        self.sums[at] = slot.sum;
    }

    /// Moves the slots from `start` on so that they begin at `to`.
    fn shift(&mut self, start: usize, to: usize) {
        let moved = start..self.len;
        self.keys.copy_within(moved.clone(), to);
        self.kids.copy_within(moved.clone(), to);
        self.counts.copy_within(moved.clone(), to);
        self.sums.copy_within(moved, to);
    }
}

/// What became of a new summary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replaced {
    Missing,
    Same,
    Changed,
}

impl<K: Copy + Ord + Default, S: Summary> Default for Ranked<K, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord + Default, S: Summary> Ranked<K, S> {
    /// An empty set.
    pub(crate) fn new() -> Self {
        Ranked { nodes: vec![Node::empty()], free: Vec::new(), root: 0, height: 0 }
    }

    /// Adds `key`. If it is already there only its summary is replaced, and the answer is `false`.
    pub(crate) fn insert(&mut self, key: K, summary: S) -> bool {
        let inserted = self.insert_below(self.root, self.height, key, summary);
        if let Inserted::Split(right) = inserted {
            let halves = [self.describe(self.root), self.describe(right)];
            self.root = self.allocate();
            self.height += 1;
            halves.into_iter().enumerate().for_each(|(at, half)| self.nodes[self.root].insert(at, half));
        }
        !matches!(inserted, Inserted::Replaced)
    }

    /// Removes `key`; `false` if it is not there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let removed = self.remove_below(self.root, self.height, key);
        while self.height > 0 && self.nodes[self.root].len == 1 {
            self.free.push(self.root);
            self.root = self.nodes[self.root].kids[0];
            self.height -= 1;
        }
        removed
    }

    /// Gives `key` a new summary; `false` if it is not there.
    pub(crate) fn replace(&mut self, key: &K, summary: S) -> bool {
        self.replace_below(self.root, self.height, key, summary) != Replaced::Missing
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.nodes[self.root].count()
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes[self.root].len == 0
    }

    /// The merged summary of all entries.
    pub(crate) fn summary(&self) -> S {
        self.nodes[self.root].merged()
    }

    /// Visits in key order the entries that satisfy `may`, until `visit` breaks. Subtrees whose merged summary does
    /// not are skipped: if `may` holds for an entry it must hold for every merged summary that covers it.
    pub(crate) fn walk<B>(
        &self,
        mut may: impl FnMut(&S) -> bool,
        mut visit: impl FnMut(&K, &S) -> ControlFlow<B>,
    ) -> Option<B> {
        self.walk_below(self.root, self.height, &mut may, &mut visit).break_value()
    }

    /// The number of keys less than `key`, which need not be there itself.
    pub(crate) fn rank(&self, key: &K) -> usize {
        let (mut node, mut before) = (&self.nodes[self.root], 0);
        for _ in 0..self.height {
            let at = node.child_for(key);
            before += node.counts[..at].iter().sum::<usize>();
            node = &self.nodes[node.kids[at]];
        }
        before + node.keys().partition_point(|k| k < key)
    }

    /// The `k` entries of highest score, best first, equal scores in key order. The score of a merged summary must be
    /// no less than that of any entry it covers: the most promising subtree is opened first, and an entry that beats
    /// every unopened subtree beats all that is in them.
    pub(crate) fn top(&self, score: impl Fn(&S) -> u64, k: usize) -> Vec<(K, S)> {
        let mut best = Vec::new();
        let mut candidates = BinaryHeap::new();
        let mut opened = Some((self.root, self.height));
        while best.len() < k {
            if let Some((id, height)) = opened.take() {
                candidates.extend(self.nodes[id].sums().iter().enumerate().map(|(slot, sum)| Candidate {
                    score: score(sum),
                    key: Reverse(self.nodes[id].keys[slot]),
                    height,
                    node: id,
                    slot,
                }));
            }
            let Some(Candidate { height, node, slot, .. }) = candidates.pop() else { break };
            let node = &self.nodes[node];
            if height == 0 {
                best.push((node.keys[slot], node.sums[slot]));
            } else {
                opened = Some((node.kids[slot], height - 1));
            }
        }
        best
    }

    /// All entries in key order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, S)> {
        // Each level's node and next slot. The last is a leaf exactly when there is one for every level.
        let mut path = vec![(self.root, 0)];
        std::iter::from_fn(move || {
            while let Some((id, next)) = path.last_mut() {
                let (node, at) = (&self.nodes[*id], *next);
                *next += 1;
                if at == node.len {
                    path.pop();
                } else if path.len() > self.height {
                    return Some((node.keys[at], node.sums[at]));
                } else {
                    path.push((node.kids[at], 0));
                }
            }
            None
        })
    }

    fn walk_below<B>(
        &self,
        id: usize,
        height: usize,
        may: &mut impl FnMut(&S) -> bool,
        visit: &mut impl FnMut(&K, &S) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let node = &self.nodes[id];
        for at in 0..node.len {
            if !may(&node.sums[at]) {
                continue;
            }
            if height == 0 {
                visit(&node.keys[at], &node.sums[at])?;
            } else {
                self.walk_below(node.kids[at], height - 1, may, visit)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn insert_below(&mut self, id: usize, height: usize, key: K, sum: S) -> Inserted {
        if height == 0 {
            return match self.nodes[id].keys().binary_search(&key) {
                Ok(at) => {
                    self.nodes[id].sums[at] = sum;
                    Inserted::Replaced
                }
                Err(at) => self.place(id, at, Slot { key, kid: 0, count: 1, sum }),
            };
        }
        let at = self.nodes[id].child_for(&key);
        let inserted = self.insert_below(self.nodes[id].kids[at], height - 1, key, sum);
        match inserted {
            Inserted::Replaced => self.refresh(id, at),
            Inserted::Added => {
                // The child only gained this entry, so merging it in spares recomputing the child.
                let node = &mut self.nodes[id];
                node.keys[at] = node.keys[at].min(key);
                node.counts[at] += 1;
                node.sums[at].merge(&sum);
            }
            Inserted::Split(right) => {
                self.refresh(id, at);
                return self.place(id, at + 1, self.describe(right));
            }
        }
        inserted
    }

    /// Puts `slot` into a node, halving it first if it is full.
    fn place(&mut self, id: usize, at: usize, slot: Slot<K, S>) -> Inserted {
        if self.nodes[id].len < CAP {
            self.nodes[id].insert(at, slot);
            return Inserted::Added;
        }
        let (half, right) = (CAP / 2, self.allocate());
        self.move_tail(id, half, right);
        let (id, at) = if at <= half { (id, at) } else { (right, at - half) };
        self.nodes[id].insert(at, slot);
        Inserted::Split(right)
    }

    /// Gives `key` the summary. Once a merged summary comes out as it was, nothing above it changes either.
    fn replace_below(&mut self, id: usize, height: usize, key: &K, sum: S) -> Replaced {
        if height == 0 {
            return match self.nodes[id].keys().binary_search(key) {
                Ok(at) if self.nodes[id].sums[at] == sum => Replaced::Same,
                Ok(at) => {
                    self.nodes[id].sums[at] = sum;
                    Replaced::Changed
                }
                Err(_) => Replaced::Missing,
            };
        }
        let at = self.nodes[id].child_for(key);
        let replaced = self.replace_below(self.nodes[id].kids[at], height - 1, key, sum);
        if replaced != Replaced::Changed {
            return replaced;
        }
        let merged = self.nodes[self.nodes[id].kids[at]].merged();
        if self.nodes[id].sums[at] == merged {
            return Replaced::Same;
        }
        self.nodes[id].sums[at] = merged;
        Replaced::Changed
    }

    /// Removes `key`; `false` if it is not there.
    fn remove_below(&mut self, id: usize, height: usize, key: &K) -> bool {
        if height == 0 {
            let found = self.nodes[id].keys().binary_search(key);
            if let Ok(at) = found {
                self.nodes[id].remove(at);
            }
            return found.is_ok();
        }
        let at = self.nodes[id].child_for(key);
        let removed = self.remove_below(self.nodes[id].kids[at], height - 1, key);
        if removed {
            self.settle(id, height, at);
        }
        removed
    }

    /// Follows a removal below the child at `at`: drops the child if it is empty, merges it with a neighbour if both
    /// are small. So any two neighbours have more than `CAP / 2` slots between them, and the tree stays shallow.
    fn settle(&mut self, id: usize, height: usize, at: usize) {
        let kid_len = |at: usize| self.nodes[self.nodes[id].kids[at]].len;
        let len = kid_len(at);
        let merges_with = |other: usize| len < SPARSE && len + kid_len(other) <= MERGED;
        if len == 0 {
            self.free.push(self.nodes[id].kids[at]);
            self.nodes[id].remove(at);
        } else if at > 0 && merges_with(at - 1) {
            self.merge_with_next(id, height, at - 1);
        } else if at + 1 < self.nodes[id].len && merges_with(at + 1) {
            self.merge_with_next(id, height, at);
        } else {
            self.refresh(id, at);
        }
    }

    /// Empties the child after `at` into the one at `at`.
    fn merge_with_next(&mut self, id: usize, height: usize, at: usize) {
        let (left, right) = (self.nodes[id].kids[at], self.nodes[id].kids[at + 1]);
        let seam = self.nodes[left].len;
        self.move_tail(right, 0, left);
        self.free.push(right);
        self.nodes[id].remove(at + 1);
        if height > 1 {
            // Two children that were cousins are now neighbours, and both may be small.
            self.settle(left, height - 1, seam);
        }
        // That may have cost a slot, so look at the neighbours once more.
        self.settle(id, height, at);
    }

    /// A node as a slot of its parent.
    fn describe(&self, id: usize) -> Slot<K, S> {
        let node = &self.nodes[id];
        Slot { key: node.keys[0], kid: id, count: node.count(), sum: node.merged() }
    }

    /// Recomputes what a node says of its child at `at`.
    fn refresh(&mut self, id: usize, at: usize) {
        let slot = self.describe(self.nodes[id].kids[at]);
        self.nodes[id].set(at, slot);
    }

    /// Moves the slots from `start` on to the end of another node.
    fn move_tail(&mut self, from: usize, start: usize, to: usize) {
        for at in start..self.nodes[from].len {
            let node = &self.nodes[from];
            let slot = Slot { key: node.keys[at], kid: node.kids[at], count: node.counts[at], sum: node.sums[at] };
            let end = self.nodes[to].len;
            self.nodes[to].insert(end, slot);
        }
        self.nodes[from].len = start;
    }

    fn allocate(&mut self) -> usize {
        if let Some(id) = self.free.pop() {
            self.nodes[id].len = 0;
            return id;
        }
        self.nodes.push(Node::empty());
        self.nodes.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KEYS: u32 = 6000;

    /// Two fields merged by greatest value, and the least of the first, which tells whether all entries have enough.
    #[derive(Clone, Copy, Debug, PartialEq, Default)]
    struct Room {
        cpus: u64,
        gpus: u64,
    }

    impl Room {
        fn of(cpus: u64, gpus: u64) -> Self {
            Room { cpus, gpus }
        }

        fn fits(&self, cpus: u64, gpus: u64) -> bool {
            self.cpus >= cpus && self.gpus >= gpus
        }
    }

    impl Summary for Room {
        fn merge(&mut self, other: &Self) {
            self.cpus = self.cpus.max(other.cpus);
            self.gpus = self.gpus.max(other.gpus);
        }
    }

    type Model = BTreeMap<u32, Room>;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(u32, Room),
        Remove(u32),
        Replace(u32, Room),
        /// Inserts this many consecutive keys.
        InsertRun(u32, u32, Room),
        /// Removes this many present keys from the first one on, which empties whole nodes.
        RemoveRun(u32, usize),
    }

    fn key() -> impl Strategy<Value = u32> {
        0..KEYS
    }

    /// Few distinct values, so that scores tie often.
    fn room() -> impl Strategy<Value = Room> {
        (0..20u64, 0..9u64).prop_map(|(cpus, gpus)| Room::of(cpus, gpus))
    }

    fn ops(grow: u32, shrink: u32, most: usize) -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            grow * 4 => (key(), room()).prop_map(|(key, room)| Op::Insert(key, room)),
            grow => (key(), 1..60u32, room()).prop_map(|(key, run, room)| Op::InsertRun(key, run, room)),
            shrink * 4 => key().prop_map(Op::Remove),
            shrink => (key(), 1..60usize).prop_map(|(key, run)| Op::RemoveRun(key, run)),
            4 => (key(), room()).prop_map(|(key, room)| Op::Replace(key, room)),
        ];
        vec(op, 0..most)
    }

    fn apply(tree: &mut Ranked<u32, Room>, model: &mut Model, op: Op) {
        match op {
            Op::Insert(key, room) => assert_eq!(tree.insert(key, room), model.insert(key, room).is_none()),
            Op::Remove(key) => assert_eq!(tree.remove(&key), model.remove(&key).is_some()),
            Op::Replace(key, room) => {
                let slot = model.get_mut(&key);
                assert_eq!(tree.replace(&key, room), slot.is_some());
                slot.into_iter().for_each(|old| *old = room);
            }
            Op::InsertRun(key, run, room) => {
                for key in key..key + run {
                    apply(tree, model, Op::Insert(key, room));
                }
            }
            Op::RemoveRun(key, run) => {
                let keys: Vec<u32> = model.range(key..).map(|(key, _)| *key).take(run).collect();
                for key in keys {
                    apply(tree, model, Op::Remove(key));
                }
            }
        }
    }

    fn merged<'a>(rooms: impl IntoIterator<Item = &'a Room>) -> Room {
        rooms.into_iter().fold(Room::default(), |mut merged, room| {
            merged.merge(room);
            merged
        })
    }

    /// Checks a node and all below it, and returns its number of entries.
    fn check_node(tree: &Ranked<u32, Room>, id: usize, height: usize, used: &mut BTreeSet<usize>) -> usize {
        assert!(used.insert(id), "node {id} is used twice");
        let node = &tree.nodes[id];
        assert!(node.keys().is_sorted_by(|a, b| a < b));
        if height == 0 {
            assert!(node.counts[..node.len].iter().all(|&count| count == 1));
            return node.len;
        }
        for at in 0..node.len {
            let kid = &tree.nodes[node.kids[at]];
            assert!(kid.len > 0, "an empty child was kept");
            assert_eq!(node.keys[at], kid.keys[0]);
            assert_eq!(node.sums[at], merged(kid.sums()));
            assert_eq!(node.counts[at], check_node(tree, node.kids[at], height - 1, used));
            if at > 0 {
                let before = tree.nodes[node.kids[at - 1]].len;
                assert!(before + kid.len > CAP / 2, "neighbours of {before} and {} slots", kid.len);
            }
        }
        node.count()
    }

    /// Checks the whole tree's shape: right sums and counts everywhere, every node used or free, and not too deep.
    fn check_shape(tree: &Ranked<u32, Room>) {
        let mut used = BTreeSet::new();
        assert_eq!(check_node(tree, tree.root, tree.height, &mut used), tree.len());
        for &id in &tree.free {
            assert!(used.insert(id), "node {id} is both used and free");
        }
        assert_eq!(used.len(), tree.nodes.len(), "a node was lost");
        // What the rule about neighbours guarantees under a root of two children.
        let mut guaranteed = CAP / 2;
        for _ in 0..tree.height {
            assert!(tree.len() > guaranteed, "{} entries at height {}", tree.len(), tree.height);
            guaranteed *= CAP / 4;
        }
        assert!(tree.height == 0 || tree.nodes[tree.root].len > 1, "the root should have been collapsed");
    }

    fn check_questions(tree: &Ranked<u32, Room>, model: &Model, probe: u32, cpus: u64, gpus: u64) {
        let pairs =
            |entries: &mut dyn Iterator<Item = (&u32, &Room)>| entries.map(|(k, r)| (*k, *r)).collect::<Vec<_>>();
        assert_eq!(tree.len(), model.len());
        assert_eq!(tree.is_empty(), model.is_empty());
        assert_eq!(tree.summary(), merged(model.values()));
        assert_eq!(tree.iter().collect::<Vec<_>>(), pairs(&mut model.iter()));
        assert_eq!(tree.rank(&probe), model.range(..probe).count());

        let fitting = pairs(&mut model.iter().filter(|(_, room)| room.fits(cpus, gpus)));
        let mut seen = Vec::new();
        let all = tree.walk(|room| room.fits(cpus, gpus), |key, room| visit_until(&mut seen, usize::MAX, key, room));
        assert_eq!((all, &seen), (None, &fitting));

        for limit in [1, 3] {
            let mut seen = Vec::new();
            let stopped = tree.walk(|room| room.fits(cpus, gpus), |key, room| visit_until(&mut seen, limit, key, room));
            assert_eq!(seen, fitting[..fitting.len().min(limit)]);
            assert_eq!(stopped, fitting.get(limit - 1).map(|(key, _)| *key));
        }

        let mut by_score = pairs(&mut model.iter());
        by_score.sort_by_key(|(key, room)| (Reverse(room.cpus + room.gpus), *key));
        for k in [0, 1, 40, usize::MAX] {
            let best = tree.top(|room| room.cpus + room.gpus, k);
            assert_eq!(best, by_score[..k.min(by_score.len())]);
        }
    }

    /// Notes the entry and breaks with its key when it is the `limit`th.
    fn visit_until(seen: &mut Vec<(u32, Room)>, limit: usize, key: &u32, room: &Room) -> ControlFlow<u32> {
        seen.push((*key, *room));
        if seen.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(*key) }
    }

    fn full(keys: impl Iterator<Item = u32>) -> Ranked<u32, Room> {
        let mut tree = Ranked::new();
        keys.for_each(|key| assert!(tree.insert(key, Room::of(u64::from(key % 1009), u64::from(key % 7)))));
        tree
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn answers_as_a_plain_map_does(
            phases in (ops(4, 1, 1500), ops(2, 2, 1000), ops(1, 4, 1500), ops(1, 3, 1000)),
            probes in vec((key(), 0..21u64, 0..10u64), 8),
            leftovers in vec(key(), 64),
        ) {
            let (mut tree, mut model) = (Ranked::default(), Model::new());
            for phase in [phases.0, phases.1, phases.2, phases.3] {
                for (step, op) in phase.into_iter().enumerate() {
                    apply(&mut tree, &mut model, op);
                    if step % 100 == 0 {
                        check_shape(&tree);
                    }
                }
                check_shape(&tree);
                probes.iter().for_each(|&(probe, cpus, gpus)| check_questions(&tree, &model, probe, cpus, gpus));
            }
            for key in leftovers.into_iter().chain([0]) {
                apply(&mut tree, &mut model, Op::RemoveRun(key, if key == 0 { usize::MAX } else { 50 }));
                check_shape(&tree);
            }
            prop_assert!(tree.is_empty());
            prop_assert_eq!(tree.height, 0);
            probes.iter().for_each(|&(probe, cpus, gpus)| check_questions(&tree, &model, probe, cpus, gpus));
        }

        #[test]
        fn small_trees_keep_their_shape_at_every_step(all in vec(ops(1, 1, 120), 1..4)) {
            let (mut tree, mut model) = (Ranked::new(), Model::new());
            for op in all.into_iter().flatten() {
                apply(&mut tree, &mut model, op);
                check_shape(&tree);
            }
            check_questions(&tree, &model, KEYS / 2, 10, 4);
        }
    }

    #[test]
    fn emptied_nodes_are_used_again() {
        let mut tree = full(0..KEYS);
        let (nodes, height) = (tree.nodes.len(), tree.height);
        assert!(height > 1);
        for _ in 0..3 {
            (0..KEYS).for_each(|key| assert!(tree.remove(&key)));
            assert_eq!((tree.height, tree.free.len()), (0, nodes - 1));
            (0..KEYS).for_each(|key| assert!(tree.insert(key, Room::of(1, 1))));
            assert_eq!((tree.nodes.len(), tree.height), (nodes, height));
        }
        check_shape(&tree);
    }

    #[test]
    fn thinning_out_keeps_the_tree_shallow() {
        let mut tree = full((0..KEYS).rev());
        for step in [2, 3, 5, 7, 11] {
            for key in (0..KEYS).filter(|key| key % step != 0) {
                tree.remove(&key);
            }
            check_shape(&tree);
        }
        assert!(tree.len() < 5 && tree.height == 0);
    }

    #[test]
    fn questions_open_few_nodes() {
        let tree = full((0..KEYS).map(|key| key * 7919 % KEYS));
        let path = CAP * (tree.height + 1);
        let asked = Cell::new(0);
        let ask = |yes| {
            asked.set(asked.get() + 1);
            yes
        };
        assert_eq!(tree.walk(|room| ask(room.cpus >= 1008), |key, _| ControlFlow::Break(*key)), Some(1008));
        assert!(asked.replace(0) <= path);
        let best = tree.top(|room| if ask(true) { room.cpus } else { 0 }, 5);
        assert_eq!(best.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1008, 2017, 3026, 4035, 5044]);
        assert!(asked.replace(0) <= path * 5);
    }
}
