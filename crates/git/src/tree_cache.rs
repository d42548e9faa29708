//! A cache of unpacked large trees.
//!
//! Unpacking a folder of thousands of files takes longer than everything else that a page of it needs. One cache of
//! bounded size serves all repositories: the id of a tree is the digest of its content, so it means the same in all of
//! them.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use gix::ObjectId;
use lru::LruCache;

/// Smaller trees are not cached; this is some hundred files.
const MIN_TREE_SIZE: usize = 32 * 1024;
/// Larger trees are not cached.
const MAX_TREE_SIZE: usize = 4 * 1024 * 1024;
/// The maximum size of all cached trees.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;

static CACHE: LazyLock<Mutex<TreeCache>> =
    LazyLock::new(|| Mutex::new(TreeCache { trees: LruCache::unbounded(), bytes: 0 }));

struct TreeCache {
    trees: LruCache<ObjectId, Arc<[u8]>>,
    bytes: usize,
}

/// Returns a cached tree.
pub(crate) fn get(id: &gix::oid) -> Option<Arc<[u8]>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner).trees.get(id).map(Arc::clone)
}

/// Caches a tree if its size is in the range, and evicts the least recently used ones.
pub(crate) fn insert(id: &gix::oid, data: &[u8]) {
    if !(MIN_TREE_SIZE..=MAX_TREE_SIZE).contains(&data.len()) {
        return;
    }
    let data = Arc::from(data);
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    cache.insert_tree(id.to_owned(), data);
}

impl TreeCache {
    fn insert_tree(&mut self, id: ObjectId, data: Arc<[u8]>) {
        self.bytes += data.len();
        if let Some(replaced) = self.trees.put(id, data) {
            self.bytes -= replaced.len();
        }
        while self.bytes > MAX_CACHED_BYTES
            && let Some((_, dropped)) = self.trees.pop_lru()
        {
            self.bytes -= dropped.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_cache_is_bounded() {
        let mut cache = TreeCache { trees: LruCache::unbounded(), bytes: 0 };
        let id = |number: u8| ObjectId::Sha1([number; 20]);
        let tree: Arc<[u8]> = vec![0; MAX_TREE_SIZE].into();
        for number in 0..10 {
            cache.insert_tree(id(number), Arc::clone(&tree));
            cache.insert_tree(id(number), Arc::clone(&tree));
        }
        let kept: Vec<_> = cache.trees.iter().map(|(id, _)| id.as_bytes()[0]).collect();
        assert_eq!(kept, [9, 8, 7, 6]);
        assert_eq!(cache.bytes, MAX_CACHED_BYTES);
    }
}
