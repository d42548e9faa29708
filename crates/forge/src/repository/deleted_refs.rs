//! Restores deleted branches and tags.

use std::sync::Arc;

use git::Refs;
use model::{EventId, Oid, ProjectId, RefChange, RefName};
use tracing::warn;

use super::branches::{conflicts_with_any, require_accepted};
use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, blocking, contents,
    pushes::{self, Push, PushSource},
};

/// A deleted ref that can be created again.
struct DeletedRef {
    project: ProjectId,
    name: RefName,
    target: Oid,
    /// The refs of the repository.
    refs: Arc<Refs>,
}

/// Restores the branch or tag that the push of this event deleted; returns its name.
///
/// Objects that no ref reaches any more are stored for some time. They are pushed again, so that the new ref does not depend on
/// packs that will be removed.
pub async fn restore(forge: &Forge, caller: Caller, project: ProjectRef, event: EventId) -> Result<RefName> {
    let DeletedRef { project, name, target, refs } =
        forge.read(caller.clone(), move |tx| find(tx, &project, event)).await?;
    // Limits how many refs are restored at the same time.
    let _slot = contents::download_slot(forge).await?;
    let (handle, storage) = (forge.clone(), forge.storage_of(project).await?);
    let short = name.short().to_owned();
    let incoming = blocking::spawn(move || {
        let incoming = pushes::create_quarantine(&handle, &storage)?;
        match incoming.copy_objects(target, &refs) {
            Ok(()) => Ok(incoming),
            Err(error @ git::Error::GitFailed(_)) if !error.is_full() => {
                warn!(%error, %target, "cannot restore a deleted ref");
                Err(Error::Refused(format!("The commits of {short} are not stored any more")))
            }
            Err(error) => handle.record_if_disk_full(Err(error.into())),
        }
    })
    .await?;
    let changes = vec![RefChange { name: name.clone(), old: None, new: Some(target) }];
    let push = Push { changes, incoming: Some(incoming), atomic: true, options: Vec::new() };
    require_accepted(pushes::push(forge, caller, project, push, PushSource::Api).await?)?;
    Ok(name)
}

fn find(tx: &mut ReadTx<'_>, project: &ProjectRef, event: EventId) -> Result<DeletedRef> {
    let project = tx.project(project, ProjectAbility::PushCode)?;
    let event = store::events::find(tx.db(), project.id, event)?;
    let deletion = event.and_then(|event| event.push).filter(|push| push.after.is_none());
    let deleted = deletion.and_then(|push| Some((RefName::new(&push.ref_name)?, push.before?)));
    let Some((name, target)) = deleted else { return Err(Error::NotFound(None)) };
    // Opened, so that its folder has all packs.
    let repository = tx.repository(&project)?.ok_or(Error::NotFound(None))?;
    let refs = Arc::clone(repository.refs());
    if refs.find(&name).is_some() {
        return Err(Error::Refused(format!("{} exists again", name.short())));
    }
    if conflicts_with_any(&refs.branches, &name) || conflicts_with_any(&refs.tags, &name) {
        return Err(Error::Refused(format!("{} conflicts with the name of another branch or tag", name.short())));
    }
    Ok(DeletedRef { project: project.id, name, target, refs })
}
