//! Rows with small stable keys, found by their outside id.
//!
//! Ids are texts and UUIDs; the core links its rows by four-byte keys instead. A freed key is used again, last freed
//! first, so the same events give the same keys. The hash map is only ever asked, never walked.

use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;

use foldhash::fast::FixedState;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

/// Rows of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, I, V> {
    rows: Slab<V>,
    by_id: Lookup<I, K>,
    key: PhantomData<K>,
    /// What changed since it was last asked, once somebody asks.
    changed: Option<Changed<K, I>>,
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
        Self { rows: Slab::new(), by_id: Lookup::default(), key: PhantomData, changed: None }
    }
}

impl<K: Key, I: Hash + Eq + Clone, V> Table<K, I, V> {
    /// Adds a row under `id`, which takes the place of an older meaning of that id.
    pub(crate) fn insert(&mut self, id: I, row: V) -> K {
        let key = K::at(self.rows.insert(row));
        self.by_id.insert(id, key);
        self.touch(key);
        key
    }

    /// Removes a row. Its id is forgotten only while it still means this row.
    pub(crate) fn remove(&mut self, id: &I, key: K) -> Option<V> {
        if self.by_id.get(id) == Some(&key) {
            self.by_id.remove(id);
        }
        if let Some(changed) = &mut self.changed {
            changed.removed.push(id.clone());
        }
        self.rows.try_remove(key.row())
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

/// As a list of keys, the id under which each is found, and rows. Keys stay what they were: rows name each other by them.
impl<K: Key + Serialize, I: Serialize, V: Serialize> Serialize for Table<K, I, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ids: Lookup<K, &I> = self.by_id.iter().map(|(id, key)| (*key, id)).collect();
        serializer.collect_seq(self.rows.iter().map(|(row, value)| (K::at(row), ids.get(&K::at(row)), value)))
    }
}

impl<'de, K: Key + Deserialize<'de>, I: Deserialize<'de> + Hash + Eq, V: Deserialize<'de>> Deserialize<'de>
    for Table<K, I, V>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<(K, Option<I>, V)>::deserialize(deserializer)?;
        let mut by_id = Lookup::default();
        let mut rows = Vec::with_capacity(list.len());
        for (key, id, row) in list {
            id.map(|id| by_id.insert(id, key));
            rows.push((key.row(), row));
        }
        Ok(Self { rows: rows.into_iter().collect(), by_id, key: PhantomData, changed: None })
    }
}
