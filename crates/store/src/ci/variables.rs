//! CI variables of projects. Their values are encrypted by the caller.

use diesel::prelude::*;
use model::{Page, ProjectId, Slice};

use crate::{Conn, Result, conn::on, schema::ci_variables};

/// A variable as stored.
#[derive(Queryable, Selectable)]
#[diesel(table_name = ci_variables)]
pub struct EncryptedVariable {
    /// The key.
    pub key: String,
    /// The encrypted value.
    pub value: Vec<u8>,
}

/// Returns a page of the variables of a project, oldest first.
pub fn list(db: &mut Conn, project: ProjectId, page: Page) -> Result<Slice<EncryptedVariable>> {
    let total = count(db, project)?;
    let items = on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project.get()))
        .order(ci_variables::id)
        .limit(page.size)
        .offset(page.offset())
        .select(EncryptedVariable::as_select())
        .load(conn))?;
    Ok(Slice { items, total: total.into(), page })
}

/// Returns all variables of a project, oldest first.
pub fn all(db: &mut Conn, project: ProjectId) -> Result<Vec<EncryptedVariable>> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project.get()))
        .order(ci_variables::id)
        .select(EncryptedVariable::as_select())
        .load(conn))?)
}

/// Counts the variables of a project.
pub fn count(db: &mut Conn, project: ProjectId) -> Result<i64> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project.get()))
        .count()
        .get_result(conn))?)
}

/// Returns a variable of a project.
pub fn find(db: &mut Conn, project: ProjectId, key: &str) -> Result<Option<EncryptedVariable>> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project.get()))
        .filter(ci_variables::key.eq(key))
        .select(EncryptedVariable::as_select())
        .first(conn)
        .optional())?)
}

/// Inserts a variable; the key must be unique within the project.
pub fn insert(db: &mut Conn, project: ProjectId, key: &str, value: &[u8]) -> Result<()> {
    on!(db, conn => diesel::insert_into(ci_variables::table)
        .values((ci_variables::project_id.eq(project.get()), ci_variables::key.eq(key), ci_variables::value.eq(value)))
        .execute(conn))?;
    Ok(())
}

/// Sets the value of a variable; returns whether it exists.
pub fn update(db: &mut Conn, project: ProjectId, key: &str, value: &[u8]) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(ci_variables::table)
        .filter(ci_variables::project_id.eq(project.get()))
        .filter(ci_variables::key.eq(key))
        .set(ci_variables::value.eq(value))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Deletes a variable and returns it.
pub fn delete(db: &mut Conn, project: ProjectId, key: &str) -> Result<Option<EncryptedVariable>> {
    Ok(on!(db, conn => diesel::delete(ci_variables::table)
        .filter(ci_variables::project_id.eq(project.get()))
        .filter(ci_variables::key.eq(key))
        .returning(EncryptedVariable::as_returning())
        .get_result(conn)
        .optional())?)
}
