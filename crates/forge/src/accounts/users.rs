//! Users: who they are, and what administrators do about them.

use model::{
    Change, Page, Slice, User, UserState, Violations,
    users::{Claims, NewUser, UserChanges, UserFilter, check_password},
};

use crate::{
    Ability, BlockingContext, Error, ReadTx, Result, Unvalidated, WriteTx, caller::PasswordHash, members, projects,
    sessions, webhook_events,
};

const WHAT: &str = "User";

/// A user about to be created, with the password as it was typed.
#[derive(Clone)]
pub struct Registration {
    /// Everything but the password.
    pub user: NewUser,
    /// The password.
    pub password: String,
}

/// A registration whose password is hashed.
#[derive(Clone)]
pub struct ReadyRegistration {
    user: NewUser,
    password_hash: String,
}

/// Changes to a user, with the new password as it was typed.
#[derive(Clone)]
pub struct Edit {
    /// Everything but the password.
    pub changes: UserChanges,
    /// The new password.
    pub password: Option<String>,
}

/// An edit whose password is hashed.
#[derive(Clone)]
pub struct ReadyEdit {
    changes: UserChanges,
    password_hash: Option<String>,
}

/// Changes that users make to themselves.
#[derive(Clone)]
pub struct OwnEdit {
    /// What changes; only the name, the username, the address and the profile are looked at.
    pub changes: UserChanges,
    /// The new password.
    pub password: Option<String>,
    /// The password as it is, without which neither the password nor the address changes.
    pub current_password: Option<String>,
}

/// An edit of oneself whose current password was right, if it needs one.
#[derive(Clone)]
pub struct ReadyOwnEdit {
    edit: ReadyEdit,
    /// The hash that the current password was checked against.
    checked: Option<PasswordHash>,
}

/// A page of users, newest first.
pub fn list(tx: &mut ReadTx<'_>, filter: &Unvalidated<UserFilter>, page: &Unvalidated<Page>) -> Result<Slice<User>> {
    tx.may(Ability::ReadUsers)?;
    let mut filter = filter.get()?.clone();
    let admin = tx.actor().is_admin();
    // Others see no addresses, so they may not feel their way along them either.
    filter.search_in_addresses = admin;
    filter.external &= admin;
    let page = *page.get()?;
    // Nothing that is searched is longer, and a longer pattern is more than the database takes.
    if filter.search.as_ref().is_some_and(|search| search.chars().count() > model::users::LONGEST) {
        return Ok(Slice::empty(page));
    }
    Ok(store::users::list(tx.db(), &filter, page)?)
}

/// One user.
pub fn get(tx: &mut ReadTx<'_>, id: i64) -> Result<User> {
    tx.may(Ability::ReadUsers)?;
    find(tx, id)
}

/// The caller.
pub fn current(tx: &mut ReadTx<'_>) -> Result<User> {
    tx.take_myself(Ability::ReadOwnAccount)
}

/// Checks a registration and hashes its password, ahead of the transaction.
pub fn prepare_registration(
    tx: &mut BlockingContext<'_>,
    given: &Unvalidated<Registration>,
) -> Result<ReadyRegistration> {
    tx.read(|tx| tx.may(Ability::AdministerUsers))?;
    let Registration { user, password } = given.get()?.clone();
    let user = user.normalized();
    let mut violations = Violations::new();
    user.check(&mut violations);
    check_password(&password, &mut violations);
    tx.read(|tx| refuse_taken(tx, &user.claims(), None, violations.clone()))?;
    let password_hash = tx.password_cost().hash(&password)?;
    Ok(ReadyRegistration { user, password_hash })
}

/// Adds a user with a personal namespace.
pub fn create(tx: &mut WriteTx<'_>, ready: &ReadyRegistration) -> Result<User> {
    tx.may(Ability::AdministerUsers)?;
    let ReadyRegistration { user, password_hash } = ready;
    refuse_taken(tx, &user.claims(), None, Violations::new())?;
    let now = tx.now();
    let limit = user
        .projects_limit
        .map_or(tx.shared().default_projects_limit, |limit| i32::try_from(limit).unwrap_or(i32::MAX));
    let id = store::users::insert(tx.db(), user, password_hash, limit, now)?;
    store::emails::insert(tx.db(), id, &user.email, true, now)?;
    store::namespaces::insert_personal(tx.db(), id, &user.username, now)?;
    if let Some(identity) = &user.identity {
        store::identities::put(tx.db(), id, identity)?;
    }
    webhook_events::user_created(tx, id)?;
    find(tx, id)
}

