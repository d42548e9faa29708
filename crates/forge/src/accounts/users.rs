//! Users: profiles, passwords and administration.

use model::{
    Change, Page, Slice, User, UserId, UserState, Violations,
    users::{NewUser, UniqueFields, UserChanges, UserFilter, check_password},
};

use crate::{
    Ability, BlockingContext, Error, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, members, projects,
    sessions, system_events,
};

const RESOURCE: &str = "User";

/// A request to create a user, with the plain-text password.
#[derive(Clone)]
pub struct NewUserRequest {
    /// All fields but the password.
    pub user: NewUser,
    /// The password.
    pub password: String,
}

/// A validated request to create a user, with the hashed password.
#[derive(Clone)]
pub struct PreparedNewUser {
    user: NewUser,
    password_hash: String,
}

/// Changes to a user, with the plain-text new password.
#[derive(Clone)]
pub struct UserUpdate {
    /// All fields but the password.
    pub changes: UserChanges,
    /// The new password.
    pub password: Option<String>,
}

/// Validated changes to a user, with the hashed password.
#[derive(Clone)]
pub struct PreparedUserUpdate {
    changes: UserChanges,
    password_hash: Option<String>,
}

/// Changes of users to their own account.
#[derive(Clone)]
pub struct OwnUserUpdate {
    /// The fields to change; only name, username, address and profile are applied.
    pub changes: UserChanges,
    /// The new password.
    pub password: Option<String>,
    /// The current password; required to change the password or the address.
    pub current_password: Option<String>,
}

/// Validated changes to the own account, with the current password verified if it is required.
#[derive(Clone)]
pub struct PreparedOwnUserUpdate {
    edit: PreparedUserUpdate,
    /// The hash that the current password was verified against.
    verified_password: Option<PasswordHash>,
}

/// Lists users, newest first.
pub fn list(tx: &mut ReadTx<'_>, filter: &Unvalidated<UserFilter>, page: &Unvalidated<Page>) -> Result<Slice<User>> {
    tx.authorize(Ability::ReadUsers)?;
    let mut filter = filter.validate()?.clone();
    let admin = tx.actor().is_admin();
    // Other users see no addresses, so they must not be able to guess them through the search either.
    filter.search_in_addresses = admin;
    filter.external &= admin;
    let page = *page.validate()?;
    // No searched field is longer, and the database limits the length of a pattern.
    if filter.search.as_ref().is_some_and(|search| search.chars().count() > model::users::MAX_TEXT_LENGTH) {
        return Ok(Slice::empty(page));
    }
    Ok(store::users::list(tx.db(), &filter, page)?)
}

/// Returns a user.
pub fn get(tx: &mut ReadTx<'_>, id: UserId) -> Result<User> {
    tx.authorize(Ability::ReadUsers)?;
    find(tx, id)
}

/// Returns the caller.
pub fn current(tx: &mut ReadTx<'_>) -> Result<User> {
    tx.take_current_user(Ability::ReadOwnAccount)
}

/// Validates a new user and hashes the password, before the transaction.
pub fn prepare_create(cx: &mut BlockingContext<'_>, request: &Unvalidated<NewUserRequest>) -> Result<PreparedNewUser> {
    cx.read(|tx| tx.authorize(Ability::AdministerUsers))?;
    let NewUserRequest { user, password } = request.validate()?.clone();
    let user = user.normalized();
    let mut violations = Violations::new();
    user.check(&mut violations);
    check_password(&password, &mut violations);
    cx.read(|tx| ensure_unique(tx, &user.unique_fields(), None, violations.clone()))?;
    let password_hash = cx.password_hasher().hash(&password)?;
    Ok(PreparedNewUser { user, password_hash })
}

/// Creates a user with a personal namespace.
pub fn create(tx: &mut WriteTx<'_>, prepared: &PreparedNewUser) -> Result<User> {
    tx.authorize(Ability::AdministerUsers)?;
    let PreparedNewUser { user, password_hash } = prepared;
    ensure_unique(tx.read(), &user.unique_fields(), None, Violations::new())?;
    let now = tx.now();
    let limit = user
        .projects_limit
        .map_or(tx.shared().default_projects_limit, |limit| i32::try_from(limit).unwrap_or(i32::MAX));
    let id = store::users::insert(tx.db(), user, password_hash, limit, now)?;
    store::emails::insert(tx.db(), id, &user.email, true, now)?;
    store::namespaces::insert_personal(tx.db(), id, &user.username, now)?;
    if let Some(identity) = &user.identity {
        store::identities::upsert(tx.db(), id, identity)?;
    }
    system_events::user_created(tx, id)?;
    find(tx.read(), id)
}

