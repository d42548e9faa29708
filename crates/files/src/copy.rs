//! Copies files from one store to another.

use std::collections::HashMap;

use crate::{Error, FileEntry, Files, WriteError};

/// How two stores differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys that only the source has, or that the target has with another size; with their sizes in the source.
    pub missing: Vec<(String, u64)>,
    /// Keys that only the target has.
    pub extra: Vec<String>,
    /// The number of keys that both have with the same size.
    pub common: u64,
}

impl Files {
    /// Compares the keys for which `is_compared` returns `true`, and their sizes, with those of another store. Blocking.
    ///
    /// Keys are written once, so a key with the same size has the same content.
    pub fn compare(&self, target: &Self, is_compared: &dyn Fn(&str) -> bool) -> Result<Difference, Error> {
        let mut missing = HashMap::new();
        self.list("", &mut |FileEntry { key, size, .. }| {
            if is_compared(&key) {
                missing.insert(key, size);
            }
            Ok(())
        })?;
        let mut difference = Difference::default();
        target.list("", &mut |FileEntry { key, size, .. }| {
            match missing.get(&key) {
                Some(wanted) if *wanted == size => {
                    missing.remove(&key);
                    difference.common += 1;
                }
                None if is_compared(&key) => difference.extra.push(key),
                _ => {}
            }
            Ok(())
        })?;
        difference.missing = missing.into_iter().collect();
        Ok(difference)
    }

    /// Copies a key to another store, verified on the way; returns its size once it is durable, or `None` if it does not
    /// exist.
    pub async fn copy(&self, key: &str, target: &Self) -> Result<Option<u64>, Error> {
        let Some(content) = self.read(key, None).await? else { return Ok(None) };
        let size = content.size;
        match target.write(key, size, content.bytes).await {
            Ok(written) if written == size => Ok(Some(size)),
            Ok(_) => {
                target.remove(&[key.to_owned()]).await?;
                Err(Error::ChangedMeanwhile(key.to_owned()))
            }
            Err(WriteError::TooLarge) => Err(Error::ChangedMeanwhile(key.to_owned())),
            Err(WriteError::Source(error)) => Err(error.into()),
            Err(WriteError::Failed(error)) => Err(error),
        }
    }
}
