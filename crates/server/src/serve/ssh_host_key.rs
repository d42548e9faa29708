//! The SSH host key. All nodes present the same one, so on PostgreSQL it is stored in the database; with the embedded database
//! it is a file in the data folder.

use anyhow::{Context as _, Result};
use forge::{Caller, Forge, WriteTx, instance_secrets};
use store::Database;
use tracing::info;
use wire::ssh::host_key::{self, HostKey};

use crate::data_folder::{DataFolder, SSH_HOST_KEY};

/// Loads the host key, or creates it at the first start. A file of an earlier version is imported into the database.
pub(crate) async fn load(forge: &Forge, folder: &DataFolder, database: &Database) -> Result<HostKey> {
    let path = folder.path().join(SSH_HOST_KEY);
    let in_file = || format!("cannot use the SSH host key {}", path.display());
    let file = host_key::read(&path).with_context(in_file)?;
    let context = "cannot use the SSH host key in the database";
    let find = |tx: &mut forge::ReadTx<'_>| instance_secrets::find(tx, instance_secrets::SSH_HOST_KEY);
    let stored = forge.read(Caller::system(), find).await.context(context)?;
    let key = if database.is_sqlite() {
        let text = if let Some(text) = file {
            text
        } else {
            // An instance that was moved from PostgreSQL keeps its key.
            let stored = stored.map(String::from_utf8).transpose().context(context)?;
            let text = stored.map_or_else(host_key::generate, Ok).with_context(in_file)?;
            host_key::write(&path, &text).with_context(in_file)?;
            text
        };
        host_key::parse(text.as_bytes()).with_context(in_file)?
    } else {
        let text = if let Some(stored) = stored {
            stored
        } else {
            let initial = file.map_or_else(host_key::generate, Ok).with_context(in_file)?;
            let insert = move |tx: &mut WriteTx<'_>| {
                instance_secrets::find_or_insert(tx, instance_secrets::SSH_HOST_KEY, initial.as_bytes())
            };
            forge.write(Caller::system(), insert).await.context(context)?
        };
        host_key::parse(&text).context(context)?
    };
    info!(fingerprint = key.fingerprint(), "loaded the SSH host key");
    Ok(key)
}