/// Validates changes to a user and hashes the new password, before the transaction.
pub fn prepare_update(
    cx: &mut BlockingContext<'_>,
    id: UserId,
    request: &Unvalidated<UserUpdate>,
) -> Result<PreparedUserUpdate> {
    cx.read(|tx| tx.authorize(Ability::AdministerUsers))?;
    let UserUpdate { changes, password } = request.validate()?.clone();
    let changes = changes.normalized();
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(password) = &password {
        check_password(password, &mut violations);
    }
    cx.read(|tx| {
        let user = find(tx, id)?;
        ensure_unique(tx, &changes.unique_fields(), Some(user.id), violations.clone())
    })?;
    let password_hash = password.map(|password| cx.password_hasher().hash(&password)).transpose()?;
    Ok(PreparedUserUpdate { changes, password_hash })
}

/// Changes a user.
pub fn update(tx: &mut WriteTx<'_>, id: UserId, prepared: &PreparedUserUpdate) -> Result<User> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = find_for_update(tx, id)?;
    if prepared.changes.admin == Change::Set(false) {
        ensure_admin_remains(tx, &user, "Cannot demote the last administrator")?;
    }
    apply(tx, &user, prepared)
}

/// Applies changes to a user whose row is locked. A new password ends the user's sessions except the one that makes this
/// request.
fn apply(tx: &mut WriteTx<'_>, user: &User, prepared: &PreparedUserUpdate) -> Result<User> {
    let (id, PreparedUserUpdate { changes, password_hash }) = (user.id, prepared);
    let changes = &changes.clone().applied_to(user);
    ensure_unique(tx.read(), &changes.unique_fields(), Some(id), Violations::new())?;
    let now = tx.now();
    if let Some(email) = changes.email.set().filter(|email| **email != user.email) {
        match store::emails::holder(tx.db(), email)? {
            None => store::emails::replace_primary(tx.db(), id, email)?,
            Some(_own) => store::emails::make_primary(tx.db(), id, email)?,
        }
    }
    if let Some(username) = changes.username.set().filter(|username| **username != user.username) {
        store::namespaces::rename_personal(tx.db(), id, username, now)?;
    }
    if let Some(identity) = &changes.identity {
        store::identities::upsert(tx.db(), id, identity)?;
    }
    store::users::update(tx.db(), user, changes, password_hash.as_deref(), now)?;
    if password_hash.is_some() {
        sessions::end_others(tx, user.id)?;
    }
    find(tx.read(), user.id)
}

/// Validates changes to the own account, verifies the current password and hashes the new one, before the transaction.
pub fn prepare_update_own(
    cx: &mut BlockingContext<'_>,
    request: &Unvalidated<OwnUserUpdate>,
) -> Result<PreparedOwnUserUpdate> {
    let me = cx.read(|tx| tx.current_user_id(Ability::ChangeOwnAccount))?;
    let OwnUserUpdate { changes, password, current_password } = request.validate()?.clone();
    let changes = changes.without_admin_fields().normalized();
    let (user, hash) = cx.read(|tx| {
        let hash = store::users::password_hash(tx.db(), me)?.ok_or(Error::Unauthenticated)?;
        Ok((find(tx, me)?, hash))
    })?;
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(password) = &password {
        check_password(password, &mut violations);
    }
    let email_changes = changes.email.set().is_some_and(|email| *email != user.email);
    let needs_password = password.is_some() || email_changes;
    let mut verified_password = None;
    match &current_password {
        Some(current) if needs_password => {
            if cx.password_hasher().verify(current, Some(&hash)) {
                verified_password = Some(PasswordHash(hash));
            } else {
                violations.add("current_password", "is invalid");
            }
        }
        None if needs_password => violations.add("current_password", "can't be blank"),
        _ => {}
    }
    if needs_password && verified_password.is_none() {
        // Only the account holder, who knows the password, learns which addresses are taken.
        return Err(violations.into());
    }
    cx.read(|tx| ensure_unique(tx, &changes.unique_fields(), Some(me), violations.clone()))?;
    let password_hash = password.map(|password| cx.password_hasher().hash(&password)).transpose()?;
    Ok(PreparedOwnUserUpdate { edit: PreparedUserUpdate { changes, password_hash }, verified_password })
}

/// Changes the caller's account. A new password ends all their sessions except the one that makes this request.
pub fn update_own(tx: &mut WriteTx<'_>, prepared: &PreparedOwnUserUpdate) -> Result<User> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let user = find_for_update(tx, me)?;
    let PreparedOwnUserUpdate { edit, verified_password } = prepared;
    let email_changes = edit.changes.email.set().is_some_and(|email| *email != user.email);
    if edit.password_hash.is_some() || email_changes {
        // The password may have changed since it was verified.
        let current = store::users::password_hash(tx.db(), me)?;
        if verified_password.as_ref().is_none_or(|verified| current.as_ref() != Some(&verified.0)) {
            return Err(Violations::one("current_password", "is invalid").into());
        }
    }
    apply(tx, &user, edit)
}

