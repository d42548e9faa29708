//! Namespaces in which the caller can create projects.

use model::{Namespace, Page, Slice, projects::NamespaceRef};
use store::SearchTerm;

use crate::{Ability, ReadTx, Result, Unvalidated, projects};

/// Lists namespaces, newest first: for administrators all of them, for others their own and those of their groups.
pub fn list(
    tx: &mut ReadTx<'_>,
    search: &Unvalidated<Option<String>>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Namespace>> {
    tx.authorize(Ability::Browse)?;
    let (search, page) = (search.validate()?.as_deref(), *page.validate()?);
    if projects::cannot_match(search) {
        return Ok(Slice::empty(page));
    }
    let (viewer, all, term) = (tx.viewer(), tx.actor().is_admin(), search.map(SearchTerm::new));
    Ok(store::namespaces::list(tx.db(), &viewer, all, term.as_ref(), page)?)
}

/// Returns the namespace of a reference, without checking permissions.
pub(crate) fn find(tx: &mut ReadTx<'_>, reference: &NamespaceRef) -> Result<Option<Namespace>> {
    match reference {
        NamespaceRef::Id(id) => Ok(store::namespaces::by_id(tx.db(), *id)?),
        // No path contains control characters, and PostgreSQL rejects NUL.
        NamespaceRef::Path(path) if model::text::has_control(path) => Ok(None),
        NamespaceRef::Path(path) => Ok(store::namespaces::by_full_path(tx.db(), path)?),
    }
}
