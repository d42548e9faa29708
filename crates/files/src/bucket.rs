//! Files in an S3 bucket.
//!
//! Every request is signed with the SHA-256 of its body, which the store verifies. The SHA-256 of a whole object is stored
//! as metadata and verified by those who read it from beginning to end. Nothing depends on conditional writes or on an
//! up-to-date listing: keys are written once, and a row of the database names those that count.
//!
//! Uploads are written to an unnamed temporary file first, so that memory use does not depend on their size, their
//! checksum is known before they are sent, and a part can be sent again.

mod cache;
mod error;
mod http;
mod options;
mod probe;
mod uploads;

use std::{
    fs::{self, File, Permissions},
    io::{self, Write as _},
    mem,
    ops::Range,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, mpsc},
    time::Duration,
};

use base16ct::HexDisplay;
use bytes::Bytes;
use futures_util::{
    Stream, StreamExt as _, TryStreamExt as _, future,
    stream::{self, BoxStream},
};
use object_store::{
    Attribute, Attributes, BackoffConfig, GetOptions, GetResult, ObjectStore, ObjectStoreExt as _, RetryConfig,
    aws::AmazonS3Builder, path::Path as Location,
};
use sha2::{Digest as _, Sha256};
use tokio::{
    runtime::{self, Runtime},
    sync::Semaphore,
    task::{JoinSet, spawn_blocking},
};

use self::{cache::Cache, http::Connector, uploads::Upload};
pub use self::{error::BucketError, http::Timeouts, options::BucketOptions};
use crate::{Content, Error, FileEntry, WriteError, private_folder};

/// The name of the metadata that contains the SHA-256 of an object.
const CHECKSUM: &str = "sha256";
/// The maximum number of parts that are held in memory to be sent, by all uploads together.
const MAX_PARTS_IN_MEMORY: usize = 8;
/// The number of keys that are listed at a time.
const LISTED_AT_ONCE: usize = 1000;
/// The number of keys that are removed at the same time.
const MAX_CONCURRENT_REMOVALS: usize = 16;
/// The number of threads that send and receive.
const THREADS: usize = 2;
/// Requests that fail for a reason that may pass are sent again with growing delays.
const MAX_RETRIES: usize = 6;
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3);

