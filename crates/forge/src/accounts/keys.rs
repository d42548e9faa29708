//! SSH keys of users.

use model::{Key, KeyId, Page, Slice, User, UserId, Violations, keys::NewKey};

use crate::{Ability, Error, ReadTx, Result, Unvalidated, WriteTx, system_events, users};

const RESOURCE: &str = "Key";

/// A key as sent by the client.
#[derive(Clone, Debug)]
pub struct UnparsedKey {
    /// The title chosen by its owner.
    pub title: String,
    /// Type, key material and comment.
    pub key: String,
}

/// Lists the caller's keys, newest first.
pub fn list_own(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Key>> {
    let me = tx.current_user_id(Ability::ReadOwnAccount)?;
    Ok(store::keys::list(tx.db(), me, *page.validate()?)?)
}

/// Lists the keys of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, user: UserId, page: &Unvalidated<Page>) -> Result<Slice<Key>> {
    tx.authorize(Ability::AdministerUsers)?;
    let page = *page.validate()?;
    let user = users::find(tx, user)?;
    Ok(store::keys::list(tx.db(), user.id, page)?)
}

/// Returns one of the caller's keys.
pub fn get_own(tx: &mut ReadTx<'_>, id: KeyId) -> Result<Key> {
    let me = tx.current_user_id(Ability::ReadOwnAccount)?;
    store::keys::of_user(tx.db(), me, id)?.ok_or(Error::not_found(RESOURCE))
}

/// Returns a key and its user.
pub fn get(tx: &mut ReadTx<'_>, id: KeyId) -> Result<(Key, User)> {
    tx.authorize(Ability::AdministerUsers)?;
    let key = store::keys::by_id(tx.db(), id)?.ok_or(Error::not_found(RESOURCE))?;
    let user = users::find(tx, key.user_id)?;
    Ok((key, user))
}

/// Adds a key to the caller's account.
pub fn create_own(tx: &mut WriteTx<'_>, key: &Unvalidated<UnparsedKey>) -> Result<Key> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    insert(tx, me, key.validate()?)
}

/// Adds a key to a user's account.
pub fn create(tx: &mut WriteTx<'_>, user: UserId, key: &Unvalidated<UnparsedKey>) -> Result<Key> {
    tx.authorize(Ability::AdministerUsers)?;
    let key = key.validate()?;
    let user = users::find(tx.read(), user)?;
    insert(tx, user.id, key)
}

/// Removes one of the caller's keys; returns `None` if it does not exist.
pub fn delete_own(tx: &mut WriteTx<'_>, id: KeyId) -> Result<Option<Key>> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let key = store::keys::of_user(tx.db(), me, id)?;
    if let Some(key) = &key {
        system_events::key_removed(tx, key)?;
        store::keys::delete(tx.db(), key.id)?;
    }
    Ok(key)
}

/// Removes a key of a user.
pub fn delete(tx: &mut WriteTx<'_>, user: UserId, id: KeyId) -> Result<Key> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = users::find(tx.read(), user)?;
    let key = store::keys::of_user(tx.db(), user.id, id)?.ok_or(Error::not_found(RESOURCE))?;
    system_events::key_removed(tx, &key)?;
    store::keys::delete(tx.db(), key.id)?;
    Ok(key)
}

fn insert(tx: &mut WriteTx<'_>, user: UserId, text: &UnparsedKey) -> Result<Key> {
    let new = NewKey::parse(&text.title, &text.key)?;
    if store::keys::is_taken(tx.db(), &new.fingerprint)? {
        let mut violations = Violations::one("fingerprint", "has already been taken");
        violations.add("key", "has already been taken");
        return Err(violations.into());
    }
    let now = tx.now();
    let key = store::keys::insert(tx.db(), user, &new, now)?;
    system_events::key_created(tx, &key)?;
    Ok(key)
}
