//! What the pages that create and administer groups show.

use model::{Namespace, Role};

use crate::{Ability, Error, GroupAbility, GroupRef, ReadTx, Result, groups};

/// A group with the role of the visitor in it.
pub struct InGroup<T> {
    /// The group.
    pub group: Namespace,
    /// The role of the visitor; administrators are owners.
    pub role: Option<Role>,
    /// What the page shows.
    pub value: T,
}

/// Checks that the visitor may create groups.
pub fn open_for_creation(tx: &mut ReadTx<'_>) -> Result<()> {
    tx.authorize(Ability::Create)?;
    let may_create = tx.actor().user().is_some_and(groups::may_be_created_by);
    if may_create { Ok(()) } else { Err(Error::Forbidden(None)) }
}

/// Returns a group whose settings the visitor may change.
pub fn settings(tx: &mut ReadTx<'_>, group: &GroupRef) -> Result<InGroup<()>> {
    let (group, role) = tx.group(group, GroupAbility::ChangeGroup)?;
    Ok(InGroup { group, role, value: () })
}
