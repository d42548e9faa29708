//! Repositories and their refs.

mod ref_updates;

use diesel::{
    prelude::*,
    sql_types::{BigInt, Nullable, Text},
};
use model::{Oid, ProjectId, RefName, Time, ids::RepositoryId};

use super::columns::Parsed;
use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
    fragment::Fragment,
    schema::{projects, refs, repositories},
    times::{from_micros_opt, to_micros},
};

pub use ref_updates::{RefUpdate, update_refs};

/// A repository; a project has one after its first push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepositoryRecord {
    /// The id of the repository.
    pub id: RepositoryId,
    /// The project.
    pub project: ProjectId,
    /// Increased by each change of refs.
    pub generation: i64,
    /// Increased when packs are replaced.
    pub pack_epoch: i64,
    /// Increased before unreachable objects are dropped.
    pub drop_epoch: i64,
    /// When objects may have become unreachable that are not in a pack of their own yet.
    pub unreachable_since: Option<Time>,
}

/// A ref of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefRecord {
    /// The name of the ref.
    pub name: RefName,
    /// The object that it refers to.
    pub target: Oid,
    /// The object that an annotated tag finally refers to; `None` if the target is not a tag object.
    pub peeled: Option<Oid>,
}

/// The refs of a repository at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefsSnapshot {
    /// The generation of the repository.
    pub generation: i64,
    /// The default branch of the project, without `refs/heads/`.
    pub default_branch: Option<String>,
    /// The refs, in byte order of their names.
    pub refs: Vec<RefRecord>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = repositories)]
struct Row {
    id: i64,
    project_id: i64,
    generation: i64,
    pack_epoch: i64,
    drop_epoch: i64,
    unreachable_since: Option<i64>,
}

impl From<Row> for RepositoryRecord {
    fn from(Row { id, project_id, generation, pack_epoch, drop_epoch, unreachable_since }: Row) -> Self {
        Self {
            id: RepositoryId::new(id),
            project: ProjectId::new(project_id),
            generation,
            pack_epoch,
            drop_epoch,
            unreachable_since: from_micros_opt(unreachable_since),
        }
    }
}

/// The columns of [`REF_COLUMNS`].
type RefColumns = (Parsed<RefName>, Parsed<Oid>, Option<Parsed<Oid>>);

const REF_COLUMNS: (refs::name, refs::target, refs::peeled) = (refs::name, refs::target, refs::peeled);

impl From<RefColumns> for RefRecord {
    fn from((name, target, peeled): RefColumns) -> Self {
        Self { name: name.0, target: target.0, peeled: peeled.map(|oid| oid.0) }
    }
}

