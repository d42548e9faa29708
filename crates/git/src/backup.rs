//! Checks repositories for backups, and prepares the folders of repositories that older backups contain.

use std::{
    fs, io,
    io::{Seek as _, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use model::Oid;

use crate::{
    Error, Repositories, Result,
    git_process::{self, HOUSEKEEPING_LIMITS, Supervision},
    repositories::{FOLDERS, PACK_EXTENSIONS, pack_name},
};

/// The time limit for `git` to follow the links of one repository.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(6 * 60 * 60);

/// A stored pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPack {
    /// The trailer of the pack.
    pub checksum: Oid,
    /// The path of its files, without extension.
    pub path: PathBuf,
}

impl StoredPack {
    /// Returns whether the pack and its index exist.
    pub fn is_complete(&self) -> bool {
        ["pack", "idx"].iter().all(|extension| self.path.with_extension(extension).exists())
    }
}

/// Checks that the packs contain all objects that are reachable from the tips; returns a description of the first
/// missing one. It is an error if git could not determine this, or if the search was cancelled.
pub fn find_missing_object(packs: &[StoredPack], tips: &[Oid], cancelled: &AtomicBool) -> Result<Option<String>> {
    if tips.is_empty() {
        return Ok(None);
    }
    // A repository of its own, so that objects that the packs lack are not found elsewhere.
    let repository = tempfile::Builder::new().prefix("gable-backup-").tempdir()?;
    let folder = repository.path().join("objects/pack");
    fs::create_dir_all(&folder)?;
    fs::create_dir(repository.path().join("refs"))?;
    fs::write(repository.path().join("HEAD"), "ref: refs/heads/master\n")?;
    for pack in packs {
        let name = pack_name(pack.checksum);
        // Symbolic links, because hard links would change the timestamps of the packs and need the same file system.
        for extension in PACK_EXTENSIONS {
            let file = std::path::absolute(pack.path.with_extension(extension))?;
            let link = folder.join(format!("{name}.{extension}"));
            // A repository can have two packs with the same content.
            if file.exists() && !link.is_symlink() {
                symlink(file, link)?;
            }
        }
    }
    let mut list = tempfile::tempfile()?;
    for tip in tips {
        writeln!(list, "{tip}")?;
    }
    list.rewind()?;
    let mut command = git_process::git_command(repository.path());
    command.args(["rev-list", "--objects", "--quiet", "--stdin"]).stdin(Stdio::from(list));
    let supervision = Supervision { limits: HOUSEKEEPING_LIMITS, deadline: Instant::now() + SEARCH_TIMEOUT, cancelled };
    match git_process::run_single(command, &supervision) {
        Ok(()) => Ok(None),
        Err(Error::GitFailed(text)) => {
            let message = text.lines().last().unwrap_or_default();
            Ok(Some(message.rsplit_once("fatal: ").map_or(message, |(_, message)| message).trim().to_owned()))
        }
        Err(error) => Err(error),
    }
}

impl Repositories {
    /// Creates the folders that every repository has. Backups of format 1 contain repositories without their empty
    /// folders.
    pub fn create_missing_folders(&self) -> Result<()> {
        for repository in self.repository_paths()? {
            for folder in FOLDERS {
                fs::create_dir_all(repository.join(folder))?;
            }
        }
        Ok(())
    }

    /// Returns the paths of the folders of all repositories.
    fn repository_paths(&self) -> io::Result<Vec<PathBuf>> {
        let is_short = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut paths = Vec::new();
        for first in names(self.root())?.into_iter().filter(|name| is_short(name)) {
            for second in names(&self.root().join(&first))?.into_iter().filter(|name| is_short(name)) {
                let folder = self.root().join(&first).join(second);
                let repositories = names(&folder)?.into_iter().filter(|name| name.ends_with(".git"));
                paths.extend(repositories.map(|name| folder.join(name)));
            }
        }
        Ok(paths)
    }
}

/// Returns whether an object file of a repository never changes as long as it has its name.
pub fn is_immutable(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_hex = |text: &str| text.len() >= 38 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let named = |start: &str, end: &str| name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    is_hex(name)
        || [("pack-", ".pack"), ("pack-", ".idx"), ("pack-", ".rev"), ("graph-", ".graph")]
            .into_iter()
            .any(|(start, end)| named(start, end).is_some_and(is_hex))
}

/// Returns the names in a folder; none if it does not exist.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::git;

    #[test]
    fn a_missing_pack_is_noticed_only_if_the_tips_need_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        git(path, &["init", "-q"]);
        let mut tips = Vec::new();
        for name in ["one", "two"] {
            fs::write(path.join(name), name).expect("written");
            git(path, &["add", "."]);
            git(path, &["commit", "-q", "-m", name]);
            // Only objects that are in no pack yet.
            git(path, &["repack", "-q", "-d"]);
            tips.push(git(path, &["rev-parse", "HEAD"]).parse::<Oid>().expect("a commit"));
        }
        let all: Vec<StoredPack> = names(&path.join(".git/objects/pack"))
            .expect("a folder")
            .iter()
            .filter_map(|name| name.strip_prefix("pack-")?.strip_suffix(".pack"))
            .map(|checksum| StoredPack {
                checksum: checksum.parse().expect("a checksum"),
                path: path.join(format!(".git/objects/pack/pack-{checksum}")),
            })
            .collect();
        assert_eq!(all.len(), 2);
        let missing = |packs: &[StoredPack], tips: &[Oid]| {
            find_missing_object(packs, tips, &AtomicBool::new(false)).expect("searched").is_some()
        };
        assert!(!missing(&all, &tips));
        assert!(!missing(&[], &[]));
        assert!(missing(&[], &tips));
        // Each pack alone contains all objects of at most one tip, and never those of both.
        let complete = |tip: Oid| all.iter().filter(|pack| !missing(std::slice::from_ref(pack), &[tip])).count();
        assert_eq!((complete(tips[0]), complete(tips[1])), (1, 0));
        assert!(all.iter().all(StoredPack::is_complete));
        fs::remove_file(all[0].path.with_extension("idx")).expect("removed");
        assert!(!all[0].is_complete());
    }
}
