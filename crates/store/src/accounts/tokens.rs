//! Access tokens, known by their digests.

use diesel::prelude::*;
use model::{
    Page, Scope, Slice, Time, Token, User,
    tokens::{Digest, TokenFilter},
    users::Identity,
};

use crate::{
    Conn, Result,
    conn::on,
    schema::{identities, tokens, users},
    times::{from_micros, from_micros_opt, to_micros},
    users::Row as UserRow,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = tokens)]
struct Row {
    id: i64,
    user_id: i64,
    name: String,
    scopes: String,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    last_used_at: Option<i64>,
    created_at: i64,
    session: bool,
}

impl From<Row> for Token {
    fn from(row: Row) -> Self {
        let Row { id, user_id, name, scopes, expires_at, revoked_at, last_used_at, created_at, session } = row;
        Self {
            id,
            user_id,
            name,
            scopes: scopes.split(' ').filter_map(Scope::from_word).collect(),
            expires_at: from_micros_opt(expires_at),
            revoked_at: from_micros_opt(revoked_at),
            last_used_at: from_micros_opt(last_used_at),
            created_at: from_micros(created_at),
            session,
        }
    }
}

/// A token about to be stored.
pub struct NewToken<'a> {
    /// On whose behalf it speaks.
    pub user_id: i64,
    /// What it is for.
    pub name: &'a str,
    /// What is stored of it.
    pub digest: Digest,
    /// What it opens.
    pub scopes: &'a [Scope],
    /// From when on it opens nothing.
    pub expires_at: Option<Time>,
    /// Whether it was issued for a password and ends when the password changes.
    pub session: bool,
}

/// The token with this digest and its user; whether it still opens anything is not asked here. One statement, because
/// every request begins with it.
pub fn find(db: &mut Conn, digest: &Digest) -> Result<Option<(Token, User)>> {
    type WithIdentity = (Row, UserRow, Option<(String, String)>);
    let rows: Vec<WithIdentity> = on!(db, conn => tokens::table
        .inner_join(users::table)
        .left_join(identities::table.on(identities::user_id.eq(tokens::user_id)))
        .filter(tokens::digest.eq(digest.as_bytes()))
        .select((
            Row::as_select(),
            UserRow::as_select(),
            (identities::provider, identities::extern_uid).nullable(),
        ))
        .load(conn))?;
    let mut found = None;
    let mut accounts = Vec::new();
    for (token, user, identity) in rows {
        accounts.extend(identity.map(|(provider, extern_uid)| Identity { provider, extern_uid }));
        found.get_or_insert((token, user));
    }
    Ok(found.map(|(token, user)| (token.into(), user.into_user(accounts))))
}

/// Adds a token.
pub fn insert(db: &mut Conn, new: &NewToken<'_>, now: Time) -> Result<Token> {
    let scopes = new.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ");
    let row: Row = on!(db, conn => diesel::insert_into(tokens::table)
        .values((
            tokens::user_id.eq(new.user_id),
            tokens::name.eq(new.name),
            tokens::digest.eq(new.digest.as_bytes()),
            tokens::scopes.eq(&scopes),
            tokens::expires_at.eq(new.expires_at.map(to_micros)),
            tokens::created_at.eq(to_micros(now)),
            tokens::session.eq(new.session),
        ))
        .returning(Row::as_returning())
        .get_result(conn))?;
    Ok(row.into())
}

/// The tokens of a user, newest first.
pub fn all_of(db: &mut Conn, user: i64) -> Result<Vec<Token>> {
    let rows: Vec<Row> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user))
        .order(tokens::id.desc())
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Token::from).collect())
}

/// A page of tokens, newest first.
pub fn list(db: &mut Conn, filter: &TokenFilter, page: Page, now: Time) -> Result<Slice<Token>> {
    let now = to_micros(now);
    let (total, rows): (i64, Vec<Row>) = on!(db, conn => {
        let matching = || {
            let mut query = tokens::table.into_boxed();
            if let Some(user) = filter.user {
                query = query.filter(tokens::user_id.eq(user));
            }
            query = match filter.revoked {
                Some(true) => query.filter(tokens::revoked_at.is_not_null()),
                Some(false) => query.filter(tokens::revoked_at.is_null()),
                None => query,
            };
            match filter.active {
                Some(true) => query
                    .filter(tokens::revoked_at.is_null())
                    .filter(tokens::expires_at.is_null().or(tokens::expires_at.gt(now))),
                Some(false) => query.filter(tokens::revoked_at.is_not_null().or(tokens::expires_at.le(now))),
                None => query,
            }
        };
        let total = matching().count().get_result(conn)?;
        let page = matching().order(tokens::id.desc()).limit(page.size).offset(page.offset());
        (total, page.select(Row::as_select()).load(conn)?)
    });
    Ok(Slice { items: rows.into_iter().map(Token::from).collect(), total, page })
}

