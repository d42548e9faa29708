//! Holds objects until the push that brings them is accepted.
//!
//! The objects are not visible in the repository. Few and small ones are kept in memory, others in a temporary folder. An
//! accepted push stores them as packs.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{Seek as _, Write as _},
    iter,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use gix::{
    objs::{Kind, Write as _, WriteTo},
    odb::{loose, memory::Storage},
};
use model::{Oid, RefName, StorageId, objects::Signature};
use tempfile::TempDir;

use crate::{
    Error, FolderGuard, LocalPack, ReceivedObjects, Refs, Repositories, Repository, Result, StagedPack, checks, disk,
    git_process::{self, HOUSEKEEPING_LIMITS, Supervision},
    large_object::LargeObject,
    local_pack::MAX_SMALL_PACK,
    pack_writer::{build_pack, write_files, write_pack},
    repositories::pack_name,
    repository::{Handle, gix_id, oid},
};

/// The maximum size of all objects that are kept in memory, in bytes.
pub(crate) const MAX_BYTES_IN_MEMORY: u64 = 1 << 20;

/// The maximum time for copying unreachable objects.
const COPY_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Objects on their way into a repository; deleted with this value unless they were stored.
pub struct Quarantine {
    repositories: Repositories,
    storage: StorageId,
    /// Git programs read the objects of the repository.
    _guard: FolderGuard,
    /// Holds the packs that a client sends, and written objects that are not kept in memory; created when it is needed. It is
    /// a complete repository only if it has been opened as one.
    folder: Mutex<Option<Arc<TempDir>>>,
    /// Objects that were written one by one.
    written: Mutex<WrittenObjects>,
    /// The objects of the received packs; `None` if they are not kept in memory.
    unpacked: OnceLock<Option<Storage>>,
}

#[derive(Default)]
struct WrittenObjects {
    /// All of them, each after the objects that it links to.
    ids: Vec<Oid>,
    in_memory: Storage,
    /// The size of those in memory.
    bytes: u64,
    /// Whether some are in the folder.
    has_files: bool,
}

impl Quarantine {
    /// Creates a quarantine for the repository of a project, which may not exist yet: the first write to a project creates
    /// it, so it can appear while quarantines of the project are open.
    pub(crate) fn new(repositories: Repositories, storage: StorageId) -> Self {
        Self {
            _guard: repositories.guard(&storage),
            repositories,
            storage,
            folder: Mutex::default(),
            written: Mutex::default(),
            unpacked: OnceLock::default(),
        }
    }