/// Deletes a user with all their data; returns `None` if there is no such user.
pub fn delete(tx: &mut WriteTx<'_>, id: UserId) -> Result<Option<User>> {
    tx.authorize(Ability::AdministerUsers)?;
    let Some(user) = store::users::by_id_for_update(tx.db(), id)? else { return Ok(None) };
    ensure_admin_remains(tx, &user, "Cannot remove the last administrator")?;
    members::ensure_groups_keep_owner(tx, id)?;
    if let Some(namespace) = store::namespaces::personal(tx.db(), id)? {
        projects::soft_delete(tx, store::projects::DeletionScope::InNamespaces(&[namespace.id]))?;
    }
    system_events::user_removed(tx, id)?;
    store::users::delete(tx.db(), id)?;
    Ok(Some(user))
}

/// Blocks a user and revokes their sessions.
pub fn block(tx: &mut WriteTx<'_>, id: UserId) -> Result<()> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = find_for_update(tx, id)?;
    match user.state {
        UserState::LdapBlocked => Err(Error::forbidden("LDAP blocked users cannot be modified by the API")),
        UserState::Blocked => Ok(()),
        UserState::Active => {
            ensure_admin_remains(tx, &user, "Cannot block the last administrator")?;
            let now = tx.now();
            store::users::set_state(tx.db(), id, UserState::Blocked, now)?;
            // Sessions stay revoked when the user is unblocked.
            sessions::end_all(tx, id)
        }
    }
}

/// Unblocks a user.
pub fn unblock(tx: &mut WriteTx<'_>, id: UserId) -> Result<()> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = find_for_update(tx, id)?;
    match user.state {
        UserState::LdapBlocked => Err(Error::forbidden("LDAP blocked users cannot be unblocked by the API")),
        UserState::Active => Ok(()),
        UserState::Blocked => {
            let now = tx.now();
            Ok(store::users::set_state(tx.db(), id, UserState::Active, now)?)
        }
    }
}

/// Returns the ID of the user with a username, for the command line.
pub fn id_of(tx: &mut ReadTx<'_>, username: &str) -> Result<UserId> {
    tx.authorize(Ability::AdministerUsers)?;
    Ok(find_by_username(tx, username)?.id)
}

pub(crate) fn find(tx: &mut ReadTx<'_>, id: UserId) -> Result<User> {
    store::users::by_id(tx.db(), id)?.ok_or(Error::not_found(RESOURCE))
}

pub(crate) fn find_by_username(tx: &mut ReadTx<'_>, username: &str) -> Result<User> {
    store::users::by_username(tx.db(), username)?.ok_or(Error::not_found(RESOURCE))
}

/// Returns a user and locks the row until the transaction ends.
fn find_for_update(tx: &mut WriteTx<'_>, id: UserId) -> Result<User> {
    store::users::by_id_for_update(tx.db(), id)?.ok_or(Error::not_found(RESOURCE))
}

/// Fails if another user than `own_id` already has one of the unique fields.
///
/// The exact username or primary address of another user is a conflict that is reported alone, as in GitLab 8.14; everything
/// else is added to the violations.
fn ensure_unique(
    tx: &mut ReadTx<'_>,
    unique_fields: &UniqueFields<'_>,
    own_id: Option<UserId>,
    mut violations: Violations,
) -> Result<()> {
    let is_other = |holder: UserId| Some(holder) != own_id;
    // The address is queried last and reported first: if both are taken concurrently, the address conflict is reported.
    let (mut username_taken, mut path_taken) = (false, false);
    if let Some(username) = unique_fields.username {
        username_taken = store::users::holder_of_username(tx.db(), username)?.is_some_and(is_other);
        path_taken = store::namespaces::is_taken(tx.db(), username, own_id)?;
    }
    if let Some(email) = unique_fields.email {
        match store::emails::holder(tx.db(), email)?.filter(|holder| is_other(holder.user_id)) {
            Some(holder) if holder.is_primary => return Err(Error::Taken("Email has already been taken".into())),
            Some(_) => violations.add("email", "has already been taken"),
            None => {}
        }
    }
    if username_taken {
        return Err(Error::Taken("Username has already been taken".into()));
    }
    violations.require(!path_taken, "username", "has already been taken");
    if let Some(identity) = unique_fields.identity {
        let taken = store::identities::holder(tx.db(), identity)?.is_some_and(is_other);
        violations.require(!taken, "identities.extern_uid", "has already been taken");
    }
    Ok(violations.into_result()?)
}

/// Fails if the user is the last active administrator.
fn ensure_admin_remains(tx: &mut WriteTx<'_>, user: &User, refusal: &str) -> Result<()> {
    if !user.admin || user.state != UserState::Active {
        return Ok(());
    }
    let admins = store::users::active_admins(tx.db())?;
    if admins.iter().any(|admin| *admin != user.id) { Ok(()) } else { Err(Error::forbidden(refusal)) }
}
