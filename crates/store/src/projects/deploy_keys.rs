//! Deploy keys. A trigger deletes a key with its last project.

use diesel::{prelude::*, sql_types::Bool};
use model::{DeployKey, DeployKeyId, Page, ProjectId, Role, Slice, Time, keys::NewKey};

use crate::{
    Conn, Result,
    access::Viewer,
    conn::on,
    fragment::Fragment,
    schema::{deploy_key_projects, deploy_keys, projects},
    times::{from_micros, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = deploy_keys)]
struct Row {
    id: i64,
    title: String,
    key: String,
    fingerprint: String,
    created_at: i64,
}

impl From<Row> for DeployKey {
    fn from(Row { id, title, key, fingerprint, created_at }: Row) -> Self {
        Self { id: DeployKeyId::new(id), title, key, fingerprint, created_at: from_micros(created_at) }
    }
}

/// Lists the deploy keys of a project, newest first.
pub fn list(db: &mut Conn, project: ProjectId, page: Page) -> Result<Slice<DeployKey>> {
    let of_project = || deploy_key_projects::table.filter(deploy_key_projects::project_id.eq(project.get()));
    let total: i64 = on!(db, conn => of_project().count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => of_project()
        .inner_join(deploy_keys::table)
        .order(deploy_keys::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(DeployKey::from).collect(), total: total.into(), page })
}

/// Returns a deploy key of a project.
pub fn find(db: &mut Conn, project: ProjectId, id: DeployKeyId) -> Result<Option<DeployKey>> {
    let row: Option<Row> = on!(db, conn => deploy_key_projects::table
        .inner_join(deploy_keys::table)
        .filter(deploy_key_projects::project_id.eq(project.get()))
        .filter(deploy_keys::id.eq(id.get()))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(DeployKey::from))
}

