//! Walks over everything below a folder; a folder is visited before its entries.

use gix::{
    ObjectId,
    objs::{TreeRefIter, tree::EntryMode},
};

use crate::{
    Error, Repository, Result,
    deadline::Deadline,
    limits::{Buffer, MAX_PATH_LENGTH, MAX_UNRESERVED, RESERVATION_SIZE, Reservation, format_size},
};

/// The maximum depth of folders, as in git.
const MAX_DEPTH: usize = 2048;
/// The maximum number of visited entries. A few trees that contain each other repeatedly stand for more entries than
/// there is time to visit.
pub(crate) const MAX_ENTRIES: usize = 2_000_000;
/// The maximum number of bytes of folders that are read, including repeated reads.
const MAX_READ_BYTES: u64 = 512 << 20;
/// The maximum size of the folders on the path of the walk that are buffered; the others are read again. Needs a
/// reservation if it is more than may be held without one.
const MAX_BUFFERED_BYTES: u64 = RESERVATION_SIZE;

/// The entry that is visited.
#[derive(Clone, Copy)]
pub(crate) struct WalkEntry {
    pub(crate) mode: EntryMode,
    pub(crate) id: ObjectId,
}

/// A walk over everything below a folder. Subfolders are visited if the caller calls [`TreeWalk::enter`].
pub(crate) struct TreeWalk<'a> {
    repository: &'a Repository,
    folders: Vec<Folder>,
    path: Vec<u8>,
    visited_count: usize,
    /// The size of the buffered folders, except for the current one.
    buffered_bytes: usize,
    /// The reservation for all buffered folders, if they are large.
    reservation: Option<Reservation>,
    /// The number of bytes of folders that were read.
    read_bytes: u64,
    deadline: Option<Deadline>,
}

struct Folder {
    id: ObjectId,
    /// `None` while it is not buffered.
    data: Option<Vec<u8>>,
    /// The offset of the next entry.
    at: usize,
    /// The length of the folder's own path.
    prefix: usize,
}

impl<'a> TreeWalk<'a> {
    /// Starts a walk below a tree; all paths start with the prefix.
    pub(crate) fn new(repository: &'a Repository, tree: ObjectId, prefix: Vec<u8>) -> Result<Self> {
        Self::start(repository, tree, prefix, None)
    }

    /// Like [`TreeWalk::new`]; the walk fails once the deadline has passed or the client has disconnected.
    pub(crate) fn with_deadline(
        repository: &'a Repository,
        tree: ObjectId,
        prefix: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Self> {
        Self::start(repository, tree, prefix, Some(deadline))
    }

    fn start(repository: &'a Repository, tree: ObjectId, prefix: Vec<u8>, deadline: Option<Deadline>) -> Result<Self> {
        let folders = Vec::new();
        let mut walk = Self {
            repository,
            folders,
            path: prefix,
            visited_count: 0,
            buffered_bytes: 0,
            reservation: None,
            read_bytes: 0,
            deadline,
        };
        walk.open(tree)?;
        Ok(walk)
    }

    /// Returns the number of bytes of folders that were read so far.
    #[cfg(test)]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read_bytes
    }

    /// Returns the next entry.
    pub(crate) fn next(&mut self) -> Result<Option<WalkEntry>> {
        if let Some(deadline) = &self.deadline {
            deadline.step()?;
        }
        while let Some(folder) = self.folders.last() {
            let (prefix, id) = (folder.prefix, folder.id);
            self.path.truncate(prefix);
            if folder.data.is_none() {
                let data = self.read(&id)?;
                if let Some(folder) = self.folders.last_mut() {
                    folder.data = Some(data);
                }
            }
            let Some(folder) = self.folders.last_mut() else { break };
            let data = folder.data.as_deref().unwrap_or_default();
            let rest = &data[folder.at..];
            let mut entries = TreeRefIter::from_bytes(rest, gix::hash::Kind::Sha1);
            let Some(entry) = entries.next() else {
                self.close();
                continue;
            };
            let entry = entry.map_err(Error::corrupt)?;
            let next = WalkEntry { mode: entry.mode, id: entry.oid.to_owned() };
            if self.path.len() + entry.filename.len() > MAX_PATH_LENGTH {
                return Err(Error::TooLarge(format!(
                    "a path in the tree {} has more than {MAX_PATH_LENGTH} bytes",
                    folder.id
                )));
            }
            self.path.extend_from_slice(entry.filename);
            folder.at += entries.offset_to_next_entry(rest);
            self.visited_count += 1;
            if self.visited_count > MAX_ENTRIES {
                return Err(Error::TooLarge(format!("there are more than {MAX_ENTRIES} files and folders")));
            }
            return Ok(Some(next));
        }
        Ok(None)
    }

    /// Continues with the entries of the folder that was visited last.
    pub(crate) fn enter(&mut self, tree: ObjectId) -> Result<()> {
        if self.folders.len() >= MAX_DEPTH {
            return Err(Error::TooLarge(format!("the folders are nested deeper than {MAX_DEPTH}")));
        }
        self.path.push(b'/');
        self.open(tree)
    }

    /// Returns the path of the last entry.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the last component of that path.
    pub(crate) fn name(&self) -> &[u8] {
        let start = self.folders.last().map_or(0, |folder| folder.prefix);
        &self.path[start..]
    }

    /// Returns the depth of the last entry: 1 for those of the first folder.
    pub(crate) fn depth(&self) -> usize {
        self.folders.len()
    }

    /// Returns the entries of the current folder.
    pub(crate) fn folder(&self) -> TreeRefIter<'_> {
        let data = self.folders.last().and_then(|folder| folder.data.as_deref()).unwrap_or_default();
        TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1)
    }

    fn open(&mut self, tree: ObjectId) -> Result<()> {
        self.buffered_bytes += self.folders.last().map_or(0, Folder::bytes);
        // The folders nearest to the root are needed last.
        let mut folders = self.folders.iter_mut();
        while self.buffered_bytes as u64 > MAX_BUFFERED_BYTES
            && let Some(folder) = folders.next()
        {
            self.buffered_bytes -= folder.bytes();
            folder.data = None;
        }
        let data = self.read(&tree)?;
        self.folders.push(Folder { id: tree, data: Some(data), at: 0, prefix: self.path.len() });
        Ok(())
    }

    fn close(&mut self) {
        self.folders.pop();
        // This folder is the current one from now on.
        self.buffered_bytes -= self.folders.last().map_or(0, Folder::bytes);
        let current = self.folders.last().map_or(0, Folder::bytes);
        if self.buffered_bytes + current <= MAX_UNRESERVED {
            self.reservation = None;
        }
    }

    /// Reads a folder, which becomes the current one.
    fn read(&mut self, tree: &gix::oid) -> Result<Vec<u8>> {
        // One folder may take long if it is stored as a long delta chain.
        if let Some(deadline) = &self.deadline {
            deadline.check()?;
        }
        let mut buffer = Buffer::default();
        self.repository.tree_bytes(tree, &mut buffer)?;
        let (mut data, _reservation) = buffer.into_parts();
        // Unpacking may allocate more than the result needs.
        data.shrink_to_fit();
        if self.reservation.is_none() && self.buffered_bytes + data.len() > MAX_UNRESERVED {
            self.reservation = Some(Reservation::take()?);
        }
        self.read_bytes += data.len() as u64;
        if self.read_bytes > MAX_READ_BYTES {
            return Err(Error::TooLarge(format!("the folders have more than {}", format_size(MAX_READ_BYTES))));
        }
        Ok(data)
    }
}

impl Folder {
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Vec::len)
    }
}
