//! Repositories as files, for backups.
//!
//! Refs are captured while they are frozen. The objects that they lead to exist by then and are never removed, so they
//! can be copied later, together with newer ones.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write},
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use model::{Oid, RefName};

use crate::{
    Error, Repositories, Result,
    git_process::{self, HOUSEKEEPING_LIMITS, Supervision},
    housekeeping::lock_out_housekeeping,
};

/// The time limit for `git` to follow the links of one repository.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(6 * 60 * 60);

/// The files of a repository, besides those below `refs`, that are captured together with the refs.
const SMALL_FILES: [&str; 3] = ["config", "HEAD", "packed-refs"];

/// The path of a repository relative to the folder of all repositories, such as `3f/a2/3fa2….git`.
pub type RepositoryPath = String;

/// The object files of a repository, none of which is removed while this is held.
pub struct ObjectFiles {
    /// The paths of the files, relative to the repository.
    pub files: Vec<PathBuf>,
    /// Missing and invalid files, as text.
    pub faults: Vec<String>,
    _housekeeping_lock: File,
}

/// The captured refs of a repository.
pub struct CapturedRefs {
    /// The repository.
    pub repository: RepositoryPath,
    /// The files with refs and configuration, by path.
    pub files: Vec<(String, Vec<u8>)>,
    /// Files that could not be read, as text.
    pub faults: Vec<String>,
}

impl Repositories {
    /// Writes the refs of all repositories in the format of [`read_refs`]; returns the number of repositories. The
    /// caller holds a [`RefFreeze`](crate::RefFreeze).
    pub fn write_all_refs(&self, out: &mut impl Write) -> Result<u64> {
        let mut count = 0;
        for repository_path in self.repository_paths()? {
            let repository = self.root().join(&repository_path);
            let (mut files, mut faults) = (Vec::new(), Vec::new());
            let mut names: Vec<PathBuf> = SMALL_FILES.iter().map(PathBuf::from).collect();
            if let Err(error) = walk(&repository, Path::new("refs"), &mut names) {
                faults.push(format!("refs: {error}"));
            }
            for path in names {
                let Some(name) = path.to_str() else { continue };
                match optional(fs::read(repository.join(&path))) {
                    Ok(Some(content)) => files.push((name.to_owned(), content)),
                    Ok(None) => {}
                    // Unreadable files are reported, and the rest is copied.
                    Err(error) => faults.push(format!("{name}: {error}")),
                }
            }
            // Without it the folder is not a repository; it is being removed.
            if !repository.join("HEAD").exists() {
                continue;
            }
            count += 1;
            write_field(out, repository_path.as_bytes())?;
            write_field(out, &(files.len() as u64).to_be_bytes())?;
            for (name, content) in files {
                write_field(out, name.as_bytes())?;
                write_field(out, &content)?;
            }
            write_field(out, faults.join("\n").as_bytes())?;
        }
        Ok(count)
    }

    /// Returns the object files of a repository; `None` if it was removed. The repository is not repacked while the
    /// result is held.
    pub fn object_files_to_copy(&self, repository_path: &str) -> Result<Option<ObjectFiles>> {
        let repository = self.root().join(repository_path);
        if !repository.join("HEAD").exists() {
            return Ok(None);
        }
        let Some(housekeeping_lock) = optional(lock_out_housekeeping(&repository))? else { return Ok(None) };
        let mut files = Vec::new();
        let folders = walk(&repository, Path::new("objects"), &mut files)?;
        let mut faults = missing_files(&repository, &files);
        faults.extend(folders.iter().filter(|folder| !is_git_folder(folder)).map(|path| {
            // Git takes anything with the name of an object for that object.
            format!("{}: not a file", path.display())
        }));
        Ok(Some(ObjectFiles { files: without_incomplete(files), faults, _housekeeping_lock: housekeeping_lock }))
    }

