//! Namespaces: where one could put a project.

use model::{Namespace, Page, Slice};
use store::Term;

use crate::{Ability, Given, Reader, Result, projects};

/// A page of namespaces, newest first: for administrators of all, for others of their own and of their groups.
pub fn list(it: &mut Reader<'_>, search: &Given<Option<String>>, page: &Given<Page>) -> Result<Slice<Namespace>> {
    it.may(Ability::Browse)?;
    let (search, page) = (search.get()?.as_deref(), *page.get()?);
    if projects::is_beyond(search) {
        return Ok(Slice::empty(page));
    }
    let (viewer, everything, term) = (it.viewer(), it.actor().is_admin(), search.map(Term::new));
    Ok(store::namespaces::list(it.db(), &viewer, everything, term.as_ref(), page)?)
}
