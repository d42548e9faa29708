//! Files of uploads, artifacts and traces, and the rows that stand for them.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File, FileType, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use model::StorageId;
use store::checks::{self, Kept, KeptRow};

use super::{BATCH, Finding, NAMED, Wishes, linked, lost, unseen};
use crate::{Caller, Error, Forge, Result};

/// What a file system keeps at its top; it is nobody's stray.
const OF_THE_DISK: &str = "lost+found";

impl Forge {
    /// The folder at the top of the data folder, and the one in it that holds these files.
    fn places_of(&self, what: Kept) -> (PathBuf, PathBuf) {
        let shared = self.shared();
        let (files, traces) = (shared.files.folder(), shared.logs.folder());
        match what {
            Kept::Uploads => (files.to_owned(), files.join("uploads")),
            Kept::Artifacts => (files.to_owned(), files.join("artifacts")),
            Kept::Traces => (traces.to_owned(), traces.to_owned()),
        }
    }
}

fn words(what: Kept) -> (&'static str, &'static str) {
    match what {
        Kept::Uploads => ("uploads", "uploads without rows"),
        Kept::Artifacts => ("artifacts", "artifacts without rows"),
        Kept::Traces => ("traces", "traces without builds"),
    }
}

/// Rows without files, and files without rows.
pub(super) async fn examine(forge: &Forge, wishes: &Wishes, what: Kept, findings: &mut Vec<Finding>) {
    let (rows, files) = words(what);
    let compared = match compare(forge, what).await {
        Ok(compared) => compared,
        Err(error) => return findings.push(unseen(rows, &error)),
    };
    findings.push(if compared.missing.is_empty() {
        Finding::fine(rows, "every row has its file")
    } else {
        missing(forge, wishes, what, &compared).await
    });
    match stray_files(forge, what, &compared.folders).await {
        Ok(found) => {
            let so_far = findings.len();
            findings.extend(linked(files, &found.links));
            // That there are none is not said beside some.
            if findings.len() == so_far || !found.strays.is_empty() {
                findings.extend(lost(wishes, files, rows, &forge.places_of(what).0, found.strays));
            }
        }
        Err(error) => findings.push(unseen(files, &error)),
    }
}

/// Moves files without rows aside.
pub(super) async fn set_strays_aside(
    forge: &Forge,
    wishes: &Wishes,
    what: Kept,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let (rows, files) = words(what);
    let compared = compare(forge, what).await?;
    let found = stray_files(forge, what, &compared.folders).await?;
    findings.extend(lost(wishes, files, rows, &forge.places_of(what).0, found.strays));
    Ok(())
}

/// How rows and files compare.
#[derive(Default)]
struct Compared {
    /// Rows whose file is not there or shorter than it was.
    missing: Vec<KeptRow>,
    /// Why it is not known of some whether their file is there.
    trouble: Option<String>,
    /// The folders of projects that have files.
    folders: HashSet<String>,
}

async fn compare(forge: &Forge, what: Kept) -> Result<Compared> {
    let (mut compared, mut after) = (Compared::default(), 0);
    let (_, place) = forge.places_of(what);
    loop {
        let rows = forge.read(Caller::system(), move |tx| Ok(checks::kept(tx.db(), what, after, BATCH)?)).await?;
        let Some(last) = rows.last() else { return Ok(compared) };
        after = last.id;
        compared.folders.extend(rows.iter().map(|row| row.storage.clone()));
        let mut suspects = Vec::new();
        for row in rows {
            let path = place.join(&row.storage).join(row.id.to_string());
            match fs::metadata(&path) {
                Ok(data) if data.len() >= u64::try_from(row.size).unwrap_or(0) => {}
                Ok(_) => suspects.push(row),
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                        compared.trouble = Some(format!("{}: {error}", path.display()));
                    }
                    suspects.push(row);
                }
            }
        }
        // Whatever was removed meanwhile is no loss: of a file the row goes last.
        let ids: Vec<i64> = suspects.iter().map(|row| row.id).collect();
        let still = forge.read(Caller::system(), move |tx| Ok(checks::still_there(tx.db(), what, &ids)?)).await?;
        compared.missing.extend(suspects.into_iter().filter(|row| still.contains(&row.id)));
    }
}

/// Tells of files that are missing, and forgets them if that is asked for.
async fn missing(forge: &Forge, wishes: &Wishes, what: Kept, compared: &Compared) -> Finding {
    let ids: Vec<i64> = compared.missing.iter().map(|row| row.id).collect();
    let some: Vec<String> = ids.iter().take(NAMED).map(ToString::to_string).collect();
    let text = format!("the files of {} are missing or cut short, such as {}", ids.len(), some.join(", "));
    let (check, remedy) = (
        words(what).0,
        "see that their disk is mounted, or restore them from a backup; \
         `gable doctor --fix --forget-missing` forgets that there were any",
    );
    if !wishes.fix || !wishes.forget_missing {
        return Finding::problem(check, text, remedy);
    }
    match forget(forge, wishes, what, compared).await {
        Ok(list) => {
            let done = format!("forget that there were any; {} names them", list.display());
            Finding::problem(check, text, done).fixed()
        }
        Err(why) => Finding::problem(check, format!("{text}; they are not forgotten: {why}"), remedy),
    }
}

