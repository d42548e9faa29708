//! Files in a folder. A write is synced before it counts.

mod local_files;

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex},
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use object_store::{
    GetOptions, GetResultPayload, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutPayload, local::LocalFileSystem,
};
use tokio::{runtime::Handle, task::spawn_blocking};

use self::local_files::HardLink;
use crate::{Content, Error, WriteError, location};

/// The number of bytes buffered before they are written.
const PART_SIZE: usize = 64 * 1024;
/// The number of bytes read at a time.
const CHUNK_SIZE: usize = 64 * 1024;

/// A store in a folder; cheap to clone.
#[derive(Clone)]
pub(crate) struct Folder {
    store: Arc<dyn ObjectStore>,
    /// The path of the folder, for the durability guarantees that the store itself does not give.
    path: Arc<Path>,
    /// Folders below it that are known to be on disk, so that they are not synced again.
    durable_folders: Arc<Mutex<HashSet<PathBuf>>>,
    /// Replaced by tests, to simulate a file system that cannot link a file.
    hard_link: HardLink,
}

impl Folder {
    /// Opens the store in a folder, which is created if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let unusable = |error: io::Error| Error::unusable_folder(path, error);
        fs::create_dir_all(path).map_err(unusable)?;
        let folder = path.canonicalize().map_err(unusable)?;
        let parent = folder.parent().map_or(Ok(()), sync_folder);
        parent.and_then(|()| sync_folder(&folder)).map_err(unusable)?;
        let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| Error::unusable_folder(path, error))?;
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            path: folder.into(),
            durable_folders: Arc::default(),
            hard_link: |from, to| fs::hard_link(from, to),
        })
    }

    /// See [`crate::Files::write`].
    pub(crate) async fn write<E>(
        &self,
        key: &str,
        max_size: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<u64, WriteError<E>> {
        let mut upload = self.begin_upload(key).await.map_err(WriteError::Failed)?;
        let written = match upload_parts(&mut *upload, max_size, content).await {
            Ok(size) => self.finish_upload(&mut *upload, key).await.map(|()| size).map_err(WriteError::Failed),
            Err(error) => Err(error),
        };
        if written.is_err() {
            // The first error is the one to report.
            let _ = upload.abort().await;
            let _ = self.remove(&[key.to_owned()]).await;
        }
        written
    }

    /// See [`crate::Files::read`].
    pub(crate) async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Content>, Error> {
        let found = match self.store.get_opts(&location(key)?, GetOptions::new().with_range(range)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = found.meta.size;
        let bytes = match found.payload {
            GetResultPayload::File(file, _) => read_chunks(file, found.range),
            GetResultPayload::Stream(stream) => stream.map_err(io::Error::other).boxed(),
        };
        Ok(Some(Content { size, bytes }))
    }

    /// See [`crate::Files::remove`].
    pub(crate) async fn remove(&self, keys: &[String]) -> Result<(), Error> {
        let (files, keys) = (self.clone(), keys.to_vec());
        spawn_blocking(move || files.remove_files(&keys)).await?
    }

    /// See [`crate::Files::remove_folder`].
    pub(crate) async fn remove_folder(&self, folder: &str) -> Result<(), Error> {
        let (root, key) = (Arc::clone(&self.path), folder.to_owned());
        self.durable_folders().remove(&root.join(&key));
        run_blocking(move || match fs::remove_dir(root.join(&key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => sync_ancestors(&root, &[key]),
        })
        .await
    }

    /// Returns the folder of the store.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    async fn begin_upload(&self, key: &str) -> Result<Box<dyn MultipartUpload>, Error> {
        let (store, location) = (Arc::clone(&self.store), location(key)?);
        // The local store creates and syncs folders synchronously, which must not block an async worker.
        let upload = spawn_blocking(move || Handle::current().block_on(store.put_multipart(&location))).await;
        Ok(upload??)
    }

    async fn finish_upload(&self, upload: &mut dyn MultipartUpload, key: &str) -> Result<(), Error> {
        upload.complete().await?;
        // The store syncs the folder it writes into and those it creates, but not one that a concurrent write has just
        // created.
        let (root, folder) = (Arc::clone(&self.path), key.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned());
        run_blocking(move || sync_ancestors(&root, &[folder])).await
    }
}

/// Uploads a stream part by part, so that memory use does not depend on its size.
async fn upload_parts<E>(
    upload: &mut dyn MultipartUpload,
    max_size: u64,
    content: impl Stream<Item = Result<Bytes, E>> + Send,
) -> Result<u64, WriteError<E>> {
    let mut content = pin!(content);
    let mut part = BytesMut::new();
    let mut size = 0;
    while let Some(chunk) = content.next().await {
        let chunk = chunk.map_err(WriteError::Source)?;
        size += chunk.len() as u64;
        if size > max_size {
            return Err(WriteError::TooLarge);
        }
        part.extend_from_slice(&chunk);
        if part.len() >= PART_SIZE {
            put_part(upload, &mut part).await?;
        }
    }
    if !part.is_empty() {
        put_part(upload, &mut part).await?;
    }
    Ok(size)
}

async fn put_part<E>(upload: &mut dyn MultipartUpload, part: &mut BytesMut) -> Result<(), WriteError<E>> {
    let part = PutPayload::from(std::mem::take(part).freeze());
    upload.put_part(part).await.map_err(|error| WriteError::Failed(error.into()))
}

/// Reads a range of a file in chunks. The store's own stream switches threads for every 8 KiB.
pub(crate) fn read_chunks(file: File, range: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
    stream::try_unfold((file, range), |(mut file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let read = spawn_blocking(move || {
            file.seek(SeekFrom::Start(range.start))?;
            let mut chunk =
                Vec::with_capacity(CHUNK_SIZE.min(usize::try_from(range.end - range.start).unwrap_or(CHUNK_SIZE)));
            (&mut file).take(chunk.capacity() as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let rest = range.start + chunk.len() as u64..range.end;
            Ok(Some((Bytes::from(chunk), (file, rest))))
        });
        read.await.map_err(io::Error::other)?
    })
    .boxed()
}

/// Removes the temporary files next to a path that are written before they are renamed to it.
fn remove_unfinished(path: &Path) -> io::Result<()> {
    for number in 1.. {
        if optional(fs::remove_file(unfinished_path(path, number)))?.is_none() {
            break;
        }
    }
    Ok(())
}

/// Returns the path of an unfinished write; the object store uses the same names.
fn unfinished_path(path: &Path, number: u32) -> PathBuf {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!("#{number}"));
    unfinished.into()
}

/// Syncs all folders between the keys and the root.
fn sync_ancestors(root: &Path, keys: &[String]) -> io::Result<()> {
    let mut folders: Vec<PathBuf> = keys
        .iter()
        .flat_map(|key| Path::new(key).ancestors().skip(1).map(|folder| root.join(folder)).collect::<Vec<_>>())
        .collect();
    folders.sort_unstable();
    folders.dedup();
    // A missing folder was never written to.
    folders.iter().try_for_each(|folder| optional(sync_folder(folder)).map(drop))
}

pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Converts a "not found" error to `None`.
pub(crate) fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn run_blocking(f: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), Error> {
    Ok(spawn_blocking(f).await??)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    pub(crate) fn temp_folder() -> (tempfile::TempDir, Folder) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Folder::open(&folder.path().join("files")).expect("a store");
        (folder, files)
    }

    fn stream_of(chunks: &[&'static str]) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + use<> {
        stream::iter(chunks.iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes()))).collect::<Vec<_>>())
    }

    async fn text(files: &Folder, range: Option<Range<u64>>) -> String {
        let content = files.read("a/1", range).await.expect("read").expect("there");
        let bytes: BytesMut = content.bytes.try_collect().await.expect("whole");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    /// Lists all files and folders of the store.
    pub(crate) fn list_all(files: &Folder) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![files.path.to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                found.push(path.strip_prefix(&files.path).expect("inside").display().to_string());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found.sort();
        found
    }

    #[tokio::test]
    async fn content_can_be_read_in_whole_and_in_part_until_it_is_removed() {
        let (_folder, files) = temp_folder();
        assert_eq!(files.write("a/1", 100, stream_of(&["hello ", "", "world"])).await.expect("written"), 11);
        assert_eq!(list_all(&files), ["a", "a/1"]);
        assert_eq!(text(&files, None).await, "hello world");
        assert_eq!(text(&files, Some(4..7)).await, "o w");
        assert_eq!(files.read("a/1", Some(4..7)).await.expect("read").expect("there").size, 11);
        let key = ["a/1".to_owned()];
        files.remove(&key).await.expect("removed");
        files.remove(&key).await.expect("removed already");
        assert!(files.read("a/1", None).await.expect("asked").is_none());
        files.remove_folder("a").await.expect("removed");
        files.remove_folder("a").await.expect("removed already");
        assert_eq!(list_all(&files), [] as [&str; 0]);
    }

    #[tokio::test]
    async fn empty_content_and_many_parts_can_be_stored() {
        let (_folder, files) = temp_folder();
        assert_eq!(files.write("a/1", 0, stream_of(&[])).await.expect("written"), 0);
        assert_eq!(text(&files, None).await, "");
        let letters: Vec<Bytes> = (0..40_u8).map(|number| Bytes::from(vec![b'a' + number % 26; 70_000])).collect();
        let content = stream::iter(letters.clone().into_iter().map(Ok::<_, Infallible>));
        assert_eq!(files.write("a/1", 40 * 70_000, content).await.expect("written"), 40 * 70_000);
        assert_eq!(text(&files, None).await.as_bytes(), letters.concat());
    }

    #[tokio::test]
    async fn a_write_that_is_too_large_or_fails_leaves_nothing() {
        let (_folder, files) = temp_folder();
        let written = files.write("a/1", 10, stream_of(&["hello ", "world"])).await;
        assert!(matches!(written, Err(WriteError::TooLarge)));
        let broken = stream::iter([Ok(Bytes::from(vec![0; 2 * PART_SIZE])), Err("gone")]);
        let written = files.write("a/1", u64::MAX, broken).await;
        assert!(matches!(written, Err(WriteError::Source("gone"))));
        assert_eq!(list_all(&files), ["a"]);
    }

    #[tokio::test]
    async fn remains_of_a_crashed_write_are_removed_with_the_key() {
        let (_folder, files) = temp_folder();
        files.write("a/1", 10, stream_of(&["x"])).await.expect("written");
        for unfinished in ["a/1#1", "a/1#2", "a/2#1"] {
            fs::write(files.path.join(unfinished), "half").expect("planted");
        }
        files.remove(&["a/1".to_owned()]).await.expect("removed");
        assert_eq!(list_all(&files), ["a", "a/2#1"]);
        assert!(files.remove_folder("a").await.is_err());
    }

    /// Killing a process does not show what a power cut would, so the setting itself is checked.
    #[tokio::test]
    async fn a_write_waits_for_the_disk() {
        let (_folder, files) = temp_folder();
        assert!(format!("{:?}", files.store).contains("fsync: true"));
    }
}
