//! What happened.

use model::{Event, Page, Slice};

use crate::{Ability, Given, Reader, Result, users};

/// What a user did, newest first, as far as the actor may see it.
pub fn of_user(it: &mut Reader<'_>, user: i64, page: &Given<Page>) -> Result<Slice<Event>> {
    it.may(Ability::ReadUsers)?;
    let page = *page.get()?;
    users::find(it, user)?;
    Ok(Slice::empty(page))
}
