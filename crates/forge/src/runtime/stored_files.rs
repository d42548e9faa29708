//! What uploads and artifacts have in common: files of which each has a row.
//!
//! The row comes before the file and goes after it, so that no file is ever without a row: whatever was not ended or
//! undone is found by its row and swept away later.

use std::collections::{HashMap, hash_map::Entry};

use jiff::SignedDuration;
use model::{StorageId, Time};
use store::Conn;
use tracing::{info, warn};

use crate::{Caller, Forge, Result};

/// How old a file under way must be to count as given up; whoever sends one has less time than that.
const GIVEN_UP_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How often those that were given up, or have expired, are removed.
pub(crate) const SWEEP_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How many are removed at once.
pub(crate) const BATCH: i64 = 200;

/// A file with its row.
pub(crate) trait KeptFile: Send + Sync + Sized + 'static {
    /// What several of them are called.
    const NAME: &'static str;

    /// The number of its row.
    fn id(&self) -> i64;
    /// The number of its project.
    fn project(&self) -> i64;
    /// Where its bytes are, given where those of its project are: no name that a user chose ever reaches a file system.
    fn key(&self, storage: &StorageId) -> String {
        format!("{}/{}", Self::folder(storage), self.id())
    }
    /// Where those of a project lie, among all that are kept.
    fn folder(storage: &StorageId) -> String;
    /// Some of those that were begun before a moment and not ended.
    fn begun_before(db: &mut Conn, moment: Time, most: i64) -> store::Result<Vec<Self>>;
    /// Some of a project's, but for those that are not ended and were begun since a moment.
    fn of_project(db: &mut Conn, project: i64, moment: Time, most: i64) -> store::Result<Vec<Self>>;
    /// Whether a project has any.
    fn exist_in(db: &mut Conn, project: i64) -> store::Result<bool>;
    /// Removes rows.
    fn delete(db: &mut Conn, ids: &[i64]) -> store::Result<()>;
}

/// Removes all files of one kind of a project that is being removed; `false` while somebody still sends one.
pub(crate) async fn remove_all_of_project<F: KeptFile>(forge: &Forge, project: i64) -> Result<bool> {
    let moment = forge.now() - GIVEN_UP_AFTER;
    while let some @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(F::of_project(tx.db(), project, moment, BATCH)?)).await?
    {
        remove(forge, some).await?;
    }
    if forge.read(Caller::system(), move |tx| Ok(F::exist_in(tx.db(), project)?)).await? {
        return Ok(false);
    }
    let storage = forge.storage_of(project).await?;
    if let Err(error) = forge.shared().files.remove_folder(&F::folder(&storage)).await {
        warn!(project.id = project, %error, "the folder of a removed project stays");
    }
    Ok(true)
}

/// Removes what is left of files that were never ended, at the start of a server that has its data to itself: nobody can
/// still be sending them.
pub(crate) async fn sweep_at_start<F: KeptFile>(forge: &Forge) -> Result<()> {
    if forge.shared().database.is_embedded() { sweep_begun_before::<F>(forge, Time::MAX).await } else { Ok(()) }
}

/// Removes what is left of files that were given up.
pub(crate) async fn sweep<F: KeptFile>(forge: &Forge) -> Result<()> {
    sweep_begun_before::<F>(forge, forge.now() - GIVEN_UP_AFTER).await
}

async fn sweep_begun_before<F: KeptFile>(forge: &Forge, moment: Time) -> Result<()> {
    while let some @ [_, ..] =
        &*forge.read(Caller::system(), move |tx| Ok(F::begun_before(tx.db(), moment, BATCH)?)).await?
    {
        remove(forge, some).await?;
        info!(removed = some.len(), "removed what was left of {} that were given up", F::NAME);
    }
    Ok(())
}

/// Removes files, whole or not: first the files, then the rows.
pub(crate) async fn remove<F: KeptFile>(forge: &Forge, some: &[F]) -> Result<()> {
    let mut keys = Vec::with_capacity(some.len());
    let mut known: HashMap<i64, Option<StorageId>> = HashMap::new();
    for one in some {
        let storage = match known.entry(one.project()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(forge.find_storage(one.project()).await?),
        };
        // Rows and files of a project that is gone are gone with it.
        keys.extend(storage.as_ref().map(|storage| one.key(storage)));
    }
    forge.shared().files.remove(&keys).await?;
    let ids: Vec<i64> = some.iter().map(F::id).collect();
    forge.write(Caller::system(), move |tx| Ok(F::delete(tx.db(), &ids)?)).await
}
