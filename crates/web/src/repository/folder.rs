//! A folder as the home page of a project and the tree pages show it.

use std::sync::Arc;

use axum::http::Uri;
use forge::{
    BlockingContext, ProjectAbility,
    browse::{Folder, RefCounts, Revision, RevisionKind, TextFile},
    commit_authors,
    history_pages::{FolderHistory, UnfinishedFolder},
};
use model::{
    Commit, Project,
    objects::{EntryKind, LastCommit, TreeEntry},
};

use crate::{
    ci::status::StatusView,
    context::Viewer,
    forms::Fields,
    links::{self, ProjectLinks},
    paging::Pager,
    text::{
        self, Markup,
        markdown::{self, Source, SourceFile},
        plain,
        references::ReferenceLinks,
    },
};

/// The number of entries on a page.
pub(crate) const ENTRIES_PER_PAGE: i64 = 500;

/// A folder with its entries and its README.
pub(crate) struct FolderView {
    pub(crate) revision: Revision,
    pub(crate) breadcrumbs: Vec<Breadcrumb>,
    pub(crate) parent_url: Option<String>,
    pub(crate) entries: Vec<EntryView>,
    pub(crate) pager: Pager,
    pub(crate) commit: Commit,
    pub(crate) commit_url: String,
    /// The page of the author of the commit, if it is a user.
    pub(crate) author_url: Option<String>,
    pub(crate) history_url: String,
    pub(crate) readme: Option<ReadmeView>,
    pub(crate) ref_counts: RefCounts,
    /// The URL and the status of the newest pipeline of the commit, if it is shown.
    pub(crate) pipeline: Option<(String, StatusView)>,
    /// What remains to be found of the last commits of the entries.
    pub(crate) unfinished: Option<UnfinishedFolder>,
    /// The form for a new file in this folder.
    pub(crate) new_file_url: Option<String>,
    pub(crate) path: String,
}

/// A part of the path of a folder or a file.
pub(crate) struct Breadcrumb {
    pub(crate) name: String,
    /// `None` for the last part.
    pub(crate) url: Option<String>,
}

/// An entry of a folder.
pub(crate) struct EntryView {
    pub(crate) name: String,
    /// `None` for a submodule.
    pub(crate) url: Option<String>,
    pub(crate) kind: &'static str,
    /// The last commit that changed the entry, if it is known.
    pub(crate) last_commit: Option<Arc<LastCommit>>,
}

/// A rendered README.
pub(crate) struct ReadmeView {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) html: Markup,
}

impl FolderView {
    /// Creates the view and renders the README.
    pub(crate) fn new(
        cx: &mut BlockingContext<'_>,
        project: &Project,
        folder: Folder,
        mut history: FolderHistory,
        uri: &Uri,
    ) -> forge::Result<Self> {
        let Folder { revision, path, entries, commit, readme, ref_counts } = folder;
        let links = ProjectLinks::new(&project.full_path());
        let query = Fields::parse(uri.query().unwrap_or_default());
        let pager = Pager::of(uri, &query, &entries);
        let entry = |entry: TreeEntry| {
            let last_commit = history.by_name.remove(&entry.name);
            EntryView::new(&links, &revision.name, entry, last_commit)
        };
        let parent = (!path.is_empty()).then(|| path.rsplit_once('/').map_or("", |(parent, _)| parent));
        let readme = match readme {
            Some(file) => ReadmeView::new(cx, project, &revision.name, file)?,
            None => None,
        };
        let authors = cx.read(|tx| commit_authors::find(tx, [commit.author.email.as_str()]))?;
        let author = authors.username(&commit.author.email);
        Ok(Self {
            breadcrumbs: breadcrumbs(&links, &project.path, &revision.name, &path),
            parent_url: parent.map(|parent| links.tree(&revision.name, parent)),
            entries: entries.items.into_iter().map(entry).collect(),
            pager,
            author_url: author.map(links::page),
            commit_url: links.commit(&commit.id.to_string()),
            history_url: links.commits(&revision.name, &path),
            commit,
            readme,
            ref_counts,
            pipeline: None,
            unfinished: history.unfinished,
            new_file_url: None,
            revision,
            path,
        })
    }

    /// Adds the link to the form for a new file, if the visitor may use it.
    pub(crate) fn offer_new_file(&mut self, project: &Project, viewer: &Viewer) {
        if self.revision.kind == RevisionKind::Branch && viewer.can_in(project, ProjectAbility::PushCode) {
            let links = ProjectLinks::new(&project.full_path());
            self.new_file_url = Some(links.new_file(&self.revision.name, &self.path));
        }
    }
}

impl EntryView {
    fn new(links: &ProjectLinks, revision: &str, entry: TreeEntry, last_commit: Option<Arc<LastCommit>>) -> Self {
        let (kind, url) = match entry.kind {
            EntryKind::Tree => ("folder", Some(links.tree(revision, &entry.path))),
            EntryKind::Blob if entry.mode == SYMBOLIC_LINK => ("link", Some(links.blob(revision, &entry.path))),
            EntryKind::Blob => ("file", Some(links.blob(revision, &entry.path))),
            EntryKind::Submodule => ("submodule", None),
        };
        Self { name: entry.name, url, kind, last_commit }
    }
}

/// The mode of a symbolic link.
pub(crate) const SYMBOLIC_LINK: u16 = 0o120_000;

impl ReadmeView {
    /// Renders a text file; `None` if it is binary.
    fn new(
        cx: &mut BlockingContext<'_>,
        project: &Project,
        revision: &str,
        file: TextFile,
    ) -> forge::Result<Option<Self>> {
        let Some(text) = text::decode(&file.content) else { return Ok(None) };
        let links = ProjectLinks::new(&project.full_path());
        let source = SourceFile { links: links.clone(), revision: revision.to_owned(), path: file.path.clone() };
        let html = if markdown::is_markdown(&file.path) {
            let references = ReferenceLinks::resolve(cx, project, [text.as_str()])?;
            markdown::render_with(&text, &Source::File(source), &references)
        } else {
            plain::preformatted(&text)
        };
        let name = file.path.rsplit('/').next().unwrap_or(&file.path).to_owned();
        Ok(Some(Self { name, url: links.blob(revision, &file.path), html }))
    }
}

/// Returns the path of a folder or a file, from the root of the repository.
pub(crate) fn breadcrumbs(links: &ProjectLinks, project: &str, revision: &str, path: &str) -> Vec<Breadcrumb> {
    let mut parts = vec![Breadcrumb { name: project.to_owned(), url: Some(links.tree(revision, "")) }];
    let mut end = 0;
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        end = path[end..].find(segment).map_or(path.len(), |at| end + at + segment.len());
        parts.push(Breadcrumb { name: segment.to_owned(), url: Some(links.tree(revision, &path[..end])) });
    }
    if let Some(last) = parts.last_mut() {
        last.url = None;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breadcrumbs_lead_to_the_folders_of_a_path() {
        let links = ProjectLinks::new("ann/rocket");
        let parts = breadcrumbs(&links, "rocket", "main", "src/src/a.rs");
        let parts: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.url.as_deref())).collect();
        assert_eq!(
            parts,
            [
                ("rocket", Some("/ann/rocket/-/tree/main")),
                ("src", Some("/ann/rocket/-/tree/main/src")),
                ("src", Some("/ann/rocket/-/tree/main/src/src")),
                ("a.rs", None),
            ]
        );
    }
}
