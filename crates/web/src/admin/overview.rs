//! The state of the server, and its settings.

use askama::Template;
use forge::{
    disk_space::{DiskStatus, DiskUsage},
    nodes::ListedNode,
    overview::{self, Overview},
};

use super::{AdminHead, byte_size, enter, frame};
use crate::{context::PageCx, error::PageResult, layout::Layout, response};

#[derive(Template)]
#[template(path = "admin/overview.html")]
struct OverviewTemplate {
    layout: Layout,
    head: AdminHead,
    /// Labels and values.
    server: Vec<(&'static str, String)>,
    counts: Vec<(&'static str, i64, &'static str)>,
    sizes: Vec<(&'static str, String)>,
    queues: Vec<(&'static str, String, &'static str)>,
    /// `None` if there cannot be more than one.
    nodes: Option<Vec<ListedNode>>,
    settings: Vec<(&'static str, String)>,
    disk_problem: Option<&'static str>,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let (viewer, overview) = cx.read(overview::get).await?;
    let Overview { engine, statistics, waiting_tasks, dead_tasks, waiting_deliveries, paused_hooks, nodes } = overview;
    let forge = cx.forge().clone();
    // The disk may be probed with a write.
    let disk = tokio::task::spawn_blocking(move || (forge.disk_status(), forge.disk_usage())).await;
    let (status, usage) = disk.unwrap_or((DiskStatus::Enough, None));
    let disk_problem = match status {
        DiskStatus::Enough => None,
        DiskStatus::Low { .. } => Some("Little disk space is free; large uploads and pushes are refused."),
        DiskStatus::Full => Some("The disk is full; nothing can be written."),
        DiskStatus::DatabaseFull => Some("The disk of the database server is full; nothing can be written."),
    };
    let disk_space =
        |DiskUsage { free_bytes, bytes, .. }| format!("{} free of {}", byte_size(free_bytes), byte_size(bytes));
    let up = viewer.now.duration_since(cx.pages.0.started_at).as_secs().max(0);
    let uptime = match (up / 86_400, up % 86_400 / 3600, up % 3600 / 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    };
    let threads = cx.forge().queue_lengths().map(|(queue, length)| format!("{queue} {length}")).join(", ");
    let (layout, head) = frame(&cx, viewer, "/admin", "Overview")?;
    response::page(&OverviewTemplate {
        layout,
        head,
        server: vec![
            ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ("Database", engine.to_owned()),
            ("Running for", uptime),
        ],
        counts: vec![
            ("Users", statistics.users, "/admin/users"),
            ("Users who can sign in", statistics.active_users, "/admin/users?filter=active"),
            ("Administrators", statistics.administrators, ""),
            ("Groups", statistics.groups, "/admin/groups"),
            ("Projects", statistics.projects, "/admin/projects"),
            ("Issues", statistics.issues, ""),
            ("Runners", statistics.runners, "/admin/runners"),
        ],
        sizes: vec![
            ("Disk", usage.map_or_else(|| "unknown".to_owned(), disk_space)),
            ("Repositories", byte_size(statistics.repository_bytes)),
            ("Uploads", byte_size(statistics.upload_bytes)),
            ("Artifacts", byte_size(statistics.artifact_bytes)),
        ],
        queues: vec![
            ("Background tasks that wait", waiting_tasks.to_string(), "/admin/background_tasks"),
            ("Background tasks that failed", dead_tasks.to_string(), "/admin/background_tasks"),
            ("Webhook deliveries that wait", waiting_deliveries.to_string(), ""),
            ("Paused webhooks", paused_hooks.to_string(), ""),
            ("Requests that wait for a thread", threads, ""),
        ],
        nodes,
        settings: cx.pages.0.settings.clone(),
        disk_problem,
    })
}
