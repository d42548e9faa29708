//! What the pages of the hooks of a project show.

use model::{DeliveryId, Hook, HookId, Page, Project, Slice};

use crate::{
    ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    browse::InProject,
    hooks::{self, DeliveryLogEntry, HookScope},
};

/// A hook with its deliveries.
pub struct HookPage {
    /// The hook.
    pub hook: Hook,
    /// Whether it has a secret token.
    pub has_token: bool,
    /// The deliveries, newest first, without payloads and response bodies.
    pub deliveries: Slice<DeliveryLogEntry>,
}

/// A delivery with its hook.
pub struct DeliveryPage {
    /// The hook.
    pub hook: Hook,
    /// The delivery with its payload and response body.
    pub entry: DeliveryLogEntry,
}

/// Lists the hooks of a project, newest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<InProject<Slice<Hook>>> {
    let (project, scope) = open(tx, project)?;
    let value = hooks::list(tx, &scope, page)?;
    Ok(InProject { project, value })
}

/// Returns a hook with a page of its deliveries.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    id: HookId,
    page: &Unvalidated<Page>,
) -> Result<InProject<HookPage>> {
    let (project, scope) = open(tx, project)?;
    let hook = hooks::get(tx, &scope, &Unvalidated::valid(id))?;
    let has_token = hooks::has_token(tx, &project, id)?;
    let deliveries = hooks::list_deliveries(tx, &scope, &Unvalidated::valid(id), page)?;
    Ok(InProject { project, value: HookPage { hook, has_token, deliveries } })
}

/// Returns a delivery of a hook.
pub fn get_delivery(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    id: HookId,
    delivery: DeliveryId,
) -> Result<InProject<DeliveryPage>> {
    let (project, scope) = open(tx, project)?;
    let id = Unvalidated::valid(id);
    let hook = hooks::get(tx, &scope, &id)?;
    let entry = hooks::get_delivery(tx, &scope, &id, &Unvalidated::valid(delivery))?;
    Ok(InProject { project, value: DeliveryPage { hook, entry } })
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<(Project, HookScope)> {
    let found = tx.project(project, ProjectAbility::AdministerHooks)?;
    Ok((found, HookScope::Project(project.clone())))
}
