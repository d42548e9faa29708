//! New packs, in a temporary folder or in memory, which the caller stores.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use gix::{hash::Kind as HashKind, odb::pack::data};
use model::{Oid, PackContent};
use tempfile::{NamedTempFile, TempDir};

use crate::{
    Error, Result,
    pack_writer::create_files,
    packs,
    repositories::{PACK_EXTENSIONS, pack_name},
    repository::oid,
};

/// The maximum size of a small pack in bytes, without its index. A small pack can be stored in the database.
pub(crate) const MAX_SMALL_PACK: u64 = 64 << 10;

/// A pack that is not stored yet.
pub struct LocalPack {
    /// The trailer of the pack, which names it.
    pub checksum: Oid,
    /// The size of the pack in bytes, without its indexes.
    pub bytes: u64,
    /// The number of objects, at least one.
    pub objects: u64,
    location: Location,
}

/// A pack that becomes visible in the folder of a repository once its push is accepted.
pub struct StagedPack {
    checksum: Oid,
    files: StagedFiles,
}

enum StagedFiles {
    /// Files in the folder of a quarantine, which are linked.
    Linked(Vec<(&'static str, PathBuf)>, Arc<TempDir>),
    /// Temporary files, which are renamed.
    Written([(&'static str, NamedTempFile); 2]),
}

impl StagedPack {
    /// Moves the files into a folder of packs, the index last, because it makes the pack visible.
    pub(crate) fn install(self, folder: &Path) -> io::Result<()> {
        let target = |extension: &str| folder.join(pack_name(self.checksum)).with_extension(extension);
        match self.files {
            StagedFiles::Linked(files, _folder) => {
                files.iter().try_for_each(|(extension, path)| match fs::hard_link(path, target(extension)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked,
                })
            }
            StagedFiles::Written(files) => files.into_iter().try_for_each(|(extension, file)| {
                file.persist(target(extension)).map(drop).map_err(|error| error.error)
            }),
        }
    }
}

enum Location {
    /// Files with their extensions, in a temporary folder that is deleted with the last pack in it.
    Files {
        files: Vec<(&'static str, PathBuf)>,
        folder: Arc<TempDir>,
    },
    Memory(PackContent),
}

impl LocalPack {
    /// Returns the packs in the folder `packs`; the temporary folder exists as long as they do. Packs without objects are
    /// left out: clients send one with a push of objects that the server already has.
    pub(crate) fn take_all(packs: &Path, folder: &Arc<TempDir>) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for index in packs::indices(packs)? {
            found.extend(Self::take(&index, folder)?);
        }
        Ok(found)
    }

    /// Returns the pack with this index; `None` if it has no objects.
    pub(crate) fn take(index: &Path, folder: &Arc<TempDir>) -> Result<Option<Self>> {
        let data = data::File::at(index.with_extension("pack"), HashKind::Sha1).map_err(Error::corrupt)?;
        if data.num_objects() == 0 {
            return Ok(None);
        }
        let files = PACK_EXTENSIONS.map(|extension| (extension, index.with_extension(extension)));
        // Only the reverse index is optional.
        let files = files.into_iter().filter(|(extension, path)| *extension != "rev" || path.exists()).collect();
        Ok(Some(Self {
            checksum: oid(&data.checksum()),
            bytes: data.data_len() as u64,
            objects: data.num_objects().into(),
            location: Location::Files { files, folder: Arc::clone(folder) },
        }))
    }

    /// Creates a small pack in memory.
    pub(crate) fn in_memory(checksum: Oid, objects: usize, content: PackContent) -> Self {
        let (bytes, objects) = (content.pack.len() as u64, objects as u64);
        Self { checksum, bytes, objects, location: Location::Memory(content) }
    }

    /// Prepares copies of the files for the folder of a repository. Nothing is written for a pack that has files; others are
    /// written to a temporary folder.
    pub(crate) fn stage(&self, temp_folder: &Path) -> Result<StagedPack> {
        let files = match &self.location {
            Location::Files { files, folder } => {
                let files = files.iter().map(|(extension, path)| (*extension, path.clone())).collect();
                StagedFiles::Linked(files, Arc::clone(folder))
            }
            Location::Memory(content) => StagedFiles::Written(create_files(temp_folder, content)?),
        };
        Ok(StagedPack { checksum: self.checksum, files })
    }

    /// Returns the content of a small pack; `None` if the pack is not small.
    pub fn small_content(&self) -> Result<Option<PackContent>> {
        match &self.location {
            Location::Memory(content) => Ok(Some(content.clone())),
            Location::Files { files, .. } if self.bytes <= MAX_SMALL_PACK => {
                let read = |wanted: &str| {
                    let file = files.iter().find(|(extension, _)| *extension == wanted);
                    fs::read(&file.ok_or(io::ErrorKind::NotFound)?.1)
                };
                Ok(Some(PackContent { pack: read("pack")?, index: read("idx")? }))
            }
            Location::Files { .. } => Ok(None),
        }
    }

    /// Returns the files with their extensions: the pack first, and the index last, because it makes the pack visible. A
    /// small pack may have none.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = match &self.location {
            Location::Files { files, .. } => files.as_slice(),
            Location::Memory(_) => &[],
        };
        files.iter().map(|(extension, path)| (*extension, path.as_path()))
    }
}
