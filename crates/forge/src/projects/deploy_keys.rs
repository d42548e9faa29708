//! Deploy keys: SSH keys that give machines read access to projects.

use model::{DeployKey, DeployKeyId, Page, Project, Slice, Violations, keys::NewKey};
use store::deploy_keys::DeployKeySelector;

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, keys::UnparsedKey, system_events,
};

const RESOURCE: &str = "Deploy Key";

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.project(project, ProjectAbility::AdministerDeployKeys)
}

/// Lists the deploy keys of a project, newest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<DeployKey>> {
    let project = open(tx, project)?;
    Ok(store::deploy_keys::list(tx.db(), project.id, *page.validate()?)?)
}

/// Returns a deploy key of a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<DeployKeyId>) -> Result<DeployKey> {
    let project = open(tx, project)?;
    store::deploy_keys::find(tx.db(), project.id, *id.validate()?)?.ok_or(Error::NoSuchRow)
}

/// Adds a deploy key to a project. An existing key that the caller may enable is enabled instead, so that the caller need not
/// know where else it is in use.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, key: &Unvalidated<UnparsedKey>) -> Result<DeployKey> {
    let project = open(tx.read(), project)?;
    let text = key.validate()?;
    let new = NewKey::parse(&text.title, &text.key)?;
    let (now, viewer) = (tx.now(), tx.read().viewer());
    if !store::keys::is_taken(tx.db(), &new.fingerprint)? {
        let key = store::deploy_keys::insert(tx.db(), project.id, &new, now)?;
        system_events::deploy_key_created(tx, &key)?;
        return Ok(key);
    }
    if let Some(key) =
        store::deploy_keys::find_manageable(tx.db(), &viewer, DeployKeySelector::Fingerprint(&new.fingerprint))?
    {
        store::deploy_keys::enable(tx.db(), project.id, key.id, now)?;
        return Ok(key);
    }
    let mut violations = Violations::one("fingerprint", "has already been taken");
    violations.add("key", "has already been taken");
    Err(violations.into())
}

/// Enables a deploy key of another project in which the caller is a master as well.
pub fn enable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<DeployKeyId>) -> Result<DeployKey> {
    let project = open(tx.read(), project)?;
    let (id, now, viewer) = (*id.validate()?, tx.now(), tx.read().viewer());
    let key = store::deploy_keys::find_manageable(tx.db(), &viewer, DeployKeySelector::Id(id))?
        .ok_or(Error::not_found(RESOURCE))?;
    store::deploy_keys::enable(tx.db(), project.id, key.id, now)?;
    Ok(key)
}

/// Removes a deploy key from a project; it stays enabled in other projects.
pub fn disable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<DeployKeyId>) -> Result<DeployKey> {
    let project = open(tx.read(), project)?;
    let key = store::deploy_keys::find(tx.db(), project.id, *id.validate()?)?.ok_or(Error::not_found(RESOURCE))?;
    store::deploy_keys::disable(tx.db(), project.id, key.id)?;
    system_events::deploy_key_disabled(tx, &key)?;
    Ok(key)
}
