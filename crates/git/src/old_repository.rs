//! Repositories that an earlier version of Gable has written: refs are files, and some objects are files of their own.
//!
//! They are only read, so that the earlier version could still use them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use model::{Oid, StorageId};

use crate::{
    Error, FileCheck, LocalPack, Repositories, Repository, Result,
    large_object::LargeObject,
    pack_writer::write_pack,
    repository::{Handle, gix_id},
};

/// The number of bytes of a loose object that are read at a time.
const CHUNK_SIZE: usize = 64 << 10;

/// A repository of an earlier version.
pub struct OldRepository {
    /// The repository with its refs.
    pub repository: Repository,
    /// Packs with all its objects. Their files, except for the pack of the loose objects, are those of the repository.
    pub packs: Vec<LocalPack>,
    /// Loose objects that cannot be read; no ref points to them.
    pub damaged_objects: Vec<Oid>,
}

impl Repositories {
    /// Returns whether there is a folder that an earlier version has written for a project without a repository in the
    /// database.
    pub fn has_old_repository(&self, storage: &StorageId) -> bool {
        self.path_of(storage).join("HEAD").exists()
    }

    /// Reads the repository that an earlier version has written for a project; `None` if there is none. It is an error if
    /// a ref is invalid or points to an object that does not exist, or if a pack is incomplete.
    pub fn read_old_repository(&self, storage: &StorageId) -> Result<Option<OldRepository>> {
        if !self.has_old_repository(storage) {
            return Ok(None);
        }
        let path = self.path_of(storage);
        let objects = path.join("objects");
        if objects.join("info/alternates").exists() {
            let remedy = "run `git repack -a -d` in it and remove that file";
            return Err(Error::corrupt(format!(
                "it has objects of another repository (objects/info/alternates); {remedy}"
            )));
        }
        let handle = Arc::new(Handle::open(&path)?);
        let refs = Repository::new(Arc::clone(&handle), Arc::default()).read_ref_files()?;
        let repository = Repository::new(handle, Arc::new(refs));
        let build = Arc::new(self.temp_folder("old-")?);
        let mut packs = LocalPack::take_all(&objects.join("pack"), &build)?;
        let loose = LooseObjects::find(&objects)?;
        if !loose.intact.is_empty() {
            write_pack(build.path(), &loose.intact, |id| LargeObject::loose(File::open(loose_path(&objects, id))?))?;
            packs.extend(LocalPack::take_all(build.path(), &build)?);
        }
        for reference in repository.refs().iter() {
            let target = reference.target;
            if loose.damaged.contains(&target) || repository.kind(&gix_id(target))?.is_none() {
                let text = format!("{} points to {target}, which does not exist or is damaged", reference.name);
                return Err(Error::corrupt(text));
            }
        }
        Ok(Some(OldRepository { repository, packs, damaged_objects: loose.damaged.into_iter().collect() }))
    }
}

/// The objects that are stored in files of their own.
#[derive(Default)]
struct LooseObjects {
    intact: BTreeSet<Oid>,
    damaged: BTreeSet<Oid>,
}

impl LooseObjects {
    fn find(objects: &Path) -> Result<Self> {
        let mut found = Self::default();
        for folder in fs::read_dir(objects)? {
            let folder = folder?;
            let name = folder.file_name().to_string_lossy().into_owned();
            if name.len() != 2 || !folder.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                // Other names are those of unfinished writes.
                if let Ok(id) = format!("{name}{}", file.file_name().to_string_lossy()).parse::<Oid>() {
                    let is_intact = is_intact(id, &file.path())?;
                    if is_intact { &mut found.intact } else { &mut found.damaged }.insert(id);
                }
            }
        }
        Ok(found)
    }
}

/// Returns whether the content of a loose object is that which its name says.
fn is_intact(id: Oid, file: &Path) -> io::Result<bool> {
    let mut check = FileCheck::for_path(&loose_path(Path::new("objects"), id).to_string_lossy());
    let mut file = File::open(file)?;
    let mut buffer = vec![0; CHUNK_SIZE];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(check.finish().is_ok()),
            read => check.update(&buffer[..read]),
        }
    }
}

fn loose_path(objects: &Path, id: Oid) -> PathBuf {
    let name = id.to_string();
    objects.join(&name[..2]).join(&name[2..])
}
