//! Creates commits from edits to files. Trees are built in the object database: there is no work tree in which a
//! symbolic link or a crafted path could lead elsewhere.

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
    objects::TreeFinder,
    quarantine::signature,
    repository::{gix_id, oid},
};

/// The maximum length of a path.
const MAX_EDIT_PATH_LENGTH: usize = 4096;

/// A change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEdit {
    /// Creates a file; fails if the path exists.
    Create {
        /// The path.
        path: String,
        /// The content.
        content: Vec<u8>,
    },
    /// Replaces the content of an existing file.
    Update {
        /// The path.
        path: String,
        /// The new content.
        content: Vec<u8>,
    },
    /// Creates a file or replaces its content.
    Put {
        /// The path.
        path: String,
        /// The new content.
        content: Vec<u8>,
    },
    /// Deletes an existing file.
    Delete {
        /// The path.
        path: String,
    },
    /// Renames an existing file.
    Move {
        /// The old path.
        from: String,
        /// The new path; fails if it exists.
        path: String,
        /// The new content, if it changes.
        content: Option<Vec<u8>>,
    },
}

/// Why an edit was refused, with the path in question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The path is not allowed in a repository.
    #[error("the path {0} is not allowed in a repository")]
    BadPath(String),
    /// The path leads out of the repository.
    #[error("the path {0} leads out of the repository")]
    Traversal(String),
    /// The path exists.
    #[error("{0} exists")]
    Exists(String),
    /// The file does not exist; also says what was to be done to it.
    #[error("{0}, which is to be {1}, does not exist")]
    Missing(String, &'static str),
    /// The new path of a renamed file exists.
    #[error("the new path {0} exists")]
    TargetExists(String),
    /// The repository is empty.
    #[error("the repository is empty")]
    Empty,
}

/// What exists at a path after the edits so far.
enum PathState {
    Vacant,
    File(EntryKind, Oid),
    /// A folder, a submodule, or a path below a file.
    Blocked,
}

struct EditSession<'a> {
    repository: &'a Repository,
    base: Option<ObjectId>,
    edited: BTreeMap<String, Option<(EntryKind, Oid)>>,
}

impl Quarantine {
    /// Writes a commit that applies all edits to its parent, or none.
    pub fn commit(
        &self,
        parent: Option<Oid>,
        edits: Vec<FileEdit>,
        message: &str,
        author: &Signature,
        committer: &Signature,
    ) -> Result<std::result::Result<Oid, EditError>> {
        let repository = self.repository()?;
        let missing = |parent| Error::corrupt(format!("the commit {parent} is missing"));
        let tree_of = |parent| repository.tree_of(parent)?.ok_or_else(|| missing(parent));
        let base = parent.map(tree_of).transpose()?;
        let mut session = EditSession { repository: &repository, base, edited: BTreeMap::new() };
        for edit in edits {
            if let Err(error) = self.apply_edit(&mut session, edit)? {
                return Ok(Err(error));
            }
        }
        let tree = self.write_tree(&repository, session)?;
        let commit = gix::objs::Commit {
            tree: gix_id(tree),
            parents: parent.map(gix_id).into_iter().collect(),
            author: signature(author),
            committer: signature(committer),
            encoding: None,
            message: message.into(),
            extra_headers: Vec::new(),
        };
        Ok(Ok(self.write(commit)?))
    }

    fn apply_edit(&self, session: &mut EditSession<'_>, edit: FileEdit) -> Result<std::result::Result<(), EditError>> {
        let blob = |content: &[u8]| self.write_blob(content);
        let (FileEdit::Create { path, .. }
        | FileEdit::Update { path, .. }
        | FileEdit::Put { path, .. }
        | FileEdit::Delete { path }
        | FileEdit::Move { path, .. }) = &edit;
        let path = match clean_path(path) {
            Ok(path) => path,
            Err(error) => return Ok(Err(error)),
        };
        let current = session.state(&path)?;
        let (path, entry) = match (edit, current) {
            (FileEdit::Create { content, .. } | FileEdit::Put { content, .. }, PathState::Vacant) => {
                (path, Some((EntryKind::Blob, blob(&content)?)))
            }
            (FileEdit::Create { .. }, _) | (FileEdit::Put { .. }, PathState::Blocked) => {
                return Ok(Err(EditError::Exists(path)));
            }
            (FileEdit::Update { content, .. } | FileEdit::Put { content, .. }, PathState::File(kind, _)) => {
                (path, Some((kind, blob(&content)?)))
            }
            (FileEdit::Update { .. }, PathState::Vacant | PathState::Blocked) => {
                return Ok(Err(missing(session, path, "updated")));
            }
            (FileEdit::Delete { .. }, PathState::File(..)) => (path, None),
            (FileEdit::Delete { .. }, PathState::Vacant | PathState::Blocked) => {
                return Ok(Err(missing(session, path, "deleted")));
            }
            (FileEdit::Move { from, content, .. }, PathState::Vacant) => {
                let from = match clean_path(&from) {
                    Ok(from) => from,
                    Err(error) => return Ok(Err(error)),
                };
                let PathState::File(kind, id) = session.state(&from)? else {
                    return Ok(Err(missing(session, from, "moved")));
                };
                let id = content.map_or(Ok(id), |content| blob(&content))?;
                session.edited.insert(from, None);
                (path, Some((kind, id)))
            }
            (FileEdit::Move { .. }, _) => return Ok(Err(EditError::TargetExists(path))),
        };
        session.edited.insert(path, entry);
        Ok(Ok(()))
    }

