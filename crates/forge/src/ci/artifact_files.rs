//! The files inside the archive of a job. Only the directory of the archive and the requested file are read.

mod zip_directory;

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use futures_util::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use model::{Page, Slice};

use self::zip_directory::{Compression, DirectoryEnd, Entry};
use crate::{
    Error, Forge, Result, Unvalidated,
    artifacts::{self, Artifact},
};

/// The maximum size of the directory of an archive, about 40,000 files; larger archives can only be downloaded.
const MAX_DIRECTORY_BYTES: u64 = 4 << 20;
/// The number of bytes that are decompressed at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// A file or a folder of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveEntry {
    /// The name within its folder.
    pub name: String,
    /// The size in bytes; `None` for a folder.
    pub size: Option<u64>,
}

/// A file of an archive.
pub struct ArchiveFile {
    /// The size in bytes.
    pub size: u64,
    /// The content. It ends with an error if it is not what the directory of the archive says.
    pub content: BoxStream<'static, io::Result<Bytes>>,
}

/// Lists a folder of an archive: folders first, then files, each by name. `None` if the archive cannot be read.
pub async fn list(
    forge: &Forge,
    artifact: &Artifact,
    folder: &str,
    page: &Unvalidated<Page>,
) -> Result<Option<Slice<ArchiveEntry>>> {
    let page = *page.validate()?;
    let Some(directory) = read_directory(forge, artifact).await? else { return Ok(None) };
    let folder = folder.to_owned();
    let listed = tokio::task::spawn_blocking(move || list_folder(&directory, &folder)).await;
    let Some(entries) = listed.map_err(|error| Error::internal("an archive", error))? else { return Ok(None) };
    if entries.is_empty() {
        return Err(Error::NotFound(None));
    }
    let total = i64::try_from(entries.len()).unwrap_or(i64::MAX);
    Ok(Some(Slice { items: page.slice(&entries).to_vec(), total: total.into(), page }))
}

