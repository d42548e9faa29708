//! Keys that open projects to machines. A key goes with the last project that it opens.

use diesel::{prelude::*, sql_types::Bool};
use model::{DeployKey, Page, Role, Slice, Time, keys::NewKey};

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
        Self { id, title, key, fingerprint, created_at: from_micros(created_at) }
    }
}

/// The keys that open a project, newest first.
pub fn list(db: &mut Conn, project: i64, page: Page) -> Result<Slice<DeployKey>> {
    let of_project = || deploy_key_projects::table.filter(deploy_key_projects::project_id.eq(project));
    let total = on!(db, conn => of_project().count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => of_project()
        .inner_join(deploy_keys::table)
        .order(deploy_keys::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(DeployKey::from).collect(), total, page })
}

/// One of the keys that open a project.
pub fn find(db: &mut Conn, project: i64, id: i64) -> Result<Option<DeployKey>> {
    let row: Option<Row> = on!(db, conn => deploy_key_projects::table
        .inner_join(deploy_keys::table)
        .filter(deploy_key_projects::project_id.eq(project))
        .filter(deploy_keys::id.eq(id))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(DeployKey::from))
}

/// Adds a key that opens a project; that its fingerprint is free was asked of [`crate::keys::is_taken`].
pub fn insert(db: &mut Conn, project: i64, new: &NewKey, now: Time) -> Result<DeployKey> {
    let row: Row = on!(db, conn => diesel::insert_into(deploy_keys::table)
        .values((
            deploy_keys::title.eq(&new.title),
            deploy_keys::key.eq(&new.key),
            deploy_keys::fingerprint.eq(&new.fingerprint),
            deploy_keys::created_at.eq(to_micros(now)),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    enable(db, project, row.id, now)?;
    Ok(row.into())
}

/// Lets a key open a project; says whether it did not before.
pub fn enable(db: &mut Conn, project: i64, id: i64, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(deploy_key_projects::table)
        .values((
            deploy_key_projects::key_id.eq(id),
            deploy_key_projects::project_id.eq(project),
            deploy_key_projects::created_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Closes a project to a key; says whether it was open. A key that opens nothing any more is gone.
pub fn disable(db: &mut Conn, project: i64, id: i64) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(deploy_key_projects::table.find((id, project))).execute(conn))?;
    Ok(removed > 0)
}

/// Closes a project that was buried to some of the keys that open nothing else; says which keys are gone by that.
pub fn forget_some(db: &mut Conn, project: i64, most: i64) -> Result<Vec<DeployKey>> {
    let opens_nothing_else = || {
        Fragment::<Bool>::new(
            "NOT EXISTS (SELECT 1 FROM deploy_key_projects other WHERE other.key_id = deploy_keys.id \
             AND other.project_id <> ",
        )
        .number(project)
        .sql(")")
    };
    let rows: Vec<Row> = on!(db, conn => deploy_key_projects::table
        .inner_join(deploy_keys::table)
        .filter(deploy_key_projects::project_id.eq(project))
        .filter(opens_nothing_else())
        .order(deploy_keys::id)
        .limit(most)
        .select(Row::as_select())
        .load(conn))?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    on!(db, conn => diesel::delete(deploy_key_projects::table)
        .filter(deploy_key_projects::project_id.eq(project))
        .filter(Fragment::<Bool>::new("deploy_key_projects.key_id").among(&ids))
        .execute(conn))?;
    // Somebody may have let one of them open another project since it was chosen.
    let left = left_among(db, &ids)?;
    Ok(rows.into_iter().filter(|row| !left.contains(&row.id)).map(DeployKey::from).collect())
}

/// Which of these keys are there.
pub fn left_among(db: &mut Conn, ids: &[i64]) -> Result<Vec<i64>> {
    Ok(on!(db, conn => deploy_keys::table
        .filter(Fragment::<Bool>::new("deploy_keys.id").among(ids))
        .select(deploy_keys::id)
        .load(conn))?)
}

/// One key with the numbers of the projects that it opens, those aside that are being removed.
pub fn by_fingerprint(db: &mut Conn, fingerprint: &str) -> Result<Option<(DeployKey, Vec<i64>)>> {
    let row: Option<Row> = on!(db, conn => deploy_keys::table
        .filter(deploy_keys::fingerprint.eq(fingerprint))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    let Some(row) = row else { return Ok(None) };
    let opened = projects_of(db, row.id)?;
    Ok(Some((row.into(), opened)))
}

/// One key that opens a project of which the viewer is a master; administrators find every key.
pub fn within_reach(db: &mut Conn, viewer: &Viewer, which: Which<'_>) -> Result<Option<DeployKey>> {
    let mine = || {
        if viewer.admin {
            return Fragment::<Bool>::new("TRUE");
        }
        Fragment::new(
            "EXISTS (SELECT 1 FROM deploy_key_projects k WHERE k.key_id = deploy_keys.id AND k.project_id IN (",
        )
        .then(viewer.my_projects_as(Role::Master, ""))
        .sql("))")
    };
    let row: Option<Row> = match which {
        Which::Id(id) => on!(db, conn => deploy_keys::table
            .filter(deploy_keys::id.eq(id))
            .filter(mine())
            .select(Row::as_select())
            .first(conn)
            .optional())?,
        Which::Fingerprint(fingerprint) => on!(db, conn => deploy_keys::table
            .filter(deploy_keys::fingerprint.eq(fingerprint))
            .filter(mine())
            .select(Row::as_select())
            .first(conn)
            .optional())?,
    };
    Ok(row.map(DeployKey::from))
}

/// Which key is meant.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// By number.
    Id(i64),
    /// By fingerprint.
    Fingerprint(&'a str),
}

fn projects_of(db: &mut Conn, key: i64) -> Result<Vec<i64>> {
    Ok(on!(db, conn => deploy_key_projects::table
        .inner_join(projects::table)
        .filter(deploy_key_projects::key_id.eq(key))
        .filter(projects::deleted_at.is_null())
        .order(deploy_key_projects::project_id)
        .select(deploy_key_projects::project_id)
        .load(conn))?)
}
