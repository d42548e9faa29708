//! Commits made of edits to files. Trees are built in the object database: there is no work tree in which a link or a
//! clever path could lead anywhere.

use std::collections::BTreeMap;

use gix::{
    ObjectId,
    bstr::ByteSlice as _,
    objs::{
        TreeRef,
        tree::{EntryKind, EntryMode},
    },
};
use model::{Oid, objects::Signature};

use crate::{
    Error, Quarantine, Repository, Result,
    limits::Buffer,
    objects::Trees,
    quarantine::signature,
    repository::{gix_id, oid},
};

/// The longest path that is taken.
const LONGEST_PATH: usize = 4096;

/// A wish to change one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEdit {
    /// A file where there is none.
    Create {
        /// Where.
        path: String,
        /// What it holds.
        content: Vec<u8>,
    },
    /// Another content for a file that is there.
    Update {
        /// Where.
        path: String,
        /// What it shall hold.
        content: Vec<u8>,
    },
    /// A file with this content, whether it is there or not.
    Put {
        /// Where.
        path: String,
        /// What it shall hold.
        content: Vec<u8>,
    },
    /// No file any more.
    Delete {
        /// Where.
        path: String,
    },
    /// A file somewhere else, with another content if one is given.
    Move {
        /// Where it is.
        from: String,
        /// Where it shall be.
        path: String,
        /// What it shall hold.
        content: Option<Vec<u8>>,
    },
}

/// Why edits cannot be made. Each holds the path that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditRefusal {
    /// Not a path that a repository may hold.
    BadPath(String),
    /// It would lead out of the repository.
    Traversal(String),
    /// Something is there already.
    Exists(String),
    /// No file is there; tells what was to be done to it.
    Missing(String, &'static str),
    /// Something is where the file shall be moved.
    TargetExists(String),
    /// There is nothing that could be changed: the repository is empty.
    Empty,
}

/// What lies at a path, all edits so far considered.
enum State {
    Nothing,
    File(EntryKind, Oid),
    /// A folder, a submodule, or something below a file.
    InTheWay,
}

struct Editing<'a> {
    repository: &'a Repository,
    base: Option<ObjectId>,
    edited: BTreeMap<String, Option<(EntryKind, Oid)>>,
}

impl Quarantine {
    /// Writes a commit that makes some edits to its parent, all or none.
    pub fn commit(
        &self,
        parent: Option<Oid>,
        edits: Vec<FileEdit>,
        message: &str,
        author: &Signature,
        committer: &Signature,
    ) -> Result<std::result::Result<Oid, EditRefusal>> {
        let repository = self.repository()?;
        let missing = |parent| Error::Broken(format!("the commit {parent} is missing"));
        let tree_of = |parent| repository.tree_of(parent)?.ok_or_else(|| missing(parent));
        let base = parent.map(tree_of).transpose()?;
        let mut editing = Editing { repository: &repository, base, edited: BTreeMap::new() };
        for edit in edits {
            if let Err(refusal) = self.make_edit(&repository, &mut editing, edit)? {
                return Ok(Err(refusal));
            }
        }
        let tree = self.write_tree(&repository, editing)?;
        let commit = gix::objs::Commit {
            tree: gix_id(tree),
            parents: parent.map(gix_id).into_iter().collect(),
            author: signature(author),
            committer: signature(committer),
            encoding: None,
            message: message.into(),
            extra_headers: Vec::new(),
        };
        Ok(Ok(self.write(&repository, commit)?))
    }

