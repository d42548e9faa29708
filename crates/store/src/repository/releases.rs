//! Releases of tags.

use diesel::{prelude::*, sql_types::Bool};
use model::{Page, ProjectId, Release, Slice, Time};

use crate::{
    Conn, Result,
    conn::on,
    fragment::Fragment,
    schema::releases,
    times::{from_micros, to_micros},
};

/// The number of names in one statement; engines have a limit.
const BATCH_SIZE: usize = 1000;

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

/// Returns the releases of tags of a project.
pub fn find_many(db: &mut Conn, project: ProjectId, tags: &[&str]) -> Result<Vec<Release>> {
    let mut found = Vec::new();
    for batch in tags.chunks(BATCH_SIZE) {
        let rows: Vec<Row> = on!(db, conn => releases::table
            .filter(releases::project_id.eq(project.get()))
            .filter(Fragment::<Bool>::new("releases.tag_name").in_texts(batch))
            .select(Row::as_select())
            .load(conn))?;
        found.extend(rows.into_iter().map(Release::from));
    }
    Ok(found)
}

/// Lists the releases of a project, newest first.
pub fn list(db: &mut Conn, project: ProjectId, page: Page) -> Result<Slice<Release>> {
    let of_project = || releases::table.filter(releases::project_id.eq(project.get()));
    let total: i64 = on!(db, conn => of_project().count().get_result(conn))?;
    let rows: Vec<Row> = on!(db, conn => of_project()
        .order((releases::created_at.desc(), releases::tag_name.desc()))
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    Ok(Slice { items: rows.into_iter().map(Release::from).collect(), total: total.into(), page })
}

/// Returns the release of a tag.
pub fn find(db: &mut Conn, project: ProjectId, tag: &str) -> Result<Option<Release>> {
    let row: Option<Row> = on!(db, conn => releases::table
        .filter(releases::project_id.eq(project.get()))
        .filter(releases::tag_name.eq(tag))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    Ok(row.map(Release::from))
}

/// Inserts a release; returns false if the tag already has one.
pub fn insert(db: &mut Conn, project: ProjectId, tag: &str, description: &str, now: Time) -> Result<bool> {
    let added = on!(db, conn => diesel::insert_into(releases::table)
        .values((
            releases::project_id.eq(project.get()),
            releases::tag_name.eq(tag),
            releases::description.eq(description),
            releases::created_at.eq(to_micros(now)),
            releases::updated_at.eq(to_micros(now)),
        ))
        .on_conflict_do_nothing()
        .execute(conn))?;
    Ok(added > 0)
}

/// Updates a release; returns whether it exists.
pub fn update(db: &mut Conn, project: ProjectId, tag: &str, description: &str, now: Time) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(releases::table)
        .filter(releases::project_id.eq(project.get()))
        .filter(releases::tag_name.eq(tag))
        .set((releases::description.eq(description), releases::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Deletes a release; returns whether it existed.
pub fn delete(db: &mut Conn, project: ProjectId, tag: &str) -> Result<bool> {
    Ok(delete_all(db, project, &[tag])? > 0)
}

/// Deletes the releases of tags; returns their number.
pub fn delete_all(db: &mut Conn, project: ProjectId, tags: &[&str]) -> Result<usize> {
    let mut removed = 0;
    for batch in tags.chunks(BATCH_SIZE) {
        removed += on!(db, conn => diesel::delete(releases::table)
            .filter(releases::project_id.eq(project.get()))
            .filter(releases::tag_name.eq_any(batch))
            .execute(conn))?;
    }
    Ok(removed)
}
