//! What the pages of a repository show: folders, files, history, differences, branches and tags.
//!
//! A URL has the revision and the path in one text, and both may contain slashes; see `locate`.

use git::{CommitListBudget, ContainingRefs, LogQuery, Refs, Repository, Whitespace};
use model::{
    Commit, CommitNote, Oid, Page, Project, RefName, Slice,
    objects::{CommitStats, Comparison, EntryKind, FileDiff, TreeEntry},
};

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::{self, Branch, count, default_branch},
    contents::{self, BlobContent, LargeBlob, RawFile},
    tags::{self, TagWithRelease},
};

/// The maximum number of slashes in the revision part of a URL.
const MAX_REVISION_SEGMENTS: usize = 32;
/// The maximum number of skipped commits for a page of the history on a thread for short reads.
const MAX_INLINE_SKIP: usize = 1000;
/// The maximum number of branches, and of tags, that a page lists for a commit.
const MAX_CONTAINING_REFS: usize = 20;
/// The names of files that describe a folder, in order of preference.
const README_NAMES: [&str; 6] = ["README.md", "README.markdown", "README", "README.txt", "README.rst", "README.adoc"];
/// The maximum size of a file that is shown below a folder, in bytes.
const MAX_README_BYTES: u64 = 512 << 10;

/// A revision as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The name of the branch or the tag, or the id of the commit as it was written.
    pub name: String,
    /// What the name stands for.
    pub kind: RevisionKind,
    /// The commit.
    pub commit: Oid,
}

/// What the name of a revision stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevisionKind {
    /// A branch.
    Branch,
    /// A tag.
    Tag,
    /// A commit.
    Commit,
}

/// The home page of a project.
pub struct ProjectHome {
    /// The project.
    pub project: Project,
    /// Whether the visitor may push.
    pub can_push: bool,
    /// Whether the visitor has starred the project.
    pub is_starred: bool,
    /// The code.
    pub code: HomeCode,
}

/// The code on the home page of a project.
pub enum HomeCode {
    /// The visitor may not read it.
    Hidden,
    /// Nothing was pushed yet.
    Empty,
    /// The root folder of the default branch.
    Root(Box<Folder>),
}

/// A folder in a revision.
pub struct Folder {
    /// The revision.
    pub revision: Revision,
    /// The path of the folder; empty for the root.
    pub path: String,
    /// The entries: folders, then files, then submodules.
    pub entries: Slice<TreeEntry>,
    /// The commit of the revision.
    pub commit: Commit,
    /// The file that describes the folder.
    pub readme: Option<TextFile>,
    /// The numbers of branches and tags.
    pub ref_counts: RefCounts,
}

/// The numbers of branches and tags of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefCounts {
    /// Branches.
    pub branches: usize,
    /// Tags.
    pub tags: usize,
}

/// The path and the content of a file.
pub struct TextFile {
    /// The path.
    pub path: String,
    /// The content, in any encoding.
    pub content: Vec<u8>,
}

/// A file in a revision.
pub struct File {
    /// The revision.
    pub revision: Revision,
    /// The path and the mode of the file.
    pub entry: TreeEntry,
    /// The size, in bytes.
    pub size: u64,
    /// The content; `None` if it is too large to be shown.
    pub content: Option<Vec<u8>>,
}

/// A folder or a file.
pub enum FolderOrFile {
    /// A folder.
    Folder(Box<Folder>),
    /// A file.
    File(Box<File>),
}

/// A page of the history of a revision or a path.
pub struct History {
    /// The revision.
    pub revision: Revision,
    /// The path whose changes are listed; empty for all.
    pub path: String,
    /// The commits, newest first.
    pub commits: Vec<Commit>,
    /// The number of this page, starting at 1.
    pub page: i64,
    /// Whether there are older commits.
    pub has_more: bool,
}

/// A commit with its differences from its first parent.
pub struct CommitPage {
    /// The commit.
    pub commit: Commit,
    /// The numbers of added and removed lines.
    pub stats: CommitStats,
    /// The differences of all files.
    pub diffs: Vec<FileDiff>,
    /// Whether files or differences are missing because there are too many.
    pub is_truncated: bool,
    /// The first branches that contain the commit.
    pub branches: Vec<String>,
    /// The first tags that contain the commit.
    pub tags: Vec<String>,
    /// Whether there may be more branches or tags.
    pub has_more_refs: bool,
    /// The comments, oldest first.
    pub notes: Slice<CommitNote>,
}

/// A comparison of two revisions.
pub struct ComparePage {
    /// The older revision, as it was written.
    pub from: String,
    /// The newer revision, as it was written.
    pub to: String,
    /// The result; `None` if one of the revisions does not exist.
    pub comparison: Option<Comparison>,
    /// The common ancestor that the newer revision is compared with.
    pub base: Option<Oid>,
    /// The names of the branches and tags to choose from; the first of them if there are many.
    pub names: Vec<String>,
}