    fn make_edit(
        &self,
        repository: &Repository,
        editing: &mut Editing<'_>,
        edit: FileEdit,
    ) -> Result<std::result::Result<(), EditRefusal>> {
        let blob = |content: &[u8]| self.write_blob(repository, content);
        let (FileEdit::Create { path, .. }
        | FileEdit::Update { path, .. }
        | FileEdit::Put { path, .. }
        | FileEdit::Delete { path }
        | FileEdit::Move { path, .. }) = &edit;
        let path = match clean_path(path) {
            Ok(path) => path,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let there = editing.state(&path)?;
        let (path, entry) = match (edit, there) {
            (FileEdit::Create { content, .. } | FileEdit::Put { content, .. }, State::Nothing) => {
                (path, Some((EntryKind::Blob, blob(&content)?)))
            }
            (FileEdit::Create { .. }, _) | (FileEdit::Put { .. }, State::InTheWay) => {
                return Ok(Err(EditRefusal::Exists(path)));
            }
            (FileEdit::Update { content, .. } | FileEdit::Put { content, .. }, State::File(kind, _)) => {
                (path, Some((kind, blob(&content)?)))
            }
            (FileEdit::Update { .. }, State::Nothing | State::InTheWay) => {
                return Ok(Err(missing(editing, path, "updated")));
            }
            (FileEdit::Delete { .. }, State::File(..)) => (path, None),
            (FileEdit::Delete { .. }, State::Nothing | State::InTheWay) => {
                return Ok(Err(missing(editing, path, "deleted")));
            }
            (FileEdit::Move { from, content, .. }, State::Nothing) => {
                let from = match clean_path(&from) {
                    Ok(from) => from,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                let State::File(kind, id) = editing.state(&from)? else {
                    return Ok(Err(missing(editing, from, "moved")));
                };
                let id = content.map_or(Ok(id), |content| blob(&content))?;
                editing.edited.insert(from, None);
                (path, Some((kind, id)))
            }
            (FileEdit::Move { .. }, _) => return Ok(Err(EditRefusal::TargetExists(path))),
        };
        editing.edited.insert(path, entry);
        Ok(Ok(()))
    }

    fn write_tree(&self, repository: &Repository, editing: Editing<'_>) -> Result<Oid> {
        let mut buffer = Buffer::default();
        let root = match &editing.base {
            Some(tree) => {
                let data = repository.tree_bytes(tree, &mut buffer)?;
                TreeRef::from_bytes(data, gix::hash::Kind::Sha1).map_err(Error::broken)?.into_owned()
            }
            None => gix::objs::Tree::empty(),
        };
        let trees = Trees::of(repository);
        let mut editor = gix::objs::tree::Editor::new(root, &trees, gix::hash::Kind::Sha1);
        // What goes makes room before something else comes.
        for (path, _) in editing.edited.iter().filter(|(_, entry)| entry.is_none()) {
            editor
                .remove(path.split('/').map(|part| part.as_bytes().as_bstr()))
                .map_err(|error| Error::of_read(&error))?;
        }
        for (path, entry) in &editing.edited {
            if let Some((kind, id)) = entry {
                let parts = path.split('/').map(|part| part.as_bytes().as_bstr());
                editor.upsert(parts, *kind, gix_id(*id)).map_err(|error| Error::of_read(&error))?;
            }
        }
        let id = editor.write(|tree| self.write(repository, tree).map(gix_id))?;
        Ok(oid(&id))
    }
}

fn missing(editing: &Editing<'_>, path: String, done: &'static str) -> EditRefusal {
    if editing.base.is_none() { EditRefusal::Empty } else { EditRefusal::Missing(path, done) }
}

impl Editing<'_> {
    fn state(&self, path: &str) -> Result<State> {
        // A file, a link or a submodule cannot hold anything: what lies below one is not written through it.
        for (at, _) in path.match_indices('/') {
            match self.entry(&path[..at])? {
                Some((kind, _)) if kind != EntryKind::Tree => return Ok(State::InTheWay),
                _ => {}
            }
        }
        let below = format!("{path}/");
        let filled = self.edited.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
        if filled.map(|(_, entry)| entry).any(Option::is_some) {
            return Ok(State::InTheWay);
        }
        Ok(match self.entry(path)? {
            None => State::Nothing,
            Some((EntryKind::Tree | EntryKind::Commit, _)) => State::InTheWay,
            Some((kind, id)) => State::File(kind, id),
        })
    }

    fn entry(&self, path: &str) -> Result<Option<(EntryKind, Oid)>> {
        if let Some(edited) = self.edited.get(path) {
            return Ok(*edited);
        }
        let Some(base) = self.base else { return Ok(None) };
        let found = self.repository.lookup(base, path)?;
        Ok(found.and_then(|found| Some((EntryMode::try_from(u32::from(found.mode)).ok()?.kind(), oid(&found.id)))))
    }
}

/// A path without slashes at its ends, if a repository may hold it: nothing that leads out of it, and no spelling of
/// `.git` that some file system takes for the real one.
fn clean_path(path: &str) -> std::result::Result<String, EditRefusal> {
    let trimmed = path.trim_matches('/');
    if trimmed.split('/').any(|part| part == "..") {
        return Err(EditRefusal::Traversal(path.to_owned()));
    }
    let options =
        gix::validate::path::component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let holds = |part: &str| gix::validate::path::component(part.as_bytes().as_bstr(), None, options).is_ok();
    let fits = trimmed.len() <= LONGEST_PATH
        && !path.starts_with('/')
        && !trimmed.contains(|c: char| c.is_control() || c == '\\');
    if fits && trimmed.split('/').all(holds) {
        Ok(trimmed.to_owned())
    } else {
        Err(EditRefusal::BadPath(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lesson_01_paths_that_some_file_system_takes_for_something_else_are_refused() {
        for good in ["a", "a/b.c", "-x", "a b", "ä/ö", ".gitignore", "a/.gitmodules", "git", "con", "COM1"] {
            assert_eq!(clean_path(good), Ok(good.to_owned()));
        }
        assert_eq!(clean_path("a/b/"), Ok("a/b".to_owned()));
        for bad in ["../a", "a/../b", "a/..", ".."] {
            assert_eq!(clean_path(bad), Err(EditRefusal::Traversal(bad.to_owned())), "{bad}");
        }
        let long = "x/".repeat(3000);
        let bad = [
            "",
            "/",
            "/etc/passwd",
            ".",
            "a/./b",
            "a//b",
            ".git",
            ".GIT",
            ".Git/config",
            "a/.git/hooks/x",
            "git~1",
            "GIT~1/x",
            ".git ",
            ".git.",
            ".git::$INDEX_ALLOCATION",
            ".g\u{200c}it",
            ".gi\u{200d}t/config",
            "a\0b",
            "a\nb",
            "a\\b",
            &long,
        ];
        for bad in bad {
            assert!(clean_path(bad).is_err(), "{bad:?}");
        }
    }
}
