//! Secondary e-mail addresses of users.

use model::{Email, EmailId, Page, Slice, UserId, Violations};

use crate::{Ability, Error, ReadTx, Result, Unvalidated, WriteTx, users};

const RESOURCE: &str = "Email";

/// Lists the caller's secondary addresses, newest first.
pub fn list_own(tx: &mut ReadTx<'_>, page: &Unvalidated<Page>) -> Result<Slice<Email>> {
    let me = tx.current_user_id(Ability::ReadOwnAccount)?;
    Ok(store::emails::list(tx.db(), me, *page.validate()?)?)
}

/// Lists the secondary addresses of a user, newest first.
pub fn list(tx: &mut ReadTx<'_>, user: UserId, page: &Unvalidated<Page>) -> Result<Slice<Email>> {
    tx.authorize(Ability::AdministerUsers)?;
    let page = *page.validate()?;
    let user = users::find(tx, user)?;
    Ok(store::emails::list(tx.db(), user.id, page)?)
}

/// Returns one of the caller's secondary addresses.
pub fn get_own(tx: &mut ReadTx<'_>, id: EmailId) -> Result<Email> {
    let me = tx.current_user_id(Ability::ReadOwnAccount)?;
    store::emails::of_user(tx.db(), me, id)?.ok_or(Error::not_found(RESOURCE))
}

/// Adds an address to the caller's account.
pub fn create_own(tx: &mut WriteTx<'_>, email: &Unvalidated<String>) -> Result<Email> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    insert(tx, me, email.validate()?)
}

/// Adds an address to a user's account.
pub fn create(tx: &mut WriteTx<'_>, user: UserId, email: &Unvalidated<String>) -> Result<Email> {
    tx.authorize(Ability::AdministerUsers)?;
    let email = email.validate()?;
    let user = users::find(tx.read(), user)?;
    insert(tx, user.id, email)
}

/// Removes one of the caller's secondary addresses; returns `None` if it does not exist.
pub fn delete_own(tx: &mut WriteTx<'_>, id: EmailId) -> Result<Option<Email>> {
    let me = tx.current_user_id(Ability::ChangeOwnAccount)?;
    let email = store::emails::of_user(tx.db(), me, id)?;
    if let Some(email) = &email {
        store::emails::delete(tx.db(), email.id)?;
    }
    Ok(email)
}

/// Removes a secondary address of a user.
pub fn delete(tx: &mut WriteTx<'_>, user: UserId, id: EmailId) -> Result<Email> {
    tx.authorize(Ability::AdministerUsers)?;
    let user = users::find(tx.read(), user)?;
    let email = store::emails::of_user(tx.db(), user.id, id)?.ok_or(Error::not_found(RESOURCE))?;
    store::emails::delete(tx.db(), email.id)?;
    Ok(email)
}

fn insert(tx: &mut WriteTx<'_>, user: UserId, email: &str) -> Result<Email> {
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
