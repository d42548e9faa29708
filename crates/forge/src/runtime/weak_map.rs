//! A map whose values live as long as they are in use: locks and semaphores by key.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// With more entries than this, unused ones are removed when another value is requested.
const MAX_UNUSED: usize = 1024;

/// A map that holds its values weakly.
pub struct WeakMap<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> WeakMap<K, V> {
    /// Returns the value of a key, or creates it if it is not in use.
    pub fn get_or_create(&self, key: K, create: impl FnOnce() -> V) -> Arc<V> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() > MAX_UNUSED {
            entries.retain(|_, value| value.strong_count() > 0);
        }
        let entry = entries.entry(key).or_default();
        entry.upgrade().unwrap_or_else(|| {
            let value = Arc::new(create());
            *entry = Arc::downgrade(&value);
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shared_while_it_is_in_use_and_removed_afterwards() {
        let map = WeakMap::default();
        let first = map.get_or_create(0, || 1);
        assert!(Arc::ptr_eq(&first, &map.get_or_create(0, || 2)));
        for key in 1..5000 {
            map.get_or_create(key, || key);
        }
        assert!(map.0.lock().expect("not poisoned").len() <= MAX_UNUSED + 1);
        assert_eq!(*map.get_or_create(0, || 2), 1);
        drop(first);
        assert_eq!(*map.get_or_create(0, || 2), 2);
    }
}
