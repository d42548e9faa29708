//! Where the data of an instance is: in a data folder, or in a database and a bucket that several nodes share.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow, bail};
use files::bucket::BucketOptions;

use super::settings::DataLocation;
use crate::{data_folder, permissions};

/// Where the data of an instance is.
#[derive(Clone)]
pub(crate) struct Location {
    /// The data folder or, with shared storage, the cache folder of this node.
    pub(crate) folder: PathBuf,
    /// The data folder, even with shared storage, where only `gable migrate-store` uses it.
    pub(crate) data: PathBuf,
    /// The URL of the database; the embedded one if `None`.
    pub(crate) database: Option<String>,
    /// What all nodes of an instance share beside the database.
    pub(crate) shared: Option<SharedStorage>,
}

/// The storage of an instance with several nodes.
#[derive(Clone)]
pub(crate) struct SharedStorage {
    /// The bucket with the files.
    pub(crate) bucket: BucketOptions,
    /// The file with the instance key.
    pub(crate) key_file: PathBuf,
}

/// Checks the settings before anything is done.
pub(super) fn check(settings: DataLocation) -> Result<Location> {
    let DataLocation { file: _, data, database, store, store_variables, cache, instance_key_file } = settings;
    if let Some(url) = &database {
        data_folder::postgres(url)?;
    }
    let Some(store) = store else {
        let alone = [
            ("cache", cache.is_some()),
            ("instance-key-file", instance_key_file.is_some()),
            ("store-variables", store_variables.is_some()),
        ];
        return match alone.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(anyhow!("{name} requires store")),
            None => Ok(Location { folder: data.clone(), data, database, shared: None }),
        };
    };
    if database.is_none() {
        bail!("store requires database: all nodes share a PostgreSQL database");
    }
    let folder = cache.context("store requires cache: a folder for the cache of this node")?;
    let key_file = instance_key_file.context(
        "store requires instance-key-file: the same key for all nodes; `gable admin instance create-key FILE` creates one",
    )?;
    let bucket = BucketOptions::new(&store, variables(store_variables.as_deref())?)?;
    Ok(Location { folder, data, database, shared: Some(SharedStorage { bucket, key_file }) })
}

/// Returns the variables of the file and of the environment, which has precedence.
fn variables(file: Option<&Path>) -> Result<BTreeMap<String, String>> {
    let mut variables = match file {
        Some(file) => read_variables(file)?,
        None => BTreeMap::new(),
    };
    variables.extend(env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("AWS_"))?;
        Some((name, value.into_string().ok()?))
    }));
    Ok(variables)
}

/// Reads lines of the form `NAME=value`; the value may be in quotation marks. Empty lines and comments are ignored.
fn read_variables(file: &Path) -> Result<BTreeMap<String, String>> {
    permissions::check_credentials(file)?;
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut variables = BTreeMap::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // The line is not repeated: it may contain a secret.
        let (name, value) = line
            .split_once('=')
            .with_context(|| format!("line {} of {} is not of the form NAME=value", index + 1, file.display()))?;
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        variables.insert(name.trim().trim_start_matches("export ").to_owned(), value.to_owned());
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::sources::tests::settings;

    fn location(flags: &[&str]) -> Result<Location> {
        check(settings(flags, "")?.location)
    }

    fn refused(flags: &[&str]) -> String {
        location(flags).err().expect("refused").to_string()
    }

    const DATABASE: &str = "--database=postgres://localhost/gable";

    #[test]
    fn a_bucket_requires_what_nodes_share() {
        assert_eq!(refused(&["--cache", "c"]), "cache requires store");
        assert_eq!(refused(&["--instance-key-file", "k"]), "instance-key-file requires store");
        assert_eq!(refused(&["--store", "s3://b"]), "store requires database: all nodes share a PostgreSQL database");
        let with = |more: &[&'static str]| [&["--store", "s3://b/p", DATABASE], more].concat();
        assert_eq!(refused(&with(&[])), "store requires cache: a folder for the cache of this node");
        assert!(refused(&with(&["--cache", "c"])).starts_with("store requires instance-key-file"));
        let found = location(&with(&["--cache", "c", "--instance-key-file", "k"])).expect("valid");
        assert_eq!(found.folder, Path::new("c"));
        assert!(found.shared.expect("a bucket").bucket.to_string().starts_with("s3://b/p"));
        for wrong in ["b", "http://b", "s3://", "s3:///p", "s3://b ad"] {
            let text = refused(&["--store", wrong, DATABASE, "--cache", "c", "--instance-key-file", "k"]);
            assert_eq!(text, format!("the store {wrong} is not of the form s3://bucket or s3://bucket/prefix"));
        }
    }

    #[test]
    fn variables_are_read_from_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("variables");
        fs::write(&file, "# key\nAWS_ACCESS_KEY_ID=one\n\nexport AWS_SECRET_ACCESS_KEY=\"two=2\"\n").expect("written");
        let set_mode =
            |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("the mode can be set");
        set_mode(0o644);
        let (error, path) = (read_variables(&file).expect_err("refused").to_string(), file.display());
        assert_eq!(
            error,
            format!("{path} is accessible to other users (mode 644), but contains credentials; run `chmod 600 {path}`")
        );
        set_mode(0o640);
        let found = read_variables(&file).expect("read");
        assert_eq!(found["AWS_ACCESS_KEY_ID"], "one");
        assert_eq!(found["AWS_SECRET_ACCESS_KEY"], "two=2");
        fs::write(&file, "AWS_ACCESS_KEY_ID=one\nsecret\n").expect("written");
        let error = read_variables(&file).expect_err("refused").to_string();
        assert_eq!(error, format!("line 2 of {} is not of the form NAME=value", file.display()));
    }
}
