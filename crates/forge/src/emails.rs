//! Further addresses of users.

use model::{Email, Page, Slice, Violations};

use crate::{Ability, Error, Given, Reader, Result, Writer, users};

const WHAT: &str = "Email";

/// The caller's own further addresses, newest first.
pub fn list_own(it: &mut Reader<'_>, page: &Given<Page>) -> Result<Slice<Email>> {
    let me = it.my_id(Ability::ReadOwnAccount)?;
    Ok(store::emails::list(it.db(), me, *page.get()?)?)
}

/// The further addresses of a user, newest first.
pub fn list(it: &mut Reader<'_>, user: i64, page: &Given<Page>) -> Result<Slice<Email>> {
    it.may(Ability::AdministerUsers)?;
    let page = *page.get()?;
    let user = users::find(it, user)?;
    Ok(store::emails::list(it.db(), user.id, page)?)
}

/// One of the caller's own further addresses.
pub fn get_own(it: &mut Reader<'_>, id: i64) -> Result<Email> {
    let me = it.my_id(Ability::ReadOwnAccount)?;
    store::emails::of_user(it.db(), me, id)?.ok_or(Error::not_found(WHAT))
}

/// Adds an address to the caller's own.
pub fn create_own(it: &mut Writer<'_>, email: &Given<String>) -> Result<Email> {
    let me = it.my_id(Ability::ChangeOwnAccount)?;
    insert(it, me, email.get()?)
}

/// Adds an address to a user's.
pub fn create(it: &mut Writer<'_>, user: i64, email: &Given<String>) -> Result<Email> {
    it.may(Ability::AdministerUsers)?;
    let email = email.get()?;
    let user = users::find(it, user)?;
    insert(it, user.id, email)
}

/// Removes one of the caller's own further addresses; one that is gone already is fine.
pub fn delete_own(it: &mut Writer<'_>, id: i64) -> Result<Option<Email>> {
    let me = it.my_id(Ability::ChangeOwnAccount)?;
    let email = store::emails::of_user(it.db(), me, id)?;
    if let Some(email) = &email {
        store::emails::delete(it.db(), email.id)?;
    }
    Ok(email)
}

/// Removes a further address of a user.
pub fn delete(it: &mut Writer<'_>, user: i64, id: i64) -> Result<Email> {
    it.may(Ability::AdministerUsers)?;
    let user = users::find(it, user)?;
    let email = store::emails::of_user(it.db(), user.id, id)?.ok_or(Error::not_found(WHAT))?;
    store::emails::delete(it.db(), email.id)?;
    Ok(email)
}

fn insert(it: &mut Writer<'_>, user: i64, email: &str) -> Result<Email> {
    let email = model::emails::normalize(email);
    let mut violations = Violations::new();
    model::emails::check(&email, &mut violations);
    violations.into_result()?;
    if store::emails::holder(it.db(), &email)?.is_some() {
        return Err(Violations::one("email", "has already been taken").into());
    }
    let now = it.now();
    Ok(store::emails::insert(it.db(), user, &email, false, now)?)
}
