//! Search in the code and the history of a project. There is no index, so the search is bounded by the number of files and commits,
//! and by time.

use std::time::{Duration, Instant};

use model::{
    Commit, Oid, Page, Project,
    objects::{EntryKind, TreeEntry},
};

use git::{LogQuery, Repository};

use crate::{BlockingContext, ProjectRef, Result, branches::default_branch, browse::InProject};

/// The number of entries of the default branch that are considered.
pub const MAX_ENTRIES: i64 = 10_000;
/// The number of newest commits that are considered.
pub const MAX_COMMITS: usize = 2000;
/// The time after which a search ends with what it has found.
pub const TIME_LIMIT: Duration = Duration::from_secs(1);
/// Larger files are not searched, in bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 10;
/// The number of files or commits that are returned.
const MAX_FOUND: usize = 50;
/// The number of lines that are returned of each file.
const MAX_LINES: usize = 4;
/// The number of characters that are returned of a line.
const MAX_LINE_LENGTH: usize = 200;

/// What a search in a project found.
pub struct CodeSearch<T> {
    /// The branch; empty if the repository is.
    pub branch: String,
    /// The matches.
    pub found: Vec<T>,
    /// Whether everything was searched.
    pub is_complete: bool,
}

impl<T> CodeSearch<T> {
    /// Starts at the default branch, and returns its commit; `None` if the repository is empty.
    fn open<'a>(&mut self, project: &Project, repository: &'a Repository) -> Option<(&'a Repository, Oid)> {
        let branch = default_branch(project, repository.refs())?;
        branch.name.short().clone_into(&mut self.branch);
        Some((repository, branch.target))
    }
}

/// A file whose name or content contains the text.
pub struct FoundFile {
    /// The path.
    pub path: String,
    /// The numbers of the first matching lines, and their beginnings.
    pub lines: Vec<(usize, String)>,
}

/// Searches the files of the default branch for a text, ignoring case.
pub fn files(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    text: &str,
) -> Result<InProject<CodeSearch<FoundFile>>> {
    let (project, repository) = cx.open_code(project)?;
    let mut search = CodeSearch { branch: String::new(), found: Vec::new(), is_complete: true };
    let Some((repository, head)) = repository.as_ref().and_then(|repository| search.open(&project, repository)) else {
        return Ok(InProject { project, value: search });
    };
    let needle = text.to_lowercase();
    let deadline = Instant::now() + TIME_LIMIT;
    let entries = repository.tree(head, "", true, Page { number: 1, size: MAX_ENTRIES })?;
    search.is_complete = entries.total.at_least() <= MAX_ENTRIES;
    for entry in entries.items.into_iter().filter(|entry| entry.kind == EntryKind::Blob) {
        if search.found.len() >= MAX_FOUND || Instant::now() >= deadline {
            search.is_complete = false;
            break;
        }
        let lines = matching_lines(repository, &entry, &needle)?;
        if !lines.is_empty() || entry.path.to_lowercase().contains(&needle) {
            search.found.push(FoundFile { path: entry.path, lines });
        }
    }
    Ok(InProject { project, value: search })
}

/// Returns the first lines of a file that contain a text; none if the file is large or binary.
fn matching_lines(repository: &Repository, entry: &TreeEntry, needle: &str) -> Result<Vec<(usize, String)>> {
    if repository.blob_size(entry.id)?.is_none_or(|size| size > MAX_FILE_BYTES) {
        return Ok(Vec::new());
    }
    let mut content = Vec::new();
    repository.write_blob(entry.id, &mut content)?;
    if content.contains(&0) {
        return Ok(Vec::new());
    }
    let content = String::from_utf8_lossy(&content);
    let lines = (1..).zip(content.lines()).filter(|(_, line)| line.to_lowercase().contains(needle));
    Ok(lines.take(MAX_LINES).map(|(number, line)| (number, line.chars().take(MAX_LINE_LENGTH).collect())).collect())
}

/// Searches the messages of the newest commits of the default branch for a text, ignoring case.
pub fn commits(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    text: &str,
) -> Result<InProject<CodeSearch<Commit>>> {
    let (project, repository) = cx.open_code(project)?;
    let mut search = CodeSearch { branch: String::new(), found: Vec::new(), is_complete: true };
    let Some((repository, head)) = repository.as_ref().and_then(|repository| search.open(&project, repository)) else {
        return Ok(InProject { project, value: search });
    };
    let needle = text.to_lowercase();
    let commits = repository.log(head, &LogQuery { limit: MAX_COMMITS, ..LogQuery::default() })?;
    search.is_complete = commits.len() < MAX_COMMITS;
    let mut matching = commits.into_iter().filter(|commit| commit.message.to_lowercase().contains(&needle));
    search.found.extend(matching.by_ref().take(MAX_FOUND));
    search.is_complete &= matching.next().is_none();
    Ok(InProject { project, value: search })
}
