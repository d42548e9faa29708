//! Checks that the files of uploads, avatars, artifacts and traces match their rows.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, DirBuilder, File, FileType, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use files::FileEntry;
use model::StorageId;
use store::checks::{self, StoredFileKind, StoredFileRow};

use super::{
    BATCH, DoctorOptions, Finding, MAX_EXAMPLES, check_failed,
    orphans::{report_links, report_orphans, report_unlisted_objects},
};
use crate::{
    Caller, Error, Forge, Result, blocking,
    maintenance::{UNLISTED_FILE_AGE, time_of_files},
    traces::LogStore,
};

/// A folder of the file system itself at the top of a disk, which is never an orphan.
const FILE_SYSTEM_FOLDER: &str = "lost+found";

impl Forge {
    /// Returns the top-level folder of the data folder, and the folder in it that contains these files; `None` if they
    /// are in a bucket.
    fn folders_of(&self, kind: StoredFileKind) -> Option<Folders> {
        let shared = self.shared();
        if kind == StoredFileKind::Traces
            && let LogStore::Folder(logs) = &shared.logs
        {
            let root = logs.folder().to_owned();
            return Some(Folders { of_kind: root.clone(), root });
        }
        let root = shared.files.folder()?.to_owned();
        Some(Folders { of_kind: root.join(key_folder(kind)), root })
    }
}

/// The folders of a kind of files.
struct Folders {
    /// The top-level folder in the data folder.
    root: PathBuf,
    /// The folder that contains the files.
    of_kind: PathBuf,
}

/// Returns the folder of the keys of these files.
pub(super) fn key_folder(kind: StoredFileKind) -> &'static str {
    match kind {
        StoredFileKind::Uploads => "uploads",
        StoredFileKind::Avatars => "avatars",
        StoredFileKind::Artifacts => "artifacts",
        StoredFileKind::Traces | StoredFileKind::TraceObjects => "traces",
    }
}

/// Returns the kinds of files that this instance has.
pub(super) fn kinds(forge: &Forge) -> impl Iterator<Item = StoredFileKind> + use<> {
    let unused = match forge.shared().logs {
        LogStore::Folder(_) => StoredFileKind::TraceObjects,
        LogStore::Segments => StoredFileKind::Traces,
    };
    StoredFileKind::ALL.into_iter().filter(move |kind| *kind != unused)
}

/// Returns the names of the check for rows without files, and of the one for files without rows.
fn check_names(kind: StoredFileKind) -> (&'static str, &'static str) {
    match kind {
        StoredFileKind::Uploads => ("uploads", "uploads without rows"),
        StoredFileKind::Avatars => ("avatars", "avatars without rows"),
        StoredFileKind::Artifacts => ("artifacts", "artifacts without rows"),
        StoredFileKind::Traces => ("traces", "traces without builds"),
        StoredFileKind::TraceObjects => ("parts of traces", "parts of traces without rows"),
    }
}

/// Reports rows without files, and files without rows.
pub(super) async fn check(forge: &Forge, options: &DoctorOptions, kind: StoredFileKind, findings: &mut Vec<Finding>) {
    let (rows, files) = check_names(kind);
    let Some(folders) = forge.folders_of(kind) else {
        if let Err(error) = check_objects(forge, kind, findings).await {
            findings.push(check_failed(rows, &error));
        }
        return;
    };
    let compared = match compare(forge, kind, &folders.of_kind).await {
        Ok(compared) => compared,
        Err(error) => return findings.push(check_failed(rows, &error)),
    };
    findings.push(if compared.missing.is_empty() {
        Finding::ok(rows, "every row has its file")
    } else {
        report_missing(forge, options, kind, &compared, &folders.of_kind).await
    });
    match find_orphans(forge, kind, &folders.of_kind, &compared.folders).await {
        Ok(found) => {
            let links = report_links(files, &found.links);
            // "There are none" is not reported beside links.
            let has_links = links.is_some();
            findings.extend(links);
            if !has_links || !found.orphans.is_empty() {
                findings.extend(report_orphans(options, files, rows, &folders.root, found.orphans));
            }
        }
        Err(error) => findings.push(check_failed(files, &error)),
    }
}

