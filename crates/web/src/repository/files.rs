//! Folders and files of a revision.

use std::sync::Arc;

use askama::Template;
use forge::{
    BlockingContext, Caller, ProjectAbility,
    browse::{self, File, FolderOrFile, InProject, Revision, RevisionKind},
    history_pages::{self, FolderHistory, UnfinishedFolder},
};
use model::{
    Oid, Project,
    objects::{EntryKind, LastCommit},
};

use super::folder::{self, Breadcrumb, ENTRIES_PER_PAGE, FolderView, SYMBOLIC_LINK};
use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging, response,
    text::{
        self, Markup, csv, diff,
        highlight::{HighlightCache, Lines, MAX_BYTES, MAX_LINES},
        markdown::{self, Source, SourceFile},
        references::ReferenceLinks,
    },
};

#[derive(Template)]
#[template(path = "repository/tree.html")]
struct TreeTemplate {
    layout: Layout,
    head: ProjectHead,
    folder: FolderView,
}

#[derive(Template)]
#[template(path = "repository/blob.html")]
struct BlobTemplate {
    layout: Layout,
    head: ProjectHead,
    file: FileView,
}

struct FileView {
    revision: Revision,
    name: String,
    path: String,
    breadcrumbs: Vec<Breadcrumb>,
    size: String,
    note: Option<&'static str>,
    /// The last commit that changed the file, if it was found in time.
    last_commit: Option<Arc<LastCommit>>,
    unfinished_history: Option<UnfinishedFolder>,
    raw_url: String,
    history_url: String,
    /// The URL of the file in this commit, whatever happens to the branch.
    permanent_url: String,
    blame_url: Option<String>,
    edit_url: Option<String>,
    /// The other way to show a Markdown file: the source, or the rendered text.
    other_view: Option<(&'static str, String)>,
    content: FileContent,
    /// The blob and its text, if not all of it was highlighted in time.
    unfinished: Option<(Oid, String)>,
}

enum FileContent {
    Lines(Arc<Lines>),
    Rendered(Markup),
    Image,
    Table(csv::Table),
    /// Why the content is not shown.
    Omitted(&'static str),
}

enum View {
    Folder(Box<FolderView>),
    File(Box<FileView>),
    /// The page of the other kind.
    Moved(String),
}

/// Leads to the home page of the project, which shows the default branch.
pub(crate) async fn redirect_to_home(cx: PageCx) -> PageResult {
    Ok(response::redirect(ProjectLinks::new(&cx.params.subject).home()))
}

/// Shows a folder; leads to the page of the file if there is one at this path.
pub(crate) async fn folder(cx: PageCx) -> PageResult {
    show(cx, EntryKind::Tree).await
}

/// Shows a file; leads to the page of the folder if there is one at this path.
pub(crate) async fn file(cx: PageCx) -> PageResult {
    show(cx, EntryKind::Blob).await
}

async fn show(cx: PageCx, requested: EntryKind) -> PageResult {
    let (project, location, query) = (cx.project(), cx.params.location.clone(), cx.query());
    let page = paging::requested(&query, ENTRIES_PER_PAGE);
    let is_plain = query.get("plain") == "1";
    let (uri, pages) = (cx.uri.clone(), cx.pages.clone());
    let (viewer, (project, view)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = cx.read(|tx| browse::entry(tx, &project, &location, &page))?;
            let links = ProjectLinks::new(&project.full_path());
            let view = match value {
                FolderOrFile::Folder(folder) if requested == EntryKind::Blob => {
                    View::Moved(links.tree(&folder.revision.name, &folder.path))
                }
                FolderOrFile::File(file) if requested == EntryKind::Tree => {
                    View::Moved(links.blob(&file.revision.name, &file.entry.path))
                }
                FolderOrFile::Folder(folder) => {
                    let history = history_pages::last_commits(cx, project.id, &folder)?;
                    View::Folder(Box::new(FolderView::new(cx, &project, *folder, history, &uri)?))
                }
                FolderOrFile::File(file) => {
                    let history = history_pages::last_commit(cx, project.id, &file)?;
                    let view = FileView::new(cx, &project, *file, history, is_plain, &pages.0.highlight_cache)?;
                    View::File(Box::new(view))
                }
            };
            Ok((project, view))
        })
        .await?;
    let head = ProjectHead::new(&project, Tab::Code, &viewer);
    match view {
        View::Moved(url) => Ok(response::redirect(&url)),
        View::Folder(mut folder) => {
            folder.offer_new_file(&project, &viewer);
            if let Some(unfinished) = folder.unfinished.clone() {
                history_pages::complete_later(cx.forge(), cx.caller(), unfinished);
            }
            let path = folder.breadcrumbs.iter().skip(1).map(|part| part.name.as_str()).collect::<Vec<_>>().join("/");
            let title = title(&path, &folder.revision, &project);
            response::page(&TreeTemplate { layout: Layout::new(&cx, viewer, title), head, folder: *folder })
        }
        View::File(mut file) => {
            let is_editable = file.revision.kind == RevisionKind::Branch && file.note != Some("symbolic link");
            if is_editable && viewer.can_in(&project, ProjectAbility::PushCode) {
                file.edit_url = Some(head.links.edit(&file.revision.name, &file.path));
            }
            let title = title(&file.name, &file.revision, &project);
            if let Some(unfinished) = file.unfinished_history.clone() {
                history_pages::complete_later(cx.forge(), cx.caller(), unfinished);
            }
            if let Some((id, text)) = file.unfinished.clone() {
                highlight_later(&cx, id, file.name.clone(), text);
            }
            response::page(&BlobTemplate { layout: Layout::new(&cx, viewer, title), head, file: *file })
        }
    }
}

/// Highlights a file after the response, so that the next visitor sees all of it in colours.
fn highlight_later(cx: &PageCx, id: Oid, name: String, text: String) {
    let pages = cx.pages.clone();
    tokio::spawn(async move {
        let forge = pages.0.forge.clone();
        let highlighting = forge.run_blocking(Caller::anonymous(), move |_| {
            pages.0.highlight_cache.highlight_later(id, &name, &text);
            Ok(())
        });
        // If the server is busy, the next visitor sees the file as this one did.
        let _ = highlighting.await;
    });
}

fn title(path: &str, revision: &Revision, project: &Project) -> String {
    match path {
        "" => format!("{} · {}", revision.name, project.full_path()),
        path => format!("{path} · {} · {}", revision.name, project.full_path()),
    }
}

impl FileView {
    fn new(
        cx: &mut BlockingContext<'_>,
        project: &Project,
        file: File,
        mut history: FolderHistory,
        is_plain: bool,
        cache: &HighlightCache,
    ) -> forge::Result<Self> {
        let links = ProjectLinks::new(&project.full_path());
        let (revision, path) = (file.revision.name.clone(), file.entry.path.clone());
        let content = FileContent::new(cx, project, &file, is_plain, cache)?;
        let unfinished = match &content {
            FileContent::Lines(lines) if !lines.is_complete => file.content.as_deref().and_then(text::decode),
            _ => None,
        };
        let blob_url = links.blob(&revision, &path);
        let extension = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let other_view = match content {
            FileContent::Rendered(_) | FileContent::Table(_) => Some(("Source", format!("{blob_url}?plain=1"))),
            FileContent::Image if extension == "svg" => Some(("Source", format!("{blob_url}?plain=1"))),
            FileContent::Lines(_) if markdown::is_markdown(&path) => Some(("Rendered", blob_url)),
            FileContent::Lines(_) if extension == "svg" => Some(("Image", blob_url)),
            FileContent::Lines(_) if is_plain && is_table(&extension) => Some(("Table", blob_url)),
            _ => None,
        };
        let note = match file.entry.mode {
            SYMBOLIC_LINK => Some("symbolic link"),
            0o100_755 => Some("executable"),
            _ => None,
        };
        Ok(Self {
            name: file.entry.name.clone(),
            path: path.clone(),
            breadcrumbs: folder::breadcrumbs(&links, &project.path, &revision, &path),
            size: human_size(file.size),
            note,
            last_commit: history.by_name.remove(&file.entry.name),
            unfinished_history: history.unfinished,
            raw_url: links.raw(&revision, &path),
            history_url: links.commits(&revision, &path),
            permanent_url: links.blob(&file.revision.commit.to_string(), &path),
            blame_url: matches!(content, FileContent::Lines(_) | FileContent::Rendered(_) | FileContent::Table(_))
                .then(|| links.blame(&revision, &path)),
            edit_url: None,
            other_view,
            unfinished: unfinished.map(|text| (file.entry.id, text)),
            content,
            revision: file.revision,
        })
    }
}

impl FileContent {
    fn new(
        cx: &mut BlockingContext<'_>,
        project: &Project,
        file: &File,
        is_plain: bool,
        cache: &HighlightCache,
    ) -> forge::Result<Self> {
        let path = &file.entry.path;
        let extension = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        // The source of a drawing is text.
        if diff::is_image(path) && !(extension == "svg" && is_plain) {
            return Ok(Self::Image);
        }
        let too_large = Self::Omitted("This file is too large to be shown here.");
        let Some(bytes) = file.content.as_deref().filter(|bytes| bytes.len() <= MAX_BYTES) else {
            return Ok(too_large);
        };
        let Some(text) = text::decode(bytes) else { return Ok(Self::Omitted("This is a binary file.")) };
        if text.is_empty() {
            return Ok(Self::Omitted("This file is empty."));
        }
        if text.lines().count() > MAX_LINES {
            return Ok(too_large);
        }
        if markdown::is_markdown(path) && !is_plain && file.entry.mode != SYMBOLIC_LINK {
            let revision = file.revision.name.clone();
            let links = ProjectLinks::new(&project.full_path());
            let source = Source::File(SourceFile { links, revision, path: path.clone() });
            let references = ReferenceLinks::resolve(cx, project, [text.as_str()])?;
            return Ok(Self::Rendered(markdown::render_with(&text, &source, &references)));
        }
        if is_table(&extension)
            && !is_plain
            && let Some(table) = csv::Table::parse(&text, if extension == "tsv" { '\t' } else { ',' })
        {
            return Ok(Self::Table(table));
        }
        Ok(Self::Lines(cache.highlight(file.entry.id, path, &text)))
    }
}

/// Returns whether files with this extension are shown as a table.
fn is_table(extension: &str) -> bool {
    matches!(extension, "csv" | "tsv")
}

/// Formats a size in the unit that leaves at most four digits.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    }
    let (mut tenths, mut unit) = (bytes.saturating_mul(10) / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let check = |bytes, expected: &str| assert_eq!(human_size(bytes), expected, "{bytes}");
        check(0, "0 bytes");
        check(1, "1 byte");
        check(1023, "1023 bytes");
        check(1536, "1.5 KB");
        check(5 << 20, "5.0 MB");
        check(3 << 30, "3.0 GB");
    }
}
