//! Sends a local file to a bucket, in parts if it is large.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use object_store::{
    MultipartUpload, ObjectStore as _, PutMultipartOptions, PutOptions, PutPayload, path::Path as Location,
};
use sha2::{Digest as _, Sha256};
use tokio::task::{JoinSet, spawn_blocking};

use super::{Bucket, BucketError, attributes, hex, stored_checksum};
use crate::Error;

/// The size of a part; a store accepts at most 10,000 of them, and none below 5 MiB except the last one.
const PART_SIZE: u64 = 8 << 20;
const MAX_PARTS: u64 = 10_000;
/// The number of parts of an upload that are sent at the same time.
const MAX_CONCURRENT_PARTS: usize = 4;

/// A file to be sent.
pub(super) struct Upload {
    pub(super) file: Arc<File>,
    pub(super) size: u64,
    /// The SHA-256 of the content, in hexadecimal.
    pub(super) checksum: String,
}

impl Upload {
    /// Reads a file to compute its checksum.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 256 << 10]);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            size += read as u64;
        }
        file.rewind()?;
        Ok(Self { file: Arc::new(file), size, checksum: hex(&hash.finalize()) })
    }

    /// Returns the size of the parts: larger ones if there would be too many.
    fn part_size(&self) -> u64 {
        PART_SIZE.max(self.size.div_ceil(MAX_PARTS))
    }
}

impl Bucket {
    /// Sends a file; it is durable on return.
    pub(super) async fn upload(self, location: Location, upload: Upload) -> Result<(), Error> {
        let part_size = upload.part_size();
        if upload.size <= part_size {
            let _slot = self.0.part_slots.acquire().await;
            let content = read_part(&upload, 0, upload.size).await?;
            let options = PutOptions { attributes: attributes(&upload.checksum), ..PutOptions::default() };
            let sent = self.0.store.put_opts(&location, PutPayload::from(content), options).await;
            return sent.map(drop).map_err(|error| BucketError::from(error).into());
        }
        let options =
            PutMultipartOptions { attributes: attributes(&upload.checksum), ..PutMultipartOptions::default() };
        let mut parts = self.0.store.put_multipart_opts(&location, options).await.map_err(BucketError::from)?;
        let sent = match self.send_parts(&mut *parts, &upload, part_size).await {
            Ok(()) => match parts.complete().await {
                Ok(_) => return Ok(()),
                // If the response was lost, the request was repeated, and the store no longer knows the upload.
                Err(_) if self.contains(&location, &upload).await => return Ok(()),
                Err(error) => Err(BucketError::from(error).into()),
            },
            Err(error) => Err(error),
        };
        if sent.is_err() {
            // The first error is the one to report.
            let _ = parts.abort().await;
        }
        sent
    }

    /// Returns whether an object has the content of a file.
    async fn contains(&self, location: &Location, upload: &Upload) -> bool {
        let Ok(Some(found)) = self.get(location, Some(0..0)).await else { return false };
        found.meta.size == upload.size && stored_checksum(&found).as_ref() == Some(&upload.checksum)
    }

    async fn send_parts(&self, parts: &mut dyn MultipartUpload, upload: &Upload, part_size: u64) -> Result<(), Error> {
        let mut sending: JoinSet<object_store::Result<()>> = JoinSet::new();
        let mut start = 0;
        while start < upload.size {
            if sending.len() >= MAX_CONCURRENT_PARTS
                && let Some(sent) = sending.join_next().await
            {
                sent?.map_err(BucketError::from)?;
            }
            let slot = Arc::clone(&self.0.part_slots).acquire_owned().await;
            let content = read_part(upload, start, part_size.min(upload.size - start)).await?;
            start += content.len() as u64;
            let part = parts.put_part(PutPayload::from(content));
            sending.spawn(async move {
                let sent = part.await;
                drop(slot);
                sent
            });
        }
        while let Some(sent) = sending.join_next().await {
            sent?.map_err(BucketError::from)?;
        }
        Ok(())
    }
}

/// Reads a part of a file.
async fn read_part(upload: &Upload, start: u64, size: u64) -> Result<Bytes, Error> {
    let file = Arc::clone(&upload.file);
    let read = spawn_blocking(move || {
        let mut content = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        file.read_exact_at(&mut content, start)?;
        Ok::<_, io::Error>(Bytes::from(content))
    });
    Ok(read.await??)
}
