//! Files that grow at their end while they are read, such as what a job says. Known by a folder and a number.
//!
//! What was appended is on disk before it is acknowledged. Who appends says where, and what lies beyond is cut off: bytes
//! of somebody who died before anybody heard of them.

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

use crate::{Error, pieces, sync_folder};

/// A place for logs; cheap to clone.
#[derive(Clone)]
pub struct Logs {
    folder: Arc<Path>,
}

/// Which log: its folder, and its number there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The name of the folder.
    pub folder: Arc<str>,
    /// The number of the log.
    pub number: i64,
}

/// Where something is kept beside a log: the one place holds what counts, the other what will count next.
const ASIDE: [&str; 2] = ["aside-0", "aside-1"];

impl Logs {
    /// Keeps logs in a folder, which is made if it is not there.
    pub fn in_folder(path: &Path) -> Result<Self, Error> {
        let unusable = |error: io::Error| Error::new(format!("cannot use the folder {}: {error}", path.display()));
        fs::create_dir_all(path).map_err(unusable)?;
        let folder = path.canonicalize().map_err(unusable)?;
        folder.parent().map_or(Ok(()), sync_folder).map_err(unusable)?;
        Ok(Self { folder: folder.into() })
    }

    /// Writes bytes at a place that is inside a log or at its end. The log ends with them then, and they are on disk.
    ///
    /// Nobody else may append to the same log meanwhile.
    pub async fn append(&self, key: &Key, at: u64, bytes: Bytes) -> Result<(), Error> {
        let path = self.path(key);
        blocking(move || {
            let mut file = open_or_make(&path)?;
            let size = file.metadata()?.len();
            if size < at {
                return Err(io::Error::other(format!("a log has {size} bytes, and {at} were acknowledged")));
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

    /// Reads a part of a log that was acknowledged, piece by piece; `None` if there is no such log.
    pub async fn read(
        &self,
        key: &Key,
        range: Range<u64>,
    ) -> Result<Option<BoxStream<'static, io::Result<Bytes>>>, Error> {
        let path = self.path(key);
        let file = blocking(move || found(File::open(path))).await?;
        Ok(file.map(|file| pieces(file, range)))
    }

    /// Reads a small part of a log at once; less if there is less.
    pub async fn part(&self, key: &Key, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let path = self.path(key);
        blocking(move || {
            let Some(mut file) = found(File::open(path))? else { return Ok(Vec::new()) };
            file.seek(SeekFrom::Start(range.start))?;
            let mut bytes = Vec::new();
            file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await
    }

    /// Keeps a few bytes beside a log under a mark, durably. Those of the mark that counts until now stay.
    pub async fn keep_aside(&self, key: &Key, counts: u64, mark: u64, bytes: Vec<u8>) -> Result<(), Error> {
        let paths = self.aside(key);
        blocking(move || {
            let taken = paths.iter().position(|path| matches!(read_aside(path, counts), Ok(Some(_))));
            let path = &paths[usize::from(taken == Some(0))];
            let mut file = open_or_make(path)?;
            file.set_len(0)?;
            file.write_all(&[&mark.to_be_bytes()[..], &bytes].concat())?;
            file.sync_data()
        })
        .await
    }

    /// Forgets what is kept beside a log.
    pub async fn clear_aside(&self, key: &Key) -> Result<(), Error> {
        let paths = self.aside(key);
        blocking(move || paths.iter().try_for_each(|path| found(fs::remove_file(path)).map(drop))).await
    }

    /// What was kept beside a log under a mark.
    pub async fn kept_aside(&self, key: &Key, mark: u64) -> Result<Option<Vec<u8>>, Error> {
        let paths = self.aside(key);
        blocking(move || {
            for path in &paths {
                if let Some(bytes) = read_aside(path, mark)? {
                    return Ok(Some(bytes));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Removes logs for good, with what is kept beside them; those that are not there are fine.
    pub async fn remove(&self, keys: &[Key]) -> Result<(), Error> {
        let paths: Vec<PathBuf> =
            keys.iter().flat_map(|key| self.aside(key).into_iter().chain([self.path(key)])).collect();
        blocking(move || {
            for path in &paths {
                found(fs::remove_file(path))?;
            }
            let mut folders: Vec<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
            folders.dedup();
            folders.into_iter().try_for_each(|folder| found(sync_folder(folder)).map(drop))
        })
        .await
    }

    /// Removes a folder with all its logs.
    pub async fn remove_folder(&self, folder: &str) -> Result<(), Error> {
        let (root, path) = (Arc::clone(&self.folder), self.folder.join(folder));
        blocking(move || {
            found(fs::remove_dir_all(path))?;
            sync_folder(&root)
        })
        .await
    }

    /// The folder in which they lie, for whoever looks after it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(&*key.folder).join(key.number.to_string())
    }

    fn aside(&self, key: &Key) -> [PathBuf; 2] {
        ASIDE.map(|ending| self.path(key).with_extension(ending))
    }
}

/// What is there, if it is.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file for writing. One that is new is on disk with its folders before anything in it counts.
fn open_or_make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if let Some(file) = found(options.open(path))? {
        return Ok(file);
    }
    let folder = path.parent().unwrap_or(path);
    // Nobody else on the machine has to read what jobs say.
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = options.create(true).truncate(false).mode(0o600).open(path)?;
    sync_folder(folder)?;
    folder.parent().map_or(Ok(()), sync_folder)?;
    Ok(file)
}

fn read_aside(path: &Path, mark: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(bytes) = found(fs::read(path))? else { return Ok(None) };
    Ok(bytes.strip_prefix(&mark.to_be_bytes()).map(<[u8]>::to_vec))
}

async fn blocking<T: Send + 'static>(f: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Error> {
    let done = spawn_blocking(f).await.map_err(|error| Error::of(&error))?;
    done.map_err(|error| Error::of(&error))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt as _;

    use super::*;

    fn key_of(folder: i64, number: i64) -> Key {
        Key { folder: folder.to_string().into(), number }
    }

    fn key() -> Key {
        key_of(1, 7)
    }

    fn place() -> (tempfile::TempDir, Logs) {
        let folder = tempfile::tempdir().expect("a folder");
        let logs = Logs::in_folder(&folder.path().join("logs")).expect("a place");
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
        let (_folder, logs) = place();
        assert!(logs.read(&key(), 0..1).await.expect("asked").is_none());
        assert_eq!(logs.part(&key(), 0..10).await.expect("asked"), b"");
        append(&logs, 0, "hello ").await;
        append(&logs, 6, "world").await;
        assert_eq!(text(&logs, 0..11).await, "hello world");
        assert_eq!(text(&logs, 4..7).await, "o w");
        assert_eq!(logs.part(&key(), 6..100).await.expect("read"), b"world");
        logs.remove(&[key()]).await.expect("removed");
        logs.remove(&[key()]).await.expect("removed already");
        assert!(logs.read(&key(), 0..1).await.expect("asked").is_none());
        append(&logs, 0, "anew").await;
        logs.remove_folder(&key().folder).await.expect("removed");
        logs.remove_folder(&key().folder).await.expect("removed already");
        assert_eq!(logs.part(&key(), 0..10).await.expect("asked"), b"");
    }

    #[tokio::test]
    async fn bytes_that_nobody_acknowledged_are_cut_off() {
        let (_folder, logs) = place();
        append(&logs, 0, "acknowledged, lost").await;
        append(&logs, 12, "!").await;
        assert_eq!(text(&logs, 0..13).await, "acknowledged!");
        assert_eq!(fs::metadata(logs.path(&key())).expect("a file").len(), 13);
    }

    #[tokio::test]
    async fn a_log_that_lost_something_is_not_patched_up() {
        let (_folder, logs) = place();
        append(&logs, 0, "short").await;
        let error = logs.append(&key(), 6, Bytes::from_static(b"x")).await.expect_err("refused");
        assert_eq!(error.to_string(), "a log has 5 bytes, and 6 were acknowledged");
    }

    #[tokio::test]
    async fn what_counts_beside_a_log_stays_until_something_else_counts() {
        let (_folder, logs) = place();
        logs.keep_aside(&key(), 0, 10, b"ten".to_vec()).await.expect("kept");
        // Tried twice, and neither counts yet.
        logs.keep_aside(&key(), 10, 20, b"twenty".to_vec()).await.expect("kept");
        logs.keep_aside(&key(), 10, 30, b"thirty".to_vec()).await.expect("kept");
        assert_eq!(logs.kept_aside(&key(), 10).await.expect("read").as_deref(), Some(&b"ten"[..]));
        assert_eq!(logs.kept_aside(&key(), 20).await.expect("read"), None);
        logs.keep_aside(&key(), 30, 40, b"forty".to_vec()).await.expect("kept");
        assert_eq!(logs.kept_aside(&key(), 30).await.expect("read").as_deref(), Some(&b"thirty"[..]));
        assert_eq!(logs.kept_aside(&key(), 40).await.expect("read").as_deref(), Some(&b"forty"[..]));
        logs.remove(&[key()]).await.expect("removed");
        assert_eq!(logs.kept_aside(&key(), 40).await.expect("read"), None);
    }

    #[tokio::test]
    async fn many_logs_grow_at_once() {
        let (_folder, logs) = place();
        let growing = (0..50).map(|number| {
            let logs = logs.clone();
            tokio::spawn(async move {
                let key = key_of(number % 3, number);
                for at in 0..10 {
                    logs.append(&key, at, Bytes::from(vec![b'0' + u8::try_from(at).expect("small")]))
                        .await
                        .expect("grown");
                }
                logs.part(&key, 0..100).await.expect("read")
            })
        });
        for grown in growing.collect::<Vec<_>>() {
            assert_eq!(grown.await.expect("no panic"), b"0123456789");
        }
    }
}