/// Returns the repository of a project.
pub fn find(db: &mut Conn, project: ProjectId) -> Result<Option<RepositoryRecord>> {
    let row: Option<Row> = on!(db, conn => repositories::table
        .filter(repositories::project_id.eq(project.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(RepositoryRecord::from))
}

/// Lists up to `limit` repositories with an id above `after`, including those of projects that are being removed.
pub fn list(db: &mut Conn, after: RepositoryId, limit: i64) -> Result<Vec<RepositoryRecord>> {
    let rows: Vec<Row> = on!(db, conn => repositories::table
        .filter(repositories::id.gt(after.get()))
        .order(repositories::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(RepositoryRecord::from).collect())
}

/// The size of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositorySize {
    /// The id of the repository.
    pub id: RepositoryId,
    /// The project.
    pub project: ProjectId,
    /// The full path of the project.
    pub path: String,
    /// The number of refs.
    pub refs: i64,
    /// The number of live packs.
    pub packs: i64,
    /// The number of objects in live packs; an object in two packs counts twice.
    pub objects: i64,
    /// The size of the live packs.
    pub bytes: i64,
    /// The size of the live packs that have only unreachable objects.
    pub unreachable_bytes: i64,
}

/// Lists the sizes of up to `limit` repositories with an id above `after`, except those of projects that are being removed.
pub fn sizes(db: &mut Conn, after: RepositoryId, limit: i64) -> Result<Vec<RepositorySize>> {
    type Columns = (BigInt, BigInt, Text, BigInt, BigInt, BigInt, BigInt, BigInt);
    type Values = (i64, i64, String, i64, i64, i64, i64, i64);
    let query = || {
        Fragment::<Columns>::new(
            "SELECT r.id, r.project_id, n.full_path || '/' || p.path, \
             (SELECT count(*) FROM refs f WHERE f.repository_id = r.id), count(k.id), \
             CAST(coalesce(sum(k.objects), 0) AS BIGINT), CAST(coalesce(sum(k.bytes), 0) AS BIGINT), \
             CAST(coalesce(sum(CASE WHEN l.unreachable_since IS NULL THEN 0 ELSE k.bytes END), 0) AS BIGINT) \
             FROM repositories r JOIN projects p ON p.id = r.project_id JOIN namespaces n ON n.id = p.namespace_id \
             LEFT JOIN repository_packs l ON l.repository_id = r.id AND l.dead_since IS NULL \
             LEFT JOIN packs k ON k.id = l.pack_id WHERE p.deleted_at IS NULL AND r.id > ",
        )
        .number(after)
        .sql(" GROUP BY r.id, r.project_id, n.full_path, p.path ORDER BY r.id LIMIT ")
        .number(limit)
    };
    let rows: Vec<Values> = on!(db, conn => query().load(conn))?;
    let size = |(id, project, path, refs, packs, objects, bytes, unreachable_bytes): Values| RepositorySize {
        id: RepositoryId::new(id),
        project: ProjectId::new(project),
        path,
        refs,
        packs,
        objects,
        bytes,
        unreachable_bytes,
    };
    Ok(rows.into_iter().map(size).collect())
}

/// Increases the generation of the repository of a project, which is created if necessary, and returns the repository.
/// Other transactions cannot change the repository until this one ends.
pub fn begin_update(db: &mut Conn, project: ProjectId, now: Time) -> Result<RepositoryRecord> {
    let updated: Option<Row> = on!(db, conn => constant!(diesel::update(repositories::table)
        .filter(repositories::project_id.eq(project.get()))
        .set(repositories::generation.eq(repositories::generation + 1))
        .returning(Row::as_returning()))
        .get_result(conn)
        .optional())?;
    let row: Row = match updated {
        Some(row) => row,
        // If another transaction inserts the row at the same time, this one waits for it and then updates that row.
        None => on!(db, conn => diesel::insert_into(repositories::table)
            .values((
                repositories::project_id.eq(project.get()),
                repositories::generation.eq(1),
                repositories::created_at.eq(to_micros(now)),
            ))
            .on_conflict(repositories::project_id)
            .do_update()
            .set(repositories::generation.eq(repositories::generation + 1))
            .returning(Row::as_returning())
            .get_result(conn))?,
    };
    Ok(row.into())
}

/// Returns the repository with this id.
pub fn by_id(db: &mut Conn, repository: RepositoryId) -> Result<Option<RepositoryRecord>> {
    let row: Option<Row> = on!(db, conn => repositories::table
        .find(repository.get())
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(RepositoryRecord::from))
}

/// Increases the pack epoch of a repository whose dead packs were forgotten.
pub fn increase_pack_epoch(db: &mut Conn, repository: RepositoryId) -> Result<()> {
    on!(db, conn => diesel::update(repositories::table.find(repository.get()))
        .set(repositories::pack_epoch.eq(repositories::pack_epoch + 1))
        .execute(conn))?;
    Ok(())
}

/// Increases the drop epoch of the repository of a project, so that pushes that are under way are inspected again, and
/// returns the repository. Other transactions cannot change the repository until this one ends.
pub fn increase_drop_epoch(db: &mut Conn, project: ProjectId) -> Result<Option<RepositoryRecord>> {
    let updated: Option<Row> = on!(db, conn => diesel::update(repositories::table)
        .filter(repositories::project_id.eq(project.get()))
        .set(repositories::drop_epoch.eq(repositories::drop_epoch + 1))
        .returning(Row::as_returning())
        .get_result(conn)
        .optional())?;
    Ok(updated.map(RepositoryRecord::from))
}

/// Records that objects of a repository may have become unreachable.
pub fn record_unreachable_objects(db: &mut Conn, repository: RepositoryId, now: Time) -> Result<()> {
    on!(db, conn => constant!(diesel::update(repositories::table.find(repository.get()))
        .filter(repositories::unreachable_since.is_null())
        .set(repositories::unreachable_since.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Records that the objects which were unreachable in a generation are in a pack of their own. Since a later generation
/// others may be.
pub fn finish_separation(db: &mut Conn, repository: RepositoryId, generation: i64, now: Time) -> Result<()> {
    let since = || {
        diesel::dsl::case_when(repositories::generation.eq(generation), None::<i64>.into_sql::<Nullable<BigInt>>())
            .otherwise(to_micros(now).into_sql::<Nullable<BigInt>>())
    };
    on!(db, conn => diesel::update(repositories::table.find(repository.get()))
        .set(repositories::unreachable_since.eq(since()))
        .execute(conn))?;
    Ok(())
}

/// Lists up to `limit` projects with a repository in which objects may be unreachable since before a time.
pub fn with_unreachable_objects(db: &mut Conn, before: Time, limit: i64) -> Result<Vec<ProjectId>> {
    let ids: Vec<i64> = on!(db, conn => repositories::table
        .filter(repositories::unreachable_since.lt(to_micros(before)))
        .order(repositories::unreachable_since)
        .limit(limit)
        .select(repositories::project_id)
        .load(conn))?;
    Ok(ids.into_iter().map(ProjectId::new).collect())
}

/// Gives a project without a repository the refs and live packs of another repository, except for packs of unreachable objects.
pub fn copy(db: &mut Conn, from: RepositoryId, to: ProjectId, now: Time) -> Result<RepositoryRecord> {
    let source =
        || repositories::table.find(from.get()).select((repositories::refs_bytes, repositories::unreachable_since));
    let (refs_bytes, unreachable_since): (i64, Option<i64>) = match db {
        Conn::Sqlite(conn) => source().first(conn)?,
        // The lock keeps the refs and packs unchanged between the statements that copy them.
        Conn::Pg(conn) => source().for_share().first(conn)?,
    };
    let row: Row = on!(db, conn => diesel::insert_into(repositories::table)
        .values((
            repositories::project_id.eq(to.get()),
            repositories::generation.eq(1),
            repositories::refs_bytes.eq(refs_bytes),
            repositories::unreachable_since.eq(unreachable_since),
            repositories::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    let copy_refs = || {
        Fragment::<BigInt>::new("INSERT INTO refs (repository_id, name, target, peeled) SELECT ")
            .number(row.id)
            .sql(", name, target, peeled FROM refs WHERE repository_id = ")
            .number(from)
            .sql(" ORDER BY name")
    };
    on!(db, conn => copy_refs().execute(conn))?;
    let copy_packs = || {
        Fragment::<BigInt>::new("INSERT INTO repository_packs (repository_id, pack_id) SELECT ")
            .number(row.id)
            .sql(
                ", pack_id FROM repository_packs \
                  WHERE dead_since IS NULL AND unreachable_since IS NULL AND repository_id = ",
            )
            .number(from)
    };
    on!(db, conn => copy_packs().execute(conn))?;
    Ok(row.into())
}

/// Returns all refs of a repository except hidden ones; `None` if there is no such repository.
pub fn refs(db: &mut Conn, repository: RepositoryId) -> Result<Option<RefsSnapshot>> {
    // One statement, because on PostgreSQL each statement sees the database at another instant.
    let mut rows = on!(db, conn => repositories::table
        .inner_join(projects::table)
        .left_join(refs::table)
        .filter(repositories::id.eq(repository.get()))
        .select((repositories::generation, projects::default_branch, REF_COLUMNS.nullable()))
        .load::<(i64, Option<String>, Option<RefColumns>)>(conn))?;
    let Some((generation, default_branch, _)) = rows.first_mut() else { return Ok(None) };
    let (generation, default_branch) = (*generation, default_branch.take());
    let mut refs: Vec<RefRecord> = rows
        .into_iter()
        .filter_map(|(_, _, columns)| columns.map(RefRecord::from))
        .filter(|reference| !reference.name.is_hidden())
        .collect();
    // Both engines usually read the primary key in this order already, but PostgreSQL would sort again for an ORDER BY.
    refs.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(RefsSnapshot { generation, default_branch, refs }))
}

/// Returns the ref with this name.
pub fn find_ref(db: &mut Conn, repository: RepositoryId, name: &RefName) -> Result<Option<RefRecord>> {
    let found: Option<RefColumns> = on!(db, conn => refs::table
        .find((repository.get(), name.as_str()))
        .select(REF_COLUMNS)
        .first(conn)
        .optional())?;
    Ok(found.map(RefRecord::from))
}

/// Returns a ref that cannot exist together with one of this name: it has the name of a folder of it, or is below it.
pub fn conflicting_ref(db: &mut Conn, repository: RepositoryId, name: &RefName) -> Result<Option<RefName>> {
    let name = name.as_str();
    // `refs` and the folders in it, such as `refs/heads`, cannot be names of refs.
    let folders: Vec<&str> = name.match_indices('/').skip(2).map(|(end, _)| &name[..end]).collect();
    if !folders.is_empty() {
        let found: Option<Parsed<RefName>> = on!(db, conn => refs::table
            .filter(refs::repository_id.eq(repository.get()))
            .filter(refs::name.eq_any(&folders))
            .select(refs::name)
            .first(conn)
            .optional())?;
        if let Some(found) = found {
            return Ok(Some(found.0));
        }
    }
    first_below(db, repository, name)
}

/// Returns whether a repository has a branch.
pub fn has_branches(db: &mut Conn, repository: RepositoryId) -> Result<bool> {
    Ok(first_below(db, repository, "refs/heads")?.is_some())
}

/// Returns the first ref below a folder.
fn first_below(db: &mut Conn, repository: RepositoryId, folder: &str) -> Result<Option<RefName>> {
    // `0` is the byte after `/`.
    let (start, end) = (format!("{folder}/"), format!("{folder}0"));
    let found: Option<Parsed<RefName>> = on!(db, conn => refs::table
        .filter(refs::repository_id.eq(repository.get()))
        .filter(refs::name.ge(&start))
        .filter(refs::name.lt(&end))
        .order(refs::name)
        .select(refs::name)
        .first(conn)
        .optional())?;
    Ok(found.map(|name| name.0))
}

/// Returns the size of all refs of a repository as lines of a packed-refs file; zero if there is no such repository.
pub fn packed_refs_size(db: &mut Conn, repository: RepositoryId) -> Result<i64> {
    let size: Option<i64> = on!(db, conn => repositories::table
        .find(repository.get())
        .select(repositories::refs_bytes)
        .first(conn)
        .optional())?;
    Ok(size.unwrap_or_default())
}
