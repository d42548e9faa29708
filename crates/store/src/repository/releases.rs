//! Notes about tags.

use diesel::prelude::*;
use model::{Release, Time};

use crate::{
    Conn, Result,
    conn::on,
    schema::releases,
    times::{from_micros, to_micros},
};

/// How many names go into one statement; engines have a limit.
const AT_ONCE: usize = 1000;

#[derive(Queryable, Selectable)]
#[diesel(table_name = releases)]
struct Row {
    tag_name: String,
    description: String,
    created_at: i64,
    updated_at: i64,
}

impl From<Row> for Release {
    fn from(Row { tag_name, description, created_at, updated_at }: Row) -> Self {
        Self { tag_name, description, created_at: from_micros(created_at), updated_at: from_micros(updated_at) }
    }
}

/// The releases that these tags of a project have.
pub fn among(db: &mut Conn, project: i64, tags: &[&str]) -> Result<Vec<Release>> {
    let mut found = Vec::new();
    for some in tags.chunks(AT_ONCE) {
        let rows: Vec<Row> = on!(db, conn => releases::table
            .filter(releases::project_id.eq(project))
            .filter(releases::tag_name.eq_any(some))
            .select(Row::as_select())
            .load(conn))?;
        found.extend(rows.into_iter().map(Release::from));
    }
    Ok(found)
}

/// The release of a tag.
pub fn find(db: &mut Conn, project: i64, tag: &str) -> Result<Option<Release>> {
    let row: Option<Row> = on!(db, conn => releases::table
        .filter(releases::project_id.eq(project))
        .filter(releases::tag_name.eq(tag))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Release::from))
}

/// Adds a release; says whether the tag had none.
pub fn insert(db: &mut Conn, project: i64, tag: &str, description: &str, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(releases::table)
        .values((
            releases::project_id.eq(project),
            releases::tag_name.eq(tag),
            releases::description.eq(description),
            releases::created_at.eq(to_micros(now)),
            releases::updated_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Changes a release; says whether the tag has one.
pub fn update(db: &mut Conn, project: i64, tag: &str, description: &str, now: Time) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(releases::table)
        .filter(releases::project_id.eq(project))
        .filter(releases::tag_name.eq(tag))
        .set((releases::description.eq(description), releases::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Removes a release; says whether the tag had one.
pub fn delete(db: &mut Conn, project: i64, tag: &str) -> Result<bool> {
    Ok(delete_all(db, project, &[tag])? > 0)
}

/// Removes the releases of tags; says how many there were.
pub(crate) fn delete_all(db: &mut Conn, project: i64, tags: &[&str]) -> Result<usize> {
    let mut removed = 0;
    for some in tags.chunks(AT_ONCE) {
        removed += on!(db, conn => diesel::delete(releases::table)
            .filter(releases::project_id.eq(project))
            .filter(releases::tag_name.eq_any(some))
            .execute(conn))?;
    }
    Ok(removed)
}
