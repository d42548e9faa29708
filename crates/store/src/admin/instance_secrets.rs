//! Secrets that all nodes share, encrypted by the caller.

use diesel::prelude::*;

use crate::{Conn, Result, conn::on, schema::instance_secrets};

/// Returns the encrypted secret with this name.
pub fn find(db: &mut Conn, name: &str) -> Result<Option<Vec<u8>>> {
    Ok(on!(db, conn => instance_secrets::table
        .filter(instance_secrets::name.eq(name))
        .select(instance_secrets::secret)
        .first(conn)
        .optional())?)
}

/// Stores an encrypted secret, unless there is one with this name. Waits for another node that stores it at the same time.
pub fn insert(db: &mut Conn, name: &str, secret: &[u8]) -> Result<()> {
    on!(db, conn => diesel::insert_into(instance_secrets::table)
        .values((instance_secrets::name.eq(name), instance_secrets::secret.eq(secret)))
        .on_conflict(instance_secrets::name)
        .do_nothing()
        .execute(conn))?;
    Ok(())
}

/// Deletes the secret with this name.
pub fn delete(db: &mut Conn, name: &str) -> Result<()> {
    on!(db, conn => diesel::delete(instance_secrets::table.filter(instance_secrets::name.eq(name))).execute(conn))?;
    Ok(())
}
