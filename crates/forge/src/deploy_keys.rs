//! Keys that open projects to machines.

use model::{DeployKey, Page, Project, Slice, Violations, keys::NewKey};
use store::deploy_keys::Which;

use crate::{Error, Given, ProjectAbility, ProjectRef, Reader, Result, Writer, keys::KeyText, news};

const WHAT: &str = "Deploy Key";

fn open(it: &mut Reader<'_>, project: &ProjectRef) -> Result<Project> {
    it.open(project, ProjectAbility::AdministerDeployKeys)
}

/// The keys that open a project, newest first.
pub fn list(it: &mut Reader<'_>, project: &ProjectRef, page: &Given<Page>) -> Result<Slice<DeployKey>> {
    let project = open(it, project)?;
    Ok(store::deploy_keys::list(it.db(), project.id, *page.get()?)?)
}

/// One of the keys that open a project.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<DeployKey> {
    let project = open(it, project)?;
    store::deploy_keys::find(it.db(), project.id, *id.get()?)?.ok_or(Error::NoSuchRow)
}

/// Adds a key that opens a project. A key that the caller could enable is enabled instead: nobody has to know where else
/// it is in use.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef, key: &Given<KeyText>) -> Result<DeployKey> {
    let project = open(it, project)?;
    let text = key.get()?;
    let new = NewKey::parse(&text.title, &text.key)?;
    let (now, viewer) = (it.now(), it.viewer());
    if !store::keys::is_taken(it.db(), &new.fingerprint)? {
        let key = store::deploy_keys::insert(it.db(), project.id, &new, now)?;
        news::deploy_key_created(it, &key)?;
        return Ok(key);
    }
    if let Some(key) = store::deploy_keys::within_reach(it.db(), &viewer, Which::Fingerprint(&new.fingerprint))? {
        store::deploy_keys::enable(it.db(), project.id, key.id, now)?;
        return Ok(key);
    }
    let mut violations = Violations::one("fingerprint", "has already been taken");
    violations.add("key", "has already been taken");
    Err(violations.into())
}

/// Lets a key open another project: one that opens a project of which the caller is a master, too.
pub fn enable(it: &mut Writer<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<DeployKey> {
    let project = open(it, project)?;
    let (id, now, viewer) = (*id.get()?, it.now(), it.viewer());
    let key = store::deploy_keys::within_reach(it.db(), &viewer, Which::Id(id))?.ok_or(Error::not_found(WHAT))?;
    store::deploy_keys::enable(it.db(), project.id, key.id, now)?;
    Ok(key)
}

/// Closes a project to a key, and to this one only: other projects stay open to it.
pub fn disable(it: &mut Writer<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<DeployKey> {
    let project = open(it, project)?;
    let key = store::deploy_keys::find(it.db(), project.id, *id.get()?)?.ok_or(Error::not_found(WHAT))?;
    store::deploy_keys::disable(it.db(), project.id, key.id)?;
    news::deploy_key_disabled(it, &key)?;
    Ok(key)
}
