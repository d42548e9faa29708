//! Repositories as files, for whoever keeps a copy of them all.
//!
//! Refs are taken at an instant at which they stand still; the objects that they lead to are there by then and never go
//! away, so they may be copied later, together with whatever has come since.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _, Write},
    path::{Path, PathBuf},
};

use crate::{Repositories, Result, housekeeping::wait_for_house};

/// Which files of a repository are about refs; the others are objects, and grow.
const SMALL_FILES: [&str; 3] = ["config", "HEAD", "packed-refs"];

/// A repository by where it lies, such as `3f/a2/3fa2….git`.
pub type Place = String;

/// The objects of a repository, none of which goes away while this is held.
pub struct Objects {
    /// What lies where, each path beginning at the repository.
    pub files: Vec<PathBuf>,
    _kept: File,
}

impl Repositories {
    /// Writes down all refs of all repositories, as [`read_refs`] reads them; says how many repositories there are.
    /// Whoever calls this has seen to it that none moves.
    pub fn write_refs_of_all(&self, out: &mut impl Write) -> Result<u64> {
        let mut count = 0;
        for place in self.places()? {
            let repository = self.root().join(&place);
            let mut files = Vec::new();
            for name in SMALL_FILES {
                if let Some(content) = found(fs::read(repository.join(name)))? {
                    files.push((name.to_owned(), content));
                }
            }
            // Without it there is no repository; somebody is taking it away.
            if !files.iter().any(|(name, _)| name == "HEAD") {
                continue;
            }
            let mut loose = Vec::new();
            walk(&repository, Path::new("refs"), &mut loose)?;
            for path in loose {
                if let (Some(name), Some(content)) = (path.to_str(), found(fs::read(repository.join(&path)))?) {
                    files.push((name.to_owned(), content));
                }
            }
            count += 1;
            write_piece(out, place.as_bytes())?;
            write_piece(out, &(files.len() as u64).to_be_bytes())?;
            for (name, content) in files {
                write_piece(out, name.as_bytes())?;
                write_piece(out, &content)?;
            }
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
        walk(&repository, Path::new("objects"), &mut files)?;
        Ok(Some(Objects { files: without_halves(files), _kept: kept }))
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

/// Reads what [`Repositories::write_refs_of_all`] wrote of the next repository: where it lies, and its small files by path.
#[expect(clippy::type_complexity, reason = "a place and its files, which have no name of their own")]
pub fn read_refs(from: &mut impl io::Read) -> io::Result<Option<(Place, Vec<(String, Vec<u8>)>)>> {
    let Some(place) = read_piece(from)? else { return Ok(None) };
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut next = || read_piece(from)?.ok_or_else(cut);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(io::Error::other);
    let count = u64::from_be_bytes(next()?.try_into().map_err(|_| cut())?);
    let files = (0..count).map(|_| Ok((text(next()?)?, next()?))).collect::<io::Result<_>>()?;
    Ok(Some((text(place)?, files)))
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

/// All files in a folder of a repository and below, by path. What vanishes meanwhile is none.
fn walk(repository: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let Some(entries) = found(fs::read_dir(repository.join(folder)))? else { return Ok(()) };
    let mut below = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below.push(path);
        } else if kind.is_file() && !path.to_string_lossy().ends_with(".lock") {
            files.push(path);
        }
    }
    below.sort_unstable();
    below.iter().try_for_each(|path| walk(repository, path, files))
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
