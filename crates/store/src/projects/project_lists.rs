//! Lists of projects: filtering, ordering and counting.
//!
//! A list takes three statements: the IDs on the page and the total, the full rows, and the groups they are shared with; one
//! more for the fork sources, if there are forks on the page.
//! Lists of all projects above a visibility are neither counted nor sorted: each visibility bucket (one visibility, archived
//! or not) has a counter and an index per order, and a page is merged from the first rows of the buckets.

use diesel::{RunQueryDsl as _, sql_types::BigInt};
use model::{
    NamespaceId, Page, Project, ProjectId, Slice, Visibility,
    projects::{ProjectFilter, ProjectOrder},
};

use crate::{Conn, Result, access::Viewer, conn::on, fragment::Fragment, projects, search::SearchTerm};

/// The set of projects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectListScope {
    /// Projects in which the viewer has a role.
    Mine,
    /// Projects that the viewer can see.
    Visible,
    /// Projects that the viewer owns.
    Owned,
    /// Projects that the viewer has starred and can still see.
    Starred,
    /// All projects.
    All,
    /// Projects in a group or shared with it; either all of them, or those that the viewer can see.
    OfGroup {
        /// The group.
        group: NamespaceId,
        /// Whether to include projects in the group.
        own: bool,
        /// Whether to include projects shared with the group.
        shared: bool,
        /// Whether the viewer can see all of them.
        all: bool,
    },
}

/// Returns a page of a list.
pub fn list(
    db: &mut Conn,
    viewer: &Viewer,
    scope: ProjectListScope,
    filter: &ProjectFilter,
    page: Page,
) -> Result<Slice<Project>> {
    let (total, ids) = match (scope, &filter.search) {
        (ProjectListScope::Visible, None) => {
            from_visibility_buckets(db, viewer, Some(viewer.visible_from), filter, page)?
        }
        (ProjectListScope::All, None) => from_visibility_buckets(db, viewer, None, filter, page)?,
        _ => from_candidates(db, viewer, scope, filter, page)?,
    };
    let ids: Vec<ProjectId> = ids.into_iter().map(ProjectId::new).collect();
    Ok(Slice { items: load(db, viewer, &ids)?, total, page })
}

/// Returns the projects with these IDs, in this order.
fn load(db: &mut Conn, viewer: &Viewer, ids: &[ProjectId]) -> Result<Vec<Project>> {
    let mut projects = projects::by_ids(db, viewer, ids)?;
    let positions: std::collections::HashMap<ProjectId, usize> =
        ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    projects.sort_by_key(|project| positions.get(&project.id));
    projects::with_relations(db, viewer, &mut projects)?;
    Ok(projects)
}

/// Returns the column of a sort key.
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

/// Returns the ORDER BY terms: the sort key, then the ID, in the same direction.
fn order_by(filter: &ProjectFilter, table: &str) -> String {
    let direction = if filter.ascending { "ASC" } else { "DESC" };
    format!("{table}.sort_key {direction}, {table}.id {direction}")
}

/// Lists a set of candidate IDs that is joined with the projects, filtered, counted and sorted.
fn from_candidates(
    db: &mut Conn,
    viewer: &Viewer,
    scope: ProjectListScope,
    filter: &ProjectFilter,
    page: Page,
) -> Result<(i64, Vec<i64>)> {
    let postgres = matches!(db, Conn::Pg(_));
    let term = filter.search.as_deref().map(SearchTerm::new);
    // The columns to filter and sort by; a candidate set that reads the projects table selects them itself.
    let columns = format!(
        ", p.{} AS sort_key, p.builds_enabled AS builds, p.visibility AS visibility, p.archived AS archived",
        column(filter.order)
    );
    let as_is = |set: Fragment<BigInt>| Fragment::new("SELECT * FROM (").append(set).sql(") p WHERE TRUE");
    // SQLite does not reorder cross joins, so the few candidates come first.
    let joined = |set: Fragment<BigInt>, namespace: &str| {
        Fragment::new(format!("SELECT p.id AS id{columns} FROM ("))
            .append(set)
            .sql(format!(") c CROSS JOIN projects p{namespace} WHERE p.id = c.id AND p.deleted_at IS NULL"))
    };
    let in_namespace = " CROSS JOIN namespaces n";
    let mut found = match (scope, &term) {
        (ProjectListScope::Visible, Some(term)) => {
            joined(term.projects(postgres), "").sql(" AND ").append(viewer.sees())
        }
        (ProjectListScope::All, Some(term)) => joined(term.projects(postgres), ""),
        (ProjectListScope::Mine | ProjectListScope::Visible | ProjectListScope::All, None) => {
            as_is(viewer.my_projects_with(&columns))
        }
        (ProjectListScope::Mine, Some(_)) => joined(viewer.my_projects(), in_namespace),
        (ProjectListScope::Owned, None) => as_is(viewer.owned_projects_with(&columns)),
        (ProjectListScope::Owned, Some(_)) => joined(viewer.owned_projects_with(""), in_namespace),
        (ProjectListScope::Starred, term) => {
            let starred = Fragment::new("SELECT project_id AS id FROM project_stars WHERE user_id = ");
            let namespace = if term.is_some() { in_namespace } else { "" };
            joined(starred.number(viewer.user), namespace).sql(" AND ").append(viewer.sees())
        }
        (ProjectListScope::OfGroup { group, own, shared, all }, term) => {
            let namespace = if term.is_some() { in_namespace } else { "" };
            let found = joined(of_group(viewer, group, own, shared), namespace);
            if all { found } else { found.sql(" AND ").append(viewer.sees()) }
        }
    };
    if let Some(archived) = filter.archived {
        found = found.sql(" AND p.archived = ").flag(archived);
    }
    if let Some(visibility) = filter.visibility {
        found = found.sql(" AND p.visibility = ").number(visibility.level());
    }
    if let Some(term) = term.filter(|_| !matches!(scope, ProjectListScope::Visible | ProjectListScope::All)) {
        found = found.sql(" AND n.id = p.namespace_id AND ").append(term.in_project());
    }
    let builds = if filter.builds_first { "f.builds DESC, " } else { "" };
    counted_page(
        db,
        page,
        found,
        Fragment::new("(SELECT count(*) FROM found)"),
        &format!("{builds}{}", order_by(filter, "f")),
    )
}

