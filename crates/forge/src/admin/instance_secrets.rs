//! Secrets that all nodes share. They are stored in the database, encrypted with the instance key.

use model::ProjectId;

use crate::{Ability, Error, ReadTx, Result, WriteTx};

/// The name of the private key with which the SSH server identifies itself.
pub const SSH_HOST_KEY: &str = "ssh-host-key";

/// The name of the bucket to which traces were last imported from a data folder, which their segments refer to.
pub const TRACE_IMPORT_TARGET: &str = "trace-import-target";

/// Secrets that belong to no project are encrypted for this one.
const NO_PROJECT: ProjectId = ProjectId::new(0);

/// Returns a secret, if there is one with this name.
pub fn find(tx: &mut ReadTx<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    tx.authorize(Ability::ManageServer)?;
    let Some(encrypted) = store::instance_secrets::find(tx.db(), name)? else { return Ok(None) };
    let plain = tx.shared().instance_key.decrypt(NO_PROJECT, &encrypted);
    plain.map(Some).ok_or_else(|| Error::internal("shared secret", format!("{name} was encrypted with another key")))
}

/// Returns the secret with this name. If there is none, stores this one; of several nodes that do so at the same time one
/// succeeds, and all of them return its secret.
pub fn find_or_insert(tx: &mut WriteTx<'_>, name: &str, secret: &[u8]) -> Result<Vec<u8>> {
    tx.authorize(Ability::ManageServer)?;
    let shared = tx.shared();
    let encrypted = shared.instance_key.encrypt(NO_PROJECT, secret, &*shared.secrets);
    store::instance_secrets::insert(tx.db(), name, &encrypted)?;
    find(tx.read(), name)?.ok_or_else(|| Error::internal("shared secret", format!("{name} was not stored")))
}

/// Stores a secret instead of the one with this name.
pub fn replace(tx: &mut WriteTx<'_>, name: &str, secret: &[u8]) -> Result<()> {
    tx.authorize(Ability::ManageServer)?;
    let shared = tx.shared();
    let encrypted = shared.instance_key.encrypt(NO_PROJECT, secret, &*shared.secrets);
    store::instance_secrets::delete(tx.db(), name)?;
    Ok(store::instance_secrets::insert(tx.db(), name, &encrypted)?)
}
