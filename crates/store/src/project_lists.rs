//! Lists of projects: which ones, in which order, and how many there are.
//!
//! A list costs four statements: how many, which on this page, those in full, and the groups they are shared with.
//! Where everything that is visible enough is wanted, nothing is counted or sorted: each shelf (one visibility, archived
//! or not) has a counter and an index for each order, and a page is merged from the tops of the shelves.

use diesel::{prelude::*, sql_types::BigInt};
use model::{
    Page, Project, Slice, Visibility,
    projects::{ProjectFilter, ProjectOrder},
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    namespaces::Row as NamespaceRow,
    projects::{self as singles, FullRow, Row, full_rows, no_level, to_project},
    schema::{namespaces, projects, users},
    search::Term,
    users::SummaryRow,
};

/// Which projects a list is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those to which the viewer belongs.
    Mine,
    /// Those that the viewer sees.
    Visible,
    /// Those that the viewer owns.
    Owned,
    /// Those that the viewer has starred and still sees.
    Starred,
    /// Every project.
    All,
    /// Those that live in a group or are shared with it; either all of them, or those that the viewer sees.
    OfGroup {
        /// The group.
        group: i64,
        /// Those that live in it.
        own: bool,
        /// Those that are shared with it.
        shared: bool,
        /// Whether the viewer sees all of them anyway.
        all: bool,
    },
}

/// A page of a list.
pub fn list(
    db: &mut Conn,
    viewer: &Viewer,
    scope: Scope,
    filter: &ProjectFilter,
    page: Page,
) -> Result<Slice<Project>> {
    let (total, ids) = match (scope, &filter.search) {
        (Scope::Visible, None) => from_shelves(db, viewer, Some(viewer.open_from), filter, page)?,
        (Scope::All, None) => from_shelves(db, viewer, None, filter, page)?,
        _ => from_set(db, viewer, scope, filter, page)?,
    };
    Ok(Slice { items: load(db, viewer, &ids)?, total, page })
}

/// The projects with these numbers, in this order.
fn load(db: &mut Conn, viewer: &Viewer, ids: &[i64]) -> Result<Vec<Project>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows: Vec<FullRow> = on!(db, conn => full_rows!(viewer, no_level())
        .filter(Fragment::<diesel::sql_types::Bool>::new("projects.id").among(ids))
        .load(conn))?;
    let places: std::collections::HashMap<i64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    rows.sort_by_key(|row| places.get(&row.0.id));
    let mut projects: Vec<Project> = rows.into_iter().map(|row| to_project(row, viewer)).collect();
    singles::with_shares(db, &mut projects, viewer.now)?;
    Ok(projects)
}

/// The column behind an order.
fn column(order: ProjectOrder) -> &'static str {
    match order {
        ProjectOrder::Id => "id",
        ProjectOrder::Name => "name_key",
        ProjectOrder::Path => "path_key",
        ProjectOrder::CreatedAt => "created_at",
        ProjectOrder::UpdatedAt => "updated_at",
        ProjectOrder::LastActivityAt => "last_activity_at",
    }
}

fn order_by(filter: &ProjectFilter, table: &str) -> String {
    let direction = if filter.ascending { "ASC" } else { "DESC" };
    let builds = if filter.builds_first { format!("{table}.builds_enabled DESC, ") } else { String::new() };
    format!(" ORDER BY {builds}{table}.{} {direction}, {table}.id {direction}", column(filter.order))
}

/// A set of numbers that is joined with the projects, filtered, counted and sorted.
fn from_set(
    db: &mut Conn,
    viewer: &Viewer,
    scope: Scope,
    filter: &ProjectFilter,
    page: Page,
) -> Result<(i64, Vec<i64>)> {
    let postgres = matches!(db, Conn::Pg(_));
    let term = filter.search.as_deref().map(Term::new);
    let (candidates, seen) = match (scope, &term) {
        (Scope::Visible, Some(term)) => (term.projects(postgres), Some(viewer.sees())),
        (Scope::All, Some(term)) => (term.projects(postgres), None),
        (Scope::Mine | Scope::Visible | Scope::All, _) => (viewer.my_projects(), None),
        (Scope::Owned, _) => (viewer.owned_projects(), None),
        (Scope::Starred, _) => (
            Fragment::new("SELECT project_id AS id FROM project_stars WHERE user_id = ").number(viewer.user),
            Some(viewer.sees()),
        ),
        (Scope::OfGroup { group, own, shared, all }, _) => {
            (of_group(viewer, group, own, shared), (!all).then(|| viewer.sees()))
        }
    };
    let mut matching = Fragment::<BigInt>::new(" FROM (").then(candidates).sql(
        ") c JOIN projects p ON p.id = c.id JOIN namespaces n ON n.id = p.namespace_id WHERE p.deleted_at IS NULL",
    );
    if let Some(seen) = seen {
        matching = matching.sql(" AND ").then(seen);
    }
    if let Some(archived) = filter.archived {
        matching = matching.sql(" AND p.archived = ").flag(archived);
    }
    if let Some(visibility) = filter.visibility {
        matching = matching.sql(" AND p.visibility = ").number(visibility.level().into());
    }
    if let Some(term) = term.filter(|_| !matches!(scope, Scope::Visible | Scope::All)) {
        matching = matching.sql(" AND ").then(term.in_project());
    }
    let count = || Fragment::<BigInt>::new("SELECT count(*)").then(matching.clone());
    let total: i64 = on!(db, conn => count().get_result(conn))?;
    let page_of = || {
        Fragment::<BigInt>::new("SELECT p.id")
            .then(matching.clone())
            .sql(order_by(filter, "p"))
            .sql(" LIMIT ")
            .number(page.size)
            .sql(" OFFSET ")
            .number(page.offset())
    };
    let ids = on!(db, conn => page_of().load(conn))?;
    Ok((total, ids))
}

