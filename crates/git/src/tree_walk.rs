//! Visits everything below a folder, a folder before what is in it.

use gix::{
    ObjectId,
    objs::{TreeRefIter, tree::EntryMode},
};

use crate::{
    Error, Repository, Result,
    deadline::Deadline,
    limits::{Buffer, LONGEST_PATH, RESERVATION, Reservation, UNRESERVED, in_words},
};

/// How deep folders may lie, as git has it.
const DEEPEST: usize = 2048;
/// How many entries are visited at most. A few trees that hold one another several times over make up for more entries
/// than there is time to look at.
pub(crate) const MOST_ENTRIES: usize = 2_000_000;
/// How many bytes of folders are read at most, those counted that are read again.
const MOST_READ: u64 = 512 << 20;
/// How many bytes of the folders are kept that the walk will come back to; the others are read again. With a reservation
/// if there are more than may be held without one.
const KEPT: u64 = RESERVATION;

/// An entry that is being visited.
#[derive(Clone, Copy)]
pub(crate) struct Visited {
    pub(crate) mode: EntryMode,
    pub(crate) id: ObjectId,
}

/// A walk over everything below a folder. Trees are entered when [`TreeWalk::enter`] says so.
pub(crate) struct TreeWalk<'a> {
    repository: &'a Repository,
    folders: Vec<Folder>,
    path: Vec<u8>,
    visited: usize,
    /// How many bytes of folders are kept, the current one not counted.
    kept: usize,
    /// The room for all folders that are kept, if they are large.
    room: Option<Reservation>,
    /// How many bytes of folders were read.
    read: u64,
    deadline: Option<Deadline>,
}

struct Folder {
    id: ObjectId,
    /// Nothing while it is not kept.
    data: Option<Vec<u8>>,
    /// Where the next entry begins.
    at: usize,
    /// How much of the path is the folder's own.
    prefix: usize,
}

impl<'a> TreeWalk<'a> {
    /// A walk below a tree; the prefix is what paths begin with.
    pub(crate) fn new(repository: &'a Repository, tree: ObjectId, prefix: Vec<u8>) -> Result<Self> {
        Self::begin(repository, tree, prefix, None)
    }

    /// As [`TreeWalk::new`]; the walk fails once the deadline has passed or the client has gone.
    pub(crate) fn until(
        repository: &'a Repository,
        tree: ObjectId,
        prefix: Vec<u8>,
        deadline: Deadline,
    ) -> Result<Self> {
        Self::begin(repository, tree, prefix, Some(deadline))
    }

    fn begin(repository: &'a Repository, tree: ObjectId, prefix: Vec<u8>, deadline: Option<Deadline>) -> Result<Self> {
        let folders = Vec::new();
        let mut walk = Self { repository, folders, path: prefix, visited: 0, kept: 0, room: None, read: 0, deadline };
        walk.open(tree)?;
        Ok(walk)
    }

    /// How many bytes of folders were read so far.
    #[cfg(test)]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The next entry.
    pub(crate) fn next(&mut self) -> Result<Option<Visited>> {
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
            let entry = entry.map_err(Error::broken)?;
            let visited = Visited { mode: entry.mode, id: entry.oid.to_owned() };
            if self.path.len() + entry.filename.len() > LONGEST_PATH {
                return Err(Error::TooLarge(format!(
                    "a path in the tree {} has more than {LONGEST_PATH} bytes",
                    folder.id
                )));
            }
            self.path.extend_from_slice(entry.filename);
            folder.at += entries.offset_to_next_entry(rest);
            self.visited += 1;
            if self.visited > MOST_ENTRIES {
                return Err(Error::TooLarge(format!("there are more than {MOST_ENTRIES} files and folders")));
            }
            return Ok(Some(visited));
        }
        Ok(None)
    }

    /// Goes on with what is in the folder that was visited last.
    pub(crate) fn enter(&mut self, tree: ObjectId) -> Result<()> {
        if self.folders.len() >= DEEPEST {
            return Err(Error::TooLarge(format!("folders lie deeper than {DEEPEST}")));
        }
        self.path.push(b'/');
        self.open(tree)
    }

    /// The path of the entry that was visited last.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// The last part of that path.
    pub(crate) fn name(&self) -> &[u8] {
        let start = self.folders.last().map_or(0, |folder| folder.prefix);
        &self.path[start..]
    }

    /// How deep the entry lies that was visited last: 1 for those of the first folder.
    pub(crate) fn depth(&self) -> usize {
        self.folders.len()
    }

    /// The bytes of the folder that the walk is in.
    pub(crate) fn folder(&self) -> TreeRefIter<'_> {
        let data = self.folders.last().and_then(|folder| folder.data.as_deref()).unwrap_or_default();
        TreeRefIter::from_bytes(data, gix::hash::Kind::Sha1)
    }

    fn open(&mut self, tree: ObjectId) -> Result<()> {
        self.kept += self.folders.last().map_or(0, Folder::bytes);
        // Those nearest to the root are needed last.
        let mut folders = self.folders.iter_mut();
        while self.kept as u64 > KEPT
            && let Some(folder) = folders.next()
        {
            self.kept -= folder.bytes();
            folder.data = None;
        }
        let data = self.read(&tree)?;
        self.folders.push(Folder { id: tree, data: Some(data), at: 0, prefix: self.path.len() });
        Ok(())
    }

    fn close(&mut self) {
        self.folders.pop();
        // This one is the current one from now on.
        self.kept -= self.folders.last().map_or(0, Folder::bytes);
        let current = self.folders.last().map_or(0, Folder::bytes);
        if self.kept + current <= UNRESERVED {
            self.room = None;
        }
    }

    /// Reads a folder that becomes the current one.
    fn read(&mut self, tree: &gix::oid) -> Result<Vec<u8>> {
        // One folder may take long if it is stored as a long chain of deltas.
        if let Some(deadline) = &self.deadline {
            deadline.check()?;
        }
        let mut buffer = Buffer::default();
        self.repository.tree_bytes(tree, &mut buffer)?;
        let (mut data, _room) = buffer.into_parts();
        // Unpacking may take more room than what is unpacked.
        data.shrink_to_fit();
        if self.room.is_none() && self.kept + data.len() > UNRESERVED {
            self.room = Some(Reservation::take()?);
        }
        self.read += data.len() as u64;
        if self.read > MOST_READ {
            return Err(Error::TooLarge(format!("the folders have more than {}", in_words(MOST_READ))));
        }
        Ok(data)
    }
}

impl Folder {
    fn bytes(&self) -> usize {
        self.data.as_ref().map_or(0, Vec::len)
    }
}
