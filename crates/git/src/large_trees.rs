//! Large folders that were read lately, unpacked.
//!
//! To unpack a folder of thousands of files takes longer than everything else a page of it needs. One store serves all
//! repositories: the name of a tree is the digest of its content, so it means the same in each of them, and what is
//! kept in all is bounded.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use gix::ObjectId;
use lru::LruCache;

/// From how many bytes on a folder is large: some hundred files.
const LARGE: usize = 32 * 1024;
/// Larger ones are not kept.
const LARGEST: usize = 4 * 1024 * 1024;
/// How many bytes are kept in all.
const MOST: usize = 16 * 1024 * 1024;

static STORE: LazyLock<Mutex<Store>> = LazyLock::new(|| Mutex::new(Store { trees: LruCache::unbounded(), bytes: 0 }));

struct Store {
    trees: LruCache<ObjectId, Arc<[u8]>>,
    bytes: usize,
}

/// A tree that is kept.
pub(crate) fn find(id: &gix::oid) -> Option<Arc<[u8]>> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner).trees.get(id).map(Arc::clone)
}

/// Keeps a tree, if it is large but not too large, and lets go of those that nobody has asked for the longest.
pub(crate) fn keep(id: &gix::oid, data: &[u8]) {
    if !(LARGE..=LARGEST).contains(&data.len()) {
        return;
    }
    let data = Arc::from(data);
    let mut store = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    store.add(id.to_owned(), data);
}

impl Store {
    fn add(&mut self, id: ObjectId, data: Arc<[u8]>) {
        self.bytes += data.len();
        if let Some(replaced) = self.trees.put(id, data) {
            self.bytes -= replaced.len();
        }
        while self.bytes > MOST
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
    fn what_is_kept_is_bounded() {
        let mut store = Store { trees: LruCache::unbounded(), bytes: 0 };
        let id = |number: u8| ObjectId::Sha1([number; 20]);
        let tree: Arc<[u8]> = vec![0; LARGEST].into();
        for number in 0..10 {
            store.add(id(number), Arc::clone(&tree));
            store.add(id(number), Arc::clone(&tree));
        }
        let kept: Vec<_> = store.trees.iter().map(|(id, _)| id.as_bytes()[0]).collect();
        assert_eq!(kept, [9, 8, 7, 6]);
        assert_eq!(store.bytes, MOST);
    }
}
