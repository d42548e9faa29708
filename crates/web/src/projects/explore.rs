//! All projects that the visitor can see, with search and sorting.

use askama::Template;
use forge::{Unvalidated, explore};
use model::projects::{ProjectFilter, ProjectOrder};

use super::list::ListedProject;
use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

const PROJECTS_PER_PAGE: i64 = 25;

/// The orders to choose from: value, label, sort key, ascending.
const ORDERS: [(&str, &str, ProjectOrder, bool); 4] = [
    ("latest_activity", "last activity", ProjectOrder::LastActivityAt, false),
    ("newest", "newest first", ProjectOrder::CreatedAt, false),
    ("oldest", "oldest first", ProjectOrder::CreatedAt, true),
    ("name", "name", ProjectOrder::Name, true),
];

#[derive(Template)]
#[template(path = "projects/explore.html")]
struct ExploreTemplate {
    layout: Layout,
    search: String,
    /// Value, label, and whether it is the current one.
    orders: Vec<(&'static str, &'static str, bool)>,
    projects: Vec<ListedProject>,
    total: i64,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let query = cx.query();
    let search = query.get("search").trim().to_owned();
    let order = ORDERS.iter().find(|(value, ..)| *value == query.get("sort")).unwrap_or(&ORDERS[0]);
    let page = paging::requested(&query, PROJECTS_PER_PAGE);
    let filter = Unvalidated::valid(ProjectFilter {
        search: Some(search.clone()).filter(|search| !search.is_empty()),
        order: order.2,
        ascending: order.3,
        ..ProjectFilter::default()
    });
    let (viewer, projects) = cx.read_list(move |tx| explore::projects(tx, &filter, &page)).await?;
    let pager = Pager::of(&cx.uri, &query, &projects);
    let orders = ORDERS.iter().map(|(value, label, ..)| (*value, *label, *value == order.0)).collect();
    let mut layout = Layout::new(&cx, viewer, "Explore projects");
    layout.search.clone_from(&search);
    let total = projects.total.at_least();
    let projects = projects.items.into_iter().map(ListedProject::new).collect();
    response::page(&ExploreTemplate { layout, search, orders, projects, total, pager })
}
