//! Namespaces: where one could put a project.

use model::{Namespace, Page, Slice, projects::NamespaceRef};
use store::Term;

use crate::{Ability, ReadTx, Result, Unvalidated, projects};

/// A page of namespaces, newest first: for administrators of all, for others of their own and of their groups.
pub fn list(
    tx: &mut ReadTx<'_>,
    search: &Unvalidated<Option<String>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Namespace>> {
    tx.may(Ability::Browse)?;
    let (search, page) = (search.get()?.as_deref(), *page.get()?);
    if projects::is_beyond(search) {
        return Ok(Slice::empty(page));
    }
    let (viewer, everything, term) = (tx.viewer(), tx.actor().is_admin(), search.map(Term::new));
    Ok(store::namespaces::list(tx.db(), &viewer, everything, term.as_ref(), page)?)
}

/// The namespace that a request names. What the caller may do there is not asked here.
pub(crate) fn find(tx: &mut ReadTx<'_>, named: &NamespaceRef) -> Result<Option<Namespace>> {
    match named {
        NamespaceRef::Id(id) => Ok(store::namespaces::by_id(tx.db(), *id)?),
        // No path has one, and PostgreSQL refuses to look for NUL.
        NamespaceRef::Path(path) if model::text::has_control(path) => Ok(None),
        NamespaceRef::Path(path) => Ok(store::namespaces::by_full_path(tx.db(), path)?),
    }
}
