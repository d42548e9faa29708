//! The history of a revision or a path.

use askama::Template;
use forge::{
    browse::{self, History, HomeCode, InProject},
    commit_authors::{self, CommitAuthors},
};
use model::{Commit, Page, Time};

use super::folder::{Breadcrumb, breadcrumbs};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    response, text,
};

const COMMITS_PER_PAGE: i64 = 40;

#[derive(Template)]
#[template(path = "repository/commits.html")]
struct CommitsTemplate {
    layout: Layout,
    head: ProjectHead,
    revision: String,
    path: String,
    breadcrumbs: Vec<Breadcrumb>,
    days: Vec<Day>,
    authors: CommitAuthors,
    pager: Pager,
}

/// The commits of a day, in UTC.
struct Day {
    date: String,
    commits: Vec<Commit>,
}

/// Groups consecutive commits by the day on which they were committed.
fn by_day(commits: Vec<Commit>) -> Vec<Day> {
    let mut days: Vec<Day> = Vec::new();
    for commit in commits {
        let time = Time::from_second(commit.committer.seconds).unwrap_or(Time::UNIX_EPOCH);
        let date = time.strftime("%-d %B %Y").to_string();
        match days.last_mut() {
            Some(day) if day.date == date => day.commits.push(commit),
            _ => days.push(Day { date, commits: vec![commit] }),
        }
    }
    days
}

/// Leads to the history of the default branch.
pub(crate) async fn redirect(cx: PageCx) -> PageResult {
    let project = cx.project();
    let first_entry = forge::Unvalidated::valid(Page { number: 1, size: 1 });
    let (_, home) = cx.read(move |tx| browse::home(tx, &project, &first_entry)).await?;
    let links = ProjectLinks::new(&cx.params.subject);
    match home.code {
        HomeCode::Root(folder) => Ok(response::redirect(&links.commits(&folder.revision.name, ""))),
        HomeCode::Empty => Ok(response::redirect(links.home())),
        HomeCode::Hidden => Err(PageError::Forge(forge::Error::Forbidden(None))),
    }
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let query = cx.query();
    let page = paging::requested(&query, COMMITS_PER_PAGE);
    let location = cx.params.location.clone();
    let history = browse::history(cx.forge(), cx.caller(), cx.project(), location, page).await?;
    let InProject { project, value: History { revision, path, commits, page, has_more } } = history;
    let emails: Vec<String> = commits.iter().map(|commit| commit.author.email.clone()).collect();
    let (viewer, authors) = cx.read(move |tx| commit_authors::find(tx, emails.iter().map(String::as_str))).await?;
    let links = ProjectLinks::new(&project.full_path());
    let what = if path.is_empty() { revision.name.clone() } else { format!("{path} · {}", revision.name) };
    response::page(&CommitsTemplate {
        head: ProjectHead::new(&project, Tab::Commits, &viewer),
        layout: Layout::new(&cx, viewer, format!("Commits · {what} · {}", project.full_path())),
        breadcrumbs: breadcrumbs(&links, &project.path, &revision.name, &path),
        pager: Pager::new(&cx.uri, &query, page, has_more, String::new()),
        revision: revision.name,
        path,
        days: by_day(commits),
        authors,
    })
}
