//! SSH keys of users.

use model::{Key, Page, Slice, User, Violations, keys::NewKey};

use crate::{Ability, Error, ReadTx, Result, Unvalidated, WriteTx, users, webhook_events};

const WHAT: &str = "Key";

/// A key as somebody typed it.
#[derive(Clone, Debug)]
pub struct KeyText {
    /// What its owner calls it.
    pub title: String,
    /// Type, key material and comment.
    pub key: String,
}

/// The caller's own keys, newest first.
pub fn list_own(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Key>> {
    let me = tx.my_id(Ability::ReadOwnAccount)?;
    Ok(store::keys::list(tx.db(), me, *page.get()?)?)
}

/// The keys of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, user: i64, page: &Unvalidated<Page>) -> Result<Slice<Key>> {
    tx.may(Ability::AdministerUsers)?;
    let page = *page.get()?;
    let user = users::find(tx, user)?;
    Ok(store::keys::list(tx.db(), user.id, page)?)
}

/// One of the caller's own keys.
pub fn get_own(tx: &mut ReadTx<'_>, id: i64) -> Result<Key> {
    let me = tx.my_id(Ability::ReadOwnAccount)?;
    store::keys::of_user(tx.db(), me, id)?.ok_or(Error::not_found(WHAT))
}

/// One key and whose it is.
pub fn get(tx: &mut ReadTx<'_>, id: i64) -> Result<(Key, User)> {
    tx.may(Ability::AdministerUsers)?;
    let key = store::keys::by_id(tx.db(), id)?.ok_or(Error::not_found(WHAT))?;
    let user = users::find(tx, key.user_id)?;
    Ok((key, user))
}

/// Adds a key to the caller's own.
pub fn create_own(tx: &mut WriteTx<'_>, key: &Unvalidated<KeyText>) -> Result<Key> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    insert(tx, me, key.get()?)
}

/// Adds a key to a user's.
pub fn create(tx: &mut WriteTx<'_>, user: i64, key: &Unvalidated<KeyText>) -> Result<Key> {
    tx.may(Ability::AdministerUsers)?;
    let key = key.get()?;
    let user = users::find(tx, user)?;
    insert(tx, user.id, key)
}

/// Removes one of the caller's own keys; one that is gone already is fine.
pub fn delete_own(tx: &mut WriteTx<'_>, id: i64) -> Result<Option<Key>> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    let key = store::keys::of_user(tx.db(), me, id)?;
    if let Some(key) = &key {
        webhook_events::key_leaves(tx, key)?;
        store::keys::delete(tx.db(), key.id)?;
    }
    Ok(key)
}

/// Removes a key of a user.
pub fn delete(tx: &mut WriteTx<'_>, user: i64, id: i64) -> Result<Key> {
    tx.may(Ability::AdministerUsers)?;
    let user = users::find(tx, user)?;
    let key = store::keys::of_user(tx.db(), user.id, id)?.ok_or(Error::not_found(WHAT))?;
    webhook_events::key_leaves(tx, &key)?;
    store::keys::delete(tx.db(), key.id)?;
    Ok(key)
}

fn insert(tx: &mut WriteTx<'_>, user: i64, text: &KeyText) -> Result<Key> {
    let new = NewKey::parse(&text.title, &text.key)?;
    if store::keys::is_taken(tx.db(), &new.fingerprint)? {
        let mut violations = Violations::one("fingerprint", "has already been taken");
        violations.add("key", "has already been taken");
        return Err(violations.into());
    }
    let now = tx.now();
    let key = store::keys::insert(tx.db(), user, &new, now)?;
    webhook_events::key_created(tx, &key)?;
    Ok(key)
}
