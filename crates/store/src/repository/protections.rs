//! Protected branches.

use diesel::prelude::*;
use model::{ProjectId, Protection, PushLevel, Time};

use crate::{Conn, Result, conn::on, schema::protected_branches, times::to_micros};

#[derive(Queryable, Selectable)]
#[diesel(table_name = protected_branches)]
struct Row {
    name: String,
    push_level: i32,
    merge_level: i32,
}

impl From<Row> for Protection {
    fn from(Row { name, push_level, merge_level }: Row) -> Self {
        Self { name, push: to_level(push_level), merge: to_level(merge_level) }
    }
}

/// Converts a stored level; an unknown one, from a newer version, allows no one.
pub(crate) fn to_level(level: i32) -> PushLevel {
    PushLevel::from_level(level).unwrap_or(PushLevel::NoOne)
}

/// Lists the protections of a project, oldest first.
pub fn of_project(db: &mut Conn, project: ProjectId) -> Result<Vec<Protection>> {
    let rows: Vec<Row> = on!(db, conn => protected_branches::table
        .filter(protected_branches::project_id.eq(project.get()))
        .order(protected_branches::id)
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Protection::from).collect())
}

/// Inserts a protection, or updates the one with the same name.
pub fn put(db: &mut Conn, project: ProjectId, rule: &Protection, now: Time) -> Result<()> {
    on!(db, conn => diesel::insert_into(protected_branches::table)
        .values((
            protected_branches::project_id.eq(project.get()),
            protected_branches::name.eq(&rule.name),
            protected_branches::push_level.eq(rule.push.level()),
            protected_branches::merge_level.eq(rule.merge.level()),
            protected_branches::created_at.eq(to_micros(now)),
        ))
        .on_conflict((protected_branches::project_id, protected_branches::name))
        .do_update()
        .set((
            protected_branches::push_level.eq(rule.push.level()),
            protected_branches::merge_level.eq(rule.merge.level()),
        ))
        .execute(conn))?;
    Ok(())
}

/// Deletes the protection with exactly this name; returns whether it existed.
pub fn remove(db: &mut Conn, project: ProjectId, name: &str) -> Result<bool> {
    let removed = on!(db, conn => diesel::delete(protected_branches::table)
        .filter(protected_branches::project_id.eq(project.get()))
        .filter(protected_branches::name.eq(name))
        .execute(conn))?;
    Ok(removed > 0)
}