/// A value with the project that it belongs to.
pub struct InProject<T> {
    /// The project.
    pub project: Project,
    /// The value.
    pub value: T,
}

/// Returns the home page of a project. The code is hidden from visitors who may see the project only.
pub fn home(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<ProjectHome> {
    let project = tx.project(project, ProjectAbility::ViewProject)?;
    let page = *page.validate()?;
    let can_push = tx.can(&project, ProjectAbility::PushCode);
    let user = tx.actor().user().map(|user| user.id);
    let is_starred =
        user.map(|user| store::projects::is_starred(tx.db(), project.id, user)).transpose()?.unwrap_or_default();
    if !tx.can(&project, ProjectAbility::DownloadCode) {
        return Ok(ProjectHome { project, can_push, is_starred, code: HomeCode::Hidden });
    }
    let repository = tx.repository(&project)?;
    let found = repository.as_ref().and_then(|repository| {
        default_branch(&project, repository.refs()).map(|branch| (repository, branch.name.short(), branch.target))
    });
    let code = match found {
        None => HomeCode::Empty,
        Some((repository, name, commit)) => {
            let revision = Revision { name: name.to_owned(), kind: RevisionKind::Branch, commit };
            let folder = open_folder(repository, revision, String::new(), page)?;
            folder.map_or(HomeCode::Empty, |folder| HomeCode::Root(Box::new(folder)))
        }
    };
    Ok(ProjectHome { project, can_push, is_starred, code })
}

/// Returns the folder or the file at a revision and a path.
pub fn entry(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    location: &str,
    page: &Unvalidated<Page>,
) -> Result<InProject<FolderOrFile>> {
    let (project, repository) = tx.open_code(project)?;
    let page = *page.validate()?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    let entry = if path.is_empty() { None } else { Some(repository.entry(revision.commit, &path)?) };
    let value = match entry {
        None => FolderOrFile::Folder(Box::new(open_folder(&repository, revision, path, page)?.ok_or_else(missing)?)),
        Some(Some(entry)) => match entry.kind {
            EntryKind::Tree => {
                FolderOrFile::Folder(Box::new(open_folder(&repository, revision, path, page)?.ok_or_else(missing)?))
            }
            EntryKind::Blob => {
                let RawFile { size, content, .. } =
                    contents::open_blob(project.id, &repository, entry.id)?.ok_or_else(missing)?;
                let content = match content {
                    BlobContent::Inline(bytes) => Some(bytes),
                    BlobContent::Large(LargeBlob { .. }) => None,
                };
                FolderOrFile::File(Box::new(File { revision, entry, size, content }))
            }
            EntryKind::Submodule => return Err(missing()),
        },
        Some(None) => return Err(missing()),
    };
    Ok(InProject { project, value })
}

/// Returns the raw file at a revision and a path.
pub fn raw(tx: &mut ReadTx<'_>, project: &ProjectRef, location: &str) -> Result<RawFile> {
    let (project, repository) = tx.open_code(project)?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    let entry = contents::blob_at(&repository, revision.commit, &path)?.ok_or_else(missing)?;
    contents::open_blob(project.id, &repository, entry.id)?.ok_or_else(missing)
}

/// Returns a page of the history of a revision, or of a path in it. The history of a path takes longer.
pub async fn history(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    location: String,
    page: Unvalidated<Page>,
) -> Result<InProject<History>> {
    let first = {
        let (project, location, page) = (project.clone(), location.clone(), page.clone());
        forge.read(caller.clone(), move |tx| {
            let opened = open_history(tx, &project, &location, &page)?;
            let is_short = opened.2.path.is_none() && opened.2.skip <= MAX_INLINE_SKIP;
            if is_short { read_history(opened, &page).map(Some) } else { Ok(None) }
        })
    };
    if let Some(history) = first.await? {
        return Ok(history);
    }
    forge
        .run_blocking(caller, move |cx| {
            read_history(cx.read(|tx| open_history(tx, &project, &location, &page))?, &page)
        })
        .await
}

type OpenHistory = (Project, (Repository, Revision, String), LogQuery);

fn open_history(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    location: &str,
    page: &Unvalidated<Page>,
) -> Result<OpenHistory> {
    let (project, repository) = tx.open_code(project)?;
    let page = *page.validate()?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let (revision, path) = locate(&repository, location)?.ok_or_else(missing)?;
    let size = usize::try_from(page.size).unwrap_or_default();
    let skip = usize::try_from(page.offset()).unwrap_or(usize::MAX);
    let query = LogQuery {
        path: Some(path.clone()).filter(|path| !path.is_empty()),
        skip,
        // One more than the page shows, to know whether there is a next page.
        limit: size.saturating_add(1),
        ..LogQuery::default()
    };
    Ok((project, (repository, revision, path), query))
}

fn read_history(opened: OpenHistory, page: &Unvalidated<Page>) -> Result<InProject<History>> {
    let (project, (repository, revision, path), query) = opened;
    let page = *page.validate()?;
    let mut commits = repository.log(revision.commit, &query)?;
    let size = usize::try_from(page.size).unwrap_or_default();
    let has_more = commits.len() > size;
    commits.truncate(size);
    // A path that no commit has changed does not exist.
    if commits.is_empty() && !path.is_empty() && page.number == 1 {
        return Err(Error::NotFound(None));
    }
    Ok(InProject { project, value: History { revision, path, commits, page: page.number, has_more } })
}

/// Returns a commit with its differences, by its id, a branch or a tag.
pub fn commit(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    name: &str,
    ignores_whitespace: bool,
    notes: &Unvalidated<Page>,
) -> Result<InProject<CommitPage>> {
    let (project, repository) = cx.open_code(project)?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let id = repository.resolve(name)?.ok_or_else(missing)?;
    let commit = repository.commit(id)?.ok_or_else(missing)?;
    let (diffs, stats, is_truncated) = repository.whole_commit_diff(id, whitespace(ignores_whitespace))?;
    let ContainingRefs { branches, tags, is_complete } = repository.refs_containing(id, MAX_CONTAINING_REFS)?;
    // Visitors who are not signed in see comments, too; the use case of the API requires a user.
    let page = *notes.validate()?;
    let notes = cx.read(|tx| {
        let project = tx.project(&ProjectRef::Id(project.id), ProjectAbility::DownloadCode)?;
        Ok(store::commit_notes::list(tx.db(), project.id, id, page)?)
    })?;
    let has_more_refs = !is_complete;
    let value = CommitPage { commit, stats, diffs, is_truncated, branches, tags, has_more_refs, notes };
    Ok(InProject { project, value })
}

/// Returns a commit as a file for `git apply`, or for `git am` if it is to have the message; fails if it is too large.
pub fn patch(cx: &mut BlockingContext<'_>, project: &ProjectRef, name: &str, has_message: bool) -> Result<String> {
    let (_, repository) = cx.open_code(project)?;
    let missing = || Error::NotFound(None);
    let repository = repository.ok_or_else(missing)?;
    let id = repository.resolve(name)?.ok_or_else(missing)?;
    let text = if has_message {
        repository.patch_file(&repository.commit(id)?.ok_or_else(missing)?)?
    } else {
        repository.diff_file(id)?
    };
    text.ok_or_else(|| {
        Error::Refused("The differences are too large for a patch. Clone the repository instead.".into())
    })
}

/// Compares two revisions. Without them, returns only the names to choose from.
pub fn compare(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    range: Option<&(String, String)>,
    ignores_whitespace: bool,
    max_names: usize,
) -> Result<InProject<ComparePage>> {
    let (project, repository) = cx.open_code(project)?;
    let repository = repository.ok_or(Error::NotFound(None))?;
    let refs = repository.refs();
    let names = refs.branches.iter().chain(&refs.tags).take(max_names);
    let names = names.map(|reference| reference.name.short().to_owned()).collect();
    let default = default_branch(&project, refs).map(|branch| branch.name.short().to_owned()).unwrap_or_default();
    let (from, to) = range.cloned().unwrap_or_else(|| (default.clone(), default));
    let comparison = match (range, repository.resolve(from.trim())?, repository.resolve(to.trim())?) {
        (Some(_), Some(from), Some(to)) => Some(repository.compare_with(from, to, whitespace(ignores_whitespace))?),
        _ => None,
    };
    let (comparison, base) = comparison.map_or((None, None), |(comparison, base)| (Some(comparison), base));
    Ok(InProject { project, value: ComparePage { from, to, comparison, base, names } })
}

fn whitespace(ignores_whitespace: bool) -> Whitespace {
    if ignores_whitespace { Whitespace::Ignored } else { Whitespace::Significant }
}

/// Lists the branches whose names contain a text, by name.
pub fn branches(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    search: &str,
    page: &Unvalidated<Page>,
) -> Result<InProject<(Slice<Branch>, Option<String>)>> {
    let project = tx.project(project, ProjectAbility::DownloadCode)?;
    let page = *page.validate()?;
    let default = tx.repository(&project)?.and_then(|repository| {
        default_branch(&project, repository.refs()).map(|branch| branch.name.short().to_owned())
    });
    let list = branches::list_in(tx, &project, search, page)?;
    Ok(InProject { project, value: (list, default) })
}

/// Lists the tags whose names contain a text, by name, descending.
pub fn tags(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    search: &str,
    page: &Unvalidated<Page>,
) -> Result<InProject<Slice<TagWithRelease>>> {
    let project = tx.project(project, ProjectAbility::DownloadCode)?;
    let list = tags::list_in(tx, &project, search, *page.validate()?)?;
    Ok(InProject { project, value: list })
}

/// Splits the text after `/-/tree/` and the like into a revision and a path. The longest branch or tag that begins the text
/// is the revision; without one, the first segment is the id of a commit. `None` if there is no such revision.
pub(crate) fn locate(repository: &Repository, location: &str) -> Result<Option<(Revision, String)>> {
    let location = location.trim_matches('/');
    if let Some((revision, path)) = locate_ref(repository.refs(), location) {
        return Ok(Some((revision, path.to_owned())));
    }
    let (name, path) = location.split_once('/').unwrap_or((location, ""));
    let commit = repository.resolve(name)?;
    Ok(commit.map(|commit| {
        (Revision { name: name.to_owned(), kind: RevisionKind::Commit, commit }, path.trim_matches('/').to_owned())
    }))
}

fn locate_ref<'a>(refs: &Refs, location: &'a str) -> Option<(Revision, &'a str)> {
    let ends = location.match_indices('/').map(|(at, _)| at).take(MAX_REVISION_SEGMENTS).collect::<Vec<_>>();
    let ends = ends.into_iter().chain([location.len()]).rev();
    for end in ends {
        let (name, path) = (&location[..end], location[end..].trim_matches('/'));
        let branch = RefName::branch(name).map(|name| (name, RevisionKind::Branch));
        let tag = RefName::tag(name).map(|name| (name, RevisionKind::Tag));
        // A branch takes precedence over a tag, as in `Repository::resolve`.
        for (full_name, kind) in [branch, tag].into_iter().flatten() {
            if let Some(found) = refs.find(&full_name) {
                let revision = Revision { name: name.to_owned(), kind, commit: found.peeled_target() };
                return Some((revision, path));
            }
        }
    }
    None
}

