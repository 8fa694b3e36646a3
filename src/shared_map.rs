//! The one concurrent map. No guard ever leaves it, so none can be held across an await.
//!
//! `dashmap` appears here and nowhere else.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

/// A concurrent map from `K` to `V`, whose values are handed out as clones.
pub struct SharedMap<K, V> {
    inner: DashMap<K, V>,
}

impl<K: Eq + Hash, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { inner: DashMap::new() }
    }
}

impl<K: Eq + Hash, V> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMap").field("len", &self.inner.len()).finish()
    }
}

impl<K: Eq + Hash, V> SharedMap<K, V> {
    /// Puts `value` under `key` and returns what was there.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.inner.insert(key, value)
    }

    /// Takes the value under `key` out.
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.inner.remove(key).map(|(_, value)| value)
    }

    /// Takes the value under `key` out if `wanted` says so.
    pub fn remove_if<Q: Eq + Hash + ?Sized>(&self, key: &Q, wanted: impl FnOnce(&V) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.inner.remove_if(key, |_, value| wanted(value)).map(|(_, value)| value)
    }

    /// Reads the value under `key` in place. `read` must not touch this map.
    pub fn with<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.inner.get(key).map(|value| read(value.value()))
    }

    /// Changes the value under `key` in place. `change` must not touch this map.
    pub fn update<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, change: impl FnOnce(&mut V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.inner.get_mut(key).map(|mut value| change(value.value_mut()))
    }

    /// Changes the value under `key` in place, made first if it is not there. `change` must not touch this map.
    pub fn update_or_insert<R>(&self, key: K, make: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> R) -> R {
        match self.inner.entry(key) {
            Entry::Occupied(mut entry) => change(entry.get_mut()),
            Entry::Vacant(entry) => change(entry.insert(make()).value_mut()),
        }
    }

    /// Calls `visit` for every entry, in no order. `visit` must not touch this map.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        for entry in &self.inner {
            visit(entry.key(), entry.value());
        }
    }

    /// Keeps the entries that `wanted` accepts. `wanted` must not touch this map.
    pub fn retain(&self, mut wanted: impl FnMut(&K, &V) -> bool) {
        self.inner.retain(|key, value| wanted(key, value));
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

impl<K: Eq + Hash, V: Clone> SharedMap<K, V> {
    /// A clone of the value under `key`.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.inner.get(key).map(|value| value.value().clone())
    }
}