/// Compares the rows with the objects of a bucket.
async fn check_objects(forge: &Forge, kind: StoredFileKind, findings: &mut Vec<Finding>) -> Result<()> {
    let (rows, files) = check_names(kind);
    let (mut missing, mut after) = (Vec::new(), 0);
    let mut known = HashSet::new();
    let sizes = list_objects(forge, key_folder(kind)).await?;
    loop {
        let batch =
            forge.read(Caller::system(), move |tx| Ok(checks::stored_files(tx.db(), kind, after, BATCH)?)).await?;
        let Some(last) = batch.last() else { break };
        after = last.id;
        for row in batch {
            let key = format!("{}/{}/{}", key_folder(kind), row.storage, row.id);
            let is_complete = |size: u64| size >= u64::try_from(row.size).unwrap_or(0);
            if !sizes.get(&key).is_some_and(|object| is_complete(object.size)) {
                // It may have been stored after the objects were listed.
                let (store, key) = (forge.shared().files.clone(), key.clone());
                if !blocking::spawn(move || Ok(store.size(&key)?)).await?.is_some_and(is_complete) {
                    missing.push(row.id);
                }
            }
            known.insert(key);
        }
    }
    // An object that was removed meanwhile is not missing: its row is deleted last.
    let ids = missing.clone();
    let existing = forge.read(Caller::system(), move |tx| Ok(checks::existing_ids(tx.db(), kind, &ids)?)).await?;
    missing.retain(|id| existing.contains(id));
    findings.push(if missing.is_empty() {
        Finding::ok(rows, "every row has its object in the store")
    } else {
        let examples: Vec<String> = missing.iter().take(MAX_EXAMPLES).map(ToString::to_string).collect();
        let text = format!("{} objects are missing or truncated, such as {}", missing.len(), examples.join(", "));
        Finding::problem(rows, text, "restore them from a backup")
    });
    // Younger objects may belong to uploads in progress.
    let now = time_of_files(forge);
    let is_old = |modified: SystemTime| now.duration_since(modified).is_ok_and(|age| age > 2 * UNLISTED_FILE_AGE);
    let unlisted = sizes.iter().filter(|(key, object)| !known.contains(*key) && is_old(object.modified));
    let mut unlisted: Vec<&String> = unlisted.map(|(key, _)| key).collect();
    unlisted.sort_unstable();
    let remedy = "remove them with a client of the store if they are not needed";
    findings.push(report_unlisted_objects(files, &unlisted, remedy));
    Ok(())
}

/// Returns the objects in a folder of the store by key.
async fn list_objects(forge: &Forge, folder: &'static str) -> Result<HashMap<String, FileEntry>> {
    let store = forge.shared().files.clone();
    let list = move || {
        let mut found = HashMap::new();
        store.list(folder, &mut |entry| {
            found.insert(entry.key.clone(), entry);
            Ok(())
        })?;
        Ok(found)
    };
    blocking::spawn(list).await
}

/// Moves files without rows aside.
pub(super) async fn move_orphans_aside(
    forge: &Forge,
    options: &DoctorOptions,
    kind: StoredFileKind,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let (rows, files) = check_names(kind);
    let Some(folders) = forge.folders_of(kind) else { return Ok(()) };
    let compared = compare(forge, kind, &folders.of_kind).await?;
    let found = find_orphans(forge, kind, &folders.of_kind, &compared.folders).await?;
    findings.extend(report_orphans(options, files, rows, &folders.root, found.orphans));
    Ok(())
}

/// The result of comparing rows with files.
#[derive(Default)]
struct Comparison {
    /// Rows whose file is missing or truncated.
    missing: Vec<StoredFileRow>,
    /// An error because of which some files could not be inspected.
    io_error: Option<String>,
    /// The storage ids that have files.
    folders: HashSet<String>,
}

async fn compare(forge: &Forge, kind: StoredFileKind, folder: &Path) -> Result<Comparison> {
    let (mut compared, mut after) = (Comparison::default(), 0);
    loop {
        let rows =
            forge.read(Caller::system(), move |tx| Ok(checks::stored_files(tx.db(), kind, after, BATCH)?)).await?;
        let Some(last) = rows.last() else { return Ok(compared) };
        after = last.id;
        compared.folders.extend(rows.iter().map(|row| row.storage.clone()));
        let mut suspects = Vec::new();
        for row in rows {
            let path = folder.join(&row.storage).join(row.id.to_string());
            match fs::metadata(&path) {
                Ok(data) if data.len() >= u64::try_from(row.size).unwrap_or(0) => {}
                Ok(_) => suspects.push(row),
                Err(error) => {
                    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                        compared.io_error = Some(format!("{}: {error}", path.display()));
                    }
                    suspects.push(row);
                }
            }
        }
        // A file that was removed meanwhile is not missing: its row is deleted last, so it is checked again.
        let ids: Vec<i64> = suspects.iter().map(|row| row.id).collect();
        let existing = forge.read(Caller::system(), move |tx| Ok(checks::existing_ids(tx.db(), kind, &ids)?)).await?;
        compared.missing.extend(suspects.into_iter().filter(|row| existing.contains(&row.id)));
    }
}

/// Reports missing files, and deletes their rows if that is requested.
async fn report_missing(
    forge: &Forge,
    options: &DoctorOptions,
    kind: StoredFileKind,
    compared: &Comparison,
    folder: &Path,
) -> Finding {
    let ids: Vec<i64> = compared.missing.iter().map(|row| row.id).collect();
    let examples: Vec<String> = ids.iter().take(MAX_EXAMPLES).map(ToString::to_string).collect();
    let text = format!("{} files are missing or truncated, such as {}", ids.len(), examples.join(", "));
    let (check, remedy) = (
        check_names(kind).0,
        "check that their disk is mounted, or restore them from a backup; \
         `gable doctor --fix --forget-missing` deletes their rows",
    );
    if !options.fix || !options.forget_missing {
        return Finding::problem(check, text, remedy);
    }
    match delete_rows(forge, options, kind, compared, folder).await {
        Ok(list) => {
            let done = format!("delete their rows; {} lists them", list.display());
            Finding::problem(check, text, done).fixed()
        }
        Err(reason) => Finding::problem(check, format!("{text}; their rows are not deleted: {reason}"), remedy),
    }
}