    /// Returns the process that indexes a pack from its standard input.
    pub fn index_pack(&self, max_size: Option<u64>) -> Result<Command> {
        let folder = self.create_folder()?;
        let mut command = git_process::index_pack(&self.repositories.empty_repository()?, max_size);
        command.env("GIT_OBJECT_DIRECTORY", folder.path().join("objects"));
        if let Some(objects) = self.repository_objects() {
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(&objects));
        }
        Ok(command)
    }

    /// Copies the objects that `tip` reaches and the refs do not reach from the packs of the repository, where unreachable
    /// objects stay for some time. Fails with [`Error::GitFailed`] if one of them is not stored any more.
    pub fn copy_objects(&self, tip: Oid, refs: &Refs) -> Result<()> {
        let folder = self.create_folder()?;
        let revisions: String =
            iter::once(format!("{tip}\n")).chain(refs.iter().map(|known| format!("^{}\n", known.target))).collect();
        let mut input = tempfile::tempfile_in(folder.path())?;
        input.write_all(revisions.as_bytes())?;
        input.rewind()?;
        let mut command = git_process::git_command(&self.repositories.path_of(&self.storage));
        command.args(["-c", "pack.writeReverseIndex=true", "pack-objects", "-q", "--revs"]);
        command.args(["--delta-base-offset", "--non-empty"]).arg(pack_folder(&folder).join("pack"));
        command.stdin(Stdio::from(input));
        let (deadline, cancelled) = (Instant::now() + COPY_TIMEOUT, AtomicBool::new(false));
        let supervision = Supervision { limits: HOUSEKEEPING_LIMITS, deadline, cancelled: &cancelled };
        git_process::run_single(command, &supervision)
    }

    /// Opens the repository as it will be: its objects and those in quarantine, but no refs.
    pub fn repository(&self) -> Result<Repository> {
        let mut objects = self.written().in_memory.clone();
        let folder = self.folder().clone();
        let handle = match folder {
            None => self.repositories.handle_or_empty(&self.storage)?,
            Some(folder) => {
                if let Some(unpacked) = self.unpacked(&folder)? {
                    objects.extend(unpacked.iter().map(|(id, object)| (*id, object.clone())));
                    self.repositories.handle_or_empty(&self.storage)?
                } else {
                    self.complete_folder(&folder)?;
                    Handle::open(folder.path())?.into()
                }
            }
        };
        Ok(Repository::with_new_objects(handle, objects))
    }

    /// Returns the objects that the client has sent, or that were written on its behalf.
    pub fn received(&self) -> Result<ReceivedObjects> {
        let packs = self.folder().as_ref().map(|folder| pack_folder(folder));
        ReceivedObjects::read(packs.as_deref(), &self.written().ids)
    }

    /// Fails with [`Error::TooLarge`] if a commit, a tag or a tree in quarantine exceeds its size limit; names the
    /// object and the limit.
    pub fn check_sizes(&self) -> Result<()> {
        if let Some(folder) = &*self.folder() {
            checks::check_packed_sizes(&pack_folder(folder))?;
        }
        let written = self.written();
        for id in &written.ids {
            let (kind, size) = match written.in_memory.get(&gix_id(*id)) {
                Some((kind, content)) => (*kind, content.len() as u64),
                None => self.open_written(&written, *id).map(|object| (object.kind, object.size))?,
            };
            checks::check_size(kind, &gix_id(*id), size)?;
        }
        Ok(())
    }

    /// Returns all objects as packs: the received ones, and one of the objects that were written one by one. Nothing is
    /// synced: the caller stores them durably.
    pub fn packs(&self) -> Result<Vec<LocalPack>> {
        let folder = self.folder().clone();
        let mut packs = folder.map_or(Ok(Vec::new()), |folder| LocalPack::take_all(&pack_folder(&folder), &folder))?;
        let written = self.written();
        if !written.ids.is_empty() {
            packs.extend(self.pack_written(&written)?);
        }
        Ok(packs)
    }

    /// Prepares a pack for the folder of the repository, which is created if necessary. This takes disk space, so it precedes
    /// the acceptance of the push: afterwards the objects have to be readable.
    pub fn stage(&self, pack: &LocalPack) -> Result<StagedPack> {
        self.repositories.create_folder_if_missing(&self.storage)?;
        disk::create_folder(&self.repositories.temp_root())?;
        pack.stage(&self.repositories.temp_root())
    }

    /// Makes a pack of an accepted push visible in the folder of the repository.
    pub fn install(&self, pack: StagedPack) -> Result<()> {
        self.repositories.install_pack(&self.storage, pack)
    }

    /// Packs the objects that were written one by one.
    fn pack_written(&self, written: &WrittenObjects) -> Result<Option<LocalPack>> {
        let ids: BTreeSet<Oid> = written.ids.iter().copied().collect();
        let open = |id| self.open_written(written, id);
        // Not in the folder of received packs, so that this function can be called again.
        let (folder, checksum) = if written.has_files {
            let folder = self.create_folder()?;
            let checksum = write_pack(folder.path(), &ids, open)?;
            (folder, checksum)
        } else {
            let (checksum, content) = build_pack(&ids, open)?;
            if content.pack.len() as u64 <= MAX_SMALL_PACK {
                return Ok(Some(LocalPack::in_memory(checksum, ids.len(), content)));
            }
            let folder = self.create_folder()?;
            write_files(folder.path(), folder.path(), checksum, &content)?;
            (folder, checksum)
        };
        LocalPack::take(&folder.path().join(pack_name(checksum)).with_extension("idx"), &folder)
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
        let mut written = self.written();
        let size = content.len() as u64;
        let id = if written.bytes + size <= MAX_BYTES_IN_MEMORY {
            let id = gix::objs::compute_hash(gix::hash::Kind::Sha1, kind, content).map_err(Error::corrupt)?;
            written.in_memory.insert(id, (kind, content.to_vec()));
            written.bytes += size;
            id
        } else {
            let objects = loose::Store::at(self.create_folder()?.path().join("objects"), gix::hash::Kind::Sha1);
            written.has_files = true;
            objects.write_buf(kind, content).map_err(Error::from_write)?
        };
        written.ids.push(oid(&id));
        Ok(oid(&id))
    }

    /// Opens an object that was written one by one.
    fn open_written(&self, written: &WrittenObjects, id: Oid) -> Result<LargeObject> {
        if let Some((kind, content)) = written.in_memory.get(&gix_id(id)) {
            return Ok(LargeObject::in_memory(*kind, content.clone()));
        }
        let name = id.to_string();
        let path = self.create_folder()?.path().join("objects").join(&name[..2]).join(&name[2..]);
        LargeObject::loose(File::open(path)?)
    }

    /// Returns the objects of the received packs; `None` if they are not kept in memory, or the folder has other objects as
    /// well.
    fn unpacked(&self, folder: &TempDir) -> Result<Option<&Storage>> {
        if self.written().has_files {
            return Ok(None);
        }
        if let Some(unpacked) = self.unpacked.get() {
            return Ok(unpacked.as_ref());
        }
        let unpacked = checks::unpack_small(&pack_folder(folder))?;
        Ok(self.unpacked.get_or_init(|| unpacked).as_ref())
    }

    /// Returns the folder of objects of the repository, if it exists.
    fn repository_objects(&self) -> Option<PathBuf> {
        let objects = self.repositories.path_of(&self.storage).join("objects");
        objects.is_dir().then_some(objects)
    }

    /// Creates the folder, unless it exists.
    fn create_folder(&self) -> Result<Arc<TempDir>> {
        let mut folder = self.folder();
        if let Some(folder) = &*folder {
            return Ok(Arc::clone(folder));
        }
        let created = Arc::new(self.repositories.temp_folder("in-")?);
        fs::create_dir_all(pack_folder(&created))?;
        Ok(Arc::clone(folder.insert(created)))
    }

    /// Makes the folder a repository that sees the objects of the real one.
    fn complete_folder(&self, folder: &TempDir) -> Result<()> {
        let path = folder.path();
        for part in ["objects/info", "refs"] {
            fs::create_dir_all(path.join(part))?;
        }
        fs::write(path.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")?;
        fs::write(path.join("HEAD"), "ref: refs/heads/quarantine\n")?;
        let alternates = path.join("objects/info/alternates");
        let Some(objects) = self.repository_objects().filter(|_| !alternates.exists()) else { return Ok(()) };
        let mut line = objects.into_os_string().into_encoded_bytes();
        line.push(b'\n');
        // Renamed into place, so that a concurrent reader never sees a partial path.
        let mut file = tempfile::NamedTempFile::new_in(path)?;
        file.write_all(&line)?;
        file.persist(&alternates).map_err(|error| error.error)?;
        Ok(())
    }

    fn folder(&self) -> MutexGuard<'_, Option<Arc<TempDir>>> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, WrittenObjects> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the folder of received packs.
fn pack_folder(folder: &TempDir) -> PathBuf {
    folder.path().join("objects/pack")
}

/// Quotes a path for a list of paths that are separated by colons.
fn quote_path(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
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
