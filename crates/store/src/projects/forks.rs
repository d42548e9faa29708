//! Fork relations between projects.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Integer, Nullable, Text},
};
use model::{
    ForkLinkId, ProjectId, Time, Visibility,
    projects::{ForkLink, ForkSource},
};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    namespaces::to_visibility,
    projects::lock,
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
        let (project, source) = (ProjectId::new(project_id), ProjectId::new(source_id));
        Self { id: ForkLinkId::new(id), project, source, created_at, updated_at }
    }
}

/// Inserts a fork relation; replaces one whose source is deleted.
pub fn insert(db: &mut Conn, project: ProjectId, source: ProjectId, now: Time) -> Result<ForkLink> {
    let source_is_deleted = || {
        Fragment::<Bool>::new(
            "EXISTS (SELECT 1 FROM projects p WHERE p.id = fork_links.source_id AND p.deleted_at IS NOT NULL)",
        )
    };
    on!(db, conn => diesel::delete(fork_links::table)
        .filter(fork_links::project_id.eq(project.get()))
        .filter(source_is_deleted())
        .execute(conn))?;
    let row: Row = on!(db, conn => diesel::insert_into(fork_links::table)
        .values((
            fork_links::project_id.eq(project.get()),
            fork_links::source_id.eq(source.get()),
            fork_links::created_at.eq(to_micros(now)),
            fork_links::updated_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// Returns the fork relation of a project, unless its source is deleted.
pub fn find(db: &mut Conn, project: ProjectId) -> Result<Option<ForkLink>> {
    let row: Option<Row> = on!(db, conn => fork_links::table
        .inner_join(projects::table.on(projects::id.eq(fork_links::source_id)))
        .filter(fork_links::project_id.eq(project.get()))
        .filter(projects::deleted_at.is_null())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(ForkLink::from))
}

/// Deletes the fork relation of a project; returns whether there was one.
pub fn delete(db: &mut Conn, project: ProjectId) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(fork_links::table)
        .filter(fork_links::project_id.eq(project.get()))
        .execute(conn))?;
    Ok(removed > 0)
}

/// Locks the source of a fork and returns its visibility; `None` if there is no source or it is deleted.
pub fn lock_source_visibility(db: &mut Conn, project: ProjectId) -> Result<Option<Visibility>> {
    let Some(link) = find(db, project)? else { return Ok(None) };
    if !lock(db, link.source)? {
        return Ok(None);
    }
    let level: Option<i32> = on!(db, conn => projects::table
        .find(link.source.get())
        .filter(projects::deleted_at.is_null())
        .select(projects::visibility)
        .first(conn)
        .optional())?;
    Ok(level.map(to_visibility))
}

/// Lowers the visibility of the direct forks of a project to at most this; returns the number of changed forks.
pub fn lower_visibility(db: &mut Conn, source: ProjectId, visibility: Visibility, now: Time) -> Result<usize> {
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

/// Returns the ID of each fork with its source, where the viewer can see the source.
pub fn sources_of(db: &mut Conn, viewer: &Viewer, forks: &[ProjectId]) -> Result<Vec<(ProjectId, ForkSource)>> {
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
        .append(viewer.may_see())
        .sql(" AND f.project_id")
        .in_ids(forks)
    };
    let rows: Vec<Source> = on!(db, conn => sources().load(conn))?;
    let to_source = |(fork, id, name, path, group, owner, namespace_path, visibility): Source| {
        let (namespace_name, visibility) = (owner.unwrap_or(group), to_visibility(visibility));
        let id = ProjectId::new(id);
        (ProjectId::new(fork), ForkSource { id, name, path, namespace_name, namespace_path, visibility })
    };
    Ok(rows.into_iter().map(to_source).collect())
}
