//! Repositories as files, for whoever keeps a copy of them all.
//!
//! Refs are taken at an instant at which they stand still; the objects that they lead to are there by then and never go
//! away, so they may be copied later, together with whatever has come since.

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
    child::{self, HOUSE_LIMITS, Supervision},
    housekeeping::wait_for_house,
};

/// How long git may follow the links of one repository.
const LONGEST_SEARCH: Duration = Duration::from_secs(6 * 60 * 60);

/// Which files of a repository are about refs; the others are objects, and grow.
const SMALL_FILES: [&str; 3] = ["config", "HEAD", "packed-refs"];

/// A repository by where it lies, such as `3f/a2/3fa2….git`.
pub type Place = String;

/// The objects of a repository, none of which goes away while this is held.
pub struct Objects {
    /// What lies where, each path beginning at the repository.
    pub files: Vec<PathBuf>,
    /// Files that should be there and are not, in words.
    pub faults: Vec<String>,
    _kept: File,
}

/// The refs of a repository, as they were written down.
pub struct NotedRefs {
    /// Which repository.
    pub place: Place,
    /// Its small files by path, with their content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Which of them could not be read, in words.
    pub faults: Vec<String>,
}

impl Repositories {
    /// Writes down all refs of all repositories, as [`read_refs`] reads them; says how many repositories there are.
    /// Whoever calls this has seen to it that none moves.
    pub fn write_refs_of_all(&self, out: &mut impl Write) -> Result<u64> {
        let mut count = 0;
        for place in self.places()? {
            let repository = self.root().join(&place);
            let (mut files, mut faults) = (Vec::new(), Vec::new());
            let mut names: Vec<PathBuf> = SMALL_FILES.iter().map(PathBuf::from).collect();
            if let Err(error) = walk(&repository, Path::new("refs"), &mut names) {
                faults.push(format!("refs: {error}"));
            }
            for path in names {
                let Some(name) = path.to_str() else { continue };
                match found(fs::read(repository.join(&path))) {
                    Ok(Some(content)) => files.push((name.to_owned(), content)),
                    Ok(None) => {}
                    // What cannot be read is told, and the rest is copied all the same.
                    Err(error) => faults.push(format!("{name}: {error}")),
                }
            }
            // Without it there is no repository; somebody is taking it away.
            if !repository.join("HEAD").exists() {
                continue;
            }
            count += 1;
            write_piece(out, place.as_bytes())?;
            write_piece(out, &(files.len() as u64).to_be_bytes())?;
            for (name, content) in files {
                write_piece(out, name.as_bytes())?;
                write_piece(out, &content)?;
            }
            write_piece(out, faults.join("\n").as_bytes())?;
        }
        Ok(count)
    }

    /// All objects of a repository; `None` if it is gone. Nobody packs it anew for as long as the answer is kept.
    pub fn objects_to_copy(&self, place: &str) -> Result<Option<Objects>> {
        let repository = self.root().join(place);
        if !repository.join("HEAD").exists() {
            return Ok(None);
        }
        let Some(kept) = found(wait_for_house(&repository))? else { return Ok(None) };
        let mut files = Vec::new();
        let folders = walk(&repository, Path::new("objects"), &mut files)?;
        let mut faults = missing_files(&repository, &files);
        faults.extend(folders.iter().filter(|folder| !is_of_git(folder)).map(|path| {
            // Git takes anything under the name of an object for that object.
            format!("{}: it is not a file", path.display())
        }));
        Ok(Some(Objects { files: without_halves(files), faults, _kept: kept }))
    }

