//! Accounts of users at external identity providers, ordered by provider, which is the order of an index.

use std::collections::HashMap;

use diesel::prelude::*;
use model::{UserId, users::Identity};

use crate::{Conn, Result, conn::on, schema::identities};

/// Returns the identities of several users, by user.
pub(crate) fn of_users(db: &mut Conn, users: &[UserId]) -> Result<HashMap<UserId, Vec<Identity>>> {
    let rows: Vec<(i64, String, String)> = on!(db, conn => identities::table
        .filter(identities::user_id.eq_any(users.iter().copied().map(UserId::get)))
        .order(identities::provider)
        .select((identities::user_id, identities::provider, identities::extern_uid))
        .load(conn))?;
    let mut found: HashMap<UserId, Vec<Identity>> = HashMap::new();
    for (user, provider, extern_uid) in rows {
        found.entry(UserId::new(user)).or_default().push(Identity { provider, extern_uid });
    }
    Ok(found)
}

/// Returns the identities of a user.
pub(crate) fn of_user(db: &mut Conn, user: UserId) -> Result<Vec<Identity>> {
    let rows: Vec<(String, String)> = on!(db, conn => identities::table
        .filter(identities::user_id.eq(user.get()))
        .order(identities::provider)
        .select((identities::provider, identities::extern_uid))
        .load(conn))?;
    Ok(rows.into_iter().map(|(provider, extern_uid)| Identity { provider, extern_uid }).collect())
}

/// Returns the user who has an identity.
pub fn holder(db: &mut Conn, identity: &Identity) -> Result<Option<UserId>> {
    let user: Option<i64> = on!(db, conn => identities::table
        .filter(identities::provider.eq(&identity.provider))
        .filter(identities::extern_uid.eq(&identity.extern_uid))
        .select(identities::user_id)
        .first(conn)
        .optional())?;
    Ok(user.map(UserId::new))
}

/// Inserts an identity, or replaces the one with the same provider.
pub fn upsert(db: &mut Conn, user: UserId, identity: &Identity) -> Result<()> {
    on!(db, conn => diesel::insert_into(identities::table)
        .values((
            identities::user_id.eq(user.get()),
            identities::provider.eq(&identity.provider),
            identities::extern_uid.eq(&identity.extern_uid),
        ))
        .on_conflict((identities::user_id, identities::provider))
        .do_update()
        .set(identities::extern_uid.eq(&identity.extern_uid))
        .execute(conn))?;
    Ok(())
}