/// Returns the total and the IDs on the page, in one statement so that the set is computed once. A page beyond the end needs a
/// second statement, because it has no row that carries the total.
pub(crate) fn counted_page(
    db: &mut Conn,
    page: Page,
    found: Fragment<BigInt>,
    total: Fragment<BigInt>,
    order: &str,
) -> Result<(i64, Vec<i64>)> {
    let with = Fragment::<(BigInt, BigInt)>::new("WITH found AS MATERIALIZED (").append(found).sql(") SELECT ");
    let page_of = || {
        with.clone()
            .sql("f.id, ")
            .append(total.clone())
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
            let count = || with.clone().sql("CAST(0 AS BIGINT), ").append(total.clone());
            let (_, total): (i64, i64) = on!(db, conn => count().get_result(conn))?;
            total
        }
    };
    Ok((total, rows.into_iter().map(|(id, _)| id).collect()))
}

/// The IDs of the projects in a group, shared with it, or both.
fn of_group(viewer: &Viewer, group: NamespaceId, own: bool, shared: bool) -> Fragment<BigInt> {
    let in_group = || Fragment::<BigInt>::new("SELECT id FROM projects WHERE namespace_id = ").number(group);
    let shared_with_group = || {
        Fragment::<BigInt>::new(
            "SELECT s.project_id AS id FROM project_shares s JOIN projects p ON p.id = s.project_id \
             JOIN namespaces n ON n.id = p.namespace_id WHERE NOT n.share_with_group_lock AND s.group_id = ",
        )
        .number(group)
        .sql(" AND ")
        .append(viewer.unexpired("s"))
    };
    match (own, shared) {
        (true, true) => in_group().sql(" UNION ").append(shared_with_group()),
        (true, false) => in_group(),
        (false, _) => shared_with_group(),
    }
}

/// Lists the projects with at least a visibility, and those in which the viewer has a role; without a minimum visibility all
/// projects.
fn from_visibility_buckets(
    db: &mut Conn,
    viewer: &Viewer,
    visible_from: Option<Visibility>,
    filter: &ProjectFilter,
    page: Page,
) -> Result<(i64, Vec<i64>)> {
    let min_visibility = visible_from.unwrap_or(Visibility::Private);
    let wanted = |visibility: &Visibility| filter.visibility.is_none_or(|only| only == *visibility);
    let buckets: Vec<(i32, bool)> = Visibility::ALL
        .into_iter()
        .filter(|visibility| *visibility >= min_visibility && wanted(visibility))
        .flat_map(|visibility| [(visibility.level(), false), (visibility.level(), true)])
        .filter(|(_, archived)| filter.archived.is_none_or(|only| only == *archived))
        .collect();
    let member_only: Vec<Visibility> =
        Visibility::ALL.into_iter().filter(|visibility| *visibility < min_visibility && wanted(visibility)).collect();

    let (key, direction) = (column(filter.order), if filter.ascending { "ASC" } else { "DESC" });
    // Rows of a bucket beyond the end of the page cannot be on the page.
    let limit = page.offset().saturating_add(page.size);
    // Starts with an empty set, so that every part can be appended with UNION ALL.
    let mut found = Fragment::<BigInt>::new(format!(
        "SELECT p.id AS id, p.{key} AS sort_key, FALSE AS mine FROM projects p WHERE FALSE"
    ));
    for (number, (level, archived)) in buckets.iter().enumerate() {
        found = found
            .sql(format!(
                " UNION ALL SELECT * FROM (SELECT p.id AS id, p.{key} AS sort_key, FALSE AS mine FROM projects p \
                 WHERE p.deleted_at IS NULL AND p.visibility = {level} AND p.archived = {} \
                 ORDER BY p.{key} {direction}, p.id {direction} LIMIT ",
                bool_literal(*archived),
            ))
            .number(limit)
            .sql(format!(") bucket_{number}"));
    }
    if !member_only.is_empty() {
        let columns = format!(", p.{key} AS sort_key, p.visibility AS visibility, p.archived AS archived");
        found = found
            .sql(" UNION ALL SELECT p.id, p.sort_key, TRUE FROM (")
            .append(viewer.my_projects_with(&columns))
            .sql(") p WHERE p.visibility < ")
            .number(min_visibility.level());
        if let Some(only) = filter.visibility {
            found = found.sql(" AND p.visibility = ").number(only.level());
        }
        if let Some(archived) = filter.archived {
            found = found.sql(" AND p.archived = ").flag(archived);
        }
    }
    let bucket_filters: Vec<String> = buckets
        .iter()
        .map(|(level, archived)| format!("(visibility = {level} AND archived = {})", bool_literal(*archived)))
        .collect();
    let bucket_filter = if bucket_filters.is_empty() { "FALSE".to_owned() } else { bucket_filters.join(" OR ") };
    let total = format!(
        "CAST(coalesce((SELECT sum(amount) FROM project_counts WHERE {bucket_filter}), 0) AS BIGINT) \
         + (SELECT count(*) FROM found WHERE mine)"
    );
    counted_page(db, page, found, Fragment::new(total), &order_by(filter, "f"))
}

/// Returns a boolean literal that both engines accept.
pub(crate) fn bool_literal(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}
