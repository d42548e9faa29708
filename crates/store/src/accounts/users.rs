//! Users.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Bool};
use model::{
    Change, Page, Slice, Time, User, UserId, UserState,
    users::{Identity, NewUser, Profile, UserChanges, UserFilter, UserSummary},
    webhook_events::UserRecord,
};

use crate::{
    Conn, Result,
    conn::on,
    count_up_to::CountUpTo,
    fragment::Fragment,
    identities,
    schema::{lower, users},
    search::escape_like,
    times::{from_micros, from_micros_opt, to_micros},
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = users)]
pub(crate) struct Row {
    id: i64,
    username: String,
    name: String,
    email: String,
    state: String,
    admin: bool,
    external: bool,
    can_create_group: bool,
    projects_limit: i32,
    personal_projects: i32,
    bio: Option<String>,
    location: Option<String>,
    skype: String,
    linkedin: String,
    twitter: String,
    website_url: String,
    organization: Option<String>,
    avatar: Option<String>,
    confirmed_at: Option<i64>,
    current_sign_in_at: Option<i64>,
    last_sign_in_at: Option<i64>,
    created_at: i64,
}

impl Row {
    pub(crate) fn into_user(self, identities: Vec<Identity>) -> User {
        let Self {
            id,
            username,
            name,
            email,
            state,
            admin,
            external,
            can_create_group,
            projects_limit,
            personal_projects,
            bio,
            location,
            skype,
            linkedin,
            twitter,
            website_url,
            organization,
            avatar,
            confirmed_at,
            current_sign_in_at,
            last_sign_in_at,
            created_at,
        } = self;
        User {
            id: UserId::new(id),
            username,
            name,
            email,
            // An unknown state comes from a newer version; such a user stays blocked.
            state: UserState::parse(&state).unwrap_or(UserState::Blocked),
            admin,
            external,
            can_create_group,
            projects_limit,
            personal_projects,
            avatar,
            profile: Profile { bio, location, skype, linkedin, twitter, website_url, organization },
            identities,
            created_at: from_micros(created_at),
            confirmed_at: from_micros_opt(confirmed_at),
            current_sign_in_at: from_micros_opt(current_sign_in_at),
            last_sign_in_at: from_micros_opt(last_sign_in_at),
        }
    }
}

/// The columns of a user that other resources embed.
#[derive(Queryable, Selectable)]
#[diesel(table_name = users)]
pub(crate) struct SummaryRow {
    id: i64,
    username: String,
    name: String,
    state: String,
    avatar: Option<String>,
    created_at: i64,
}

impl From<SummaryRow> for UserSummary {
    fn from(row: SummaryRow) -> Self {
        let SummaryRow { id, username, name, state, avatar, created_at } = row;
        let state = UserState::parse(&state).unwrap_or(UserState::Blocked);
        Self { id: UserId::new(id), username, name, state, avatar, created_at: from_micros(created_at) }
    }
}

/// The columns of a user that system hooks send, including the e-mail address.
#[derive(Clone, Queryable, Selectable)]
#[diesel(table_name = users)]
pub struct Contact {
    id: i64,
    username: String,
    name: String,
    email: String,
    created_at: i64,
    updated_at: i64,
}

impl Contact {
    /// Returns the fields that system hooks send.
    pub fn user_record(&self) -> UserRecord<'_> {
        let Self { id, username, name, email, created_at, updated_at } = self;
        UserRecord {
            id: UserId::new(*id),
            username,
            name,
            email,
            created_at: from_micros(*created_at),
            updated_at: from_micros(*updated_at),
        }
    }
}

/// Returns those of the users that exist, by ID.
pub fn contacts(db: &mut Conn, ids: &[UserId]) -> Result<HashMap<UserId, Contact>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<Contact> = on!(db, conn => users::table
        .filter(Fragment::<Bool>::new("users.id").in_ids(ids))
        .select(Contact::as_select())
        .load(conn))?;
    Ok(rows.into_iter().map(|row| (UserId::new(row.id), row)).collect())
}

/// Returns a user.
pub fn by_id(db: &mut Conn, id: UserId) -> Result<Option<User>> {
    let row: Option<Row> =
        on!(db, conn => users::table.find(id.get()).select(Row::as_select()).first(conn).optional())?;
    load_identities(db, row)
}

/// Returns a user and locks the row until the transaction ends; SQLite has a single writer and needs no lock.
pub fn by_id_for_update(db: &mut Conn, id: UserId) -> Result<Option<User>> {
    let row: Option<Row> = match db {
        Conn::Sqlite(conn) => users::table.find(id.get()).select(Row::as_select()).first(conn).optional()?,
        Conn::Pg(conn) => users::table.find(id.get()).select(Row::as_select()).for_update().first(conn).optional()?,
    };
    load_identities(db, row)
}