/// Why the rows of missing files are not deleted; the text is part of a finding.
#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error("a server uses this folder; stop it first")]
    ServerRunning,
    #[error("{} is missing or empty, as if its disk were not mounted", .0.display())]
    EmptyFolder(PathBuf),
    #[error("cannot inspect {0}")]
    NotInspected(String),
    #[error("cannot write {}: {source}", path.display())]
    ListNotWritten { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Forge(#[from] Error),
}

/// Deletes the rows of missing files and returns the path of a list of them.
async fn delete_rows(
    forge: &Forge,
    options: &DoctorOptions,
    kind: StoredFileKind,
    compared: &Comparison,
    folder: &Path,
) -> std::result::Result<PathBuf, DeleteError> {
    if options.server_running {
        return Err(DeleteError::ServerRunning);
    }
    let found = entries(folder)?;
    if found.iter().all(|(path, _)| path.ends_with(FILE_SYSTEM_FOLDER)) {
        return Err(DeleteError::EmptyFolder(folder.to_owned()));
    }
    if let Some(error) = &compared.io_error {
        return Err(DeleteError::NotInspected(error.clone()));
    }
    let list = options.lost_and_found.join(format!("forgotten-{}.txt", check_names(kind).0));
    write_list(&list, &compared.missing)
        .map_err(|source| DeleteError::ListNotWritten { path: list.clone(), source })?;
    let ids: Vec<i64> = compared.missing.iter().map(|row| row.id).collect();
    let delete = move |tx: &mut crate::WriteTx<'_>| {
        for batch in ids.chunks(1000) {
            checks::delete_file_rows(tx.db(), kind, batch)?;
        }
        Ok(())
    };
    forge.write(Caller::system(), delete).await?;
    Ok(list)
}

/// Writes the list of rows that are about to be deleted.
pub(super) fn write_list(list: &Path, rows: &[StoredFileRow]) -> io::Result<()> {
    let folder = list.parent().unwrap_or(list);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(list)?;
    let mut text = "number\tproject\tbytes\tname\n".to_owned();
    for StoredFileRow { id, project, size, name, .. } in rows {
        text.push_str(&format!("{id}\t{project}\t{size}\t{}\n", name.escape_debug()));
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(folder)?.sync_all()
}

/// Files without a row.
#[derive(Default)]
struct Orphans {
    orphans: Vec<PathBuf>,
    /// Links in the place of folders of projects that have files.
    links: Vec<PathBuf>,
}

/// Finds files without a row in the folders of the server; links are not followed.
async fn find_orphans(forge: &Forge, kind: StoredFileKind, folder: &Path, in_use: &HashSet<String>) -> Result<Orphans> {
    let mut found = Orphans::default();
    if fs::symlink_metadata(folder).is_ok_and(|data| data.is_symlink()) {
        let list = if in_use.is_empty() { &mut found.orphans } else { &mut found.links };
        list.push(folder.to_owned());
        return Ok(found);
    }
    for (path, file_type) in entries(folder)? {
        let storage = match storage_id(&path) {
            Some(storage) if file_type.is_dir() => storage,
            Some(storage) if file_type.is_symlink() && in_use.contains(storage.as_str()) => {
                found.links.push(path);
                continue;
            }
            None if path.ends_with(FILE_SYSTEM_FOLDER) => continue,
            _ => {
                found.orphans.push(path);
                continue;
            }
        };
        for batch in entries(&path)?.chunks(usize::try_from(BATCH).unwrap_or(1000)) {
            let ids: Vec<i64> = batch.iter().filter_map(|(path, _)| row_id(path)).collect();
            // Rows are inserted before files are created, so they are read after the folder.
            let storage = storage.clone();
            let query = move |tx: &mut crate::ReadTx<'_>| {
                let db = tx.db();
                Ok(checks::existing_ids_in_storage(db, kind, &storage, &ids)?)
            };
            let known: HashSet<i64> = forge.read(Caller::system(), query).await?.into_iter().collect();
            let orphans = batch.iter().filter(|(path, _)| !row_id(path).is_some_and(|id| known.contains(&id)));
            found.orphans.extend(orphans.map(|(path, _)| path.clone()));
        }
    }
    Ok(found)
}

/// Returns the name of a folder if it is a storage id.
fn storage_id(path: &Path) -> Option<StorageId> {
    StorageId::parse(path.file_name()?.to_str()?)
}

/// Returns the row id in the name of a file; temporary files and the files beside a trace start with it, too.
fn row_id(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.split(['.', '#']).next()?.parse().ok()
}

/// Returns the sorted entries of a folder with their types; links are not followed.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, FileType)>> {
    let unreadable = |error: io::Error| Error::internal(format!("cannot read {}", folder.display()), error);
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
