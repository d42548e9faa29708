//! The packs of repositories: a row for each pack, and which repositories have it. The content of a pack is in files of the
//! store, or in the database if it is small.
//!
//! A pack is live until other packs replace it. A dead pack is forgotten after a grace period, and its files are deleted
//! once no repository has it. Unreachable objects are moved to a pack of their own, which dies after a while.

use diesel::{
    prelude::*,
    sql_types::{BigInt, Bool, Text},
};
use model::{
    Oid, PackContent, Time,
    ids::{PackId, ProjectId, RepositoryId},
};

use super::{columns::Parsed, repositories::RepositoryRecord};
use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::{pack_contents, packs, repositories, repository_packs},
    times::{from_micros, from_micros_opt, to_micros},
};

/// The number of keys in one statement; engines have a limit.
const BATCH_SIZE: usize = 1000;

/// A pack of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// The id of the pack.
    pub id: PackId,
    /// The key of its files, without an extension.
    pub key: String,
    /// The checksum of its content.
    pub checksum: Oid,
    /// The size of the pack file.
    pub bytes: i64,
    /// The number of objects.
    pub objects: i64,
    /// Whether its content is in files; otherwise it is in the database.
    pub has_files: bool,
    /// When other packs replaced it in the repository; `None` while it is live.
    pub dead_since: Option<Time>,
    /// When its objects were found to be unreachable; `None` if some are reachable.
    pub unreachable_since: Option<Time>,
    /// When it was created.
    pub created_at: Time,
}

/// A pack to add to a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPack {
    /// The key of its files, without an extension; never used before.
    pub key: String,
    /// The content of a small pack; the files of others are stored already.
    pub content: Option<PackContent>,
    /// The checksum of its content.
    pub checksum: Oid,
    /// The size of the pack file.
    pub bytes: i64,
    /// The number of objects.
    pub objects: i64,
    /// Whether no ref leads to any of its objects.
    pub is_unreachable: bool,
}

/// A pack whose content is in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallPack {
    /// The id of the pack.
    pub id: PackId,
    /// The key that its files would have.
    pub key: String,
    /// The checksum of its content.
    pub checksum: Oid,
    /// The content.
    pub content: PackContent,
}

/// New packs of a repository in place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackReplacement {
    /// The pack epoch with which the new packs were built; with another one, nothing is replaced.
    pub pack_epoch: i64,
    /// The packs that are replaced.
    pub old: Vec<PackId>,
    /// The new packs.
    pub new: Vec<NewPack>,
}

#[derive(Queryable)]
struct Row {
    id: i64,
    key: String,
    checksum: Parsed<Oid>,
    bytes: i64,
    objects: i64,
    has_files: bool,
    dead_since: Option<i64>,
    unreachable_since: Option<i64>,
    created_at: i64,
}

impl From<Row> for PackRecord {
    fn from(row: Row) -> Self {
        let Row { id, key, checksum, bytes, objects, has_files, dead_since, unreachable_since, created_at } = row;
        Self {
            id: PackId::new(id),
            key,
            checksum: checksum.0,
            bytes,
            objects,
            has_files,
            dead_since: from_micros_opt(dead_since),
            unreachable_since: from_micros_opt(unreachable_since),
            created_at: from_micros(created_at),
        }
    }
}

/// Lists the packs of a repository, live and dead, oldest first.
pub fn of_repository(db: &mut Conn, repository: RepositoryId) -> Result<Vec<PackRecord>> {
    let rows: Vec<Row> = on!(db, conn => repository_packs::table
        .inner_join(packs::table.left_join(pack_contents::table))
        .filter(repository_packs::repository_id.eq(repository.get()))
        .order(packs::id)
        .select((
            packs::id,
            packs::file_key,
            packs::checksum,
            packs::bytes,
            packs::objects,
            pack_contents::pack_id.nullable().is_null(),
            repository_packs::dead_since,
            repository_packs::unreachable_since,
            packs::created_at,
        ))
        .load(conn))?;
    Ok(rows.into_iter().map(PackRecord::from).collect())
}

