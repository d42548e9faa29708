//! Bytes by key, in a folder. Knows no users, no SQL and no HTTP.
//!
//! What is written is on disk before it is acknowledged, and what was not written to its end leaves nothing behind, a
//! crash aside: removing the key then removes the rest too.

pub mod disk_space;
pub mod logs;
pub mod spool;

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use object_store::{
    GetOptions, GetResultPayload, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload,
    local::LocalFileSystem, path::Path as Location,
};
use tokio::{runtime::Handle, task::spawn_blocking};

/// How much is collected in memory before it is written; an object store across the network will want more.
const PART: usize = 64 * 1024;
/// How much is read at a time.
const PIECE: usize = 64 * 1024;

/// A place for files; cheap to clone.
#[derive(Clone)]
pub struct Files {
    store: Arc<dyn ObjectStore>,
    /// Where the store keeps them: it leaves some things undone that only whoever knows the folder can do.
    folder: Arc<Path>,
}

/// What a key holds.
pub struct Content {
    /// How many bytes there are, whatever range was asked for.
    pub size: u64,
    /// The bytes, read as they are asked for.
    pub bytes: BoxStream<'static, io::Result<Bytes>>,
}

/// Why a place for files did not do what it was asked to.
#[derive(Debug)]
pub struct Error {
    text: String,
    full: bool,
}

/// Why something was not written. Nothing of it is kept.
#[derive(Debug)]
pub enum WriteError<E> {
    /// There was more than allowed.
    TooLarge,
    /// Where it came from, it ended early.
    Source(E),
    /// It could not be kept.
    Failed(Error),
}

