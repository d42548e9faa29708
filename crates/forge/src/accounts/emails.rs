//! Further addresses of users.

use model::{Email, Page, Slice, Violations};

use crate::{Ability, Error, ReadTx, Result, Unvalidated, WriteTx, users};

const WHAT: &str = "Email";

/// The caller's own further addresses, newest first.
pub fn list_own(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Email>> {
    let me = tx.my_id(Ability::ReadOwnAccount)?;
    Ok(store::emails::list(tx.db(), me, *page.get()?)?)
}

/// The further addresses of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, user: i64, page: &Unvalidated<Page>) -> Result<Slice<Email>> {
    tx.may(Ability::AdministerUsers)?;
    let page = *page.get()?;
    let user = users::find(tx, user)?;
    Ok(store::emails::list(tx.db(), user.id, page)?)
}

/// One of the caller's own further addresses.
pub fn get_own(tx: &mut ReadTx<'_>, id: i64) -> Result<Email> {
    let me = tx.my_id(Ability::ReadOwnAccount)?;
    store::emails::of_user(tx.db(), me, id)?.ok_or(Error::not_found(WHAT))
}

/// Adds an address to the caller's own.
pub fn create_own(tx: &mut WriteTx<'_>, email: &Unvalidated<String>) -> Result<Email> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    insert(tx, me, email.get()?)
}

/// Adds an address to a user's.
pub fn create(tx: &mut WriteTx<'_>, user: i64, email: &Unvalidated<String>) -> Result<Email> {
    tx.may(Ability::AdministerUsers)?;
    let email = email.get()?;
    let user = users::find(tx, user)?;
    insert(tx, user.id, email)
}

/// Removes one of the caller's own further addresses; one that is gone already is fine.
pub fn delete_own(tx: &mut WriteTx<'_>, id: i64) -> Result<Option<Email>> {
    let me = tx.my_id(Ability::ChangeOwnAccount)?;
    let email = store::emails::of_user(tx.db(), me, id)?;
    if let Some(email) = &email {
        store::emails::delete(tx.db(), email.id)?;
    }
    Ok(email)
}

/// Removes a further address of a user.
pub fn delete(tx: &mut WriteTx<'_>, user: i64, id: i64) -> Result<Email> {
    tx.may(Ability::AdministerUsers)?;
    let user = users::find(tx, user)?;
    let email = store::emails::of_user(tx.db(), user.id, id)?.ok_or(Error::not_found(WHAT))?;
    store::emails::delete(tx.db(), email.id)?;
    Ok(email)
}

fn insert(tx: &mut WriteTx<'_>, user: i64, email: &str) -> Result<Email> {
    let email = model::emails::normalize(email);
    let mut violations = Violations::new();
    model::emails::check(&email, &mut violations);
    violations.into_result()?;
    if store::emails::holder(tx.db(), &email)?.is_some() {
        return Err(Violations::one("email", "has already been taken").into());
    }
    let now = tx.now();
    Ok(store::emails::insert(tx.db(), user, &email, false, now)?)
}
