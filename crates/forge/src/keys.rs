//! SSH keys of users.

use model::{Key, Page, Slice, User, Violations, keys::NewKey};

use crate::{Ability, Error, Given, Reader, Result, Writer, news, users};

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
pub fn list_own(it: &mut Reader<'_>, page: &Given<Page>) -> Result<Slice<Key>> {
    let me = it.my_id(Ability::ReadOwnAccount)?;
    Ok(store::keys::list(it.db(), me, *page.get()?)?)
}

/// The keys of a user, newest first.
pub fn list(it: &mut Reader<'_>, user: i64, page: &Given<Page>) -> Result<Slice<Key>> {
    it.may(Ability::AdministerUsers)?;
    let page = *page.get()?;
    let user = users::find(it, user)?;
    Ok(store::keys::list(it.db(), user.id, page)?)
}

/// One of the caller's own keys.
pub fn get_own(it: &mut Reader<'_>, id: i64) -> Result<Key> {
    let me = it.my_id(Ability::ReadOwnAccount)?;
    store::keys::of_user(it.db(), me, id)?.ok_or(Error::not_found(WHAT))
}

/// One key and whose it is.
pub fn get(it: &mut Reader<'_>, id: i64) -> Result<(Key, User)> {
    it.may(Ability::AdministerUsers)?;
    let key = store::keys::by_id(it.db(), id)?.ok_or(Error::not_found(WHAT))?;
    let user = users::find(it, key.user_id)?;
    Ok((key, user))
}

/// Adds a key to the caller's own.
pub fn create_own(it: &mut Writer<'_>, key: &Given<KeyText>) -> Result<Key> {
    let me = it.my_id(Ability::ChangeOwnAccount)?;
    insert(it, me, key.get()?)
}

/// Adds a key to a user's.
pub fn create(it: &mut Writer<'_>, user: i64, key: &Given<KeyText>) -> Result<Key> {
    it.may(Ability::AdministerUsers)?;
    let key = key.get()?;
    let user = users::find(it, user)?;
    insert(it, user.id, key)
}

/// Removes one of the caller's own keys; one that is gone already is fine.
pub fn delete_own(it: &mut Writer<'_>, id: i64) -> Result<Option<Key>> {
    let me = it.my_id(Ability::ChangeOwnAccount)?;
    let key = store::keys::of_user(it.db(), me, id)?;
    if let Some(key) = &key {
        news::key_leaves(it, key)?;
        store::keys::delete(it.db(), key.id)?;
    }
    Ok(key)
}

/// Removes a key of a user.
pub fn delete(it: &mut Writer<'_>, user: i64, id: i64) -> Result<Key> {
    it.may(Ability::AdministerUsers)?;
    let user = users::find(it, user)?;
    let key = store::keys::of_user(it.db(), user.id, id)?.ok_or(Error::not_found(WHAT))?;
    news::key_leaves(it, &key)?;
    store::keys::delete(it.db(), key.id)?;
    Ok(key)
}

fn insert(it: &mut Writer<'_>, user: i64, text: &KeyText) -> Result<Key> {
    let new = NewKey::parse(&text.title, &text.key)?;
    if store::keys::is_taken(it.db(), &new.fingerprint)? {
        let mut violations = Violations::one("fingerprint", "has already been taken");
        violations.add("key", "has already been taken");
        return Err(violations.into());
    }
    let now = it.now();
    let key = store::keys::insert(it.db(), user, &new, now)?;
    news::key_created(it, &key)?;
    Ok(key)
}
