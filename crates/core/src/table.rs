//! Rows with small stable keys, found by their outside id.
//!
//! Ids are texts and UUIDs; the core links its rows by four-byte keys instead. A freed key is used again, last freed
//! first, so the same events give the same keys. The hash map is only ever asked, never walked.
//!
//! A table can be copied a few rows at a time while it goes on changing: whoever changes a row that was not copied yet
//! copies it first.

use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Range;

use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use slab::Slab;

/// A hash map that gives the same answers in every process.
pub(crate) type Lookup<K, V> = HashMap<K, V, FixedState>;

/// A small key into one kind of table.
pub(crate) trait Key: Copy + Eq + Ord + Hash {
    /// The key of row `row`.
    fn at(row: usize) -> Self;
    /// The row of this key.
    fn row(self) -> usize;
}

macro_rules! keys {
    ($($(#[$doc:meta])* $vis:vis $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        $vis struct $name(u32);

        impl Key for $name {
            fn at(row: usize) -> Self {
                Self(u32::try_from(row).unwrap_or(u32::MAX))
            }
            fn row(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

keys! {
    /// A machine's row.
    pub(crate) MachineKey,
    /// A runner's row.
    pub(crate) RunnerKey,
    /// A device's row.
    pub(crate) DeviceKey,
    /// A model's row.
    pub(crate) ModelKey,
    /// A shape's row.
    pub(crate) ShapeKey,
    /// A slot's row. It is also what a ledger knows of a claim's owner.
    pub SlotKey,
    /// A workload's row.
    pub(crate) WorkloadKey,
    /// A class of runners.
    pub(crate) ClassKey,
}

/// A row that knows the id it is found by.
pub(crate) trait Row<I>: Clone {
    /// The id it is found by.
    fn id(&self) -> I;

    /// A copy to be kept: what follows from other rows may be left out.
    fn picture(&self) -> Self {
        self.clone()
    }
}

/// Rows of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, I, V> {
    rows: Slab<V>,
    by_id: Lookup<I, K>,
    key: PhantomData<K>,
    /// What changed since it was last asked, once somebody asks.
    changed: Option<Changed<K, I>>,
    /// The copy that is being made.
    copying: Option<Copying<K, I, V>>,
}

/// Rows as data: each with its key, and the id that it is found by unless that means another row. Keys stay what they
/// were: rows name each other by them.
pub(crate) type Rows<K, I, V> = Vec<(K, Option<I>, V)>;

/// All rows as they were at one moment, copied in part.
#[derive(Clone, Debug)]
struct Copying<K, I, V> {
    copied: Rows<K, I, V>,
    /// The next row to copy, and where rows ended.
    left: Range<usize>,
    /// What changed before its turn, as it was; nothing for rows that were not there.
    ahead: Lookup<usize, Option<(Option<I>, V)>>,
}

/// From so many on, notes of changes are tidied before there is room made for more.
const MANY: usize = 4096;

/// Rows that may be other than they were.
#[derive(Clone, Debug)]
pub(crate) struct Changed<K, I> {
    /// Rows that were there when they were touched; some more than once.
    pub(crate) touched: Vec<K>,
    /// Ids of rows that were removed.
    pub(crate) removed: Vec<I>,
}

impl<K, I> Default for Changed<K, I> {
    fn default() -> Self {
        Self { touched: Vec::new(), removed: Vec::new() }
    }
}

impl<K, I, V> Default for Table<K, I, V> {
    fn default() -> Self {
        Self { rows: Slab::new(), by_id: Lookup::default(), key: PhantomData, changed: None, copying: None }
    }
}

impl<K: Key, I: Hash + Eq + Clone, V: Row<I>> Table<K, I, V> {
    /// Adds a row. Its id means this row from now on.
    pub(crate) fn insert(&mut self, row: V) -> K {
        let (id, key) = (row.id(), K::at(self.rows.vacant_key()));
        self.copy_ahead(key);
        if self.copying.is_some() {
            self.by_id.get(&id).copied().into_iter().for_each(|before| self.copy_ahead(before));
        }
        self.rows.insert(row);
        self.by_id.insert(id, key);
        self.touch(key);
        key
    }

    /// Removes a row. Its id is forgotten only while it still means this row.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        self.copy_ahead(key);
        let row = self.rows.try_remove(key.row())?;
        let id = row.id();
        if self.by_id.get(&id) == Some(&key) {
            self.by_id.remove(&id);
        }
        if let Some(changed) = &mut self.changed {
            changed.removed.push(id);
        }
        Some(row)
    }

    pub(crate) fn key<Q>(&self, id: &Q) -> Option<K>
    where
        I: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.by_id.get(id).copied()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        self.rows.get(key.row())
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.touch(key);
        self.copy_ahead(key);
        self.rows.get_mut(key.row())
    }

    pub(crate) fn find(&self, id: &I) -> Option<(K, &V)> {
        let key = self.key(id)?;
        Some((key, self.get(key)?))
    }

    /// All rows, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.rows.iter().map(|(row, value)| (K::at(row), value))
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        self.rows.iter().map(|(row, _)| K::at(row)).collect()
    }

    /// Keeps note of changes from now on.
    pub(crate) fn watch(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// What changed since this was last asked. Nothing is noted before [`Table::watch`].
    pub(crate) fn take_changed(&mut self) -> Changed<K, I> {
        let mut changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        changed.touched.sort_unstable();
        changed.touched.dedup();
        changed
    }

    /// Notes a change of what others see of a row, though the row itself stays as it is.
    pub(crate) fn note(&mut self, key: K) {
        self.touch(key);
    }

    fn touch(&mut self, key: K) {
        let Some(changed) = &mut self.changed else { return };
        if changed.touched.last() == Some(&key) {
            return;
        }
        // However long nobody asks, a row is listed about once.
        if changed.touched.len() == changed.touched.capacity() && changed.touched.len() >= MANY {
            changed.touched.sort_unstable();
            changed.touched.dedup();
        }
        changed.touched.push(key);
    }
}

impl<K: Key, I: Hash + Eq + Clone, V: Row<I>> Table<K, I, V> {
    /// Begins to copy all rows as they are now.
    pub(crate) fn begin_copy(&mut self) {
        let end = self.rows.iter().next_back().map_or(0, |(row, _)| row + 1);
        let copied = Rows::with_capacity(self.rows.len());
        self.copying = Some(Copying { copied, left: 0..end, ahead: Lookup::default() });
    }

    /// Copies the next `most` rows, with `picture` for those that are as they were. Tells how many more it could have.
    pub(crate) fn copy_some(&mut self, most: usize, picture: impl Fn(&V) -> V) -> usize {
        let Some(Copying { copied, left, ahead }) = &mut self.copying else { return most };
        let part = left.start..left.end.min(left.start.saturating_add(most));
        left.start = part.end;
        let more = most - part.len();
        for row in part {
            let as_it_is = || as_kept(&self.rows, &self.by_id, K::at(row), &picture);
            let as_it_was = ahead.remove(&row).unwrap_or_else(as_it_is);
            copied.extend(as_it_was.map(|(id, value)| (K::at(row), id, value)));
        }
        more
    }

    /// The copy, once it is whole.
    pub(crate) fn take_copy(&mut self) -> Rows<K, I, V> {
        self.copying.take().map(|copying| copying.copied).unwrap_or_default()
    }

    /// Before a row changes: copies it if its turn has not come.
    fn copy_ahead(&mut self, key: K) {
        let Some(Copying { left, ahead, .. }) = &mut self.copying else { return };
        if left.contains(&key.row()) && !ahead.contains_key(&key.row()) {
            ahead.insert(key.row(), as_kept(&self.rows, &self.by_id, key, V::picture));
        }
    }
}

/// A row as it is kept, with the id that it is found by.
fn as_kept<K: Key, I: Hash + Eq, V: Row<I>>(
    rows: &Slab<V>,
    by_id: &Lookup<I, K>,
    key: K,
    picture: impl Fn(&V) -> V,
) -> Option<(Option<I>, V)> {
    let row = rows.get(key.row())?;
    let id = Some(row.id()).filter(|id| by_id.get(id) == Some(&key));
    Some((id, picture(row)))
}

impl<K: Key, I: Hash + Eq, V> From<Rows<K, I, V>> for Table<K, I, V> {
    fn from(list: Rows<K, I, V>) -> Self {
        let mut by_id = Lookup::with_capacity_and_hasher(list.len(), FixedState::default());
        let keep = |(key, id, row): (K, Option<I>, V)| {
            id.map(|id| by_id.insert(id, key));
            (key.row(), row)
        };
        let rows = list.into_iter().map(keep).collect();
        Self { rows, by_id, ..Self::default() }
    }
}
