//! Access tokens, looked up by digest.

use diesel::{
    prelude::*,
    sql_types::{Array, BigInt},
};
use model::{
    Page, Scope, Slice, Time, Token, TokenId, User, UserId,
    tokens::{Digest, TokenFilter},
    users::Identity,
};

use crate::{
    Conn, Result,
    conn::on,
    constant::constant,
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
            id: TokenId::new(id),
            user_id: UserId::new(user_id),
            name,
            scopes: scopes.split(' ').filter_map(Scope::parse).collect(),
            expires_at: from_micros_opt(expires_at),
            revoked_at: from_micros_opt(revoked_at),
            last_used_at: from_micros_opt(last_used_at),
            created_at: from_micros(created_at),
            session,
        }
    }
}

/// A token to insert.
pub struct NewToken<'a> {
    /// The user it authenticates.
    pub user_id: UserId,
    /// The name of the token.
    pub name: &'a str,
    /// The digest of its secret.
    pub digest: Digest,
    /// The scopes it grants.
    pub scopes: &'a [Scope],
    /// The time from which it is invalid.
    pub expires_at: Option<Time>,
    /// Whether it is a session token, which is revoked when the password changes.
    pub session: bool,
}

/// Returns the token with this digest, valid or not, and its user. A single statement, because every request runs it.
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
    let mut identities = Vec::new();
    for (token, user, identity) in rows {
        identities.extend(identity.map(|(provider, extern_uid)| Identity { provider, extern_uid }));
        found.get_or_insert((token, user));
    }
    Ok(found.map(|(token, user)| (token.into(), user.into_user(identities))))
}

/// Inserts a token.
pub fn insert(db: &mut Conn, new: &NewToken<'_>, now: Time) -> Result<Token> {
    let scopes = new.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ");
    let row: Row = on!(db, conn => diesel::insert_into(tokens::table)
        .values((
            tokens::user_id.eq(new.user_id.get()),
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

/// Returns all tokens of a user, newest first.
pub fn all_of(db: &mut Conn, user: UserId) -> Result<Vec<Token>> {
    let rows: Vec<Row> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user.get()))
        .order(tokens::id.desc())
        .select(Row::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(Token::from).collect())
}

/// Lists tokens, newest first.
pub fn list(db: &mut Conn, filter: &TokenFilter, page: Page, now: Time) -> Result<Slice<Token>> {
    let now = to_micros(now);
    let (total, rows): (i64, Vec<Row>) = on!(db, conn => {
        let matching = || {
            let mut query = tokens::table.into_boxed();
            if let Some(user) = filter.user {
                query = query.filter(tokens::user_id.eq(user.get()));
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
    Ok(Slice { items: rows.into_iter().map(Token::from).collect(), total: total.into(), page })
}

/// Returns a token.
pub fn by_id(db: &mut Conn, id: TokenId) -> Result<Option<Token>> {
    let row: Option<Row> =
        on!(db, conn => tokens::table.find(id.get()).select(Row::as_select()).first(conn).optional())?;
    Ok(row.map(Token::from))
}

/// Revokes a token; returns `false` if it does not exist or is already revoked.
pub fn revoke(db: &mut Conn, id: TokenId, now: Time) -> Result<bool> {
    let changed = on!(db, conn => diesel::update(tokens::table.find(id.get()))
        .filter(tokens::revoked_at.is_null())
        .set(tokens::revoked_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(changed > 0)
}

/// Revokes the session tokens of a user, optionally except one.
pub fn revoke_sessions(db: &mut Conn, user: UserId, except: Option<TokenId>, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(tokens::table)
        .filter(tokens::user_id.eq(user.get()))
        .filter(tokens::session.eq(true))
        .filter(tokens::revoked_at.is_null())
        .filter(tokens::id.ne(except.map_or(0, TokenId::get)))
        .set(tokens::revoked_at.eq(to_micros(now)))
        .execute(conn))?;
    Ok(())
}

/// Returns the number of personal tokens of a user that are neither revoked nor expired, not counting sessions.
pub fn count_active(db: &mut Conn, user: UserId, now: Time) -> Result<i64> {
    Ok(on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user.get()))
        .filter(tokens::session.eq(false))
        .filter(tokens::revoked_at.is_null())
        .filter(tokens::expires_at.is_null().or(tokens::expires_at.gt(to_micros(now))))
        .count()
        .get_result(conn))?)
}

/// Stores the times of the last uses of tokens.
pub fn set_last_uses(db: &mut Conn, uses: &[(TokenId, Time)]) -> Result<()> {
    match db {
        Conn::Sqlite(conn) => {
            for (id, at) in uses {
                constant!(diesel::update(tokens::table.find(id.get())).set(tokens::last_used_at.eq(to_micros(*at))))
                    .execute(conn)?;
            }
        }
        // Each statement would take a round trip.
        Conn::Pg(conn) => {
            let (ids, times): (Vec<i64>, Vec<i64>) = uses.iter().map(|(id, at)| (id.get(), to_micros(*at))).unzip();
            constant!(
                diesel::sql_query(
                    "UPDATE tokens SET last_used_at = u.used_at FROM unnest($1, $2) AS u (id, used_at) \
                     WHERE tokens.id = u.id",
                )
                .bind::<Array<BigInt>, _>(ids)
                .bind::<Array<BigInt>, _>(times)
            )
            .execute(conn)?;
        }
    }
    Ok(())
}

/// Deletes tokens that expired or were revoked before a time; returns their number.
pub fn delete_stale(db: &mut Conn, before: Time) -> Result<usize> {
    let before = to_micros(before);
    Ok(on!(db, conn => diesel::delete(
        tokens::table.filter(tokens::expires_at.lt(before).or(tokens::revoked_at.lt(before))),
    )
    .execute(conn))?)
}

/// Deletes the oldest session tokens of a user, keeping the newest `keep`.
pub fn delete_old_sessions(db: &mut Conn, user: UserId, keep: i64) -> Result<()> {
    let oldest_to_keep: Option<i64> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user.get()))
        .filter(tokens::session.eq(true))
        .order(tokens::id.desc())
        .offset(keep - 1)
        .limit(1)
        .select(tokens::id)
        .first(conn)
        .optional())?;
    if let Some(oldest_to_keep) = oldest_to_keep {
        on!(db, conn => diesel::delete(tokens::table)
            .filter(tokens::user_id.eq(user.get()))
            .filter(tokens::session.eq(true))
            .filter(tokens::id.lt(oldest_to_keep))
            .execute(conn))?;
    }
    Ok(())
}

/// Deletes the oldest revoked or expired personal tokens of a user, keeping the newest `keep`; sessions are not counted.
pub fn delete_old_inactive(db: &mut Conn, user: UserId, keep: i64, now: Time) -> Result<()> {
    let now = to_micros(now);
    let oldest_to_keep: Option<i64> = on!(db, conn => tokens::table
        .filter(tokens::user_id.eq(user.get()))
        .filter(tokens::session.eq(false))
        .filter(tokens::revoked_at.is_not_null().or(tokens::expires_at.le(now)))
        .order(tokens::id.desc())
        .offset(keep - 1)
        .limit(1)
        .select(tokens::id)
        .first(conn)
        .optional())?;
    if let Some(oldest_to_keep) = oldest_to_keep {
        on!(db, conn => diesel::delete(tokens::table)
            .filter(tokens::user_id.eq(user.get()))
            .filter(tokens::session.eq(false))
            .filter(tokens::revoked_at.is_not_null().or(tokens::expires_at.le(now)))
            .filter(tokens::id.lt(oldest_to_keep))
            .execute(conn))?;
    }
    Ok(())
}
