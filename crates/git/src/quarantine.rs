//! Holds objects until the push that brings them is accepted.
//!
//! A quarantine is a small repository that sees the objects of the real one through alternates, but is not visible from
//! there. Objects are moved into the real repository after the objects that they link to. So a crash in the middle
//! leaves unneeded objects, never one with a missing link.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use gix::objs::{Kind, WriteTo};
use model::{Oid, RefName, objects::Signature};
use tempfile::TempDir;

use crate::{
    Error, ReceivedObjects, Repository, Result, checks, disk, git_process,
    large_object::LargeObject,
    repository::{Handle, gix_id, oid},
};

/// Objects on their way into a repository; deleted with this value unless they were moved.
pub struct Quarantine {
    folder: TempDir,
    /// The object folder of the real repository, which may not exist yet.
    objects: PathBuf,
    /// Objects that were written one by one, each after the objects that it links to.
    written: Mutex<Vec<Oid>>,
}

impl Quarantine {
    pub(crate) fn create(folder: TempDir, objects: PathBuf) -> Result<Self> {
        let path = folder.path();
        for part in ["objects/pack", "objects/info", "refs"] {
            fs::create_dir_all(path.join(part))?;
        }
        fs::write(path.join("HEAD"), "ref: refs/heads/quarantine\n")?;
        fs::write(path.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")?;
        let quarantine = Self { folder, objects, written: Mutex::new(Vec::new()) };
        quarantine.link_objects()?;
        Ok(quarantine)
    }

    /// Makes the objects of the real repository visible from here, if it exists. The first write to a project creates
    /// it, so it can appear while other quarantines of the project are open.
    fn link_objects(&self) -> Result<()> {
        let alternates = self.folder.path().join("objects/info/alternates");
        if alternates.exists() || !self.objects.is_dir() {
            return Ok(());
        }
        let mut line = self.objects.as_os_str().as_encoded_bytes().to_vec();
        line.push(b'\n');
        // Renamed into place, so that a concurrent reader never sees a partial path.
        let mut file = tempfile::NamedTempFile::new_in(self.folder.path())?;
        file.write_all(&line)?;
        file.persist(&alternates).map_err(|error| error.error)?;
        Ok(())
    }

    /// Returns the process that indexes a pack from its standard input.
    pub fn index_pack(&self, max_size: Option<u64>) -> Command {
        git_process::index_pack(self.folder.path(), max_size)
    }

    /// Opens the repository as it will be: its objects and those in quarantine, but no refs.
    pub fn repository(&self) -> Result<Repository> {
        self.link_objects()?;
        Ok(Repository::new(Handle::open(self.folder.path())?.into()))
    }

    /// Returns the objects that the client has sent, or that were written on its behalf.
    pub fn received(&self) -> Result<ReceivedObjects> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        ReceivedObjects::read(&self.folder.path().join("objects/pack"), &written)
    }

    /// Fails with [`Error::TooLarge`] if a commit, a tag or a tree in quarantine exceeds its size limit; names the
    /// object and the limit.
    pub fn check_sizes(&self) -> Result<()> {
        checks::check_packed_sizes(self.folder.path())?;
        let objects = self.folder.path().join("objects");
        for id in self.written.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let name = id.to_string();
            match File::open(objects.join(&name[..2]).join(&name[2..])) {
                Ok(file) => {
                    let object = LargeObject::loose(file)?;
                    checks::check_size(object.kind, &gix_id(*id), object.size)?;
                }
                // The repository already has it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes an annotated tag.
    pub fn write_tag(&self, name: &RefName, target: Oid, message: &str, tagger: &Signature) -> Result<Oid> {
        let repository = self.repository()?;
        let message = if message.ends_with('\n') { message.to_owned() } else { format!("{message}\n") };
        let tag = gix::objs::Tag {
            target: gix_id(target),
            target_kind: Kind::Commit,
            name: name.short().into(),
            tagger: Some(signature(tagger)),
            message: message.into(),
            signature: None,
        };
        self.write(&repository, tag)
    }

    /// Writes an object, after the objects that it links to.
    pub(crate) fn write(&self, repository: &Repository, object: impl WriteTo) -> Result<Oid> {
        let id = repository.gix.write_object(object).map_err(Error::from_write)?.detach();
        Ok(self.record_written(&id))
    }

    /// Writes a blob, like [`Self::write`].
    pub(crate) fn write_blob(&self, repository: &Repository, content: &[u8]) -> Result<Oid> {
        let id = repository.gix.write_blob(content).map_err(Error::from_write)?.detach();
        Ok(self.record_written(&id))
    }

    fn record_written(&self, id: &gix::oid) -> Oid {
        let id = oid(id);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        id
    }

    /// Moves all objects into a repository, durably.
    pub(crate) fn move_into(&self, repository: &Path) -> Result<()> {
        let (from, to) = (self.folder.path().join("objects"), repository.join("objects"));
        move_packs(&from.join("pack"), &to.join("pack"))?;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut folders = Vec::new();
        for id in written.iter() {
            let name = id.to_string();
            let (folder, file) = name.split_at(2);
            let source = from.join(folder).join(file);
            // Written twice, or already in the repository.
            if !source.exists() {
                continue;
            }
            disk::sync_file(&source)?;
            let folder = to.join(folder);
            disk::create_folder(&folder)?;
            fs::rename(&source, folder.join(file))?;
            folders.push(folder);
        }
        folders.sort_unstable();
        folders.dedup();
        folders.iter().try_for_each(|folder| disk::sync_folder(folder))?;
        Ok(())
    }
}

/// Moves packs. The index comes last, because a pack becomes visible with its index.
fn move_packs(from: &Path, to: &Path) -> io::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(from)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    if files.is_empty() {
        return Ok(());
    }
    let rank = |file: &Path| match file.extension().and_then(|extension| extension.to_str()) {
        Some("pack") => 0,
        Some("idx") => 2,
        _ => 1,
    };
    files.sort_by_key(|file| rank(file));
    // If the repository has the same pack, it is replaced by an identical one; current readers keep the old file open.
    for file in files {
        let Some(name) = file.file_name() else { continue };
        disk::sync_file(&file)?;
        fs::rename(&file, to.join(name))?;
    }
    disk::sync_folder(to)
}

pub(crate) fn signature(author: &Signature) -> gix::actor::Signature {
    // Removes characters that would end the field or the line.
    let sanitize = |text: &str| {
        let kept: String = text.chars().filter(|c| !matches!(c, '<' | '>') && !c.is_control()).collect();
        kept.trim().to_owned()
    };
    gix::actor::Signature {
        name: sanitize(&author.name).into(),
        email: sanitize(&author.email).into(),
        time: gix::date::Time { seconds: author.seconds, offset: author.offset },
    }
}