/// Opens a folder; `None` if the revision is not a commit, or the folder does not exist.
fn open_folder(repository: &Repository, revision: Revision, path: String, page: Page) -> Result<Option<Folder>> {
    let Some(mut commit) = repository.commit(revision.commit)? else { return Ok(None) };
    CommitListBudget::default().truncate(&mut commit);
    let entries = repository.tree(revision.commit, &path, false, page)?;
    let readme = find_readme(repository, &revision, &path, &entries)?;
    let refs = repository.refs();
    let ref_counts = RefCounts { branches: refs.branches.len(), tags: refs.tags.len() };
    Ok(Some(Folder { revision, path, entries, commit, readme, ref_counts }))
}

fn find_readme(
    repository: &Repository,
    revision: &Revision,
    path: &str,
    entries: &Slice<TreeEntry>,
) -> Result<Option<TextFile>> {
    let is_complete = entries.total.at_least() == count(entries.items.len());
    let mut found = None;
    for name in README_NAMES {
        let matches = |entry: &&TreeEntry| entry.kind == EntryKind::Blob && entry.name.eq_ignore_ascii_case(name);
        found = entries.items.iter().find(matches).cloned();
        if found.is_none() && !is_complete {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            found = contents::blob_at(repository, revision.commit, &path)?;
        }
        if found.is_some() {
            break;
        }
    }
    let Some(entry) = found else { return Ok(None) };
    match repository.blob_size(entry.id)? {
        Some(size) if size <= MAX_README_BYTES => {
            let mut content = Vec::new();
            repository.write_blob(entry.id, &mut content)?;
            Ok(Some(TextFile { path: entry.path, content }))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use git::Ref;

    use super::*;

    #[test]
    fn the_longest_ref_that_begins_a_location_is_its_revision() {
        let names = ["refs/heads/main", "refs/heads/topic/one", "refs/tags/main", "refs/tags/topic", "refs/tags/v1.0"];
        let refs =
            names.map(|name| Ref { name: RefName::new(name).expect("a name"), target: Oid([1; 20]), peeled: None });
        let refs = Refs::from_sorted(1, None, refs);
        let check = |location: &str, expected: Option<(&str, RevisionKind, &str)>| {
            let found = locate_ref(&refs, location);
            let found = found.as_ref().map(|(revision, path)| (revision.name.as_str(), revision.kind, *path));
            assert_eq!(found, expected, "{location}");
        };
        check("main", Some(("main", RevisionKind::Branch, "")));
        check("main/src/lib.rs", Some(("main", RevisionKind::Branch, "src/lib.rs")));
        check("topic/one", Some(("topic/one", RevisionKind::Branch, "")));
        check("topic/one/x", Some(("topic/one", RevisionKind::Branch, "x")));
        check("topic/two", Some(("topic", RevisionKind::Tag, "two")));
        check("v1.0/docs", Some(("v1.0", RevisionKind::Tag, "docs")));
        check("gone/docs", None);
        check("", None);
    }
}