/// Returns the entries of a folder; `None` if the directory is damaged.
fn list_folder(directory: &[u8], folder: &str) -> Option<Vec<ArchiveEntry>> {
    let (mut folders, mut files) = (BTreeMap::new(), BTreeMap::new());
    for entry in zip_directory::entries(directory) {
        let entry = entry?;
        let Some(path) = clean_path(&entry.path) else { continue };
        let rest = match folder {
            "" => Some(path),
            folder => path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { continue };
        match rest.split_once('/') {
            Some((name, _)) => folders.insert(name.to_owned(), None),
            None if entry.is_folder() => folders.insert(rest.to_owned(), None),
            None => files.insert(rest.to_owned(), Some(entry.size)),
        };
    }
    let entries = folders.into_iter().chain(files);
    Some(entries.map(|(name, size)| ArchiveEntry { name, size }).collect())
}

/// Returns the path of an entry without a slash at its end; `None` if it leads out of the archive.
fn clean_path(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_clean = path.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    is_clean.then_some(path)
}

/// Opens a file of an archive.
pub async fn open(forge: &Forge, artifact: &Artifact, path: &str) -> Result<ArchiveFile> {
    let missing = || Error::NotFound(None);
    let directory = read_directory(forge, artifact).await?.ok_or_else(missing)?;
    let wanted = path.to_owned();
    let found = tokio::task::spawn_blocking(move || find_file(&directory, &wanted)).await;
    let entry = found.map_err(|error| Error::internal("an archive", error))?.ok_or_else(missing)?;
    let header = read_range(forge, artifact, entry.header_offset, zip_directory::LOCAL_HEADER_BYTES).await?;
    let start = zip_directory::content_start(&header).and_then(|length| entry.header_offset.checked_add(length));
    let range = start.and_then(|start| Some(start..start.checked_add(entry.compressed_size)?));
    let size = artifact.size.unwrap_or_default();
    let range = range.filter(|range| range.end <= size).ok_or_else(missing)?;
    let compressed = if range.is_empty() {
        stream::empty().boxed()
    } else {
        artifacts::read(forge, artifact, Some(range)).await?.bytes
    };
    let content = match entry.compression {
        Compression::None if entry.compressed_size == entry.size => compressed,
        Compression::Deflate => inflate(compressed, entry.size),
        Compression::None | Compression::Unsupported => return Err(missing()),
    };
    Ok(ArchiveFile { size: entry.size, content })
}

/// Returns the last entry with a path, as programs that extract archives do.
fn find_file(directory: &[u8], path: &str) -> Option<Entry> {
    let entries = zip_directory::entries(directory).map_while(|entry| entry);
    entries.filter(|entry| !entry.is_folder() && clean_path(&entry.path) == Some(path)).last()
}

/// Reads the directory at the end of an archive; `None` if it is not an archive, or too large.
async fn read_directory(forge: &Forge, artifact: &Artifact) -> Result<Option<Vec<u8>>> {
    let size = artifact.size.unwrap_or_default();
    let tail_length = size.min(zip_directory::MAX_END_BYTES);
    let tail = read_range(forge, artifact, size - tail_length, tail_length).await?;
    let end = match zip_directory::find_end(&tail) {
        Some(DirectoryEnd::Found(range)) => range,
        Some(DirectoryEnd::Zip64(at)) => {
            let record = read_range(forge, artifact, at, zip_directory::ZIP64_END_BYTES).await?;
            match zip_directory::read_zip64_end(&record) {
                Some(range) => range,
                None => return Ok(None),
            }
        }
        None => return Ok(None),
    };
    if end.end > size || end.end - end.start > MAX_DIRECTORY_BYTES {
        return Ok(None);
    }
    read_range(forge, artifact, end.start, end.end - end.start).await.map(Some)
}

/// Reads a small range of an archive into memory; it is shorter if the archive is.
async fn read_range(forge: &Forge, artifact: &Artifact, start: u64, length: u64) -> Result<Vec<u8>> {
    let end = start.saturating_add(length).min(artifact.size.unwrap_or_default());
    if start >= end {
        return Ok(Vec::new());
    }
    let mut content = artifacts::read(forge, artifact, Some(start..end)).await?.bytes;
    let mut bytes = Vec::with_capacity(usize::try_from(end - start).unwrap_or_default());
    while let Some(chunk) = content.try_next().await.map_err(|error| Error::internal("an archive", error))? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The state of a stream that is decompressed.
struct Inflater {
    source: BoxStream<'static, io::Result<Bytes>>,
    decoder: Decompress,
    input: Bytes,
    /// The number of bytes that are still to come.
    remaining: u64,
}

/// Decompresses a stream whose result must have a certain size.
fn inflate(source: BoxStream<'static, io::Result<Bytes>>, size: u64) -> BoxStream<'static, io::Result<Bytes>> {
    let state = Inflater { source, decoder: Decompress::new(false), input: Bytes::new(), remaining: size };
    stream::try_unfold(state, Inflater::next).boxed()
}

impl Inflater {
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the file in the archive is damaged");
        let mut output = Vec::with_capacity(CHUNK_BYTES);
        while self.remaining > 0 {
            if self.input.is_empty() {
                self.input = self.source.try_next().await?.unwrap_or_default();
            }
            let is_last = self.input.is_empty();
            let before = self.decoder.total_in();
            let status = self.decoder.decompress_vec(&self.input, &mut output, FlushDecompress::None);
            let status = status.map_err(|_| damaged())?;
            let read = usize::try_from(self.decoder.total_in() - before).unwrap_or(usize::MAX);
            self.input = self.input.slice(read.min(self.input.len())..);
            let length = output.len() as u64;
            if length > self.remaining || status == Status::StreamEnd && length < self.remaining {
                return Err(damaged());
            }
            if output.len() == output.capacity() || length == self.remaining {
                self.remaining -= length;
                return Ok(Some((Bytes::from(output), self)));
            }
            if is_last && read == 0 {
                return Err(damaged());
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_of_the_archive_are_ignored() {
        let check = |path: &str, expected: Option<&str>| assert_eq!(clean_path(path), expected, "{path}");
        check("a/b.txt", Some("a/b.txt"));
        check("a/", Some("a"));
        check("../x", None);
        check("a/../x", None);
        check("/etc/passwd", None);
        check("a//b", None);
        check("", None);
    }
}
