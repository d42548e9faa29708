//! Lists of projects: filtering, ordering and counting.
//!
//! A list takes two to six statements, however many projects it shows: the numbers of projects, the IDs on the page (again, if
//! a scan ended too early; on PostgreSQL they may be a part of the next statement), the full rows, the groups they are shared
//! with, if there are any, and the fork sources, if there are forks.
//!
//! Each visibility bucket (one visibility, archived or not), of the instance and of each namespace, has a counter and an index
//! per order. A page is merged from the first rows of the buckets (`bucket_lists`), so its cost does not depend on the number
//! of projects. Matches of a search, stars, forks, and projects shared with a group are usually few: all of them are
//! filtered, counted and sorted.

use diesel::{RunQueryDsl as _, sql_types::BigInt};
use model::{
    NamespaceId, Page, Project, ProjectId, Slice,
    projects::{ProjectFilter, ProjectOrder},
};

use super::bucket_lists;
use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    page_ids::{PageIds, in_order},
    projects,
    search::SearchTerm,
};

/// The IDs of all projects.
const ALL: &str = "SELECT id FROM projects";
/// The number of projects of a viewer up to which a search compares each of them.
const MAX_SEARCHED: i64 = 200;

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
    /// Direct forks of a project that the viewer can see.
    ForksOf(ProjectId),
    /// Projects in a group or shared with it; either all of them, or those that the viewer can see.
    OfGroup {
        /// The group.
        group: NamespaceId,
        /// Whether to include projects in the group.
        own: bool,
        /// Whether to include projects shared with the group.
        shared: bool,
        /// Whether the viewer can see all of them; if not, the viewer has no role in the group.
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
    let is_indexed = filter.search.is_none() && !filter.builds_first;
    let source = bucket_lists::Source::of(scope, viewer).filter(|_| is_indexed);
    let (total, ids) = if let Some(source) = source {
        bucket_lists::list(db, viewer, source, filter, page)?
    } else {
        let (total, ids) = from_candidates(db, viewer, scope, filter, page)?;
        (total, PageIds::Known(ids))
    };
    let items = match ids.known_on_sqlite(db)? {
        PageIds::Known(ids) => load(db, viewer, &ids)?,
        PageIds::Query { query, .. } => {
            let (key, direction) = (column(filter.order), direction(filter));
            let order = Fragment::new(format!("projects.{key} {direction}, projects.id {direction}"));
            projects::by_query_with_relations(db, viewer, query, order)?
        }
    };
    Ok(Slice { items, total: total.into(), page })
}

/// Returns the projects with these IDs, in this order.
fn load(db: &mut Conn, viewer: &Viewer, ids: &[i64]) -> Result<Vec<Project>> {
    let projects = projects::by_ids_with_relations(db, viewer, ids)?;
    Ok(in_order(ids, projects, |project| project.id.get()))
}

/// Returns the column of a sort key.
pub(crate) fn column(order: ProjectOrder) -> &'static str {
    match order {
        ProjectOrder::Id => "id",
        ProjectOrder::Name => "name_key",
        ProjectOrder::Path => "path_key",
        ProjectOrder::CreatedAt => "created_at",
        ProjectOrder::UpdatedAt => "updated_at",
        ProjectOrder::LastActivityAt => "last_activity_at",
    }
}

/// Returns the direction of a list in SQL.
pub(crate) fn direction(filter: &ProjectFilter) -> &'static str {
    if filter.ascending { "ASC" } else { "DESC" }
}

/// Returns the ORDER BY terms: the sort key, then the ID, in the same direction.
pub(crate) fn order_by(filter: &ProjectFilter, table: &str) -> String {
    let direction = direction(filter);
    format!("{table}.sort_key {direction}, {table}.id {direction}")
}

