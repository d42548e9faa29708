//! The binding between a database and a bucket that several nodes share.
//!
//! Both contain the id of the instance. The bucket has no mark that changes, as a data folder has, because any number of nodes
//! uses it; an older copy of one of them is therefore not detected. The mark of the database changes only when it is moved to
//! another place, or the instance key is replaced; nodes that were started before then stop.

use std::{fs, io};

use anyhow::{Context as _, Result, anyhow, bail};
use files::{Files, bucket::Bucket};
use forge::InstanceKey;
use futures_util::{TryStreamExt as _, stream};
use store::{
    Conn, Database,
    instance::{self, Binding, DatabaseContent},
};

use crate::{admin, config::SharedStorage, data_folder::DataFolder, instance::random_text, permissions};

/// The key of the object with the id of the instance.
pub(crate) const ID_KEY: &str = "instance";
/// The key of the object with the id of the instance whose files are being copied to or from the bucket. Without
/// [`ID_KEY`] no node uses the bucket.
pub(crate) const MIGRATION_KEY: &str = "migration";
/// The key of the object with the id of the instance whose files were in the bucket until they were moved away.
pub(crate) const FORMER_KEY: &str = "former-instance";
const MAX_SIZE: u64 = 1000;

/// Opens the bucket and checks that it can be used.
pub(crate) fn open_bucket(folder: &DataFolder, shared: &SharedStorage) -> Result<Files> {
    Ok(Files::in_bucket(Bucket::new(&shared.bucket, folder.path())?))
}

/// Writes and reads an object, and returns an error with a remedy if that is not possible.
pub(crate) fn probe(files: &Files) -> Result<()> {
    match files.bucket() {
        Some(bucket) => Ok(bucket.probe(&random_text())?),
        None => Ok(()),
    }
}

/// Returns an error if the bucket and the database do not belong together. Changes nothing.
pub(crate) fn check(files: &Files, database: &Database) -> Result<()> {
    let name = bucket_name(files);
    match (database.content()?, read_id(files, ID_KEY)?) {
        // With generation 0 the first start was interrupted.
        (DatabaseContent::Empty | DatabaseContent::Bound(Binding { generation: 0, .. }), None) => Ok(()),
        (DatabaseContent::Bound(binding), Some(id)) if binding.instance_id == id => Ok(()),
        (DatabaseContent::Empty, Some(_)) => Err(anyhow!(
            "the store {name} contains an instance, but the database is empty; specify its database with --database"
        )),
        (DatabaseContent::Bound(_), Some(_)) => Err(anyhow!(
            "the store {name} contains another instance than the database; specify a database and a store that belong \
             together"
        )),
        (_, None) => Err(anyhow!(
            "the database contains an instance, but the store {name} does not; specify its store, or, if its files are in a \
             data folder, move them with `gable migrate-store`"
        )),
        (DatabaseContent::Unbound, Some(_)) => Err(anyhow!(
            "the database was last used by a version that did not know stores; start it with its data folder first"
        )),
    }
}

/// Like [`check`], but both must contain an instance.
pub(crate) fn check_existing(files: &Files, database: &Database) -> Result<()> {
    check(files, database)?;
    match database.content()? {
        DatabaseContent::Empty => Err(anyhow!(
            "no Gable instance in the database and the store {}; `gable serve` creates one",
            bucket_name(files)
        )),
        DatabaseContent::Unbound | DatabaseContent::Bound(_) => Ok(()),
    }
}

/// Binds a bucket and a database at the first start. Several nodes may do so at the same time. The caller has checked both
/// and applied pending migrations. Returns the mark of the database.
pub(crate) fn bind(files: &Files, database: &Database, shared: &SharedStorage) -> Result<(String, InstanceKey)> {
    let context = "cannot bind the database to the store";
    let mut db = database.connect_writer()?;
    let new = Binding {
        instance_id: random_text(),
        generation: 0,
        mark: random_text(),
        previous_mark: None,
        key_check: None,
    };
    db.write(|db| instance::insert(db, &new)).context(context)?;
    // Read before the object: if the files are moved meanwhile, the object is removed before the mark changes.
    let mut binding = instance::find(&mut db).context(context)?.context(context)?;
    // All nodes that find no object write the same one.
    if read_id(files, ID_KEY)?.is_none() && binding.generation == 0 {
        write_id(files, ID_KEY, &binding.instance_id)?;
    }
    if read_id(files, ID_KEY)?.as_deref() != Some(&binding.instance_id) {
        bail!("the store {} contains another instance than the database", bucket_name(files));
    }
    if binding.generation == 0 {
        // Another node may have done the same.
        db.write(|db| instance::advance(db, &binding.mark, &random_text())).context(context)?;
        binding = instance::find(&mut db).context(context)?.context(context)?;
    }
    Ok((binding.mark, open_key(shared, &mut db)?))
}

