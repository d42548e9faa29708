//! Users: who they are, and what administrators do about them.

use model::{
    Change, Page, Slice, User, UserState, Violations,
    users::{Claims, NewUser, UserChanges, UserFilter, check_password},
};

use crate::{
    Ability, Error, Given, Heavy, Reader, Result, Writer, caller::PasswordHash, members, news, projects, sessions,
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
pub fn list(it: &mut Reader<'_>, filter: &Given<UserFilter>, page: &Given<Page>) -> Result<Slice<User>> {
    it.may(Ability::ReadUsers)?;
    let mut filter = filter.get()?.clone();
    let admin = it.actor().is_admin();
    // Others see no addresses, so they may not feel their way along them either.
    filter.search_in_addresses = admin;
    filter.external &= admin;
    let page = *page.get()?;
    // Nothing that is searched is longer, and a longer pattern is more than the database takes.
    if filter.search.as_ref().is_some_and(|search| search.chars().count() > model::users::LONGEST) {
        return Ok(Slice::empty(page));
    }
    Ok(store::users::list(it.db(), &filter, page)?)
}

/// One user.
pub fn get(it: &mut Reader<'_>, id: i64) -> Result<User> {
    it.may(Ability::ReadUsers)?;
    find(it, id)
}

/// The caller.
pub fn current(it: &mut Reader<'_>) -> Result<User> {
    it.take_myself(Ability::ReadOwnAccount)
}

/// Checks a registration and hashes its password, ahead of the transaction.
pub fn prepare_registration(it: &mut Heavy<'_>, given: &Given<Registration>) -> Result<ReadyRegistration> {
    it.read(|it| it.may(Ability::AdministerUsers))?;
    let Registration { user, password } = given.get()?.clone();
    let user = user.normalized();
    let mut violations = Violations::new();
    user.check(&mut violations);
    check_password(&password, &mut violations);
    it.read(|it| refuse_taken(it, &user.claims(), None, violations.clone()))?;
    let password_hash = it.password_cost().hash(&password)?;
    Ok(ReadyRegistration { user, password_hash })
}

/// Adds a user with a personal namespace.
pub fn create(it: &mut Writer<'_>, ready: &ReadyRegistration) -> Result<User> {
    it.may(Ability::AdministerUsers)?;
    let ReadyRegistration { user, password_hash } = ready;
    refuse_taken(it, &user.claims(), None, Violations::new())?;
    let now = it.now();
    let limit = user
        .projects_limit
        .map_or(it.shared().default_projects_limit, |limit| i32::try_from(limit).unwrap_or(i32::MAX));
    let id = store::users::insert(it.db(), user, password_hash, limit, now)?;
    store::emails::insert(it.db(), id, &user.email, true, now)?;
    store::namespaces::insert_personal(it.db(), id, &user.username, now)?;
    if let Some(identity) = &user.identity {
        store::identities::put(it.db(), id, identity)?;
    }
    news::user_created(it, id)?;
    find(it, id)
}

/// Checks an edit and hashes its password, ahead of the transaction.
pub fn prepare_edit(it: &mut Heavy<'_>, id: i64, given: &Given<Edit>) -> Result<ReadyEdit> {
    it.read(|it| it.may(Ability::AdministerUsers))?;
    let Edit { changes, password } = given.get()?.clone();
    let changes = changes.normalized();
    let mut violations = Violations::new();
    changes.check(&mut violations);
    if let Some(password) = &password {
        check_password(password, &mut violations);
    }
    it.read(|it| {
        let user = find(it, id)?;
        refuse_taken(it, &changes.claims(), Some(user.id), violations.clone())
    })?;
    let password_hash = password.map(|password| it.password_cost().hash(&password)).transpose()?;
    Ok(ReadyEdit { changes, password_hash })
}

/// Changes a user.
pub fn update(it: &mut Writer<'_>, id: i64, ready: &ReadyEdit) -> Result<User> {
    it.may(Ability::AdministerUsers)?;
    let user = find_to_change(it, id)?;
    if ready.changes.admin == Change::Set(false) {
        keep_an_admin(it, &user, "Cannot demote the last administrator")?;
    }
    apply(it, &user, ready)
}

/// Applies an edit to a user who is locked. A new password ends the user's sessions, but not the one that makes this
/// request.
fn apply(it: &mut Writer<'_>, user: &User, ready: &ReadyEdit) -> Result<User> {
    let (id, ReadyEdit { changes, password_hash }) = (user.id, ready);
    let changes = &changes.clone().applied_to(user);
    refuse_taken(it, &changes.claims(), Some(id), Violations::new())?;
    let now = it.now();
    if let Some(email) = changes.email.set().filter(|email| **email != user.email) {
        match store::emails::holder(it.db(), email)? {
            None => store::emails::replace_primary(it.db(), id, email)?,
            Some(_own) => store::emails::make_primary(it.db(), id, email)?,
        }
    }
    if let Some(username) = changes.username.set().filter(|username| **username != user.username) {
        store::namespaces::rename_personal(it.db(), id, username, now)?;
    }
    if let Some(identity) = &changes.identity {
        store::identities::put(it.db(), id, identity)?;
    }
    store::users::update(it.db(), user, changes, password_hash.as_deref(), now)?;
    if password_hash.is_some() {
        sessions::end_others(it, user.id)?;
    }
    find(it, user.id)
}

/// Checks what users change about themselves, and hashes the new password, ahead of the transaction.
pub fn prepare_own_edit(it: &mut Heavy<'_>, given: &Given<OwnEdit>) -> Result<ReadyOwnEdit> {
    let me = it.read(|it| it.my_id(Ability::ChangeOwnAccount))?;
    let OwnEdit { changes, password, current_password } = given.get()?.clone();
    let changes = changes.about_oneself().normalized();
    let (user, hash) = it.read(|it| {
        let hash = store::users::password_hash(it.db(), me)?.ok_or(Error::Unauthenticated)?;
        Ok((find(it, me)?, hash))
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
            if it.password_cost().verify(current, Some(&hash)) {
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
    it.read(|it| refuse_taken(it, &changes.claims(), Some(me), violations.clone()))?;
    let password_hash = password.map(|password| it.password_cost().hash(&password)).transpose()?;
    Ok(ReadyOwnEdit { edit: ReadyEdit { changes, password_hash }, checked })
}

/// Changes the caller. A new password ends all their sessions but the one that makes this request.
pub fn update_own(it: &mut Writer<'_>, ready: &ReadyOwnEdit) -> Result<User> {
    let me = it.my_id(Ability::ChangeOwnAccount)?;
    let user = find_to_change(it, me)?;
    let ReadyOwnEdit { edit, checked } = ready;
    let moved = edit.changes.email.set().is_some_and(|email| *email != user.email);
    if edit.password_hash.is_some() || moved {
        // The password may have changed since it was checked.
        let now = store::users::password_hash(it.db(), me)?;
        if checked.as_ref().is_none_or(|checked| now.as_ref() != Some(&checked.0)) {
            return Err(Violations::one("current_password", "is invalid").into());
        }
    }
    apply(it, &user, edit)
}

/// Removes a user with all that is theirs; `None` if there was nobody to remove.
pub fn delete(it: &mut Writer<'_>, id: i64) -> Result<Option<User>> {
    it.may(Ability::AdministerUsers)?;
    let Some(user) = store::users::by_id_to_change(it.db(), id)? else { return Ok(None) };
    keep_an_admin(it, &user, "Cannot remove the last administrator")?;
    members::refuse_if_needed(it, id)?;
    if let Some(namespace) = store::namespaces::personal(it.db(), id)? {
        projects::bury(it, store::projects::Buried::In(&[namespace.id]))?;
    }
    news::user_leaves(it, id)?;
    store::users::delete(it.db(), id)?;
    Ok(Some(user))
}

/// Keeps a user out.
pub fn block(it: &mut Writer<'_>, id: i64) -> Result<()> {
    it.may(Ability::AdministerUsers)?;
    let user = find_to_change(it, id)?;
    match user.state {
        UserState::DirectoryBlocked => Err(Error::forbidden("LDAP blocked users cannot be modified by the API")),
        UserState::Blocked => Ok(()),
        UserState::Active => {
            keep_an_admin(it, &user, "Cannot block the last administrator")?;
            let now = it.now();
            store::users::set_state(it.db(), id, UserState::Blocked, now)?;
            // Sessions do not come back to life when the user is unblocked.
            Ok(store::tokens::revoke_sessions(it.db(), id, None, now)?)
        }
    }
}

/// Lets a user in again.
pub fn unblock(it: &mut Writer<'_>, id: i64) -> Result<()> {
    it.may(Ability::AdministerUsers)?;
    let user = find_to_change(it, id)?;
    match user.state {
        UserState::DirectoryBlocked => Err(Error::forbidden("LDAP blocked users cannot be unblocked by the API")),
        UserState::Active => Ok(()),
        UserState::Blocked => {
            let now = it.now();
            Ok(store::users::set_state(it.db(), id, UserState::Active, now)?)
        }
    }
}

/// The number of a user by name, for commands that speak of users by name.
pub fn id_of(it: &mut Reader<'_>, username: &str) -> Result<i64> {
    it.may(Ability::AdministerUsers)?;
    Ok(named(it, username)?.id)
}

pub(crate) fn find(it: &mut Reader<'_>, id: i64) -> Result<User> {
    store::users::by_id(it.db(), id)?.ok_or(Error::not_found(WHAT))
}

pub(crate) fn named(it: &mut Reader<'_>, username: &str) -> Result<User> {
    store::users::by_username(it.db(), username)?.ok_or(Error::not_found(WHAT))
}

/// The user as they are while this transaction lasts.
fn find_to_change(it: &mut Writer<'_>, id: i64) -> Result<User> {
    store::users::by_id_to_change(it.db(), id)?.ok_or(Error::not_found(WHAT))
}

/// Refuses what somebody else has already; a user does not collide with themselves.
///
/// The exact name or address of another user is a conflict and told alone, as clients of the original expect; anything
/// else joins what is wrong with the record anyway.
fn refuse_taken(it: &mut Reader<'_>, claims: &Claims<'_>, own: Option<i64>, mut violations: Violations) -> Result<()> {
    let others = |holder: i64| Some(holder) != own;
    // The address is asked for last and told first: somebody who takes both at this moment is then seen as having both.
    let (mut same_name, mut same_path) = (false, false);
    if let Some(username) = claims.username {
        same_name = store::users::holder_of_username(it.db(), username)?.is_some_and(others);
        same_path = store::namespaces::is_taken(it.db(), username, own)?;
    }
    if let Some(email) = claims.email {
        match store::emails::holder(it.db(), email)?.filter(|holder| others(holder.user_id)) {
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
        let taken = store::identities::holder(it.db(), identity)?.is_some_and(others);
        violations.unless(!taken, "identities.extern_uid", "has already been taken");
    }
    Ok(violations.into_result()?)
}

/// Refuses to lose the last administrator who can come in.
fn keep_an_admin(it: &mut Writer<'_>, leaving: &User, refusal: &str) -> Result<()> {
    if !leaving.admin || leaving.state != UserState::Active {
        return Ok(());
    }
    let admins = store::users::active_admins(it.db())?;
    if admins.iter().any(|admin| *admin != leaving.id) { Ok(()) } else { Err(Error::forbidden(refusal)) }
}