/// The numbers of the projects that live in a group, are shared with it, or both.
fn of_group(viewer: &Viewer, group: i64, own: bool, shared: bool) -> Fragment<BigInt> {
    let living = || Fragment::<BigInt>::new("SELECT id FROM projects WHERE namespace_id = ").number(group);
    let guests = || {
        Fragment::<BigInt>::new(
            "SELECT s.project_id AS id FROM project_shares s JOIN projects p ON p.id = s.project_id \
             JOIN namespaces n ON n.id = p.namespace_id WHERE NOT n.share_with_group_lock AND s.group_id = ",
        )
        .number(group)
        .sql(" AND ")
        .then(viewer.live("s"))
    };
    match (own, shared) {
        (true, true) => living().sql(" UNION ").then(guests()),
        (true, false) => living(),
        (false, _) => guests(),
    }
}

/// Everything that is visible enough, together with what the viewer belongs to; or, without a least visibility,
/// everything.
fn from_shelves(
    db: &mut Conn,
    viewer: &Viewer,
    open_from: Option<Visibility>,
    filter: &ProjectFilter,
    page: Page,
) -> Result<(i64, Vec<i64>)> {
    let least = open_from.unwrap_or(Visibility::Private);
    let wanted = |visibility: &Visibility| filter.visibility.is_none_or(|only| only == *visibility);
    let shelves: Vec<(i32, bool)> = Visibility::ALL
        .into_iter()
        .filter(|visibility| *visibility >= least && wanted(visibility))
        .flat_map(|visibility| [(visibility.level(), false), (visibility.level(), true)])
        .filter(|(_, archived)| filter.archived.is_none_or(|only| only == *archived))
        .collect();
    let below: Vec<Visibility> =
        Visibility::ALL.into_iter().filter(|visibility| *visibility < least && wanted(visibility)).collect();

    let mine = |select: String| {
        let mut mine = Fragment::<BigInt>::new(format!("SELECT {select} FROM ("))
            .then(viewer.my_projects())
            .sql(") c JOIN projects p ON p.id = c.id WHERE p.deleted_at IS NULL AND p.visibility < ");
        mine = mine.number(least.level().into());
        if let Some(only) = filter.visibility {
            mine = mine.sql(" AND p.visibility = ").number(only.level().into());
        }
        if let Some(archived) = filter.archived {
            mine = mine.sql(" AND p.archived = ").flag(archived);
        }
        mine
    };
    let shelf_names: Vec<String> = shelves
        .iter()
        .map(|(level, archived)| format!("(visibility = {level} AND archived = {})", keyword(*archived)))
        .collect();
    let counted = if shelf_names.is_empty() { "FALSE".to_owned() } else { shelf_names.join(" OR ") };
    let count = || {
        let counters = Fragment::<BigInt>::new("SELECT CAST(coalesce((SELECT sum(amount) FROM project_counts WHERE ")
            .sql(counted.clone())
            .sql("), 0) AS BIGINT)");
        if below.is_empty() { counters } else { counters.sql(" + (").then(mine("count(*)".into())).sql(")") }
    };
    let total: i64 = on!(db, conn => count().get_result(conn))?;

    let key = column(filter.order);
    // Nothing of a shelf beyond the end of the page can be on the page.
    let most = page.offset().saturating_add(page.size);
    let page_of = || {
        let mut merged = Fragment::<BigInt>::new("SELECT t.id FROM (");
        for (number, (level, archived)) in shelves.iter().enumerate() {
            let union = if number == 0 { "" } else { " UNION ALL " };
            merged = merged
                .sql(format!(
                    "{union}SELECT * FROM (SELECT p.id AS id, p.{key} AS sort_key FROM projects p \
                     WHERE p.deleted_at IS NULL AND p.visibility = {level} AND p.archived = {}{} LIMIT ",
                    keyword(*archived),
                    order_by(filter, "p"),
                ))
                .number(most)
                .sql(format!(") shelf_{number}"));
        }
        if !below.is_empty() {
            let union = if shelves.is_empty() { "" } else { " UNION ALL " };
            merged = merged.sql(union).then(mine(format!("p.id AS id, p.{key} AS sort_key")));
        }
        if shelves.is_empty() && below.is_empty() {
            merged = merged.sql("SELECT id, id AS sort_key FROM projects WHERE FALSE");
        }
        let direction = if filter.ascending { "ASC" } else { "DESC" };
        merged
            .sql(format!(") t ORDER BY t.sort_key {direction}, t.id {direction} LIMIT "))
            .number(page.size)
            .sql(" OFFSET ")
            .number(page.offset())
    };
    let ids = on!(db, conn => page_of().load(conn))?;
    Ok((total, ids))
}

/// A yes or no as both engines read it.
fn keyword(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}