/// Returns the user with exactly this username.
pub fn by_username(db: &mut Conn, username: &str) -> Result<Option<User>> {
    let row: Option<Row> = on!(db, conn => users::table
        .filter(lower(users::username).eq(username.to_lowercase()))
        .filter(users::username.eq(username))
        .select(Row::as_select())
        .first(conn)
        .optional())?;
    load_identities(db, row)
}

/// Returns the user with a username or primary address, ignoring case, and the hash of the password.
pub fn by_login(db: &mut Conn, login: &str) -> Result<Option<(User, String)>> {
    let login = login.trim().to_lowercase();
    let row: Option<(Row, String)> = if login.contains('@') {
        on!(db, conn => users::table
            .filter(users::email.eq(&login))
            .select((Row::as_select(), users::password_hash))
            .first(conn)
            .optional())?
    } else {
        on!(db, conn => users::table
            .filter(lower(users::username).eq(&login))
            .select((Row::as_select(), users::password_hash))
            .first(conn)
            .optional())?
    };
    let Some((row, hash)) = row else { return Ok(None) };
    Ok(load_identities(db, Some(row))?.map(|user| (user, hash)))
}

/// Returns the hash of a user's password.
pub fn password_hash(db: &mut Conn, id: UserId) -> Result<Option<String>> {
    Ok(on!(db, conn => users::table.find(id.get()).select(users::password_hash).first(conn).optional())?)
}

/// Lists users, newest first.
pub fn list(db: &mut Conn, filter: &UserFilter, page: Page) -> Result<Slice<User>> {
    macro_rules! matching {
        () => {{
            let mut query = users::table.into_boxed();
            if let Some(username) = &filter.username {
                query = query
                    .filter(lower(users::username).eq(username.to_lowercase()))
                    .filter(users::username.eq(username));
            } else {
                if let Some(search) = &filter.search {
                    let search = search.to_lowercase();
                    let part = format!("%{}%", escape_like(&search));
                    let in_names = users::search_text.like(part.clone()).escape('\\');
                    query = if filter.search_in_addresses {
                        query.filter(in_names.or(users::email.like(part).escape('\\')))
                    } else {
                        query.filter(in_names.or(users::email.eq(search)))
                    };
                }
                if filter.active {
                    query = query.filter(users::state.eq(UserState::Active.as_str()));
                }
                if filter.blocked {
                    query = query
                        .filter(users::state.eq_any([UserState::Blocked.as_str(), UserState::LdapBlocked.as_str()]));
                }
                if filter.external {
                    query = query.filter(users::external);
                }
            }
            query
        }};
    }
    let total = on!(db, conn => CountUpTo::of_list(matching!().select(users::id), page).total(conn))?;
    let rows: Vec<Row> = on!(db, conn => matching!()
        .order(users::id.desc())
        .limit(page.size)
        .offset(page.offset())
        .select(Row::as_select())
        .load(conn))?;
    let ids: Vec<UserId> = rows.iter().map(|row| UserId::new(row.id)).collect();
    let mut identities = if ids.is_empty() { HashMap::new() } else { identities::of_users(db, &ids)? };
    let with_identities = |row: Row| {
        let own = identities.remove(&UserId::new(row.id)).unwrap_or_default();
        row.into_user(own)
    };
    Ok(Slice { items: rows.into_iter().map(with_identities).collect(), total, page })
}

/// Returns the ID of the user with exactly this username.
pub fn holder_of_username(db: &mut Conn, username: &str) -> Result<Option<UserId>> {
    let id: Option<i64> = on!(db, conn => users::table
        .filter(lower(users::username).eq(username.to_lowercase()))
        .filter(users::username.eq(username))
        .select(users::id)
        .first(conn)
        .optional())?;
    Ok(id.map(UserId::new))
}

/// Inserts a user; the caller inserts the address, the namespace and the identity.
pub fn insert(db: &mut Conn, new: &NewUser, password_hash: &str, projects_limit: i32, now: Time) -> Result<UserId> {
    let profile = &new.profile;
    let id = on!(db, conn => diesel::insert_into(users::table)
        .values((
            users::username.eq(&new.username),
            users::name.eq(&new.name),
            users::email.eq(&new.email),
            users::search_text.eq(search_text(&new.name, &new.username)),
            users::password_hash.eq(password_hash),
            users::state.eq(UserState::Active.as_str()),
            users::admin.eq(new.admin),
            users::external.eq(new.external),
            users::can_create_group.eq(new.can_create_group),
            users::projects_limit.eq(projects_limit),
            users::bio.eq(&profile.bio),
            users::location.eq(&profile.location),
            users::skype.eq(&profile.skype),
            users::linkedin.eq(&profile.linkedin),
            users::twitter.eq(&profile.twitter),
            users::website_url.eq(&profile.website_url),
            users::organization.eq(&profile.organization),
            users::confirmed_at.eq(to_micros(now)),
            users::created_at.eq(to_micros(now)),
            users::updated_at.eq(to_micros(now)),
        ))
        .returning(users::id)
        .get_result(conn))?;
    Ok(UserId::new(id))
}

