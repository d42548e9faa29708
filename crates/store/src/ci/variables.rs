//! Variables that projects give their jobs. Their values come and go sealed.

use diesel::prelude::*;
use model::{Page, Slice};

use crate::{Conn, Result, conn::on, schema::ci_variables};

/// A variable as it is stored.
#[derive(Queryable, Selectable)]
#[diesel(table_name = ci_variables)]
pub struct SealedVariable {
    /// Its name.
    pub key: String,
    /// What it holds, sealed.
    pub value: Vec<u8>,
}

/// The variables of a project, oldest first.
pub fn list(db: &mut Conn, project: i64, page: Page) -> Result<Slice<SealedVariable>> {
    let total = count(db, project)?;
    let items = on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project))
        .order(ci_variables::id)
        .limit(page.size)
        .offset(page.offset())
        .select(SealedVariable::as_select())
        .load(conn))?;
    Ok(Slice { items, total, page })
}

/// All variables of a project, oldest first.
pub fn all(db: &mut Conn, project: i64) -> Result<Vec<SealedVariable>> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project))
        .order(ci_variables::id)
        .select(SealedVariable::as_select())
        .load(conn))?)
}

/// How many variables a project has.
pub fn count(db: &mut Conn, project: i64) -> Result<i64> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project))
        .count()
        .get_result(conn))?)
}

/// One variable of a project.
pub fn find(db: &mut Conn, project: i64, key: &str) -> Result<Option<SealedVariable>> {
    Ok(on!(db, conn => ci_variables::table
        .filter(ci_variables::project_id.eq(project))
        .filter(ci_variables::key.eq(key))
        .select(SealedVariable::as_select())
        .first(conn)
        .optional())?)
}

/// Adds a variable whose name is free.
pub fn insert(db: &mut Conn, project: i64, key: &str, value: &[u8]) -> Result<()> {
    on!(db, conn => diesel::insert_into(ci_variables::table)
        .values((ci_variables::project_id.eq(project), ci_variables::key.eq(key), ci_variables::value.eq(value)))
        .execute(conn))?;
    Ok(())
}

/// Gives a variable another value; whether it is there.
pub fn update(db: &mut Conn, project: i64, key: &str, value: &[u8]) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(ci_variables::table)
        .filter(ci_variables::project_id.eq(project))
        .filter(ci_variables::key.eq(key))
        .set(ci_variables::value.eq(value))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Removes a variable; answers it as it was.
pub fn delete(db: &mut Conn, project: i64, key: &str) -> Result<Option<SealedVariable>> {
    Ok(on!(db, conn => diesel::delete(ci_variables::table)
        .filter(ci_variables::project_id.eq(project))
        .filter(ci_variables::key.eq(key))
        .returning(SealedVariable::as_returning())
        .get_result(conn)
        .optional())?)
}