    /// Whether everything is there that these objects lead to; if not, the answer says what is missing first. That git could
    /// not find out is an error, and so is that the search was cancelled.
    pub fn find_missing_object(&self, place: &str, tips: &[Oid], cancelled: &AtomicBool) -> Result<Option<String>> {
        if tips.is_empty() {
            return Ok(None);
        }
        let mut list = tempfile::tempfile()?;
        for tip in tips {
            writeln!(list, "{tip}")?;
        }
        list.rewind()?;
        let mut command = child::git(&self.root().join(place));
        // Neither the graph of commits nor bitmaps are of use here: they know of objects that may be gone.
        command.args(["-c", "core.commitGraph=false", "rev-list", "--objects", "--quiet", "--stdin"]);
        command.stdin(Stdio::from(list));
        let supervision = Supervision { limits: HOUSE_LIMITS, deadline: Instant::now() + LONGEST_SEARCH, cancelled };
        match child::run_single(command, &supervision) {
            Ok(()) => Ok(None),
            Err(Error::Child(text)) => {
                let said = text.lines().last().unwrap_or_default();
                Ok(Some(said.rsplit_once("fatal: ").map_or(said, |(_, said)| said).trim().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// The file of a repository.
    pub fn file_to_copy(&self, place: &str, path: &Path) -> PathBuf {
        self.root().join(place).join(path)
    }

    /// Makes the folders that every repository has, also if no file is in them.
    pub fn make_folders_of_all(&self) -> Result<()> {
        for place in self.places()? {
            for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags"] {
                fs::create_dir_all(self.root().join(&place).join(folder))?;
            }
        }
        Ok(())
    }

    /// Where repositories lie.
    fn places(&self) -> io::Result<Vec<Place>> {
        let is_short = |name: &str| name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut places = Vec::new();
        for first in names(self.root())?.into_iter().filter(|name| is_short(name)) {
            for second in names(&self.root().join(&first))?.into_iter().filter(|name| is_short(name)) {
                let within = names(&self.root().join(&first).join(&second))?;
                let repositories = within.into_iter().filter(|name| name.ends_with(".git"));
                places.extend(repositories.map(|name| format!("{first}/{second}/{name}")));
            }
        }
        places.sort_unstable();
        Ok(places)
    }
}

/// Reads what [`Repositories::write_refs_of_all`] wrote of the next repository.
pub fn read_refs(from: &mut impl io::Read) -> io::Result<Option<NotedRefs>> {
    let Some(place) = read_piece(from)? else { return Ok(None) };
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut next = || read_piece(from)?.ok_or_else(cut);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(io::Error::other);
    let count = u64::from_be_bytes(next()?.try_into().map_err(|_| cut())?);
    let files = (0..count).map(|_| Ok((text(next()?)?, next()?))).collect::<io::Result<_>>()?;
    let faults = text(next()?)?.lines().map(ToOwned::to_owned).collect();
    Ok(Some(NotedRefs { place: text(place)?, files, faults }))
}

impl NotedRefs {
    /// Whether there is a branch of that name.
    pub fn has_branch(&self, name: &str) -> bool {
        let name = format!("refs/heads/{name}");
        let packed = self.files.iter().filter(|(file, _)| file == "packed-refs");
        let mut lines = packed.flat_map(|(_, content)| content.split(|byte| *byte == b'\n'));
        self.files.iter().any(|(file, _)| *file == name)
            || lines.any(|line| line.get(41..).is_some_and(|found| found == name.as_bytes()))
    }

    /// The objects that the refs lead to. A file that is not as git writes it is added to the faults.
    pub fn tips(&mut self) -> Vec<Oid> {
        let (mut tips, mut faults) = (BTreeSet::new(), Vec::new());
        for required in ["HEAD", "config"] {
            if !self.files.iter().any(|(name, _)| name == required) {
                faults.push(format!("{required}: it is missing"));
            }
        }
        for (name, content) in &self.files {
            let text = std::str::from_utf8(content).ok().filter(|text| text.ends_with('\n'));
            let found = match name.as_str() {
                "HEAD" => text.and_then(symbolic).map(|_| Vec::new()),
                "config" => text.filter(|text| is_config(text)).map(|_| Vec::new()),
                "packed-refs" => packed_tips(content),
                _ => text.and_then(|text| text.trim_end().parse().ok()).map(|tip| vec![tip]),
            };
            match found {
                Some(found) => tips.extend(found),
                None => faults.push(format!("{name}: its content is damaged")),
            }
        }
        for fault in faults {
            // What could not be read is known already.
            let name = fault.split_once(':').map_or("", |(name, _)| name);
            if !self.faults.iter().any(|known| known.split_once(':').is_some_and(|(known, _)| known == name)) {
                self.faults.push(fault);
            }
        }
        tips.into_iter().collect()
    }
}

/// The branch that `HEAD` names.
fn symbolic(text: &str) -> Option<RefName> {
    RefName::new(text.strip_prefix("ref: ")?.strip_suffix('\n')?)
}

/// Whether a text can be the configuration of one of our repositories.
fn is_config(text: &str) -> bool {
    let is_line = |line: &str| {
        let line = line.trim();
        let is_section = line.starts_with('[') && line.ends_with(']');
        line.is_empty() || line.starts_with(['#', ';']) || is_section || line.contains(" = ")
    };
    text.contains("[core]") && text.contains("bare = true") && text.lines().all(is_line)
}

/// The objects that packed refs lead to; `None` if the file is not as git writes it.
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

/// Files that others name and that are not there.
fn missing_files(repository: &Path, files: &[PathBuf]) -> Vec<String> {
    let all: BTreeSet<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut wanted: BTreeSet<PathBuf> = BTreeSet::new();
    let mut faults = Vec::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("pack-") && name.ends_with(".idx") {
            wanted.insert(file.with_extension("pack"));
        }
        if name == "multi-pack-index" {
            let index = gix::odb::pack::multi_index::File::at(repository.join(file), None);
            let names = index.iter().flat_map(|index| index.index_names());
            wanted.extend(names.map(|name| file.with_file_name(name)));
        }
        if name == "commit-graph-chain" {
            match fs::read_to_string(repository.join(file)) {
                Ok(text) => wanted.extend(text.lines().map(|id| file.with_file_name(format!("graph-{id}.graph")))),
                Err(error) => faults.push(format!("{}: {error}", file.display())),
            }
        }
    }
    let missing = wanted.into_iter().filter(|path| !all.contains(path.as_path()));
    faults.extend(missing.map(|path| format!("{}: it is missing", path.display())));
    faults
}

/// Whether a file in the folder of objects never changes for as long as it has its name.
pub fn is_immutable(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_hex = |text: &str| text.len() >= 38 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let named = |start: &str, end: &str| name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    is_hex(name)
        || [("pack-", ".pack"), ("pack-", ".idx"), ("pack-", ".rev"), ("graph-", ".graph")]
            .into_iter()
            .any(|(start, end)| named(start, end).is_some_and(is_hex))
}

/// Without what is still being written, and without a pack that lacks its other half.
fn without_halves(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let all: BTreeSet<PathBuf> = files.iter().cloned().collect();
    let is_whole = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("tmp_") || name.ends_with(".lock") {
            return false;
        }
        // A pack comes before its index, and begins to count with it.
        !name.starts_with("pack-")
            || all.contains(&file.with_extension("pack")) && all.contains(&file.with_extension("idx"))
    };
    files.into_iter().filter(is_whole).collect()
}

/// Whether a path in the folder of objects is a folder that git makes.
fn is_of_git(folder: &Path) -> bool {
    let Ok(folder) = folder.strip_prefix("objects") else { return false };
    let name = folder.to_str().unwrap_or_default();
    let is_for_objects = name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_for_objects || ["pack", "info", "info/commit-graphs"].contains(&name)
}

/// All files in a folder of a repository and below, by path; answers what else is there. What vanishes meanwhile is nothing.
fn walk(repository: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = found(fs::read_dir(repository.join(folder)))? else { return Ok(Vec::new()) };
    let (mut below, mut others) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below.push(path);
        } else if !kind.is_file() {
            others.push(path);
        } else if !path.to_string_lossy().ends_with(".lock") {
            files.push(path);
        }
    }
    below.sort_unstable();
    for path in below {
        others.extend(walk(repository, &path, files)?);
        others.push(path);
    }
    Ok(others)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let Some(entries) = found(fs::read_dir(folder))? else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_piece(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_be_bytes())?;
    out.write_all(bytes)
}

/// A piece, or `None` at the end.
fn read_piece(from: &mut impl io::Read) -> io::Result<Option<Vec<u8>>> {
    let mut size = Vec::with_capacity(8);
    from.take(8).read_to_end(&mut size)?;
    if size.is_empty() {
        return Ok(None);
    }
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let size = u64::from_be_bytes(size.try_into().map_err(|_| cut())?);
    let mut bytes = Vec::new();
    from.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(Some(bytes)) } else { Err(cut()) }
}