/// The columns to update; `None` keeps a column, `Some(None)` sets it to null.
#[derive(AsChangeset)]
#[diesel(table_name = users)]
struct Update<'a> {
    username: Option<&'a str>,
    name: Option<&'a str>,
    email: Option<&'a str>,
    search_text: String,
    password_hash: Option<&'a str>,
    admin: Option<bool>,
    external: Option<bool>,
    can_create_group: Option<bool>,
    projects_limit: Option<i32>,
    bio: Option<Option<&'a str>>,
    location: Option<Option<&'a str>>,
    skype: Option<&'a str>,
    linkedin: Option<&'a str>,
    twitter: Option<&'a str>,
    website_url: Option<&'a str>,
    organization: Option<Option<&'a str>>,
    updated_at: i64,
}

/// Updates the columns of a user; the caller updates the address, the namespace and the identity.
pub fn update(db: &mut Conn, user: &User, changes: &UserChanges, password_hash: Option<&str>, now: Time) -> Result<()> {
    fn nullable(change: &Change<String>) -> Option<Option<&str>> {
        match change {
            Change::Keep => None,
            Change::Clear => Some(None),
            Change::Set(text) => Some(Some(text)),
        }
    }
    fn text(change: &Change<String>) -> Option<&str> {
        nullable(change).map(Option::unwrap_or_default)
    }
    let projects_limit = changes.projects_limit.set().map(|limit| i32::try_from(*limit).unwrap_or(i32::MAX));
    let update = Update {
        username: changes.username.set().map(String::as_str),
        name: changes.name.set().map(String::as_str),
        email: changes.email.set().map(String::as_str),
        search_text: search_text(
            changes.name.set().unwrap_or(&user.name),
            changes.username.set().unwrap_or(&user.username),
        ),
        password_hash,
        admin: changes.admin.set().copied(),
        external: changes.external.set().copied(),
        can_create_group: changes.can_create_group.set().copied(),
        projects_limit,
        bio: nullable(&changes.bio),
        location: nullable(&changes.location),
        skype: text(&changes.skype),
        linkedin: text(&changes.linkedin),
        twitter: text(&changes.twitter),
        website_url: text(&changes.website_url),
        organization: nullable(&changes.organization),
        updated_at: to_micros(now),
    };
    on!(db, conn => diesel::update(users::table.find(user.id.get())).set(&update).execute(conn))?;
    Ok(())
}

/// Sets the state of a user.
pub fn set_state(db: &mut Conn, id: UserId, state: UserState, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(users::table.find(id.get()))
        .set((users::state.eq(state.as_str()), users::updated_at.eq(to_micros(now))))
        .execute(conn))?;
    Ok(())
}

/// Stores the time of a sign-in.
pub fn record_sign_in(db: &mut Conn, id: UserId, now: Time) -> Result<()> {
    on!(db, conn => diesel::update(users::table.find(id.get()))
        .set((
            users::last_sign_in_at.eq(diesel::dsl::sql::<diesel::sql_types::Nullable<diesel::sql_types::BigInt>>(
                "coalesce(current_sign_in_at, ").bind::<diesel::sql_types::BigInt, _>(to_micros(now)).sql(")")),
            users::current_sign_in_at.eq(to_micros(now)),
        ))
        .execute(conn))?;
    Ok(())
}

/// Deletes a user with addresses, keys, tokens, identities and the personal namespace.
pub fn delete(db: &mut Conn, id: UserId) -> Result<()> {
    on!(db, conn => diesel::delete(users::table.find(id.get())).execute(conn))?;
    Ok(())
}

/// Returns the IDs of the active administrators and locks their rows, so that two of them cannot be removed concurrently.
pub fn active_admins(db: &mut Conn) -> Result<Vec<UserId>> {
    let admins = || {
        users::table
            .filter(users::admin)
            .filter(users::state.eq(UserState::Active.as_str()))
            .order(users::id)
            .select(users::id)
    };
    let ids: Vec<i64> = match db {
        Conn::Sqlite(conn) => admins().load(conn)?,
        Conn::Pg(conn) => admins().for_update().load(conn)?,
    };
    Ok(ids.into_iter().map(UserId::new).collect())
}

/// Returns whether an administrator exists, active or blocked.
pub fn has_admin(db: &mut Conn) -> Result<bool> {
    let first: Option<i64> = on!(db, conn => users::table
        .filter(users::admin)
        .select(users::id)
        .limit(1)
        .first(conn)
        .optional())?;
    Ok(first.is_some())
}

fn load_identities(db: &mut Conn, row: Option<Row>) -> Result<Option<User>> {
    let Some(row) = row else { return Ok(None) };
    let identities = identities::of_user(db, UserId::new(row.id))?;
    Ok(Some(row.into_user(identities)))
}

/// Returns the text to search; the line break keeps patterns from matching across both fields.
fn search_text(name: &str, username: &str) -> String {
    format!("{}\n{}", name.to_lowercase(), username.to_lowercase())
}