/// A store in a bucket; cheap to clone.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    store: Arc<dyn ObjectStore>,
    /// Where the bucket is, for messages.
    name: String,
    /// Below the prefix of the instance.
    prefix: Location,
    /// A local folder for uploads that are not complete yet.
    temporary: PathBuf,
    cache: Cache,
    /// Limits the memory of uploads.
    part_slots: Arc<Semaphore>,
    /// Owns the connections, so that blocking callers need no runtime of their own. `None` after it was dropped.
    runtime: Option<Runtime>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for its tasks would block, which async callers must not.
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    /// Returns the store in a bucket; sends no request. `folder` is a local folder for incomplete uploads and copies of
    /// objects, which may be deleted at any time; it is created if it does not exist.
    pub fn new(options: &BucketOptions, folder: &Path) -> Result<Self, BucketError> {
        Self::with_timeouts(options, folder, Timeouts::default())
    }

    /// As [`Self::new`], with other time limits.
    pub fn with_timeouts(options: &BucketOptions, folder: &Path, timeouts: Timeouts) -> Result<Self, BucketError> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("bucket")
            .enable_all()
            .build()
            .map_err(BucketError::Setup)?;
        let temporary = folder.join("uploads");
        private_folder::create(&temporary).map_err(BucketError::Setup)?;
        let cache = Cache::open(&folder.join("objects")).map_err(BucketError::Setup)?;
        let builder: AmazonS3Builder = options.builder()?;
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: FIRST_RETRY_DELAY, max_backoff: MAX_RETRY_DELAY, base: 2.0 },
            max_retries: MAX_RETRIES,
            retry_timeout: timeouts.retries,
        };
        let connector = Connector::new(timeouts)?;
        let store = builder.with_retry(retry).with_http_connector(connector).build().map_err(BucketError::options)?;
        Ok(Self(Arc::new(Inner {
            store: Arc::new(store),
            name: options.to_string(),
            prefix: options.prefix().clone(),
            temporary,
            cache,
            part_slots: Arc::new(Semaphore::new(MAX_PARTS_IN_MEMORY)),
            runtime: Some(runtime),
        })))
    }

    /// Returns where the bucket is, without secrets.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// See [`crate::Files::write`].
    pub(crate) async fn write<E>(
        &self,
        key: &str,
        max_size: u64,
        content: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<u64, WriteError<E>> {
        let location = self.location(key).map_err(WriteError::Failed)?;
        let failed = |error: io::Error| WriteError::Failed(error.into());
        let file = self.temporary_file().map_err(failed)?;
        let mut writer = HashingWriter::new(file);
        let mut content = pin!(content);
        let mut size = 0;
        while let Some(chunk) = content.next().await {
            let chunk = chunk.map_err(WriteError::Source)?;
            size += chunk.len() as u64;
            if size > max_size {
                return Err(WriteError::TooLarge);
            }
            let written = spawn_blocking(move || writer.write_all(&chunk).map(|()| writer)).await;
            writer = written.map_err(|error| WriteError::Failed(error.into()))?.map_err(failed)?;
        }
        let (file, checksum) = writer.finish();
        let sent = self.run(self.clone().upload(location, Upload { file: Arc::new(file), size, checksum }));
        sent.await.map_err(WriteError::Failed)?;
        Ok(size)
    }

    /// See [`crate::Files::read`]. The checksum is verified if the whole object is read, also as a range.
    pub(crate) async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Content>, Error> {
        let location = self.location(key)?;
        let (this, requested) = (self.clone(), range.clone());
        let Some(found) = self.run(async move { this.get(&location, range).await }).await? else { return Ok(None) };
        let (size, checksum) = (found.meta.size, stored_checksum(&found));
        let is_whole = requested.is_none_or(|range| range.start == 0 && range.end >= size && !range.is_empty());
        let bytes = found.into_stream().map_err(BucketError::from);
        let bytes = match checksum.filter(|_| is_whole) {
            Some(checksum) => verified(bytes.boxed(), key.to_owned(), checksum),
            None => bytes.map_err(io::Error::other).boxed(),
        };
        Ok(Some(Content { size, bytes }))
    }

    /// See [`crate::Files::remove`].
    pub(crate) async fn remove(&self, keys: &[String]) -> Result<(), Error> {
        let locations = keys.iter().map(|key| self.location(key)).collect::<Result<Vec<_>, _>>()?;
        let this = self.clone();
        self.run(async move {
            let removals = stream::iter(locations.into_iter().map(Ok::<_, Error>));
            removals.try_for_each_concurrent(MAX_CONCURRENT_REMOVALS, |location| this.delete(location)).await
        })
        .await
    }

    /// See [`crate::Files::remove_files`].
    pub(crate) fn remove_files(&self, keys: &[String]) -> Result<(), Error> {
        let (this, keys) = (self.clone(), keys.to_vec());
        self.wait(async move { this.remove(&keys).await })
    }

    /// See [`crate::Files::store_files`].
    pub(crate) fn store_files(&self, files: &[(impl AsRef<str>, impl AsRef<Path>)]) -> Result<(), Error> {
        let mut uploads = Vec::with_capacity(files.len());
        for (key, path) in files {
            let path = path.as_ref();
            // As in a folder, so that no caller modifies the file later.
            fs::set_permissions(path, Permissions::from_mode(0o444))?;
            uploads.push((self.location(key.as_ref())?, Upload::of_file(path)?));
        }
        let this = self.clone();
        self.wait(async move {
            let locations: Vec<Location> = uploads.iter().map(|(location, _)| location.clone()).collect();
            let uploads = uploads.into_iter().map(|(location, upload)| this.clone().upload(location, upload));
            let stored = future::try_join_all(uploads).await;
            if stored.is_err() {
                for location in locations {
                    // The first error is the one to report; what stays is not named by any row.
                    let _ = this.delete(location).await;
                }
            }
            stored.map(drop)
        })
    }

    /// See [`crate::Files::list`].
    pub(crate) fn list(&self, folder: &str, each: &mut dyn FnMut(FileEntry) -> Result<(), Error>) -> Result<(), Error> {
        let this = self.clone();
        let location = if folder.is_empty() { self.0.prefix.clone() } else { self.location(folder)? };
        // A bounded channel: a bucket may have too many keys to hold them in memory.
        let (entries, listed) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // As many as a response of the store contains.
            let found = this.0.store.list(Some(&location)).ready_chunks(LISTED_AT_ONCE);
            send_all(found, entries).await;
        });
        for objects in listed {
            let Some(objects) = objects else { return Ok(()) };
            for object in objects {
                let object = object.map_err(BucketError::from)?;
                let Some(key) = self.key(&object.location) else { continue };
                each(FileEntry { key, size: object.size, modified: object.last_modified.into() })?;
            }
        }
        Err(BucketError::Stopped.into())
    }

    /// See [`crate::Files::size`].
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>, Error> {
        let (location, this) = (self.location(key)?, self.clone());
        self.wait(async move { this.head(&location).await })
    }

    /// Writes an object to an empty file, verified; returns `false` if it does not exist. Blocking.
    pub fn copy_to(&self, key: &str, file: &File) -> Result<bool, Error> {
        let (location, this, key) = (self.location(key)?, self.clone(), key.to_owned());
        let writer = HashingWriter::new(file.try_clone()?);
        self.wait(async move { this.download(&location, &key, writer).await })
    }

    /// Requests the size of an object; `None` if it does not exist.
    async fn head(&self, location: &Location) -> Result<Option<u64>, Error> {
        Ok(optional(self.0.store.head(location).await)?.map(|meta| meta.size))
    }

    /// Creates a local file without a name, which disappears when it is closed.
    pub fn temporary_file(&self) -> io::Result<File> {
        match tempfile::tempfile_in(&self.0.temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The cache was deleted.
                private_folder::create(&self.0.temporary)?;
                tempfile::tempfile_in(&self.0.temporary)
            }
            file => file,
        }
    }

    /// Sends a request for an object or a range of it.
    async fn get(&self, location: &Location, range: Option<Range<u64>>) -> Result<Option<GetResult>, Error> {
        let options = match range {
            // HTTP has no empty ranges; only the size is requested.
            Some(range) if range.is_empty() => GetOptions::new().with_head(true),
            range => GetOptions::new().with_range(range),
        };
        Ok(optional(self.0.store.get_opts(location, options).await)?)
    }

    /// Removes an object; a missing one is ignored.
    async fn delete(&self, location: Location) -> Result<(), Error> {
        optional(self.0.store.delete(&location).await)?;
        Ok(())
    }

    /// Writes an object to a local file and verifies its size and its checksum; returns `false` if there is none.
    async fn download(&self, location: &Location, key: &str, mut writer: HashingWriter) -> Result<bool, Error> {
        let Some(found) = self.get(location, None).await? else { return Ok(false) };
        let (size, expected) = (found.meta.size, stored_checksum(&found));
        let mut received = 0;
        let mut chunks = found.into_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(BucketError::from)?;
            received += chunk.len() as u64;
            writer = spawn_blocking(move || writer.write_all(&chunk).map(|()| writer)).await??;
        }
        let (_, checksum) = writer.finish();
        if received != size || expected.is_some_and(|expected| expected != checksum) {
            return Err(BucketError::Damaged { key: key.to_owned() }.into());
        }
        Ok(true)
    }

    /// Runs a future on the runtime of the bucket, for async callers. It is cancelled if the caller is.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let mut task = JoinSet::new();
        task.spawn_on(work, self.runtime().handle());
        task.join_next().await.ok_or(BucketError::Stopped)??
    }

    /// Runs a future on the runtime of the bucket and waits for it. Blocking.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            // The receiver waits.
            let _ = sender.send(work.await);
        });
        receiver.recv().map_err(|_| BucketError::Stopped)?
    }

    fn runtime(&self) -> &Runtime {
        self.0.runtime.as_ref().expect("taken by `drop` only")
    }

    /// Returns the location of a key in the bucket.
    fn location(&self, key: &str) -> Result<Location, Error> {
        let key = crate::location(key)?;
        Ok(self.0.prefix.parts().chain(key.parts()).collect())
    }

    /// Returns the key of a location.
    fn key(&self, location: &Location) -> Option<String> {
        let parts: Location = location.prefix_match(&self.0.prefix)?.collect();
        Some(parts.to_string())
    }
}

