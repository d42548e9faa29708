//! Accounts of users elsewhere, in the order of their providers, which is the order of an index.

use std::collections::HashMap;

use diesel::prelude::*;
use model::users::Identity;

use crate::{Conn, Result, conn::on, schema::identities};

/// The identities of several users, by user.
pub(crate) fn of_users(db: &mut Conn, users: &[i64]) -> Result<HashMap<i64, Vec<Identity>>> {
    let rows: Vec<(i64, String, String)> = on!(db, conn => identities::table
        .filter(identities::user_id.eq_any(users))
        .order(identities::provider)
        .select((identities::user_id, identities::provider, identities::extern_uid))
        .load(conn))?;
    let mut found: HashMap<i64, Vec<Identity>> = HashMap::new();
    for (user, provider, extern_uid) in rows {
        found.entry(user).or_default().push(Identity { provider, extern_uid });
    }
    Ok(found)
}

/// The identities of one user.
pub(crate) fn of_user(db: &mut Conn, user: i64) -> Result<Vec<Identity>> {
    let rows: Vec<(String, String)> = on!(db, conn => identities::table
        .filter(identities::user_id.eq(user))
        .order(identities::provider)
        .select((identities::provider, identities::extern_uid))
        .load(conn))?;
    Ok(rows.into_iter().map(|(provider, extern_uid)| Identity { provider, extern_uid }).collect())
}

/// Whose account elsewhere this is.
pub fn holder(db: &mut Conn, identity: &Identity) -> Result<Option<i64>> {
    Ok(on!(db, conn => identities::table
        .filter(identities::provider.eq(&identity.provider))
        .filter(identities::extern_uid.eq(&identity.extern_uid))
        .select(identities::user_id)
        .first(conn)
        .optional())?)
}

/// Adds an account elsewhere, or replaces the one with the same provider.
pub fn put(db: &mut Conn, user: i64, identity: &Identity) -> Result<()> {
    on!(db, conn => diesel::insert_into(identities::table)
        .values((
            identities::user_id.eq(user),
            identities::provider.eq(&identity.provider),
            identities::extern_uid.eq(&identity.extern_uid),
        ))
        .on_conflict((identities::user_id, identities::provider))
        .do_update()
        .set(identities::extern_uid.eq(&identity.extern_uid))
        .execute(conn))?;
    Ok(())
}
