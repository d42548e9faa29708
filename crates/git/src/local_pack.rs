//! New packs in a temporary folder, which the caller stores.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use gix::{hash::Kind as HashKind, odb::pack::data};
use model::Oid;
use tempfile::TempDir;

use crate::{Error, Result, packs, repositories::PACK_EXTENSIONS, repository::oid};

/// A pack in a temporary folder, which is deleted with the last pack in it.
pub struct LocalPack {
    /// The trailer of the pack, which names it.
    pub checksum: Oid,
    /// The size of the pack in bytes, without its indexes.
    pub bytes: u64,
    /// The number of objects, at least one.
    pub objects: u64,
    files: Vec<(&'static str, PathBuf)>,
    _folder: Arc<TempDir>,
}

impl LocalPack {
    /// Returns the packs in the folder `packs`; the temporary folder exists as long as they do. Packs without objects are
    /// left out: clients send one with a push of objects that the server already has.
    pub(crate) fn take_all(packs: &Path, folder: &Arc<TempDir>) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for index in packs::indices(packs)? {
            let data = data::File::at(index.with_extension("pack"), HashKind::Sha1).map_err(Error::corrupt)?;
            if data.num_objects() == 0 {
                continue;
            }
            let files = PACK_EXTENSIONS.map(|extension| (extension, index.with_extension(extension)));
            found.push(Self {
                checksum: oid(&data.checksum()),
                bytes: data.data_len() as u64,
                objects: data.num_objects().into(),
                // Only the reverse index is optional.
                files: files.into_iter().filter(|(extension, path)| *extension != "rev" || path.exists()).collect(),
                _folder: Arc::clone(folder),
            });
        }
        Ok(found)
    }

    /// Returns the files with their extensions: the pack first, and the index last, because it makes the pack visible.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.files.iter().map(|(extension, path)| (*extension, path.as_path()))
    }
}
