//! Append-only files that are read while they grow, such as job traces, identified by a folder and a number.
//!
//! Appended bytes are on disk before they are acknowledged. The caller passes the offset to append at, and bytes beyond
//! it are cut off: they were written by a process that died before it acknowledged them.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use tokio::task::spawn_blocking;

use crate::{Error, optional, read_chunks, sync_folder};

/// A store of logs; cheap to clone.
#[derive(Clone)]
pub struct Logs {
    folder: Arc<Path>,
}

/// Identifies a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogKey {
    /// The name of its folder.
    pub folder: Arc<str>,
    /// Its number within the folder.
    pub number: i64,
}

/// The extensions of the two sidecar files of a log: one holds the current version, the other the next one.
const SIDECAR_EXTENSIONS: [&str; 2] = ["aside-0", "aside-1"];

impl Logs {
    /// Opens the store in a folder, which is created if it does not exist.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let unusable = |error: io::Error| Error::unusable_folder(path, error);
        fs::create_dir_all(path).map_err(unusable)?;
        let folder = path.canonicalize().map_err(unusable)?;
        folder.parent().map_or(Ok(()), sync_folder).map_err(unusable)?;
        Ok(Self { folder: folder.into() })
    }

    /// Writes bytes at an offset within a log or at its end, and truncates the log after them. They are on disk on
    /// return.
    ///
    /// The caller must be the only one that appends to this log.
    pub async fn append(&self, key: &LogKey, at: u64, bytes: Bytes) -> Result<(), Error> {
        let path = self.path(key);
        run_blocking(move || {
            let mut file = open_or_create(&path)?;
            let size = file.metadata()?.len();
            if size < at {
                return Err(io::Error::other(format!("the log has {size} bytes, but {at} were acknowledged")));
            }
            if size > at {
                file.set_len(at)?;
            }
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&bytes)?;
            file.sync_data()
        })
        .await
    }

    /// Returns the size of a log, acknowledged or not; `None` if it does not exist.
    pub async fn size(&self, key: &LogKey) -> Result<Option<u64>, Error> {
        let path = self.path(key);
        run_blocking(move || Ok(optional(fs::metadata(path))?.map(|data| data.len()))).await
    }

    /// Reads an acknowledged range of a log in chunks; `None` if the log does not exist.
    pub async fn read(
        &self,
        key: &LogKey,
        range: Range<u64>,
    ) -> Result<Option<BoxStream<'static, io::Result<Bytes>>>, Error> {
        let path = self.path(key);
        let file = run_blocking(move || optional(File::open(path))).await?;
        Ok(file.map(|file| read_chunks(file, range)))
    }

    /// Reads a small range of a log into memory; the result is shorter if the log is.
    pub async fn read_range(&self, key: &LogKey, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let path = self.path(key);
        run_blocking(move || {
            let Some(mut file) = optional(File::open(path))? else { return Ok(Vec::new()) };
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await
    }

    /// Stores a few bytes next to a log as `version`, durably. The sidecar with the `current` version is preserved.
    pub async fn write_sidecar(&self, key: &LogKey, current: u64, version: u64, bytes: Vec<u8>) -> Result<(), Error> {
        let paths = self.sidecar_paths(key);
        run_blocking(move || {
            let current_index = paths.iter().position(|path| matches!(read_sidecar_file(path, current), Ok(Some(_))));
            let path = &paths[usize::from(current_index == Some(0))];
            let mut file = open_or_create(path)?;
            file.set_len(0)?;
            file.write_all(&[&version.to_be_bytes()[..], &bytes].concat())?;
            file.sync_data()
        })
        .await
    }

    /// Removes the sidecars of a log.
    pub async fn remove_sidecar(&self, key: &LogKey) -> Result<(), Error> {
        let paths = self.sidecar_paths(key);
        run_blocking(move || paths.iter().try_for_each(|path| optional(fs::remove_file(path)).map(drop))).await
    }

    /// Reads the sidecar of a log with this version.
    pub async fn read_sidecar(&self, key: &LogKey, version: u64) -> Result<Option<Vec<u8>>, Error> {
        let paths = self.sidecar_paths(key);
        run_blocking(move || {
            for path in &paths {
                if let Some(bytes) = read_sidecar_file(path, version)? {
                    return Ok(Some(bytes));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Removes logs and their sidecars; logs that do not exist are ignored.
    pub async fn remove(&self, keys: &[LogKey]) -> Result<(), Error> {
        let paths: Vec<PathBuf> =
            keys.iter().flat_map(|key| self.sidecar_paths(key).into_iter().chain([self.path(key)])).collect();
        run_blocking(move || {
            for path in &paths {
                optional(fs::remove_file(path))?;
            }
            let mut folders: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            folders.dedup();
            folders.into_iter().try_for_each(|folder| optional(sync_folder(folder)).map(drop))
        })
        .await
    }

    /// Removes a folder with all its logs.
    pub async fn remove_folder(&self, folder: &str) -> Result<(), Error> {
        let (root, path) = (Arc::clone(&self.folder), self.folder.join(folder));
        run_blocking(move || {
            optional(fs::remove_dir_all(path))?;
            sync_folder(&root)
        })
        .await
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &LogKey) -> PathBuf {
        self.folder.join(&*key.folder).join(key.number.to_string())
    }

    fn sidecar_paths(&self, key: &LogKey) -> [PathBuf; 2] {
        SIDECAR_EXTENSIONS.map(|ending| self.path(key).with_extension(ending))
    }
}

/// Opens a file for writing. A new file and its folders are synced before it is used.
fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if let Some(file) = optional(options.open(path))? {
        return Ok(file);
    }
    let folder = path.parent().unwrap_or(path);
    // Traces may contain secrets, so other users of the machine cannot read them.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = options.create(true).truncate(false).mode(0o600).open(path)?;
    sync_folder(folder)?;
    folder.parent().map_or(Ok(()), sync_folder)?;
    Ok(file)
}

fn read_sidecar_file(path: &Path, version: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(bytes) = optional(fs::read(path))? else { return Ok(None) };
    Ok(bytes.strip_prefix(&version.to_be_bytes()).map(<[u8]>::to_vec))
}

async fn run_blocking<T: Send + 'static>(f: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Error> {
    Ok(spawn_blocking(f).await??)
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    fn key_of(folder: i64, number: i64) -> LogKey {
        LogKey { folder: folder.to_string().into(), number }
    }

    fn key() -> LogKey {
        key_of(1, 7)
    }

    fn temp_logs() -> (tempfile::TempDir, Logs) {
        let folder = tempfile::tempdir().expect("a folder");
        let logs = Logs::open(&folder.path().join("logs")).expect("a store");
        (folder, logs)
    }

    async fn text(logs: &Logs, range: Range<u64>) -> String {
        let bytes = logs.read(&key(), range).await.expect("read").expect("there");
        let bytes: Vec<Bytes> = bytes.try_collect().await.expect("whole");
        String::from_utf8(bytes.concat()).expect("text")
    }

    async fn append(logs: &Logs, at: u64, text: &'static str) {
        logs.append(&key(), at, Bytes::from_static(text.as_bytes())).await.expect("appended");
    }

    #[tokio::test]
    async fn a_log_grows_and_is_read_in_parts_until_it_is_removed() {
        let (_folder, logs) = temp_logs();
        assert!(logs.read(&key(), 0..1).await.expect("asked").is_none());
        assert_eq!(logs.read_range(&key(), 0..10).await.expect("asked"), b"");
        append(&logs, 0, "hello ").await;
        append(&logs, 6, "world").await;
        assert_eq!(text(&logs, 0..11).await, "hello world");
        assert_eq!(logs.size(&key()).await.expect("asked"), Some(11));
        assert_eq!(logs.size(&key_of(1, 8)).await.expect("asked"), None);
        assert_eq!(text(&logs, 4..7).await, "o w");
        assert_eq!(logs.read_range(&key(), 6..100).await.expect("read"), b"world");
        logs.remove(&[key()]).await.expect("removed");
        logs.remove(&[key()]).await.expect("removed already");
        assert!(logs.read(&key(), 0..1).await.expect("asked").is_none());
        append(&logs, 0, "anew").await;
        logs.remove_folder(&key().folder).await.expect("removed");
        logs.remove_folder(&key().folder).await.expect("removed already");
        assert_eq!(logs.read_range(&key(), 0..10).await.expect("asked"), b"");
    }

    #[tokio::test]
    async fn unacknowledged_bytes_are_cut_off() {
        let (_folder, logs) = temp_logs();
        append(&logs, 0, "acknowledged, lost").await;
        append(&logs, 12, "!").await;
        assert_eq!(text(&logs, 0..13).await, "acknowledged!");
        assert_eq!(fs::metadata(logs.path(&key())).expect("a file").len(), 13);
    }

    #[tokio::test]
    async fn appending_beyond_the_end_of_a_log_fails() {
        let (_folder, logs) = temp_logs();
        append(&logs, 0, "short").await;
        let error = logs.append(&key(), 6, Bytes::from_static(b"x")).await.expect_err("refused");
        assert_eq!(error.to_string(), "the log has 5 bytes, but 6 were acknowledged");
    }

    #[tokio::test]
    async fn the_current_sidecar_is_preserved_until_another_version_is_current() {
        let (_folder, logs) = temp_logs();
        logs.write_sidecar(&key(), 0, 10, b"ten".to_vec()).await.expect("stored");
        // Written twice, and neither version is current yet.
        logs.write_sidecar(&key(), 10, 20, b"twenty".to_vec()).await.expect("stored");
        logs.write_sidecar(&key(), 10, 30, b"thirty".to_vec()).await.expect("stored");
        assert_eq!(logs.read_sidecar(&key(), 10).await.expect("read").as_deref(), Some(&b"ten"[..]));
        assert_eq!(logs.read_sidecar(&key(), 20).await.expect("read"), None);
        logs.write_sidecar(&key(), 30, 40, b"forty".to_vec()).await.expect("stored");
        assert_eq!(logs.read_sidecar(&key(), 30).await.expect("read").as_deref(), Some(&b"thirty"[..]));
        assert_eq!(logs.read_sidecar(&key(), 40).await.expect("read").as_deref(), Some(&b"forty"[..]));
        logs.remove(&[key()]).await.expect("removed");
        assert_eq!(logs.read_sidecar(&key(), 40).await.expect("read"), None);
    }

    #[tokio::test]
    async fn many_logs_can_grow_concurrently() {
        let (_folder, logs) = temp_logs();
        let tasks = (0..50).map(|number| {
            let logs = logs.clone();
            tokio::spawn(async move {
                let key = key_of(number % 3, number);
                for at in 0..10 {
                    logs.append(&key, at, Bytes::from(vec![b'0' + u8::try_from(at).expect("small")]))
                        .await
                        .expect("grown");
                }
                logs.read_range(&key, 0..100).await.expect("read")
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(task.await.expect("no panic"), b"0123456789");
        }
    }
}
