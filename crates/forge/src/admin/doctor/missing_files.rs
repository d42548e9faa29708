//! Looks up the files that the database names, one by one: a listing of a bucket may be out of date.

use std::collections::HashSet;

use files::Files;
use model::{PackId, ProjectId};
use store::checks::{self, StoredFileKind};

use super::{BATCH, projects, stored_files::key_folder};
use crate::{Caller, Forge, ReadTx, Result, blocking};

/// The kinds of files whose keys are the same in a folder and in a bucket. Traces have another form in each.
const KINDS: [StoredFileKind; 3] = [StoredFileKind::Uploads, StoredFileKind::Avatars, StoredFileKind::Artifacts];

/// Returns the keys of packs, uploads, avatars and artifacts that the database names and that are missing in `files`, or
/// truncated. What belongs to a project that is being removed is left out.
pub async fn missing_files(forge: &Forge, files: &Files) -> Result<Vec<String>> {
    let mut missing = missing_packs(forge, files).await?;
    let removed: HashSet<ProjectId> =
        projects(forge).await?.iter().filter(|project| project.is_soft_deleted()).map(|project| project.id).collect();
    for kind in KINDS {
        let mut after = 0;
        loop {
            let list = move |tx: &mut ReadTx<'_>| Ok(checks::stored_files(tx.db(), kind, after, BATCH)?);
            let batch = forge.read(Caller::system(), list).await?;
            let Some(last) = batch.last() else { break };
            after = last.id;
            let rows = batch.into_iter().filter(|row| !removed.contains(&row.project));
            let key = |storage: &str, id: i64| format!("{}/{storage}/{id}", key_folder(kind));
            let named = rows.map(|row| (key(&row.storage, row.id), row.size, ())).collect();
            missing.extend(incomplete(files, named).await?.into_iter().map(|(key, ())| key));
        }
    }
    Ok(missing)
}

async fn missing_packs(forge: &Forge, files: &Files) -> Result<Vec<String>> {
    let (mut missing, mut after) = (Vec::new(), PackId::new(0));
    loop {
        let batch = forge.read(Caller::system(), move |tx| Ok(checks::packs(tx.db(), after, BATCH)?)).await?;
        let Some(last) = batch.last() else { return Ok(missing) };
        after = last.id;
        let files_of = |row: checks::PackRow| {
            [(format!("{}.pack", row.key), row.bytes, row.id), (format!("{}.idx", row.key), 0, row.id)]
        };
        for (key, id) in incomplete(files, batch.into_iter().flat_map(files_of).collect()).await? {
            let users = move |tx: &mut ReadTx<'_>| Ok(checks::projects_with_pack(tx.db(), id)?);
            if !forge.read(Caller::system(), users).await?.is_empty() {
                missing.push(key);
            }
        }
    }
}

/// Returns those of the keys that do not exist or have less than their number of bytes, with what belongs to them.
async fn incomplete<T: Send + 'static>(files: &Files, named: Vec<(String, i64, T)>) -> Result<Vec<(String, T)>> {
    let files = files.clone();
    let look_up = move || {
        let mut found = Vec::new();
        for (key, bytes, owner) in named {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            if files.size(&key)?.is_none_or(|size| size < bytes) {
                found.push((key, owner));
            }
        }
        Ok(found)
    };
    blocking::spawn(look_up).await
}