/// Forgets that there were files, and answers where it is written down which ones.
async fn forget(
    forge: &Forge,
    wishes: &Wishes,
    what: Kept,
    compared: &Compared,
) -> std::result::Result<PathBuf, String> {
    if wishes.beside_server {
        return Err("a server works on this folder, stop it first".to_owned());
    }
    let (_, place) = forge.places_of(what);
    let found = entries(&place).map_err(|error| error.to_string())?;
    if found.iter().all(|(path, _)| path.ends_with(OF_THE_DISK)) {
        return Err(format!("{} is missing or empty, as if its disk were not mounted", place.display()));
    }
    if let Some(trouble) = &compared.trouble {
        return Err(format!("cannot look at {trouble}"));
    }
    let list = wishes.lost_and_found.join(format!("forgotten-{}.txt", words(what).0));
    write_list(&list, &compared.missing).map_err(|error| format!("cannot write {}: {error}", list.display()))?;
    let ids: Vec<i64> = compared.missing.iter().map(|row| row.id).collect();
    let forget = move |tx: &mut crate::WriteTx<'_>| {
        for some in ids.chunks(1000) {
            checks::forget(tx.db(), what, some)?;
        }
        Ok(())
    };
    forge.write(Caller::system(), forget).await.map_err(|error| error.to_string())?;
    Ok(list)
}

/// Writes down what is about to be forgotten.
fn write_list(list: &Path, rows: &[KeptRow]) -> io::Result<()> {
    let folder = list.parent().unwrap_or(list);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(list)?;
    let mut text = "number\tproject\tbytes\tname\n".to_owned();
    for KeptRow { id, project, size, name, .. } in rows {
        text.push_str(&format!("{id}\t{project}\t{size}\t{}\n", name.escape_debug()));
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Files that no row stands for.
#[derive(Default)]
struct Found {
    /// Nobody's.
    strays: Vec<PathBuf>,
    /// Links in the place of folders of projects that have files.
    links: Vec<PathBuf>,
}

/// Looks for files that no row stands for, in the folders that the service makes; never behind a link.
async fn stray_files(forge: &Forge, what: Kept, in_use: &HashSet<String>) -> Result<Found> {
    let (_, place) = forge.places_of(what);
    let mut found = Found::default();
    if fs::symlink_metadata(&place).is_ok_and(|data| data.is_symlink()) {
        let list = if in_use.is_empty() { &mut found.strays } else { &mut found.links };
        list.push(place);
        return Ok(found);
    }
    for (path, kind) in entries(&place)? {
        let project = match folder_name(&path) {
            Some(storage) if kind.is_dir() => project_of(forge, storage).await?,
            Some(storage) if kind.is_symlink() && in_use.contains(storage) => {
                found.links.push(path);
                continue;
            }
            None if path.ends_with(OF_THE_DISK) => continue,
            _ => {
                found.strays.push(path);
                continue;
            }
        };
        for some in entries(&path)?.chunks(usize::try_from(BATCH).unwrap_or(1000)) {
            let ids: Vec<i64> = some.iter().filter_map(|(path, _)| number_of(path)).collect();
            // Asked after the folder was read, so that whatever was in it has its row.
            let ask = move |tx: &mut crate::ReadTx<'_>| {
                let db = tx.db();
                Ok(checks::known(db, what, project, &ids)?)
            };
            let known: HashSet<i64> = forge.read(Caller::system(), ask).await?.into_iter().collect();
            let strays = some.iter().filter(|(path, _)| !number_of(path).is_some_and(|id| known.contains(&id)));
            found.strays.extend(strays.map(|(path, _)| path.clone()));
        }
    }
    Ok(found)
}

/// The name of a folder, if it can be that of a project.
fn folder_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str().filter(|name| StorageId::parse(name).is_some())
}

/// The project whose files lie in a folder; zero if there is none.
async fn project_of(forge: &Forge, storage: &str) -> Result<i64> {
    let storage = storage.to_owned();
    let find = move |tx: &mut crate::ReadTx<'_>| Ok(checks::project_at(tx.db(), &storage)?);
    Ok(forge.read(Caller::system(), find).await?.unwrap_or(0))
}

/// The number in the name of a file: what a write that was never ended leaves, and what is kept beside a trace, have it too.
fn number_of(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.split(['.', '#']).next()?.parse().ok()
}

/// What a folder holds, in order, and what it is; a link is a link, wherever it leads.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, FileType)>> {
    let unreadable = |error: io::Error| Error::Internal(format!("cannot read {}: {error}", folder.display()));
    let all = |entries: fs::ReadDir| {
        let entry = |entry: io::Result<fs::DirEntry>| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
        entries.map(entry).collect::<io::Result<Vec<_>>>()
    };
    let mut found = match fs::read_dir(folder).and_then(all) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        found => found.map_err(unreadable)?,
    };
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}
