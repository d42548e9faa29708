//! Lists of projects: which ones, in which order, and how many there are.
//!
//! A list costs three statements: which on this page and how many, those in full, and the groups they are shared with;
//! with forks on the page one more, for where they come from.
//! Where everything that is visible enough is wanted, nothing is counted or sorted: each shelf (one visibility, archived
//! or not) has a counter and an index for each order, and a page is merged from the tops of the shelves.

use diesel::{RunQueryDsl as _, sql_types::BigInt};
use model::{
    Page, Project, Slice, Visibility,
    projects::{ProjectFilter, ProjectOrder},
};

use crate::{Conn, Result, access::Viewer, conn::on, fragment::Fragment, projects as singles, search::Term};

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
    let mut projects = singles::among(db, viewer, ids)?;
    let places: std::collections::HashMap<i64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    projects.sort_by_key(|project| places.get(&project.id));
    singles::with_relations(db, viewer, &mut projects)?;
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

/// By the key, and where that is equal by number, both the same way.
fn sorted(filter: &ProjectFilter, table: &str) -> String {
    let direction = if filter.ascending { "ASC" } else { "DESC" };
    format!("{table}.sort_key {direction}, {table}.id {direction}")
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
    // What a list is filtered and sorted by. Where the set itself reads the projects, it brings these along.
    let columns = format!(
        ", p.{} AS sort_key, p.builds_enabled AS builds, p.visibility AS visibility, p.archived AS archived",
        column(filter.order)
    );
    let whole = |set: Fragment<BigInt>| Fragment::new("SELECT * FROM (").then(set).sql(") p WHERE TRUE");
    // The order of the tables is ours: on SQLite a cross join is not turned round, and the few candidates come first.
    let looked_up = |set: Fragment<BigInt>, namespace: &str| {
        Fragment::new(format!("SELECT p.id AS id{columns} FROM ("))
            .then(set)
            .sql(format!(") c CROSS JOIN projects p{namespace} WHERE p.id = c.id AND p.deleted_at IS NULL"))
    };
    let in_namespace = " CROSS JOIN namespaces n";
    let mut found = match (scope, &term) {
        (Scope::Visible, Some(term)) => looked_up(term.projects(postgres), "").sql(" AND ").then(viewer.sees()),
        (Scope::All, Some(term)) => looked_up(term.projects(postgres), ""),
        (Scope::Mine | Scope::Visible | Scope::All, None) => whole(viewer.my_projects_with(&columns)),
        (Scope::Mine, Some(_)) => looked_up(viewer.my_projects(), in_namespace),
        (Scope::Owned, None) => whole(viewer.owned_projects_with(&columns)),
        (Scope::Owned, Some(_)) => looked_up(viewer.owned_projects_with(""), in_namespace),
        (Scope::Starred, term) => {
            let starred = Fragment::new("SELECT project_id AS id FROM project_stars WHERE user_id = ");
            let namespace = if term.is_some() { in_namespace } else { "" };
            looked_up(starred.number(viewer.user), namespace).sql(" AND ").then(viewer.sees())
        }
        (Scope::OfGroup { group, own, shared, all }, term) => {
            let namespace = if term.is_some() { in_namespace } else { "" };
            let found = looked_up(of_group(viewer, group, own, shared), namespace);
            if all { found } else { found.sql(" AND ").then(viewer.sees()) }
        }
    };
    if let Some(archived) = filter.archived {
        found = found.sql(" AND p.archived = ").flag(archived);
    }
    if let Some(visibility) = filter.visibility {
        found = found.sql(" AND p.visibility = ").number(visibility.level().into());
    }
    if let Some(term) = term.filter(|_| !matches!(scope, Scope::Visible | Scope::All)) {
        found = found.sql(" AND n.id = p.namespace_id AND ").then(term.in_project());
    }
    let builds = if filter.builds_first { "f.builds DESC, " } else { "" };
    counted_page(
        db,
        page,
        found,
        Fragment::new("(SELECT count(*) FROM found)"),
        &format!("{builds}{}", sorted(filter, "f")),
    )
}

/// What is found, how many it is all together, and the numbers on the page: one statement, so that what is found is found
/// once. Only beyond the end of a list does it take a second one, because no row is there to tell the total.
pub(crate) fn counted_page(
    db: &mut Conn,
    page: Page,
    found: Fragment<BigInt>,
    total: Fragment<BigInt>,
    order: &str,
) -> Result<(i64, Vec<i64>)> {
    let with = Fragment::<(BigInt, BigInt)>::new("WITH found AS MATERIALIZED (").then(found).sql(") SELECT ");
    let page_of = || {
        with.clone()
            .sql("f.id, ")
            .then(total.clone())
            .sql(format!(" FROM found f ORDER BY {order} LIMIT "))
            .number(page.size)
            .sql(" OFFSET ")
            .number(page.offset())
    };
    let rows: Vec<(i64, i64)> = on!(db, conn => page_of().load(conn))?;
    let total = match rows.first() {
        Some((_, total)) => *total,
        None if page.offset() == 0 => 0,
        None => {
            let count = || with.clone().sql("CAST(0 AS BIGINT), ").then(total.clone());
            let (_, total): (i64, i64) = on!(db, conn => count().get_result(conn))?;
            total
        }
    };
    Ok((total, rows.into_iter().map(|(id, _)| id).collect()))
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

    let (key, direction) = (column(filter.order), if filter.ascending { "ASC" } else { "DESC" });
    // Nothing of a shelf beyond the end of the page can be on the page.
    let most = page.offset().saturating_add(page.size);
    // Begins with nothing, so that everything else is joined alike.
    let mut found = Fragment::<BigInt>::new(format!(
        "SELECT p.id AS id, p.{key} AS sort_key, FALSE AS mine FROM projects p WHERE FALSE"
    ));
    for (number, (level, archived)) in shelves.iter().enumerate() {
        found = found
            .sql(format!(
                " UNION ALL SELECT * FROM (SELECT p.id AS id, p.{key} AS sort_key, FALSE AS mine FROM projects p \
                 WHERE p.deleted_at IS NULL AND p.visibility = {level} AND p.archived = {} \
                 ORDER BY p.{key} {direction}, p.id {direction} LIMIT ",
                keyword(*archived),
            ))
            .number(most)
            .sql(format!(") shelf_{number}"));
    }
    if !below.is_empty() {
        let columns = format!(", p.{key} AS sort_key, p.visibility AS visibility, p.archived AS archived");
        found = found
            .sql(" UNION ALL SELECT p.id, p.sort_key, TRUE FROM (")
            .then(viewer.my_projects_with(&columns))
            .sql(") p WHERE p.visibility < ")
            .number(least.level().into());
        if let Some(only) = filter.visibility {
            found = found.sql(" AND p.visibility = ").number(only.level().into());
        }
        if let Some(archived) = filter.archived {
            found = found.sql(" AND p.archived = ").flag(archived);
        }
    }
    let names: Vec<String> = shelves
        .iter()
        .map(|(level, archived)| format!("(visibility = {level} AND archived = {})", keyword(*archived)))
        .collect();
    let counted = if names.is_empty() { "FALSE".to_owned() } else { names.join(" OR ") };
    let total = format!(
        "CAST(coalesce((SELECT sum(amount) FROM project_counts WHERE {counted}), 0) AS BIGINT) \
         + (SELECT count(*) FROM found WHERE mine)"
    );
    counted_page(db, page, found, Fragment::new(total), &sorted(filter, "f"))
}

/// A yes or no as both engines read it.
pub(crate) fn keyword(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}
