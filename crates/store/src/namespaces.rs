//! The tree of paths.

use diesel::prelude::*;
use model::{Time, namespaces::NamespaceKind};

use crate::{
    Conn, Result,
    conn::on,
    schema::{lower, namespaces},
    times::to_micros,
};

/// Whether a full path is in use, in whatever case, by anybody but the given owner.
pub fn is_taken(db: &mut Conn, full_path: &str, except_owner: Option<i64>) -> Result<bool> {
    let owner: Option<Option<i64>> = on!(db, conn => namespaces::table
        .filter(lower(namespaces::full_path).eq(full_path.to_lowercase()))
        .select(namespaces::owner_id)
        .first(conn)
        .optional())?;
    Ok(owner.is_some_and(|owner| owner.is_none() || owner != except_owner))
}

/// Adds the personal namespace of a user.
pub fn insert_personal(db: &mut Conn, user: i64, path: &str, now: Time) -> Result<i64> {
    Ok(on!(db, conn => diesel::insert_into(namespaces::table)
        .values((
            namespaces::kind.eq(NamespaceKind::User.as_str()),
            namespaces::owner_id.eq(user),
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::created_at.eq(to_micros(now)),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .returning(namespaces::id)
        .get_result(conn))?)
}

/// Renames the personal namespace of a user.
pub fn rename_personal(db: &mut Conn, user: i64, path: &str, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(namespaces::table)
        .filter(namespaces::owner_id.eq(user))
        .filter(namespaces::kind.eq(NamespaceKind::User.as_str()))
        .set((
            namespaces::name.eq(path),
            namespaces::path.eq(path),
            namespaces::full_path.eq(path),
            namespaces::updated_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}