    /// Checks that all objects reachable from the tips exist; returns a description of the first missing one. It is an
    /// error if git could not determine this, or if the search was cancelled.
    pub fn find_missing_object(
        &self,
        repository_path: &str,
        tips: &[Oid],
        cancelled: &AtomicBool,
    ) -> Result<Option<String>> {
        if tips.is_empty() {
            return Ok(None);
        }
        let mut list = tempfile::tempfile()?;
        for tip in tips {
            writeln!(list, "{tip}")?;
        }
        list.rewind()?;
        let mut command = git_process::git_command(&self.root().join(repository_path));
        // The commit-graph is not used, because it lists objects that may be missing.
        command.args(["-c", "core.commitGraph=false", "rev-list", "--objects", "--quiet", "--stdin"]);
        command.stdin(Stdio::from(list));
        let supervision =
            Supervision { limits: HOUSEKEEPING_LIMITS, deadline: Instant::now() + SEARCH_TIMEOUT, cancelled };
        match git_process::run_single(command, &supervision) {
            Ok(()) => Ok(None),
            Err(Error::GitFailed(text)) => {
                let message = text.lines().last().unwrap_or_default();
                Ok(Some(message.rsplit_once("fatal: ").map_or(message, |(_, message)| message).trim().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the path of a file of a repository.
    pub fn file_path(&self, repository_path: &str, path: &Path) -> PathBuf {
        self.root().join(repository_path).join(path)
    }

    /// Creates the folders that every repository has, which a backup leaves out if they are empty.
    pub fn create_missing_folders(&self) -> Result<()> {
        for repository_path in self.repository_paths()? {
            for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags"] {
                fs::create_dir_all(self.root().join(&repository_path).join(folder))?;
            }
        }
        Ok(())
    }

    /// Returns the paths of all repositories.
    fn repository_paths(&self) -> io::Result<Vec<RepositoryPath>> {
        let is_short = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut repository_paths = Vec::new();
        for first in names(self.root())?.into_iter().filter(|name| is_short(name)) {
            for second in names(&self.root().join(&first))?.into_iter().filter(|name| is_short(name)) {
                let within = names(&self.root().join(&first).join(&second))?;
                let repositories = within.into_iter().filter(|name| name.ends_with(".git"));
                repository_paths.extend(repositories.map(|name| format!("{first}/{second}/{name}")));
            }
        }
        repository_paths.sort_unstable();
        Ok(repository_paths)
    }
}

/// Reads the refs of the next repository as written by [`Repositories::write_all_refs`].
pub fn read_refs(from: &mut impl io::Read) -> io::Result<Option<CapturedRefs>> {
    let Some(repository_path) = read_field(from)? else { return Ok(None) };
    let unexpected_eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut next = || read_field(from)?.ok_or_else(unexpected_eof);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(io::Error::other);
    let count = u64::from_be_bytes(next()?.try_into().map_err(|_| unexpected_eof())?);
    let files = (0..count).map(|_| Ok((text(next()?)?, next()?))).collect::<io::Result<_>>()?;
    let faults = text(next()?)?.lines().map(ToOwned::to_owned).collect();
    Ok(Some(CapturedRefs { repository: text(repository_path)?, files, faults }))
}

impl CapturedRefs {
    /// Returns whether there is a branch with this name.
    pub fn has_branch(&self, name: &str) -> bool {
        let name = format!("refs/heads/{name}");
        let packed = self.files.iter().filter(|(file, _)| file == "packed-refs");
        let mut lines = packed.flat_map(|(_, content)| content.split(|byte| *byte == b'\n'));
        self.files.iter().any(|(file, _)| *file == name)
            || lines.any(|line| line.get(41..).is_some_and(|found| found == name.as_bytes()))
    }

    /// Returns the objects that the refs point to. Files that are invalid are added to the faults.
    pub fn tips(&mut self) -> Vec<Oid> {
        let (mut tips, mut faults) = (BTreeSet::new(), Vec::new());
        for required in ["HEAD", "config"] {
            if !self.files.iter().any(|(name, _)| name == required) {
                faults.push(format!("{required}: missing"));
            }
        }
        for (name, content) in &self.files {
            let text = std::str::from_utf8(content).ok().filter(|text| text.ends_with('\n'));
            let found = match name.as_str() {
                "HEAD" => text.and_then(symbolic_target).map(|_| Vec::new()),
                "config" => text.filter(|text| is_config(text)).map(|_| Vec::new()),
                "packed-refs" => packed_tips(content),
                _ => text.and_then(|text| text.trim_end().parse().ok()).map(|tip| vec![tip]),
            };
            match found {
                Some(found) => tips.extend(found),
                None => faults.push(format!("{name}: invalid content")),
            }
        }
        for fault in faults {
            // Files that could not be read are already reported.
            let name = fault.split_once(':').map_or("", |(name, _)| name);
            if !self.faults.iter().any(|known| known.split_once(':').is_some_and(|(known, _)| known == name)) {
                self.faults.push(fault);
            }
        }
        tips.into_iter().collect()
    }
}

/// The branch that `HEAD` names.
fn symbolic_target(text: &str) -> Option<RefName> {
    RefName::new(text.strip_prefix("ref: ")?.strip_suffix('\n')?)
}

/// Returns whether a text can be the configuration of a repository of this server.
fn is_config(text: &str) -> bool {
    let is_line = |line: &str| {
        let line = line.trim();
        let is_section = line.starts_with('[') && line.ends_with(']');
        line.is_empty() || line.starts_with(['#', ';']) || is_section || line.contains(" = ")
    };
    text.contains("[core]") && text.contains("bare = true") && text.lines().all(is_line)
}

/// Returns the objects that packed refs point to; `None` if the file is invalid.
fn packed_tips(content: &[u8]) -> Option<Vec<Oid>> {
    let mut tips = Vec::new();
    if content.last().is_some_and(|last| *last != b'\n') {
        return None;
    }
    for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
        let id = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<Oid>().ok();
        if let Some(peeled) = line.strip_prefix(b"^") {
            id(peeled)?;
            continue;
        }
        let (tip, rest) = line.split_at_checked(40)?;
        tips.push(id(tip)?);
        if !rest.starts_with(b" refs/") || rest.contains(&0) {
            return None;
        }
    }
    Some(tips)
}

/// Returns files that other files refer to and that do not exist.
fn missing_files(repository: &Path, files: &[PathBuf]) -> Vec<String> {
    let all: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut expected: BTreeSet<PathBuf> = BTreeSet::new();
    let mut faults = Vec::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("pack-") && name.ends_with(".idx") {
            expected.insert(file.with_extension("pack"));
        }
        if name == "multi-pack-index" {
            let index = gix::odb::pack::multi_index::File::at(repository.join(file), None);
            let names = index.iter().flat_map(|index| index.index_names());
            expected.extend(names.map(|name| file.with_file_name(name)));
        }
        if name == "commit-graph-chain" {
            match fs::read_to_string(repository.join(file)) {
                Ok(text) => expected.extend(text.lines().map(|id| file.with_file_name(format!("graph-{id}.graph")))),
                Err(error) => faults.push(format!("{}: {error}", file.display())),
            }
        }
    }
    let missing = expected.into_iter().filter(|path| !all.contains(path.as_path()));
    faults.extend(missing.map(|path| format!("{}: missing", path.display())));
    faults
}

/// Returns whether an object file never changes as long as it has its name.
pub fn is_immutable(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_hex = |text: &str| text.len() >= 38 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let named = |start: &str, end: &str| name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    is_hex(name)
        || [("pack-", ".pack"), ("pack-", ".idx"), ("pack-", ".rev"), ("graph-", ".graph")]
            .into_iter()
            .any(|(start, end)| named(start, end).is_some_and(is_hex))
}

/// Removes files that are still being written, and packs without an index.
fn without_incomplete(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let all: BTreeSet<PathBuf> = files.iter().cloned().collect();
    let is_whole = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("tmp_") || name.ends_with(".lock") {
            return false;
        }
        // A pack is written before its index, and is used from then on.
        !name.starts_with("pack-")
            || all.contains(&file.with_extension("pack")) && all.contains(&file.with_extension("idx"))
    };
    files.into_iter().filter(is_whole).collect()
}

/// Returns whether a path in the folder of objects is a folder that git creates.
fn is_git_folder(folder: &Path) -> bool {
    let Ok(folder) = folder.strip_prefix("objects") else { return false };
    let name = folder.to_str().unwrap_or_default();
    let is_for_objects = name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_for_objects || ["pack", "info", "info/commit-graphs"].contains(&name)
}

/// Collects all files below a folder of a repository; returns all other entries. Entries that vanish meanwhile are
/// ignored.
fn walk(repository: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = optional(fs::read_dir(repository.join(folder)))? else { return Ok(Vec::new()) };
    let (mut subfolders, mut non_files) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            subfolders.push(path);
        } else if !kind.is_file() {
            non_files.push(path);
        } else if !path.to_string_lossy().ends_with(".lock") {
            files.push(path);
        }
    }
    subfolders.sort_unstable();
    for path in subfolders {
        non_files.extend(walk(repository, &path, files)?);
        non_files.push(path);
    }
    Ok(non_files)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = optional(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_field(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_be_bytes())?;
    out.write_all(bytes)
}

/// Reads a field; `None` at the end.
fn read_field(from: &mut impl io::Read) -> io::Result<Option<Vec<u8>>> {
    let mut size = Vec::with_capacity(8);
    from.take(8).read_to_end(&mut size)?;
    if size.is_empty() {
        return Ok(None);
    }
    let unexpected_eof = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let size = u64::from_be_bytes(size.try_into().map_err(|_| unexpected_eof())?);
    let mut bytes = Vec::new();
    from.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(Some(bytes)) } else { Err(unexpected_eof()) }
}