/// Checks an edit and hashes its password, ahead of the transaction.
pub fn prepare_edit(tx: &mut BlockingContext<'_>, id: i64, given: &Unvalidated<Edit>) -> Result<ReadyEdit> {
    tx.read(|tx| tx.may(Ability::AdministerUsers))?;
    let Edit { changes, password } = given.get()?.clone();
    let changes = changes.normalized();
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(password) = &password {
        check_password(password, &mut violations);
    }
    tx.read(|tx| {
        let user = find(tx, id)?;
        refuse_taken(tx, &changes.claims(), Some(user.id), violations.clone())
    })?;
    let password_hash = password.map(|password| tx.password_cost().hash(&password)).transpose()?;
    Ok(ReadyEdit { changes, password_hash })
}

/// Changes a user.
pub fn update(tx: &mut WriteTx<'_>, id: i64, ready: &ReadyEdit) -> Result<User> {
    tx.may(Ability::AdministerUsers)?;
    let user = find_to_change(tx, id)?;
    if ready.changes.admin == Change::Set(false) {
        keep_an_admin(tx, &user, "Cannot demote the last administrator")?;
    }
    apply(tx, &user, ready)
}

/// Applies an edit to a user who is locked. A new password ends the user's sessions, but not the one that makes this
/// request.
fn apply(tx: &mut WriteTx<'_>, user: &User, ready: &ReadyEdit) -> Result<User> {
    let (id, ReadyEdit { changes, password_hash }) = (user.id, ready);
    let changes = &changes.clone().applied_to(user);
    refuse_taken(tx, &changes.claims(), Some(id), Violations::new())?;
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
        store::identities::put(tx.db(), id, identity)?;
    }
    store::users::update(tx.db(), user, changes, password_hash.as_deref(), now)?;
    if password_hash.is_some() {
        sessions::end_others(tx, user.id)?;
    }
    find(tx, user.id)
}

/// Checks what users change about themselves, and hashes the new password, ahead of the transaction.
pub fn prepare_own_edit(tx: &mut BlockingContext<'_>, given: &Unvalidated<OwnEdit>) -> Result<ReadyOwnEdit> {
    let me = tx.read(|tx| tx.my_id(Ability::ChangeOwnAccount))?;
    let OwnEdit { changes, password, current_password } = given.get()?.clone();
    let changes = changes.about_oneself().normalized();
    let (user, hash) = tx.read(|tx| {
        let hash = store::users::password_hash(tx.db(), me)?.ok_or(Error::Unauthenticated)?;
        Ok((find(tx, me)?, hash))
    })?;
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(password) = &password {
        check_password(password, &mut violations);
    }
    let new_address = changes.email.set().is_some_and(|email| *email != user.email);
    let needs_password = password.is_some() || new_address;
    let mut checked = None;
    match &current_password {
        Some(current) if needs_password => {
            if tx.password_cost().verify(current, Some(&hash)) {
                checked = Some(PasswordHash(hash));
            } else {
                violations.add("current_password", "is invalid");
            }
        }
        None if needs_password => violations.add("current_password", "can't be blank"),
        _ => {}
    }
    if needs_password && checked.is_none() {
        // Which addresses are taken is told to the user only.
        return Err(violations.into());
    }
    tx.read(|tx| refuse_taken(tx, &changes.claims(), Some(me), violations.clone()))?;
    let password_hash = password.map(|password| tx.password_cost().hash(&password)).transpose()?;
    Ok(ReadyOwnEdit { edit: ReadyEdit { changes, password_hash }, checked })
}

/// Changes the caller. A new password ends all their sessions but the one that makes this request.
pub fn update_own(tx: &mut WriteTx<'_>, ready: &ReadyOwnEdit) -> Result<User> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    let user = find_to_change(tx, me)?;
    let ReadyOwnEdit { edit, checked } = ready;
    let moved = edit.changes.email.set().is_some_and(|email| *email != user.email);
    if edit.password_hash.is_some() || moved {
        // The password may have changed since it was checked.
        let now = store::users::password_hash(tx.db(), me)?;
        if checked.as_ref().is_none_or(|checked| now.as_ref() != Some(&checked.0)) {
            return Err(Violations::one("current_password", "is invalid").into());
        }
    }
    apply(tx, &user, edit)
}

