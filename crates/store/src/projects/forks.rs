//! Which project was forked from which.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable, Text},
};
use model::{
    Time, Visibility,
    projects::{ForkLink, ForkSource},
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    namespaces::to_visibility,
    projects::lock as locked,
    schema::{fork_links, projects},
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = fork_links)]
struct Row {
    id: i64,
    project_id: i64,
    source_id: i64,
    created_at: i64,
    updated_at: i64,
}

impl From<Row> for ForkLink {
    fn from(Row { id, project_id, source_id, created_at, updated_at }: Row) -> Self {
        let (created_at, updated_at) = (from_micros(created_at), from_micros(updated_at));
        Self { id, project: project_id, source: source_id, created_at, updated_at }
    }
}

/// Notes that a project was forked from another one; a link to a source that is being removed gives way.
pub fn insert(db: &mut Conn, project: i64, source: i64, now: Time) -> Result<ForkLink> {
    let leads_nowhere = || {
        Fragment::<Bool>::new(
            "EXISTS (SELECT 1 FROM projects p WHERE p.id = fork_links.source_id AND p.deleted_at IS NOT NULL)",
        )
    };
    on!(db, conn => diesel::delete(fork_links::table)
        .filter(fork_links::project_id.eq(project))
        .filter(leads_nowhere())
        .execute(conn))?;
    let row: Row = on!(db, conn => diesel::insert_into(fork_links::table)
        .values((
            fork_links::project_id.eq(project),
            fork_links::source_id.eq(source),
            fork_links::created_at.eq(to_micros(now)),
            fork_links::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// From where a project was forked, unless that is being removed.
pub fn find(db: &mut Conn, project: i64) -> Result<Option<ForkLink>> {
    let row: Option<Row> = on!(db, conn => fork_links::table
        .inner_join(projects::table.on(projects::id.eq(fork_links::source_id)))
        .filter(fork_links::project_id.eq(project))
        .filter(projects::deleted_at.is_null())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(ForkLink::from))
}

/// Forgets from where a project was forked; says whether it was.
pub fn delete(db: &mut Conn, project: i64) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(fork_links::table)
        .filter(fork_links::project_id.eq(project))
        .execute(conn))?;
    Ok(removed > 0)
}

/// How far the project can be seen that another one was forked from, unless it is being removed; on PostgreSQL nobody else
/// changes that meanwhile.
pub fn source_visibility(db: &mut Conn, project: i64) -> Result<Option<Visibility>> {
    let Some(link) = find(db, project)? else { return Ok(None) };
    if !locked(db, link.source)? {
        return Ok(None);
    }
    let level: Option<i32> = on!(db, conn => projects::table
        .find(link.source)
        .filter(projects::deleted_at.is_null())
        .select(projects::visibility)
        .first(conn)
        .optional())?;
    Ok(level.map(to_visibility))
}

/// Lets the direct forks of a project be seen no further than this; says how many could be.
pub fn lower(db: &mut Conn, source: i64, visibility: Visibility, now: Time) -> Result<usize> {
    let forks = || {
        Fragment::<Bool>::new("projects.id IN (SELECT f.project_id FROM fork_links f WHERE f.source_id = ")
            .number(source)
            .sql(")")
    };
    Ok(on!(db, conn => diesel::update(projects::table)
        .filter(forks())
        .filter(projects::deleted_at.is_null())
        .filter(projects::visibility.gt(visibility.level()))
        .set((projects::visibility.eq(visibility.level()), projects::updated_at.eq(to_micros(now))))
        .execute(conn))?)
}

/// The number of each fork among these with the project that it was forked from, if the viewer sees that.
pub fn sources_among(db: &mut Conn, viewer: &Viewer, forks: &[i64]) -> Result<Vec<(i64, ForkSource)>> {
    type Columns = (BigInt, BigInt, Text, Text, Text, Nullable<Text>, Text, Integer);
    type Source = (i64, i64, String, String, String, Option<String>, String, i32);
    if forks.is_empty() {
        return Ok(Vec::new());
    }
    let sources = || {
        Fragment::<Columns>::new(
            "SELECT f.project_id, p.id, p.name, p.path, n.name, u.name, n.full_path, p.visibility FROM fork_links f \
             JOIN projects p ON p.id = f.source_id JOIN namespaces n ON n.id = p.namespace_id \
             LEFT JOIN users u ON u.id = n.owner_id WHERE ",
        )
        .then(viewer.knows())
        .sql(" AND f.project_id")
        .among(forks)
    };
    let rows: Vec<Source> = on!(db, conn => sources().load(conn))?;
    let to_source = |(fork, id, name, path, group, owner, namespace_path, visibility): Source| {
        let (namespace_name, visibility) = (owner.unwrap_or(group), to_visibility(visibility));
        (fork, ForkSource { id, name, path, namespace_name, namespace_path, visibility })
    };
    Ok(rows.into_iter().map(to_source).collect())
}
