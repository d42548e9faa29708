//! Looks at the database and at the keys before anything is copied.

use std::{fs, io};

use forge::InstanceKey;
use sha2::{Digest as _, Sha256};
use store::copies::Snapshot;

use super::{
    Sentence,
    capture::Ground,
    manifest::{Damage, hex},
};

/// How many faults of the database are told.
const TOLD: usize = 3;

/// Refuses a damaged database, since rows of it cannot be relied on. Answers what tells this instance from others, and
/// which of the keys are damaged.
pub(super) fn instance(ground: &Ground) -> Result<(Option<String>, Vec<Damage>), Sentence> {
    let mut snapshot = Snapshot::prepare(&ground.database).map_err(in_database)?;
    snapshot.begin().map_err(in_database)?;
    let mut faults = snapshot.faults().map_err(in_database)?;
    if !faults.is_empty() {
        let count = faults.len();
        faults.truncate(TOLD);
        return Err(format!(
            "the database is damaged ({count} faults: {}); no backup was made and none was removed; gable doctor tells \
             more, and gable restore brings back an older backup",
            faults.join("; ")
        ));
    }
    let mut damaged = Vec::new();
    let mut damage = |path: &str, fault: String| {
        damaged.push(Damage { path: path.to_owned(), fault, project: None });
    };
    let mut digest = None;
    match fs::read(ground.data.join("instance-key")) {
        Ok(content) => match key_fault(ground, &mut snapshot, &content)? {
            None => digest = Some(hex(&Sha256::digest([b"gable instance ", &*content].concat()))),
            Some(fault) => damage("instance-key", fault),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => damage("instance-key", "it is missing".into()),
        // Copying it tells why.
        Err(_) => {}
    }
    match fs::read(ground.data.join("ssh-host-key")) {
        Ok(content) if !wire::ssh::host_key::is_good(&content) => {
            damage("ssh-host-key", "it holds no private key as OpenSSH writes it".into());
        }
        _ => {}
    }
    Ok((digest, damaged))
}

fn in_database(error: impl std::fmt::Display) -> Sentence {
    format!("the database cannot be read: {error}; no backup was made and none was removed; gable doctor tells more")
}

/// What is wrong with the key of the instance.
fn key_fault(ground: &Ground, snapshot: &mut Snapshot, content: &[u8]) -> Result<Option<String>, Sentence> {
    let key = std::str::from_utf8(content).ok().and_then(InstanceKey::from_text);
    let Some(key) = key else { return Ok(Some("it holds no key".into())) };
    // An older database may not have all tables that are asked for.
    let schema = ground.database.schema().map_err(in_database)?;
    if !schema.pending.is_empty() {
        return Ok(None);
    }
    let closed = forge::doctor::closed_to(snapshot.connection(), &key).map_err(in_database)?;
    Ok((!closed.is_empty())
        .then(|| format!("it does not belong to this database: it does not open {}", closed.join(", "))))
}