/// Condition: a search has few candidates, so that looking up the role in each of them takes less time than finding all
/// projects in which the viewer has a role. The number is not known before.
const IS_FEW: &str = "(SELECT count(*) FROM (SELECT id FROM candidates LIMIT 101) few) <= 100";

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
    // The columns to filter and sort by.
    let columns = format!(", p.{} AS sort_key, p.builds_enabled AS builds", column(filter.order));
    // SQLite does not reorder cross joins, so the few candidates come first.
    let joined = |set: Fragment<BigInt>, namespace: &str| {
        Fragment::new(format!("SELECT p.id AS id{columns} FROM ("))
            .append(set)
            .sql(format!(") c CROSS JOIN projects p{namespace} WHERE p.id = c.id AND p.deleted_at IS NULL"))
    };
    let in_namespace = " CROSS JOIN namespaces n";
    // The search finds either all matching projects, of which some are the viewer's, or all projects of the viewer, of which
    // some match.
    let is_of_viewer = matches!(scope, ProjectListScope::Mine | ProjectListScope::Owned);
    let has_many = is_of_viewer && term.is_some() && bucket_lists::count_mine(db, viewer, scope)? > MAX_SEARCHED;
    let matching = |term: &SearchTerm| {
        let candidates = Fragment::new("WITH candidates AS MATERIALIZED (");
        if postgres {
            // The rows of the projects were read to compare their texts, so the columns cost nothing.
            let columns = format!(
                ", p.{} AS sort_key, p.namespace_id, p.visibility, p.archived, p.builds_enabled, p.deleted_at",
                column(filter.order)
            );
            return candidates.append(term.matching_projects(&columns)).sql(
                ") SELECT p.id AS id, p.sort_key AS sort_key, p.builds_enabled AS builds FROM candidates p \
                 WHERE p.deleted_at IS NULL",
            );
        }
        let found = candidates
            .append(term.project_candidates())
            .sql(") ")
            .append(joined(Fragment::new("SELECT id FROM candidates"), ""));
        match term.confirms_project() {
            Some(condition) => found.sql(" AND ").append(condition),
            None => found,
        }
    };
    let mut found = match (scope, &term) {
        (ProjectListScope::Visible, Some(term)) => matching(term).sql(" AND ").append(viewer.sees_if(IS_FEW)),
        (ProjectListScope::All, Some(term)) => matching(term),
        (ProjectListScope::Mine, Some(term)) if has_many => {
            matching(term).sql(" AND ").append(viewer.has_role_if(IS_FEW))
        }
        (ProjectListScope::Mine, Some(_)) => joined(viewer.my_projects(), in_namespace),
        (ProjectListScope::Owned, Some(term)) if has_many => matching(term).sql(" AND ").append(viewer.owns()),
        (ProjectListScope::Owned, Some(_)) => joined(viewer.owned_projects(), in_namespace),
        (ProjectListScope::Visible, None) => joined(Fragment::new(ALL), "").sql(" AND ").append(viewer.sees()),
        (ProjectListScope::All, None) => joined(Fragment::new(ALL), ""),
        (ProjectListScope::Mine, None) => joined(viewer.my_projects(), ""),
        (ProjectListScope::Owned, None) => joined(viewer.owned_projects(), ""),
        (ProjectListScope::Starred, term) => {
            let starred = Fragment::new("SELECT project_id AS id FROM project_stars WHERE user_id = ");
            let namespace = if term.is_some() { in_namespace } else { "" };
            joined(starred.number(viewer.user), namespace).sql(" AND ").append(viewer.sees())
        }
        (ProjectListScope::ForksOf(source), term) => {
            let forks = Fragment::new("SELECT project_id AS id FROM fork_links WHERE source_id = ");
            let namespace = if term.is_some() { in_namespace } else { "" };
            joined(forks.number(source), namespace).sql(" AND ").append(viewer.sees())
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
    let filters_text = match scope {
        ProjectListScope::Visible | ProjectListScope::All => false,
        ProjectListScope::Mine | ProjectListScope::Owned => !has_many,
        ProjectListScope::Starred | ProjectListScope::ForksOf(_) | ProjectListScope::OfGroup { .. } => true,
    };
    if let Some(term) = term.filter(|_| filters_text) {
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

/// Returns a boolean literal that both engines accept.
pub(crate) fn bool_literal(flag: bool) -> &'static str {
    if flag { "TRUE" } else { "FALSE" }
}
