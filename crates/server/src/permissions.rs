//! Checks that other users cannot access the data folder and the secrets in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use tracing::warn;

use crate::data_folder::{DATABASE, PRIVATE_KEYS, ROOT_CREDENTIALS};

/// Other files with secrets, and the prefix of copies of the database.
const SECRET_FILES: [&str; 4] = [ROOT_CREDENTIALS, DATABASE, "gable.sqlite3-wal", "gable.sqlite3-shm"];
const DATABASE_COPY_PREFIX: &str = "gable.sqlite3.";

/// A file or folder that is accessible to other users.
pub(crate) struct ExposedPath {
    pub(crate) path: PathBuf,
    /// The current mode.
    mode: u32,
    /// The mode that it should have.
    pub(crate) wanted_mode: u32,
    is_key: bool,
}

impl ExposedPath {
    /// Describes the problem.
    pub(crate) fn problem(&self) -> String {
        let others = if self.mode.trailing_zeros() >= 3 { "users of its group" } else { "other users" };
        format!("{} is accessible to {others} (mode {:o})", self.path.display(), self.mode)
    }

    /// Describes how to fix it.
    pub(crate) fn remedy(&self) -> String {
        format!("run `chmod {:o} {}`", self.wanted_mode, self.path.display())
    }

    /// Returns whether users outside its group have access.
    fn is_world_accessible(&self) -> bool {
        self.mode & 0o007 != 0
    }
}

/// Returns the paths that are accessible to other users, the data folder first.
pub(crate) fn exposed_paths(folder: &Path) -> Vec<ExposedPath> {
    let keys = PRIVATE_KEYS.map(|name| (folder.join(name), 0o600, true));
    let secrets = SECRET_FILES.map(|name| (folder.join(name), 0o600, false));
    let database_copies = database_copies(folder).into_iter().map(|path| (path, 0o600, false));
    let all = std::iter::once((folder.to_owned(), 0o700, false)).chain(keys).chain(secrets).chain(database_copies);
    all.filter_map(|(path, wanted_mode, is_key)| {
        let mode = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
        (mode & 0o077 != 0).then_some(ExposedPath { path, mode, wanted_mode, is_key })
    })
    .collect()
}

/// Returns an error if a private key is accessible to all users, as `ssh` does. Access for the group is allowed, because
/// backups or container volumes may need it.
pub(crate) fn check(folder: &Path) -> Result<()> {
    let open = exposed_paths(folder);
    let is_folder_traversable = open.iter().any(|one| one.path == folder && one.mode & 0o001 != 0);
    if let Some(key) = open.iter().find(|one| one.is_key && one.is_world_accessible() && is_folder_traversable) {
        bail!("{}, but is a private key; {}", key.problem(), key.remedy());
    }
    Ok(())
}

/// Returns an error if a private key that is not in the data folder is accessible to all users.
pub(crate) fn check_key(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777);
    let key = ExposedPath { path: path.to_owned(), mode, wanted_mode: 0o600, is_key: true };
    if key.is_world_accessible() {
        bail!("{}, but is a private key; {}", key.problem(), key.remedy());
    }
    Ok(())
}

/// Returns an error if a file with credentials is accessible to all users. A missing one is not an error.
pub(crate) fn check_credentials(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777);
    let file = ExposedPath { path: path.to_owned(), mode, wanted_mode: 0o600, is_key: false };
    if file.is_world_accessible() {
        bail!("{}, but contains credentials; {}", file.problem(), file.remedy());
    }
    Ok(())
}

/// Logs a warning for every path that is accessible to other users.
pub(crate) fn warn_about_exposed_paths(folder: &Path) {
    for exposed in exposed_paths(folder) {
        warn!("{}; {}", exposed.problem(), exposed.remedy());
    }
}

/// Returns the copies of the database that were made before migrations.
fn database_copies(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_copy = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(DATABASE_COPY_PREFIX))
    };
    let mut database_copies: Vec<PathBuf> = found.filter(is_copy).collect();
    database_copies.sort();
    database_copies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
    }

    fn refusal(folder: &Path) -> Option<String> {
        check(folder).err().map(|error| error.to_string())
    }

    #[test]
    fn a_private_key_that_all_users_can_read_is_refused() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path();
        let key = folder.join("instance-key");
        fs::write(&key, "secret").expect("written");
        set(folder, 0o700);
        set(&key, 0o600);
        assert_eq!((refusal(folder), exposed_paths(folder).len()), (None, 0));
        set(&key, 0o644);
        assert_eq!(refusal(folder), None, "the folder is not accessible");
        assert_eq!(exposed_paths(folder).len(), 1);
        set(folder, 0o755);
        let path = key.display();
        assert_eq!(
            refusal(folder),
            Some(format!(
                "{path} is accessible to other users (mode 644), but is a private key; run `chmod 600 {path}`"
            ))
        );
        set(&key, 0o640);
        assert_eq!(refusal(folder), None, "access for the group is allowed");
        let messages: Vec<String> =
            exposed_paths(folder).iter().map(|one| format!("{}; {}", one.problem(), one.remedy())).collect();
        let folder_path = folder.display();
        assert_eq!(
            messages,
            [
                format!("{folder_path} is accessible to other users (mode 755); run `chmod 700 {folder_path}`"),
                format!("{path} is accessible to users of its group (mode 640); run `chmod 600 {path}`"),
            ]
        );
    }
}