/// Removes a user with all that is theirs; `None` if there was nobody to remove.
pub fn delete(tx: &mut WriteTx<'_>, id: i64) -> Result<Option<User>> {
    tx.may(Ability::AdministerUsers)?;
    let Some(user) = store::users::by_id_to_change(tx.db(), id)? else { return Ok(None) };
    keep_an_admin(tx, &user, "Cannot remove the last administrator")?;
    members::refuse_if_needed(tx, id)?;
    if let Some(namespace) = store::namespaces::personal(tx.db(), id)? {
        projects::bury(tx, store::projects::Buried::In(&[namespace.id]))?;
    }
    webhook_events::user_leaves(tx, id)?;
    store::users::delete(tx.db(), id)?;
    Ok(Some(user))
}

/// Keeps a user out.
pub fn block(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    tx.may(Ability::AdministerUsers)?;
    let user = find_to_change(tx, id)?;
    match user.state {
        UserState::DirectoryBlocked => Err(Error::forbidden("LDAP blocked users cannot be modified by the API")),
        UserState::Blocked => Ok(()),
        UserState::Active => {
            keep_an_admin(tx, &user, "Cannot block the last administrator")?;
            let now = tx.now();
            store::users::set_state(tx.db(), id, UserState::Blocked, now)?;
            // Sessions do not come back to life when the user is unblocked.
            Ok(store::tokens::revoke_sessions(tx.db(), id, None, now)?)
        }
    }
}

/// Lets a user in again.
pub fn unblock(tx: &mut WriteTx<'_>, id: i64) -> Result<()> {
    tx.may(Ability::AdministerUsers)?;
    let user = find_to_change(tx, id)?;
    match user.state {
        UserState::DirectoryBlocked => Err(Error::forbidden("LDAP blocked users cannot be unblocked by the API")),
        UserState::Active => Ok(()),
        UserState::Blocked => {
            let now = tx.now();
            Ok(store::users::set_state(tx.db(), id, UserState::Active, now)?)
        }
    }
}

/// The number of a user by name, for commands that speak of users by name.
pub fn id_of(tx: &mut ReadTx<'_>, username: &str) -> Result<i64> {
    tx.may(Ability::AdministerUsers)?;
    Ok(named(tx, username)?.id)
}

pub(crate) fn find(tx: &mut ReadTx<'_>, id: i64) -> Result<User> {
    store::users::by_id(tx.db(), id)?.ok_or(Error::not_found(WHAT))
}

pub(crate) fn named(tx: &mut ReadTx<'_>, username: &str) -> Result<User> {
    store::users::by_username(tx.db(), username)?.ok_or(Error::not_found(WHAT))
}

/// The user as they are while this transaction lasts.
fn find_to_change(tx: &mut WriteTx<'_>, id: i64) -> Result<User> {
    store::users::by_id_to_change(tx.db(), id)?.ok_or(Error::not_found(WHAT))
}

/// Refuses what somebody else has already; a user does not collide with themselves.
///
/// The exact name or address of another user is a conflict and told alone, as clients of the original expect; anything
/// else joins what is wrong with the record anyway.
fn refuse_taken(tx: &mut ReadTx<'_>, claims: &Claims<'_>, own: Option<i64>, mut violations: Violations) -> Result<()> {
    let others = |holder: i64| Some(holder) != own;
    // The address is asked for last and told first: somebody who takes both at this moment is then seen as having both.
    let (mut same_name, mut same_path) = (false, false);
    if let Some(username) = claims.username {
        same_name = store::users::holder_of_username(tx.db(), username)?.is_some_and(others);
        same_path = store::namespaces::is_taken(tx.db(), username, own)?;
    }
    if let Some(email) = claims.email {
        match store::emails::holder(tx.db(), email)?.filter(|holder| others(holder.user_id)) {
            Some(holder) if holder.is_primary => return Err(Error::Taken("Email has already been taken".into())),
            Some(_) => violations.add("email", "has already been taken"),
            None => {}
        }
    }
    if same_name {
        return Err(Error::Taken("Username has already been taken".into()));
    }
    violations.unless(!same_path, "username", "has already been taken");
    if let Some(identity) = claims.identity {
        let taken = store::identities::holder(tx.db(), identity)?.is_some_and(others);
        violations.unless(!taken, "identities.extern_uid", "has already been taken");
    }
    Ok(violations.into_result()?)
}

/// Refuses to lose the last administrator who can come in.
fn keep_an_admin(tx: &mut WriteTx<'_>, leaving: &User, refusal: &str) -> Result<()> {
    if !leaving.admin || leaving.state != UserState::Active {
        return Ok(());
    }
    let admins = store::users::active_admins(tx.db())?;
    if admins.iter().any(|admin| *admin != leaving.id) { Ok(()) } else { Err(Error::forbidden(refusal)) }
}