/// Inserts a deploy key for a project; the caller has checked the fingerprint with [`crate::keys::is_taken`].
pub fn insert(db: &mut Conn, project: ProjectId, new: &NewKey, now: Time) -> Result<DeployKey> {
    let row: Row = on!(db, conn => diesel::insert_into(deploy_keys::table)
        .values((
            deploy_keys::title.eq(&new.title),
            deploy_keys::key.eq(&new.key),
            deploy_keys::fingerprint.eq(&new.fingerprint),
            deploy_keys::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    enable(db, project, DeployKeyId::new(row.id), now)?;
    Ok(row.into())
}

/// Enables a key in a project; returns whether it was not enabled before.
pub fn enable(db: &mut Conn, project: ProjectId, id: DeployKeyId, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(deploy_key_projects::table)
        .values((
            deploy_key_projects::key_id.eq(id.get()),
            deploy_key_projects::project_id.eq(project.get()),
            deploy_key_projects::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Disables a key in a project; returns whether it was enabled. A key that is enabled nowhere is deleted.
pub fn disable(db: &mut Conn, project: ProjectId, id: DeployKeyId) -> Result<bool> {
    let removed =
        on!(db, conn => diesel::delete(deploy_key_projects::table.find((id.get(), project.get()))).execute(conn))?;
    Ok(removed > 0)
}

/// Removes up to `limit` keys that are enabled nowhere else from a deleted project; returns the keys that are thereby deleted.
pub fn delete_exclusive_batch(db: &mut Conn, project: ProjectId, limit: i64) -> Result<Vec<DeployKey>> {
    let is_exclusive = || {
        Fragment::<Bool>::new(
            "NOT EXISTS (SELECT 1 FROM deploy_key_projects other WHERE other.key_id = deploy_keys.id \
             AND other.project_id <> ",
        )
        .number(project)
        .sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => deploy_key_projects::table
        .inner_join(deploy_keys::table)
        .filter(deploy_key_projects::project_id.eq(project.get()))
        .filter(is_exclusive())
        .order(deploy_keys::id)
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<DeployKeyId> = rows.iter().map(|row| DeployKeyId::new(row.id)).collect();
    on!(db, conn => diesel::delete(deploy_key_projects::table)
        .filter(deploy_key_projects::project_id.eq(project.get()))
        .filter(Fragment::<Bool>::new("deploy_key_projects.key_id").in_ids(&ids))
        .execute(conn))?;
    // A key may have been enabled in another project since it was selected.
    let remaining = existing_ids(db, &ids)?;
    Ok(rows.into_iter().map(DeployKey::from).filter(|key| !remaining.contains(&key.id)).collect())
}

/// Returns those of the IDs that exist.
pub fn existing_ids(db: &mut Conn, ids: &[DeployKeyId]) -> Result<Vec<DeployKeyId>> {
    let existing: Vec<i64> = on!(db, conn => deploy_keys::table
        .filter(Fragment::<Bool>::new("deploy_keys.id").in_ids(ids))
        .select(deploy_keys::id)
        .load(conn))?;
    Ok(existing.into_iter().map(DeployKeyId::new).collect())
}

/// Returns the key with a fingerprint and the IDs of its projects, except deleted ones.
pub fn by_fingerprint(db: &mut Conn, fingerprint: &str) -> Result<Option<(DeployKey, Vec<ProjectId>)>> {
    let row: Option<Row> = on!(db, conn => deploy_keys::table
        .filter(deploy_keys::fingerprint.eq(fingerprint))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    let Some(row) = row else { return Ok(None) };
    let project_ids = projects_of(db, DeployKeyId::new(row.id))?;
    Ok(Some((row.into(), project_ids)))
}

/// Returns a key that is enabled in a project of which the viewer is a master; administrators find every key.
pub fn find_manageable(db: &mut Conn, viewer: &Viewer, selector: DeployKeySelector<'_>) -> Result<Option<DeployKey>> {
    let row: Option<Row> = match selector {
        DeployKeySelector::Id(id) => on!(db, conn => deploy_keys::table
            .filter(deploy_keys::id.eq(id.get()))
            .filter(is_manageable(viewer))
            .select(Row::as_select())
            .first(conn)
            .optional())?,
        DeployKeySelector::Fingerprint(fingerprint) => on!(db, conn => deploy_keys::table
            .filter(deploy_keys::fingerprint.eq(fingerprint))
            .filter(is_manageable(viewer))
            .select(Row::as_select())
            .first(conn)
            .optional())?,
    };
    Ok(row.map(DeployKey::from))
}

/// Lists deploy keys that the viewer can enable in a project, newest first, at most `limit`.
pub fn list_enableable(db: &mut Conn, viewer: &Viewer, project: ProjectId, limit: i64) -> Result<Vec<DeployKey>> {
    let is_not_enabled = || {
        Fragment::<Bool>::new(
            "NOT EXISTS (SELECT 1 FROM deploy_key_projects here WHERE here.key_id = deploy_keys.id AND here.project_id = ",
        )
        .number(project)
        .sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => deploy_keys::table
        .filter(is_manageable(viewer))
        .filter(is_not_enabled())
        .order(deploy_keys::id.desc())
        .limit(limit)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(DeployKey::from).collect())
}

/// Condition: a key is enabled in a project of which the viewer is a master, or the viewer is an administrator.
fn is_manageable(viewer: &Viewer) -> Fragment<Bool> {
    if viewer.admin {
        return Fragment::new("TRUE");
    }
    Fragment::new("EXISTS (SELECT 1 FROM deploy_key_projects k WHERE k.key_id = deploy_keys.id AND k.project_id IN (")
        .append(viewer.my_projects_with_role(Role::Master, ""))
        .sql("))")
}

/// Selects a deploy key.
#[derive(Clone, Copy, Debug)]
pub enum DeployKeySelector<'a> {
    /// By ID.
    Id(DeployKeyId),
    /// By fingerprint.
    Fingerprint(&'a str),
}

fn projects_of(db: &mut Conn, key: DeployKeyId) -> Result<Vec<ProjectId>> {
    let ids: Vec<i64> = on!(db, conn => deploy_key_projects::table
        .inner_join(projects::table)
        .filter(deploy_key_projects::key_id.eq(key.get()))
        .filter(projects::deleted_at.is_null())
        .order(deploy_key_projects::project_id)
        .select(deploy_key_projects::project_id)
        .load(conn))?;
    Ok(ids.into_iter().map(ProjectId::new).collect())
}