impl Files {
    /// Keeps files in a folder, which is made if it is not there.
    pub fn in_folder(path: &Path) -> Result<Self, Error> {
        let unusable =
            |error: &dyn fmt::Display| Error::new(format!("cannot use the folder {}: {error}", path.display()));
        fs::create_dir_all(path).map_err(|error| unusable(&error))?;
        let folder = path.canonicalize().map_err(|error| unusable(&error))?;
        let parent = folder.parent().map_or(Ok(()), sync_folder);
        parent.and_then(|()| sync_folder(&folder)).map_err(|error| unusable(&error))?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| unusable(&error))?;
        Ok(Self { store: Arc::new(store.with_fsync(true)), folder: folder.into() })
    }

    /// Writes what comes, up to so many bytes, and answers how many it were once they are on disk.
    pub async fn write<E>(
        &self,
        key: &str,
        most: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<u64, WriteError<E>> {
        let mut upload = self.begin(key).await.map_err(WriteError::Failed)?;
        let written = match fill(&mut *upload, most, content).await {
            Ok(size) => self.finish(&mut *upload, key).await.map(|()| size).map_err(WriteError::Failed),
            Err(error) => Err(error),
        };
        if written.is_err() {
            // The first trouble is the one to tell.
            let _ = upload.abort().await;
            let _ = self.remove(&[key.to_owned()]).await;
        }
        written
    }

    /// Reads a key, or a range of it; `None` if there is nothing.
    pub async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Content>, Error> {
        let found = match self.store.get_opts(&location(key)?, GetOptions::new().with_range(range)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = found.meta.size;
        let bytes = match found.payload {
            GetResultPayload::File(file, _) => pieces(file, found.range),
            GetResultPayload::Stream(stream) => stream.map_err(io::Error::other).boxed(),
        };
        Ok(Some(Content { size, bytes }))
    }

    /// Removes keys for good, with what a crash has left of writing them; those that are not there are fine.
    ///
    /// Their folder stays, since somebody may be about to write into it; see [`Self::remove_folder`].
    pub async fn remove(&self, keys: &[String]) -> Result<(), Error> {
        for key in keys {
            match self.store.delete(&location(key)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (folder, keys) = (Arc::clone(&self.folder), keys.to_vec());
        blocking(move || {
            for key in &keys {
                remove_unfinished(&folder.join(key))?;
            }
            sync_above(&folder, &keys)
        })
        .await
    }

    /// Removes the folder in which keys were, if none is left and none will come.
    pub async fn remove_folder(&self, folder: &str) -> Result<(), Error> {
        let (root, key) = (Arc::clone(&self.folder), folder.to_owned());
        blocking(move || match fs::remove_dir(root.join(&key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_above(&root, &[key]),
        })
        .await
    }

    /// The folder in which they lie, for whoever looks after it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    async fn begin(&self, key: &str) -> Result<Box<dyn MultipartUpload>, Error> {
        let (store, location) = (Arc::clone(&self.store), location(key)?);
        // A folder's store makes and syncs folders right here, which must not hold an async worker.
        let begun = spawn_blocking(move || Handle::current().block_on(store.put_multipart(&location))).await;
        Ok(begun.map_err(|error| Error::of(&error))??)
    }

    async fn finish(&self, upload: &mut dyn MultipartUpload, key: &str) -> Result<(), Error> {
        upload.complete().await?;
        // The store syncs the folder it writes into and those it makes, but not one that another write has just made.
        let (root, folder) =
            (Arc::clone(&self.folder), key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned());
        blocking(move || sync_above(&root, &[folder])).await
    }
}

/// Where a key lies. Keys are ours, so one that needs escaping is a mistake.
fn location(key: &str) -> Result<Location, Error> {
    Location::parse(key).map_err(|error| Error::of(&error))
}

/// Writes part by part, so that memory does not grow with what comes.
async fn fill<E>(
    upload: &mut dyn MultipartUpload,
    most: u64,
    content: impl Stream<Item = Result<Bytes, E>> + Send,
) -> Result<u64, WriteError<E>> {
    let mut content = pin!(content);
    let mut part = BytesMut::new();
    let mut size = 0;
    while let Some(piece) = content.next().await {
        let piece = piece.map_err(WriteError::Source)?;
        size += piece.len() as u64;
        if size > most {
            return Err(WriteError::TooLarge);
        }
        part.extend_from_slice(&piece);
        if part.len() >= PART {
            put(upload, &mut part).await?;
        }
    }
    if !part.is_empty() {
        put(upload, &mut part).await?;
    }
    Ok(size)
}

async fn put<E>(upload: &mut dyn MultipartUpload, part: &mut BytesMut) -> Result<(), WriteError<E>> {
    let part = PutPayload::from(std::mem::take(part).freeze());
    upload.put_part(part).await.map_err(|error| WriteError::Failed(error.into()))
}

/// The bytes of a file. The store's own stream hops to another thread for every 8 KiB.
fn pieces(file: File, range: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
    stream::try_unfold((file, range), |(mut file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            file.seek(SeekFrom::Start(range.start))?;
            let mut piece = Vec::with_capacity(PIECE.min(usize::try_from(range.end - range.start).unwrap_or(PIECE)));
            (&mut file).take(piece.capacity() as u64).read_to_end(&mut piece)?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let rest = range.start + piece.len() as u64..range.end;
            Ok(Some((Bytes::from(piece), (file, rest))))
        });
        read.await.map_err(io::Error::other)?
    })
    .boxed()
}

/// Removes the files beside the path into which the store writes before it renames.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    for number in 1.. {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(format!("#{number}"));
        match fs::remove_file(unfinished) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the entries of all folders between the keys and the root durable.
fn sync_above(root: &Path, keys: &[String]) -> io::Result<()> {
    let mut folders: Vec<PathBuf> = keys
        .iter()
        .flat_map(|key| Path::new(key).ancestors().skip(1).map(|folder| root.join(folder)).collect::<Vec<_>>())
        .collect();
    folders.sort_unstable();
    folders.dedup();
    folders.iter().try_for_each(|folder| match sync_folder(folder) {
        // Nothing was ever written there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    })
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

async fn blocking(f: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), Error> {
    let done = spawn_blocking(f).await.map_err(|error| Error::of(&error))?;
    done.map_err(|error| Error::of(&error))
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        Self::of(&error)
    }
}

impl Error {
    fn new(text: String) -> Self {
        Self { text, full: false }
    }

    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let full = causes.any(|cause| cause.downcast_ref().is_some_and(disk_space::is_full));
        Self { text: error.to_string(), full }
    }

    /// Whether there was no room left.
    pub fn is_full(&self) -> bool {
        self.full
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn place() -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files::in_folder(&folder.path().join("files")).expect("a place");
        (folder, files)
    }

    fn given(pieces: &[&'static str]) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
        stream::iter(pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect::<Vec<_>>())
    }

    async fn text(files: &Files, range: Option<Range<u64>>) -> String {
        let content = files.read("a/1", range).await.expect("read").expect("there");
        let bytes: BytesMut = content.bytes.try_collect().await.expect("whole");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    /// All files and folders, whatever they are.
    fn everything(files: &Files) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![files.folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                found.push(path.strip_prefix(&files.folder).expect("inside").display().to_string());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found.sort();
        found
    }

    #[tokio::test]
    async fn what_is_written_can_be_read_in_whole_and_in_part_until_it_is_removed() {
        let (_folder, files) = place();
        assert_eq!(files.write("a/1", 100, given(&["hello ", "", "world"])).await.expect("written"), 11);
        assert_eq!(everything(&files), ["a", "a/1"]);
        assert_eq!(text(&files, None).await, "hello world");
        assert_eq!(text(&files, Some(4..7)).await, "o w");
        assert_eq!(files.read("a/1", Some(4..7)).await.expect("read").expect("there").size, 11);
        let key = ["a/1".to_owned()];
        files.remove(&key).await.expect("removed");
        files.remove(&key).await.expect("removed already");
        assert!(files.read("a/1", None).await.expect("asked").is_none());
        files.remove_folder("a").await.expect("removed");
        files.remove_folder("a").await.expect("removed already");
        assert_eq!(everything(&files), [] as [&str; 0]);
    }

    #[tokio::test]
    async fn nothing_at_all_and_many_parts_are_content_too() {
        let (_folder, files) = place();
        assert_eq!(files.write("a/1", 0, given(&[])).await.expect("written"), 0);
        assert_eq!(text(&files, None).await, "");
        let letters: Vec<Bytes> = (0..40_u8).map(|number| Bytes::from(vec![b'a' + number % 26; 70_000])).collect();
        let content = stream::iter(letters.clone().into_iter().map(Ok::<_, Infallible>));
        assert_eq!(files.write("a/1", 40 * 70_000, content).await.expect("written"), 40 * 70_000);
        assert_eq!(text(&files, None).await.as_bytes(), letters.concat());
    }

    #[tokio::test]
    async fn what_is_too_large_or_ends_early_leaves_nothing() {
        let (_folder, files) = place();
        let written = files.write("a/1", 10, given(&["hello ", "world"])).await;
        assert!(matches!(written, Err(WriteError::TooLarge)));
        let broken = stream::iter([Ok(Bytes::from(vec![0; 2 * PART])), Err("gone")]);
        let written = files.write("a/1", u64::MAX, broken).await;
        assert!(matches!(written, Err(WriteError::Source("gone"))));
        assert_eq!(everything(&files), ["a"]);
    }

    #[tokio::test]
    async fn what_a_crash_left_of_a_write_goes_with_its_key() {
        let (_folder, files) = place();
        files.write("a/1", 10, given(&["x"])).await.expect("written");
        for unfinished in ["a/1#1", "a/1#2", "a/2#1"] {
            fs::write(files.folder.join(unfinished), "half").expect("planted");
        }
        files.remove(&["a/1".to_owned()]).await.expect("removed");
        assert_eq!(everything(&files), ["a", "a/2#1"]);
        assert!(files.remove_folder("a").await.is_err());
    }

    /// A killed process does not show what a power cut would: the setting itself is held.
    #[tokio::test]
    async fn a_write_waits_for_the_disk() {
        let (_folder, files) = place();
        assert!(format!("{:?}", files.store).contains("fsync: true"));
    }
}