/// Returns the number of live packs of a repository.
pub fn count_live(db: &mut Conn, repository: RepositoryId) -> Result<usize> {
    let count: i64 = on!(db, conn => repository_packs::table
        .filter(repository_packs::repository_id.eq(repository.get()))
        .filter(repository_packs::dead_since.is_null())
        .count()
        .get_result(conn))?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Returns the content of a small pack by the key of the pack; `None` if there is no such pack.
pub fn content(db: &mut Conn, key: &str) -> Result<Option<PackContent>> {
    let found: Option<(Vec<u8>, Vec<u8>)> = on!(db, conn => pack_contents::table
        .inner_join(packs::table)
        .filter(packs::file_key.eq(key))
        .select((pack_contents::pack_data, pack_contents::index_data))
        .first(conn)
        .optional())?;
    Ok(found.map(|(pack, index)| PackContent { pack, index }))
}

/// Returns up to `limit` packs with an id above `after` whose content is in the database.
pub fn small_packs(db: &mut Conn, after: PackId, limit: i64) -> Result<Vec<SmallPack>> {
    type Row = (i64, String, Parsed<Oid>, Vec<u8>, Vec<u8>);
    let rows: Vec<Row> = on!(db, conn => pack_contents::table
        .inner_join(packs::table)
        .filter(pack_contents::pack_id.gt(after.get()))
        .order(pack_contents::pack_id)
        .limit(limit)
        .select((
            packs::id,
            packs::file_key,
            packs::checksum,
            pack_contents::pack_data,
            pack_contents::index_data,
        ))
        .load(conn))?;
    let small_pack = |(id, key, checksum, pack, index): Row| SmallPack {
        id: PackId::new(id),
        key,
        checksum: checksum.0,
        content: PackContent { pack, index },
    };
    Ok(rows.into_iter().map(small_pack).collect())
}

/// Adds a new pack to a repository, even if that has one with the same checksum: the other one may be about to be removed.
pub fn add_pack(db: &mut Conn, repository: RepositoryId, pack: &NewPack, now: Time) -> Result<()> {
    let id: i64 = on!(db, conn => diesel::insert_into(packs::table)
        .values((
            packs::file_key.eq(&pack.key),
            packs::checksum.eq(pack.checksum.to_string()),
            packs::bytes.eq(pack.bytes),
            packs::objects.eq(pack.objects),
            packs::created_at.eq(to_micros(now)),
        ))
        .returning(packs::id)
        .get_result(conn))?;
    if let Some(content) = &pack.content {
        on!(db, conn => diesel::insert_into(pack_contents::table)
            .values((
                pack_contents::pack_id.eq(id),
                pack_contents::pack_data.eq(&content.pack),
                pack_contents::index_data.eq(&content.index),
            ))
            .execute(conn))?;
    }
    on!(db, conn => diesel::insert_into(repository_packs::table)
        .values((
            repository_packs::repository_id.eq(repository.get()),
            repository_packs::pack_id.eq(id),
            repository_packs::unreachable_since.eq(pack.is_unreachable.then(|| to_micros(now))),
        ))
        .execute(conn))?;
    Ok(())
}

/// Marks packs of a repository as dead, adds others and increases the pack epoch. Does nothing and returns
/// false if the epoch has changed since the new packs were built.
pub fn replace_packs(
    db: &mut Conn,
    repository: RepositoryId,
    replacement: &PackReplacement,
    now: Time,
) -> Result<bool> {
    let PackReplacement { pack_epoch, old, new } = replacement;
    let updated = on!(db, conn => diesel::update(repositories::table.find(repository.get()))
        .filter(repositories::pack_epoch.eq(pack_epoch))
        .set(repositories::pack_epoch.eq(pack_epoch + 1))
        .execute(conn))?;
    if updated == 0 {
        return Ok(false);
    }
    let replaced = || Fragment::<Bool>::new("repository_packs.pack_id").in_ids(old);
    // Small packs are not kept, because there may be thousands of them. A reader who misses one lists the packs again.
    on!(db, conn => diesel::delete(repository_packs::table)
        .filter(repository_packs::repository_id.eq(repository.get()))
        .filter(replaced())
        .filter(Fragment::<Bool>::new("EXISTS (SELECT 1 FROM pack_contents c WHERE c.pack_id = repository_packs.pack_id)"))
        .execute(conn))?;
    on!(db, conn => diesel::update(repository_packs::table)
        .filter(repository_packs::repository_id.eq(repository.get()))
        .filter(repository_packs::dead_since.is_null())
        .filter(replaced())
        .set(repository_packs::dead_since.eq(to_micros(now)))
        .execute(conn))?;
    for pack in new {
        add_pack(db, repository, pack, now)?;
    }
    Ok(true)
}

/// Marks packs as dead whose objects are unreachable since before a time.
pub fn expire_unreachable_packs(db: &mut Conn, before: Time, now: Time) -> Result<usize> {
    Ok(on!(db, conn => diesel::update(repository_packs::table)
        .filter(repository_packs::unreachable_since.lt(to_micros(before)))
        .filter(repository_packs::dead_since.is_null())
        .set(repository_packs::dead_since.eq(to_micros(now)))
        .execute(conn))?)
}

/// Removes all dead packs from a repository at once.
pub fn forget_dead_packs_of(db: &mut Conn, repository: RepositoryId) -> Result<()> {
    on!(db, conn => diesel::delete(repository_packs::table)
        .filter(repository_packs::repository_id.eq(repository.get()))
        .filter(repository_packs::dead_since.is_not_null())
        .execute(conn))?;
    Ok(())
}

/// Removes up to `limit` packs from repositories in which they are dead since before a time; returns the repositories, which
/// may have a repository several times.
pub fn forget_dead_packs(db: &mut Conn, before: Time, limit: i64) -> Result<Vec<RepositoryId>> {
    let delete_some = || {
        Fragment::<BigInt>::new(
            "DELETE FROM repository_packs WHERE (repository_id, pack_id) IN \
             (SELECT d.repository_id, d.pack_id FROM repository_packs d WHERE d.dead_since < ",
        )
        .number(to_micros(before))
        .sql(" ORDER BY d.dead_since LIMIT ")
        .number(limit)
        .sql(") RETURNING repository_id")
    };
    let repositories: Vec<i64> = on!(db, conn => delete_some().load(conn))?;
    Ok(repositories.into_iter().map(RepositoryId::new).collect())
}

/// Deletes up to `limit` packs that no repository has; returns their keys, whose files the caller deletes after the
/// transaction.
pub fn delete_unused_packs(db: &mut Conn, limit: i64) -> Result<Vec<String>> {
    let delete_some = || {
        Fragment::<Text>::new("DELETE FROM packs WHERE id")
            .in_query(
                Fragment::new(
                    "SELECT p.id FROM packs p \
                 WHERE NOT EXISTS (SELECT 1 FROM repository_packs r WHERE r.pack_id = p.id) ORDER BY p.id LIMIT ",
                )
                .number(limit),
            )
            .sql(" RETURNING file_key")
    };
    Ok(on!(db, conn => delete_some().load(conn))?)
}

/// Returns the projects that may have objects of a repository: those that have one of its packs, live or dead, its forks, and
/// the project that it was forked from; without those that are being removed.
pub fn related_projects(db: &mut Conn, repository: &RepositoryRecord) -> Result<Vec<ProjectId>> {
    let (id, project) = (repository.id.get(), repository.project.get());
    let query = || {
        Fragment::<BigInt>::new(
            "SELECT id FROM projects WHERE deleted_at IS NULL AND id IN (SELECT o.project_id FROM repository_packs own JOIN repository_packs other ON other.pack_id = own.pack_id \
             JOIN repositories o ON o.id = other.repository_id WHERE own.repository_id = ",
        )
        .number(id)
        .sql(" AND o.id <> own.repository_id UNION SELECT l.project_id FROM fork_links l WHERE l.source_id = ")
        .number(project)
        .sql(" UNION SELECT l.source_id FROM fork_links l WHERE l.source_id IS NOT NULL AND l.project_id = ")
        .number(project)
        .sql(") ORDER BY id")
    };
    let projects: Vec<i64> = on!(db, conn => query().load(conn))?;
    Ok(projects.into_iter().map(ProjectId::new).collect())
}

/// Returns which of these keys belong to a pack.
pub fn known_keys(db: &mut Conn, keys: &[String]) -> Result<Vec<String>> {
    let mut known = Vec::new();
    for batch in keys.chunks(BATCH_SIZE) {
        let found: Vec<String> = on!(db, conn => packs::table
            .filter(packs::file_key.eq_any(batch))
            .select(packs::file_key)
            .load(conn))?;
        known.extend(found);
    }
    Ok(known)
}
