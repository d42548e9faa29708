//! A commit with its differences and comments.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, Method, header},
    response::IntoResponse as _,
};
use forge::{
    ProjectAbility, Unvalidated,
    browse::{self, CommitPage, InProject},
    commit_authors::{self, CommitAuthors},
    commit_notes::{self, CommitNoteInput},
    pipeline_pages,
};
use model::{Commit, CommitNote, Page, PipelineId, Time};

use super::raw;
use crate::{
    ci::status::StatusView,
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    preview, response,
    text::{
        self, Markup,
        diff::Diff,
        markdown::{self, Source},
        references::ReferenceLinks,
    },
};

const NOTES_PER_PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "repository/commit.html")]
struct CommitTemplate {
    layout: Layout,
    head: ProjectHead,
    commit: Commit,
    authors: CommitAuthors,
    /// The first line of the message, and the rest.
    title: Markup,
    body: Markup,
    additions: usize,
    deletions: usize,
    /// Whether files or lines are missing because there are too many.
    is_truncated: bool,
    ignores_whitespace: bool,
    branches: Vec<String>,
    tags: Vec<String>,
    has_more_refs: bool,
    diff: Diff,
    /// The revision of links to files.
    revision: String,
    /// The newest pipeline of the commit, if the visitor may see it.
    pipeline: Option<(PipelineId, StatusView)>,
    notes: Vec<NoteView>,
    pager: Pager,
    can_comment: bool,
    reply: Reply,
}

/// A comment as it was typed, if it was not accepted, and why.
#[derive(Default)]
struct Reply {
    text: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

struct NoteView {
    id: i64,
    author: Option<(String, String)>,
    created_at: Time,
    /// The line that is commented, such as `src/main.rs:7`.
    line: Option<String>,
    html: Markup,
}

impl NoteView {
    fn new(note: &CommitNote, source: &Source, references: &ReferenceLinks) -> Self {
        Self {
            id: note.id.get(),
            author: note.author.as_ref().map(|author| (author.name.clone(), links::page(&author.username))),
            created_at: note.created_at,
            line: note.line.as_ref().map(|line| format!("{}:{}", line.path, line.number)),
            html: markdown::render_with(&note.body, source, references),
        }
    }
}

/// Shows a commit, or sends it as a file if its id ends with `.diff` or `.patch`.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let is_id = |name: &str| name.len() >= 7 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (extension, has_message) in [(".diff", false), (".patch", true)] {
        if let Some(id) = cx.params.location.strip_suffix(extension).filter(|id| is_id(id)) {
            let id = id.to_owned();
            return download(cx, id, has_message).await;
        }
    }
    render(&cx, Reply::default()).await
}

/// Adds a comment to a commit.
pub(crate) async fn comment(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let note = fields.get("note").replace("\r\n", "\n");
    if preview::is_requested(&fields) {
        let preview = Some(cx.preview(note.clone()).await?);
        return render(&cx, Reply { text: note, preview, errors: FormErrors::default() }).await;
    }
    let input = Unvalidated::valid(CommitNoteInput { body: note.clone(), line: None });
    let revision = cx.params.location.clone();
    match commit_notes::create(cx.forge(), cx.caller(), cx.project(), revision, input).await {
        Ok(created) => {
            let url = ProjectLinks::new(&cx.params.subject).commit(&cx.params.location);
            Ok(response::redirect(&format!("{url}#note_{}", created.id)))
        }
        Err(error) => {
            let errors = FormErrors::of(error, &["note"])?;
            render(&cx, Reply { text: note, preview: None, errors }).await
        }
    }
}

async fn download(cx: PageCx, id: String, has_message: bool) -> PageResult {
    let project = cx.project();
    let name = format!("{id}.{}", if has_message { "patch" } else { "diff" });
    let (_, text) = cx.run_blocking(move |cx| browse::patch(cx, &project, &id, has_message)).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_DISPOSITION, raw::attachment(&name)),
    ];
    Ok((headers, text).into_response())
}

async fn render(cx: &PageCx, reply: Reply) -> PageResult {
    let (project, name, query) = (cx.project(), cx.params.location.clone(), cx.query());
    let ignores_whitespace = query.get("w") == "1";
    let page = if cx.method == Method::POST {
        Unvalidated::valid(Page { number: 1, size: NOTES_PER_PAGE })
    } else {
        paging::requested(&query, NOTES_PER_PAGE)
    };
    let uri = cx.uri.clone();
    let (viewer, (project, page, diff, notes, pager, pipeline, authors, (title, body))) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = browse::commit(cx, &project, &name, ignores_whitespace, &page)?;
            let mut page = value;
            let links = ProjectLinks::new(&project.full_path());
            let parent = page.commit.parents.first().map(ToString::to_string);
            let diff = Diff::new(std::mem::take(&mut page.diffs));
            let diff = diff.with_images(&links, parent.as_deref(), &page.commit.id.to_string());
            let source = Source::Project(links);
            let notes = page.notes.items.iter();
            let texts = notes.clone().map(|note| note.body.as_str()).chain([page.commit.message.as_str()]);
            let references = ReferenceLinks::resolve(cx, &project, texts)?;
            let notes: Vec<NoteView> = notes.map(|note| NoteView::new(note, &source, &references)).collect();
            let message = page.commit.message.trim_start();
            let body = message.split_once('\n').map_or("", |(_, body)| body).trim();
            let message = (references.plain(&page.commit.title()), references.plain(body));
            let pager = Pager::of(&uri, &query, &page.notes);
            let pipeline = cx.read(|tx| pipeline_pages::newest_of_commit(tx, &project, page.commit.id))?;
            let addresses = [page.commit.author.email.as_str(), page.commit.committer.email.as_str()];
            let authors = cx.read(|tx| commit_authors::find(tx, addresses))?;
            Ok((project, page, diff, notes, pager, pipeline, authors, message))
        })
        .await?;
    let CommitPage { commit, stats, is_truncated, branches, tags, has_more_refs, .. } = page;
    let page_title = format!("{} · {} · {}", commit.title(), commit.short_id(), project.full_path());
    let template = CommitTemplate {
        head: ProjectHead::new(&project, Tab::Commits, &viewer),
        can_comment: viewer.can_in(&project, ProjectAbility::CommentOnCommits) && viewer.user().is_some(),
        layout: Layout::new(cx, viewer, page_title),
        title,
        body,
        additions: stats.additions,
        deletions: stats.deletions,
        is_truncated,
        ignores_whitespace,
        branches,
        tags,
        has_more_refs,
        revision: commit.id.to_string(),
        pipeline: pipeline.map(|(id, status)| (id, status.into())),
        commit,
        authors,
        diff,
        notes,
        pager,
        reply,
    };
    response::page_with_status(template.reply.errors.status(), &template)
}
