//! Keys that open projects to machines.

use model::{DeployKey, Page, Project, Slice, Violations, keys::NewKey};
use store::deploy_keys::Which;

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, keys::KeyText, webhook_events};

const WHAT: &str = "Deploy Key";

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.open(project, ProjectAbility::AdministerDeployKeys)
}

/// The keys that open a project, newest first.
pub fn list(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Slice<DeployKey>> {
    let project = open(tx, project)?;
    Ok(store::deploy_keys::list(tx.db(), project.id, *page.get()?)?)
}

/// One of the keys that open a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<DeployKey> {
    let project = open(tx, project)?;
    store::deploy_keys::find(tx.db(), project.id, *id.get()?)?.ok_or(Error::NoSuchRow)
}

/// Adds a key that opens a project. A key that the caller could enable is enabled instead: nobody has to know where else
/// it is in use.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, key: &Unvalidated<KeyText>) -> Result<DeployKey> {
    let project = open(tx, project)?;
    let text = key.get()?;
    let new = NewKey::parse(&text.title, &text.key)?;
    let (now, viewer) = (tx.now(), tx.viewer());
    if !store::keys::is_taken(tx.db(), &new.fingerprint)? {
        let key = store::deploy_keys::insert(tx.db(), project.id, &new, now)?;
        webhook_events::deploy_key_created(tx, &key)?;
        return Ok(key);
    }
    if let Some(key) = store::deploy_keys::within_reach(tx.db(), &viewer, Which::Fingerprint(&new.fingerprint))? {
        store::deploy_keys::enable(tx.db(), project.id, key.id, now)?;
        return Ok(key);
    }
    let mut violations = Violations::one("fingerprint", "has already been taken");
    violations.add("key", "has already been taken");
    Err(violations.into())
}

/// Lets a key open another project: one that opens a project of which the caller is a master, too.
pub fn enable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<DeployKey> {
    let project = open(tx, project)?;
    let (id, now, viewer) = (*id.get()?, tx.now(), tx.viewer());
    let key = store::deploy_keys::within_reach(tx.db(), &viewer, Which::Id(id))?.ok_or(Error::not_found(WHAT))?;
    store::deploy_keys::enable(tx.db(), project.id, key.id, now)?;
    Ok(key)
}

/// Closes a project to a key, and to this one only: other projects stay open to it.
pub fn disable(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<DeployKey> {
    let project = open(tx, project)?;
    let key = store::deploy_keys::find(tx.db(), project.id, *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    store::deploy_keys::disable(tx.db(), project.id, key.id)?;
    webhook_events::deploy_key_disabled(tx, &key)?;
    Ok(key)
}