/// Sends the items of a stream to a thread, and then `None`, which distinguishes the end from a panic.
async fn send_all<T: Send + 'static>(items: impl Stream<Item = T>, receiver: mpsc::SyncSender<Option<T>>) {
    let mut items = pin!(items);
    loop {
        let (item, sender) = (items.next().await, receiver.clone());
        let is_end = item.is_none();
        // Sending blocks while the receiver is busy.
        let sent = spawn_blocking(move || sender.send(item)).await;
        if is_end || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Converts a "not found" error to `None`.
fn optional<T>(result: object_store::Result<T>) -> Result<Option<T>, BucketError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the SHA-256 that is stored with an object. Objects of other tools have none.
fn stored_checksum(found: &GetResult) -> Option<String> {
    found.attributes.get(&Attribute::Metadata(CHECKSUM.into())).map(|value| value.to_string())
}

/// Returns the metadata of an object with this SHA-256.
fn attributes(checksum: &str) -> Attributes {
    [(Attribute::Metadata(CHECKSUM.into()), checksum.to_owned())].into_iter().collect()
}

/// The state of a stream that verifies the content of an object.
struct Verification {
    bytes: BoxStream<'static, Result<Bytes, BucketError>>,
    hash: Sha256,
    /// The last chunk that was received, not passed on yet.
    held_back: Bytes,
    key: String,
    expected: String,
}

/// Passes on the content of an object. Its last chunk follows once the content has proved to have the expected SHA-256;
/// otherwise it is an error. A receiver that knows the size, such as an HTTP client, therefore never takes damaged content
/// for complete.
fn verified(
    bytes: BoxStream<'static, Result<Bytes, BucketError>>,
    key: String,
    expected: String,
) -> BoxStream<'static, io::Result<Bytes>> {
    let state = Verification { bytes, hash: Sha256::new(), held_back: Bytes::new(), key, expected };
    stream::try_unfold(Some(state), |state| async move {
        let Some(mut state) = state else { return Ok(None) };
        while let Some(chunk) = state.bytes.next().await {
            let chunk = chunk.map_err(io::Error::other)?;
            if chunk.is_empty() {
                continue;
            }
            state.hash.update(&chunk);
            let previous = mem::replace(&mut state.held_back, chunk);
            if !previous.is_empty() {
                return Ok(Some((previous, Some(state))));
            }
        }
        if hex(&state.hash.finalize()) != state.expected {
            return Err(io::Error::other(BucketError::Damaged { key: state.key }));
        }
        Ok((!state.held_back.is_empty()).then_some((state.held_back, None)))
    })
    .boxed()
}

/// Writes to a file and computes the SHA-256 of what is written.
struct HashingWriter {
    file: File,
    hash: Sha256,
}

impl HashingWriter {
    fn new(file: File) -> Self {
        Self { file, hash: Sha256::new() }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)
    }

    fn finish(self) -> (File, String) {
        (self.file, hex(&self.hash.finalize()))
    }
}

fn hex(bytes: &[u8]) -> String {
    format!("{:x}", HexDisplay(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_not_the_end_of_a_listing() {
        let runtime = Runtime::new().expect("a runtime");
        let receive = |items: BoxStream<'static, u8>| {
            let (sender, receiver) = mpsc::sync_channel(1);
            drop(runtime.spawn(send_all(items, sender)));
            receiver.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(receive(stream::iter([1, 2]).boxed()), [Some(1), Some(2), None]);
        let panics = stream::iter([1, 2]).map(|item| if item == 2 { panic!("wanted") } else { item });
        assert_eq!(receive(panics.boxed()), [Some(1)]);
    }
}