    fn write_tree(&self, repository: &Repository, session: EditSession<'_>) -> Result<Oid> {
        let mut buffer = Buffer::default();
        let root = match &session.base {
            Some(tree) => {
                let data = repository.tree_bytes(tree, &mut buffer)?;
                TreeRef::from_bytes(data, gix::hash::Kind::Sha1).map_err(Error::corrupt)?.into_owned()
            }
            None => gix::objs::Tree::empty(),
        };
        let trees = TreeFinder::of(repository);
        let mut editor = gix::objs::tree::Editor::new(root, &trees, gix::hash::Kind::Sha1);
        // Removals come first, because they can make paths available.
        for (path, _) in session.edited.iter().filter(|(_, entry)| entry.is_none()) {
            editor.remove(path.split('/').map(|part| part.as_bytes().as_bstr())).map_err(Error::from_read)?;
        }
        for (path, entry) in &session.edited {
            if let Some((kind, id)) = entry {
                let parts = path.split('/').map(|part| part.as_bytes().as_bstr());
                editor.upsert(parts, *kind, gix_id(*id)).map_err(Error::from_read)?;
            }
        }
        let id = editor.write(|tree| self.write(tree).map(gix_id))?;
        Ok(oid(&id))
    }
}

fn missing(session: &EditSession<'_>, path: String, done: &'static str) -> EditError {
    if session.base.is_none() { EditError::Empty } else { EditError::Missing(path, done) }
}

impl EditSession<'_> {
    fn state(&self, path: &str) -> Result<PathState> {
        // Nothing can be written through a file, a symbolic link or a submodule.
        for (at, _) in path.match_indices('/') {
            match self.entry(&path[..at])? {
                Some((kind, _)) if kind != EntryKind::Tree => return Ok(PathState::Blocked),
                _ => {}
            }
        }
        let below = format!("{path}/");
        let occupied = self.edited.range(below.clone()..).take_while(|(other, _)| other.starts_with(&below));
        if occupied.map(|(_, entry)| entry).any(Option::is_some) {
            return Ok(PathState::Blocked);
        }
        Ok(match self.entry(path)? {
            None => PathState::Vacant,
            Some((EntryKind::Tree | EntryKind::Commit, _)) => PathState::Blocked,
            Some((kind, id)) => PathState::File(kind, id),
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

/// Trims slashes from a path and validates it: it must not lead out of the repository, nor contain a spelling of `.git`
/// that some file system treats as the real one.
fn clean_path(path: &str) -> std::result::Result<String, EditError> {
    let trimmed = path.trim_matches('/');
    if trimmed.split('/').any(|part| part == "..") {
        return Err(EditError::Traversal(path.to_owned()));
    }
    let options =
        gix::validate::path::component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let is_valid_component =
        |part: &str| gix::validate::path::component(part.as_bytes().as_bstr(), None, options).is_ok();
    let is_valid = trimmed.len() <= MAX_EDIT_PATH_LENGTH
        && !path.starts_with('/')
        && !trimmed.contains(|c: char| c.is_control() || c == '\\');
    if is_valid && trimmed.split('/').all(is_valid_component) {
        Ok(trimmed.to_owned())
    } else {
        Err(EditError::BadPath(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_some_file_system_takes_for_something_else_are_refused() {
        for good in ["a", "a/b.c", "-x", "a b", "ä/ö", ".gitignore", "a/.gitmodules", "git", "con", "COM1"] {
            assert_eq!(clean_path(good), Ok(good.to_owned()));
        }
        assert_eq!(clean_path("a/b/"), Ok("a/b".to_owned()));
        for bad in ["../a", "a/../b", "a/..", ".."] {
            assert_eq!(clean_path(bad), Err(EditError::Traversal(bad.to_owned())), "{bad}");
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
