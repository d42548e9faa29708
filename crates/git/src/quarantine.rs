//! Holds objects until the push that brings them is accepted.
//!
//! A quarantine is a small repository that sees the objects of the real one through alternates, but is not visible from
//! there. An accepted push stores them as packs.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
};

use gix::{
    objs::{Kind, Write as _, WriteTo},
    odb::loose,
};
use model::{Oid, RefName, objects::Signature};
use tempfile::TempDir;

use crate::{
    Error, LocalPack, ReceivedObjects, Repository, Result, checks, git_process,
    large_object::LargeObject,
    pack_writer::write_pack,
    repository::{Handle, gix_id, oid},
};

/// Objects on their way into a repository; deleted with this value unless they were moved.
pub struct Quarantine {
    folder: Arc<TempDir>,
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
        let quarantine = Self { folder: Arc::new(folder), objects, written: Mutex::new(Vec::new()) };
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
        Ok(Repository::new(Handle::open(self.folder.path())?.into(), Arc::default()))
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
        for id in self.written.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let object = LargeObject::loose(File::open(self.loose_path(*id))?)?;
            checks::check_size(object.kind, &gix_id(*id), object.size)?;
        }
        Ok(())
    }

    /// Writes an annotated tag.
    pub fn write_tag(&self, name: &RefName, target: Oid, message: &str, tagger: &Signature) -> Result<Oid> {
        let message = if message.ends_with('\n') { message.to_owned() } else { format!("{message}\n") };
        let tag = gix::objs::Tag {
            target: gix_id(target),
            target_kind: Kind::Commit,
            name: name.short().into(),
            tagger: Some(signature(tagger)),
            message: message.into(),
            signature: None,
        };
        self.write(tag)
    }

    /// Returns all objects as packs: the received ones, and one of the objects that were written one by one. Nothing is
    /// synced: the caller stores the files durably.
    pub fn packs(&self) -> Result<Vec<LocalPack>> {
        let packs = self.folder.path().join("objects/pack");
        let loose: BTreeSet<Oid> =
            self.written.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        if !loose.is_empty() {
            write_pack(&packs, &loose, |id| LargeObject::loose(File::open(self.loose_path(id))?))?;
        }
        LocalPack::take_all(&packs, &self.folder)
    }

    /// Writes an object, after the objects that it links to.
    pub(crate) fn write(&self, object: impl WriteTo) -> Result<Oid> {
        let mut content = Vec::new();
        object.write_to(&mut content)?;
        self.write_content(object.kind(), &content)
    }

    /// Writes a blob, like [`Self::write`].
    pub(crate) fn write_blob(&self, content: &[u8]) -> Result<Oid> {
        self.write_content(Kind::Blob, content)
    }

    /// Writes an object even if the repository has it: it may be unreachable there, and be removed soon.
    fn write_content(&self, kind: Kind, content: &[u8]) -> Result<Oid> {
        let objects = loose::Store::at(self.folder.path().join("objects"), gix::hash::Kind::Sha1);
        let id = oid(&objects.write_buf(kind, content).map_err(Error::from_write)?);
        self.written.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        Ok(id)
    }

    /// Returns the path of an object that was written one by one.
    fn loose_path(&self, id: Oid) -> PathBuf {
        let name = id.to_string();
        self.folder.path().join("objects").join(&name[..2]).join(&name[2..])
    }
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
