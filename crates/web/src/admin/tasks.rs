//! Background tasks that wait or have failed.

use askama::Template;
use axum::body::Body;
use forge::tasks;
use model::{TaskId, tasks::TaskRecord};

use super::{AdminHead, done, enter, form, frame};
use crate::{context::PageCx, error::PageResult, layout::Layout, response, text};

const PATH: &str = "/admin/background_tasks";
/// The number of tasks of each kind on the page.
const MAX_SHOWN: usize = 100;

#[derive(Template)]
#[template(path = "admin/tasks.html")]
struct TasksTemplate {
    layout: Layout,
    head: AdminHead,
    dead: Vec<TaskRecord>,
    waiting: Vec<TaskRecord>,
    dead_count: i64,
    waiting_count: i64,
}

impl TasksTemplate {
    fn is_running(&self, task: &TaskRecord) -> bool {
        task.leased_until.is_some_and(|until| until > self.layout.viewer.now)
    }
}

/// Lists the tasks.
pub(crate) async fn list(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let (viewer, (found, (waiting_count, dead_count))) =
        cx.read(|tx| tasks::list(tx).and_then(|found| Ok((found, tasks::count(tx)?)))).await?;
    let (layout, head) = frame(&cx, viewer, PATH, "Background tasks")?;
    let (mut dead, mut waiting): (Vec<_>, Vec<_>) = found.into_iter().partition(|task| task.dead_at.is_some());
    dead.truncate(MAX_SHOWN);
    waiting.truncate(MAX_SHOWN);
    response::page(&TasksTemplate { layout, head, dead, waiting, dead_count, waiting_count })
}

/// Makes a task that failed permanently run again.
pub(crate) async fn retry(cx: PageCx, body: Body) -> PageResult {
    form(&cx, body).await?;
    let id = TaskId::new(cx.number("id")?);
    cx.write(move |tx| tasks::retry(tx, id)).await?;
    Ok(done(PATH, "retried"))
}
