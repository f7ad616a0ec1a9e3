//! Rows with small stable keys, found by their outside id.
//!
//! Ids are texts and UUIDs; the core links its rows by four-byte keys instead. A freed key is used again, last freed
//! first, so the same events give the same keys. The hash map is only ever asked, never walked.

use std::collections::HashMap;
use std::hash::Hash;
use std::marker::PhantomData;

use foldhash::fast::FixedState;
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
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
}

impl<K, I, V> Default for Table<K, I, V> {
    fn default() -> Self {
        Self { rows: Slab::new(), by_id: Lookup::default(), key: PhantomData }
    }
}

impl<K: Key, I: Hash + Eq, V> Table<K, I, V> {
    /// Adds a row under `id`, which takes the place of an older meaning of that id.
    pub(crate) fn insert(&mut self, id: I, row: V) -> K {
        let key = K::at(self.rows.insert(row));
        self.by_id.insert(id, key);
        key
    }

    /// Removes a row. Its id is forgotten only while it still means this row.
    pub(crate) fn remove(&mut self, id: &I, key: K) -> Option<V> {
        if self.by_id.get(id) == Some(&key) {
            self.by_id.remove(id);
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
}