/// Writes the id of an instance to an object of a bucket.
pub(crate) fn write_id(files: &Files, key: &str, id: &str) -> Result<()> {
    let content = format!("instance: {id}\n");
    let write = files.write(key, MAX_SIZE, stream::iter([Ok::<_, std::convert::Infallible>(content.into())]));
    block_on(write)?.with_context(|| format!("cannot write to the store {}", bucket_name(files)))?;
    Ok(())
}

/// Returns the id of an instance from an object of a bucket; `None` if it does not exist.
pub(crate) fn read_id(files: &Files, key: &str) -> Result<Option<String>> {
    let read = async {
        let Some(content) = files.read(key, None).await? else { return Ok(None) };
        let append = async |mut all: Vec<u8>, chunk: axum::body::Bytes| {
            all.extend_from_slice(&chunk);
            Ok(all)
        };
        Ok::<_, anyhow::Error>(Some(content.bytes.try_fold(Vec::new(), append).await?))
    };
    let name = bucket_name(files);
    let Some(content) = block_on(read)?.with_context(|| format!("cannot read from the store {name}"))? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&content);
    let id = text.lines().find_map(|line| line.strip_prefix("instance: "));
    Ok(Some(id.with_context(|| format!("the object {key} of the store {name} is damaged"))?.to_owned()))
}

/// Reads the instance key and compares it with the one that the database was used with.
pub(crate) fn open_key(shared: &SharedStorage, db: &mut Conn) -> Result<InstanceKey> {
    let path = shared.key_file.display();
    let text = fs::read_to_string(&shared.key_file).map_err(|error| {
        let remedy = if error.kind() == io::ErrorKind::NotFound {
            format!(
                "copy it from another node; only for a new instance, `gable admin instance create-key {path}` creates one; if \
                 it is lost, `gable admin instance new-key` lists what would be lost with it"
            )
        } else {
            "make it readable for the user that runs gable, and for no other user".to_owned()
        };
        anyhow!("cannot read the instance key {path}: {error}; {remedy}")
    })?;
    permissions::check_key(&shared.key_file)?;
    let key = InstanceKey::from_text(&text).with_context(|| format!("{path} is not a complete instance key"))?;
    let context = "cannot check the instance key";
    let check = key.check_value();
    let mut known = instance::find(db).context(context)?.and_then(|binding| binding.key_check);
    if known.is_none() && key.matches_database(db).context(context)? {
        // Of nodes that start at the same time with different keys, the first one decides.
        db.write(|db| instance::set_first_key_check(db, &check)).context(context)?;
        known = instance::find(db).context(context)?.and_then(|binding| binding.key_check);
    }
    if known.is_none_or(|known| known != check) {
        bail!(
            "{path} is not the key of this database; all nodes need the same key; if that is lost, `gable admin instance \
             new-key` lists what would be lost with it"
        );
    }
    Ok(key)
}

/// Writes an instance key to the file that nodes use. One that contains another key is refused.
pub(crate) fn install_key(shared: &SharedStorage, key: &InstanceKey) -> Result<()> {
    let file = &shared.key_file;
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return admin::write_key(file, key),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    permissions::check_key(file)?;
    if InstanceKey::from_text(&text).is_some_and(|found| found.check_value() == key.check_value()) {
        return Ok(());
    }
    Err(anyhow!(
        "{} does not contain the key of this instance; specify a file that does not exist, to which the key is copied",
        file.display()
    ))
}

/// Returns an error if a bucket contains anything but files that belong to `id`, which were copied before.
pub(crate) fn ensure_empty_or_of(files: &Files, id: &str) -> Result<()> {
    let name = bucket_name(files);
    for key in [ID_KEY, MIGRATION_KEY, FORMER_KEY] {
        match read_id(files, key)? {
            Some(found) if found == id => return Ok(()),
            Some(_) => bail!("the store {name} contains another instance"),
            None => {}
        }
    }
    let mut first = None;
    files.list("", &mut |entry| {
        first = first.take().or(Some(entry.key).filter(|key| !is_own_object(key)));
        Ok(())
    })?;
    let Some(key) = first else { return Ok(()) };
    Err(anyhow!(
        "the store {name} contains objects of something else, such as {key}; specify an empty bucket, or another prefix"
    ))
}

/// Returns whether an object belongs to the bucket itself, not to the instance.
pub(crate) fn is_own_object(key: &str) -> bool {
    [ID_KEY, MIGRATION_KEY, FORMER_KEY, "probe"].contains(&key.split('/').next().unwrap_or_default())
}

fn bucket_name(files: &Files) -> &str {
    files.bucket().map_or("", Bucket::name)
}

/// Runs a future on a runtime of its own; the server has none yet when it opens an instance.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    Ok(runtime.block_on(work))
}
