//! Checks the database and the keys before a backup starts.

use std::{fs, io};

use anyhow::{Error, Result, anyhow, bail};
use forge::InstanceKey;
use model::text::hex;
use sha2::{Digest as _, Sha256};
use store::dump::Snapshot;

use super::{manifest::DamagedFile, source::BackupSource};
use crate::data_folder::{INSTANCE_KEY, SSH_HOST_KEY};

/// The maximum number of database faults in the error message.
const MAX_REPORTED_FAULTS: usize = 3;

/// Returns an error if the database is damaged. Otherwise returns a digest that identifies the instance, and the damaged
/// key files.
pub(super) fn check(source: &BackupSource) -> Result<(Option<String>, Vec<DamagedFile>)> {
    let mut snapshot = Snapshot::prepare(&source.database).map_err(database_error)?;
    snapshot.begin().map_err(database_error)?;
    let mut faults = snapshot.integrity_errors().map_err(database_error)?;
    if !faults.is_empty() {
        let count = faults.len();
        faults.truncate(MAX_REPORTED_FAULTS);
        bail!(
            "the database is damaged ({count} faults: {}); no backup was made and none was removed; run `gable \
             doctor` for details, and `gable restore` to go back to an older backup",
            faults.join("; ")
        );
    }
    if !snapshot.has_repositories().map_err(database_error)? {
        bail!(
            "the data folder {} was last used by an earlier version of gable, which stored repositories differently; make \
             the backup with that version, or start this one with `gable serve` to convert them; no backup was made",
            source.folder().display()
        );
    }
    let mut damaged = Vec::new();
    let mut damage = |path: &str, fault: String| {
        damaged.push(DamagedFile { path: path.to_owned(), fault, projects: Vec::new() });
    };
    let mut digest = None;
    match fs::read(source.key_path(INSTANCE_KEY)) {
        Ok(content) => match find_key_fault(source, &mut snapshot, &content)? {
            None => digest = Some(hex(&Sha256::digest([b"gable instance ", &*content].concat()))),
            Some(fault) => damage(INSTANCE_KEY, fault),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => damage(INSTANCE_KEY, "missing".into()),
        // Copying it reports the error.
        Err(_) => {}
    }
    match fs::read(source.key_path(SSH_HOST_KEY)) {
        Ok(content) if !wire::ssh::host_key::is_valid(&content) => {
            damage(SSH_HOST_KEY, "not an OpenSSH private key".into());
        }
        _ => {}
    }
    Ok((digest, damaged))
}

fn database_error(error: impl std::fmt::Display) -> Error {
    anyhow!(
        "cannot read the database: {error}; no backup was made and none was removed; run `gable doctor` for details"
    )
}

/// Returns what is wrong with the instance key.
fn find_key_fault(source: &BackupSource, snapshot: &mut Snapshot, content: &[u8]) -> Result<Option<String>> {
    let key = std::str::from_utf8(content).ok().and_then(InstanceKey::from_text);
    let Some(key) = key else { return Ok(Some("not an instance key".into())) };
    // An older database may lack tables that the check reads.
    let schema = source.database.schema_status().map_err(database_error)?;
    if !schema.pending.is_empty() {
        return Ok(None);
    }
    let closed = forge::doctor::encrypted_with_other_key(snapshot.connection(), &key).map_err(database_error)?;
    Ok((!closed.is_empty()).then(|| format!("does not belong to this database: cannot decrypt {}", closed.join(", "))))
}
