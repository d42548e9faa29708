//! Who besides the server may read the data folder and the secrets in it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use tracing::warn;

/// Private keys: whoever reads one can pose as the server or open everything that it has sealed.
const KEYS: [&str; 2] = ["instance-key", "ssh-host-key"];
/// Other files that hold secrets. Copies of the database hold as much as the database.
const SECRETS: [&str; 4] = ["root-credentials", "gable.sqlite3", "gable.sqlite3-wal", "gable.sqlite3-shm"];
const COPIES: &str = "gable.sqlite3.";

/// A file or folder that more users may read than should.
pub(crate) struct Open {
    pub(crate) path: PathBuf,
    /// The permissions that it has.
    given: u32,
    /// The permissions that it should have.
    pub(crate) wanted: u32,
    is_key: bool,
}

impl Open {
    /// What is wrong.
    pub(crate) fn problem(&self) -> String {
        let others = if self.given.trailing_zeros() >= 3 { "users of its group" } else { "other users" };
        format!("{} is open to {others} (mode {:o})", self.path.display(), self.given)
    }

    /// What to do about it.
    pub(crate) fn remedy(&self) -> String {
        format!("run `chmod {:o} {}`", self.wanted, self.path.display())
    }

    /// Whether somebody without anything in common with the server can read it.
    fn is_open_to_all(&self) -> bool {
        self.given & 0o007 != 0
    }
}

/// What of the data folder is open to other users, the folder itself first.
pub(crate) fn open_to_others(folder: &Path) -> Vec<Open> {
    let keys = KEYS.map(|name| (folder.join(name), 0o600, true));
    let secrets = SECRETS.map(|name| (folder.join(name), 0o600, false));
    let copies = copies(folder).into_iter().map(|path| (path, 0o600, false));
    let all = std::iter::once((folder.to_owned(), 0o700, false)).chain(keys).chain(secrets).chain(copies);
    all.filter_map(|(path, wanted, is_key)| {
        let given = fs::metadata(&path).ok()?.permissions().mode() & 0o777;
        (given & 0o077 != 0).then_some(Open { path, given, wanted, is_key })
    })
    .collect()
}

/// Refuses a private key that every user of the machine can reach, as `ssh` does. A group may be meant, for backups or by a
/// container's volume.
pub(crate) fn check(folder: &Path) -> Result<(), String> {
    let open = open_to_others(folder);
    let is_passable = open.iter().any(|one| one.path == folder && one.given & 0o001 != 0);
    if let Some(key) = open.iter().find(|one| one.is_key && one.is_open_to_all() && is_passable) {
        return Err(format!("{}, and it is a private key; {}", key.problem(), key.remedy()));
    }
    Ok(())
}

/// Warns of everything that other users can read.
pub(crate) fn warn_of_open(folder: &Path) {
    for one in open_to_others(folder) {
        warn!("{}; {}", one.problem(), one.remedy());
    }
}

/// Copies of the database that were made before migrations.
fn copies(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_copy =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(COPIES));
    let mut copies: Vec<PathBuf> = found.filter(is_copy).collect();
    copies.sort();
    copies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
    }

    #[test]
    fn a_private_key_that_everybody_can_reach_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path();
        let key = folder.join("instance-key");
        fs::write(&key, "secret").expect("written");
        set(folder, 0o700);
        set(&key, 0o600);
        assert_eq!((check(folder), open_to_others(folder).len()), (Ok(()), 0));
        set(&key, 0o644);
        assert_eq!(check(folder), Ok(()), "nobody gets through the folder");
        assert_eq!(open_to_others(folder).len(), 1);
        set(folder, 0o755);
        let path = key.display();
        assert_eq!(
            check(folder),
            Err(format!("{path} is open to other users (mode 644), and it is a private key; run `chmod 600 {path}`"))
        );
        set(&key, 0o640);
        assert_eq!(check(folder), Ok(()), "a group may be meant");
        let told: Vec<String> =
            open_to_others(folder).iter().map(|one| format!("{}; {}", one.problem(), one.remedy())).collect();
        let place = folder.display();
        assert_eq!(
            told,
            [
                format!("{place} is open to other users (mode 755); run `chmod 700 {place}`"),
                format!("{path} is open to users of its group (mode 640); run `chmod 600 {path}`"),
            ]
        );
    }
}
