//! Caches of jobs, stored on this machine. A failure of a cache never fails a job.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The folder of caches.
pub(crate) struct Caches {
    folder: PathBuf,
    max_bytes: u64,
}

impl Caches {
    pub(crate) fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self { folder, max_bytes }
    }

    /// Returns the path of the cache of a project with this key. Projects never share a cache.
    pub(crate) fn path(&self, server: &str, project: &str, key: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{server}\n{project}\n{key}"));
        self.folder.join(format!("{:x}.zip", Bytes::copy_from_slice(&digest)))
    }

    /// Replaces a cache with a new archive.
    pub(crate) fn store(&self, archive: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
        archive.persist(path).map_err(|error| error.error)?;
        self.prune();
        Ok(())
    }

    /// Creates a temporary file in the folder of caches.
    pub(crate) fn create_temp_file(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(".new-").tempfile_in(&self.folder)
    }

    /// Removes the oldest caches until the rest is within the limit.
    fn prune(&self) {
        let mut found: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "zip"))
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        found.sort();
        let mut total: u64 = found.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in found {
            if total <= self.max_bytes {
                return;
            }
            if fs::remove_file(path).is_ok() {
                total -= size;
            }
        }
    }
}

/// Returns the key of a cache as text.
pub(crate) fn key_text(key_value: &Value) -> String {
    match key_value {
        Value::Null => "default".to_owned(),
        Value::String(text) if text.is_empty() => "default".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn projects_share_no_cache_and_the_oldest_are_pruned() {
        let folder = tempfile::tempdir().expect("a folder");
        let caches = Caches::new(folder.path().to_owned(), 25);
        let paths = ["1", "2", "3"].map(|project| caches.path("http://x", project, "../../key"));
        assert!(paths[0] != paths[1] && paths.iter().all(|path| path.parent() == Some(folder.path())));
        for (age, path) in paths.iter().enumerate() {
            let mut archive = caches.create_temp_file().expect("begun");
            archive.write_all(b"ten bytes!").expect("written");
            let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + age as u64);
            archive.as_file().set_modified(modified).expect("set");
            caches.store(archive, path).expect("kept");
        }
        assert_eq!(paths.map(|path| path.exists()), [false, true, true]);
    }
}