/// One token.
pub fn by_id(db: &mut Conn, id: i64) -> Result<Option<Token>> {
    let row: Option<Row> = on!(db, conn => tokens::table.find(id).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Token::from))
}

/// Takes a token back; says whether there was one to take.
pub fn revoke(db: &mut Conn, id: i64, now: Time) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(tokens::table.find(id))
        .filter(tokens::revoked_at.is_null())
        .set(tokens::revoked_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Revokes the session tokens of a user, except one.
pub fn revoke_sessions(db: &mut Conn, user: i64, except: Option<i64>, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(tokens::table)
        .filter(tokens::user_id.eq(user))
        .filter(tokens::session.eq(true))
        .filter(tokens::revoked_at.is_null())
        .filter(tokens::id.ne(except.unwrap_or(0)))
        .set(tokens::revoked_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// How many tokens made by hand a user has that are neither revoked nor expired.
pub fn count_active(db: &mut Conn, user: i64, now: Time) -> Result<i64> {
    Ok(on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user))
        .filter(tokens::session.eq(false))
        .filter(tokens::revoked_at.is_null())
        .filter(tokens::expires_at.is_null().or(tokens::expires_at.gt(to_micros(now))))
        .count()
        .get_result(conn))?)
}

/// Notes when a token was last seen.
pub fn note_use(db: &mut Conn, id: i64, at: Time) -> Result<()> {
    on!(db, conn => diesel::update(tokens::table.find(id))
        .set(tokens::last_used_at.eq(to_micros(at)))
        .execute(conn))?;
    Ok(())
}

/// Forgets tokens that have opened nothing since before the given moment; says how many.
pub fn delete_stale(db: &mut Conn, before: Time) -> Result<usize> {
    let before = to_micros(before);
    Ok(on!(db, conn => diesel::delete(
        tokens::table.filter(tokens::expires_at.lt(before).or(tokens::revoked_at.lt(before))),
    )
    .execute(conn))?)
}

/// Deletes the oldest session tokens of a user beyond the newest few.
pub fn delete_old_sessions(db: &mut Conn, user: i64, keep: i64) -> Result<()> {
    let oldest_kept: Option<i64> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user))
        .filter(tokens::session.eq(true))
        .order(tokens::id.desc())
        .offset(keep - 1)
        .limit(1)
        .select(tokens::id)
        .first(conn)
        .optional())?;
    if let Some(oldest_kept) = oldest_kept {
        on!(db, conn => diesel::delete(tokens::table)
            .filter(tokens::user_id.eq(user))
            .filter(tokens::session.eq(true))
            .filter(tokens::id.lt(oldest_kept))
            .execute(conn))?;
    }
    Ok(())
}

/// Deletes the oldest revoked or expired tokens of a user that were made by hand, beyond the newest few.
pub fn delete_old_inactive(db: &mut Conn, user: i64, keep: i64, now: Time) -> Result<()> {
    let now = to_micros(now);
    let oldest_kept: Option<i64> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user))
        .filter(tokens::session.eq(false))
        .filter(tokens::revoked_at.is_not_null().or(tokens::expires_at.le(now)))
        .order(tokens::id.desc())
        .offset(keep - 1)
        .limit(1)
        .select(tokens::id)
        .first(conn)
        .optional())?;
    if let Some(oldest_kept) = oldest_kept {
        on!(db, conn => diesel::delete(tokens::table)
            .filter(tokens::user_id.eq(user))
            .filter(tokens::session.eq(false))
            .filter(tokens::revoked_at.is_not_null().or(tokens::expires_at.le(now)))
            .filter(tokens::id.lt(oldest_kept))
            .execute(conn))?;
    }
    Ok(())
}
