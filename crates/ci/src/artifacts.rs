//! The `artifacts` keyword: files that a job uploads.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::caches::UploadWhen;
use crate::config_error::{ConfigError, KeyPath};
use crate::durations::{Lifetime, parse_lifetime};
use crate::fields::{
    ARRAY_OF_STRINGS, BOOLEAN, STRING, expect_map, owned_text, read_attribute, reject_unknown_keys, text_or_texts,
};
use crate::value::Value;

/// The files that a job uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifacts {
    /// The name of the archive.
    pub name: Option<String>,
    /// Whether files that git does not track are included.
    pub untracked: bool,
    /// Patterns of the paths to include.
    pub paths: Vec<String>,
    /// Patterns of the paths to exclude.
    pub exclude: Vec<String>,
    /// After which result of the job the files are uploaded.
    pub when: UploadWhen,
    /// The expiry as written in the file; runners send it back.
    pub expire_in: Option<String>,
    /// The name under which a merge request shows the artifacts.
    pub expose_as: Option<String>,
    /// Who may download the artifacts, if the file restricts it.
    pub access: Option<ArtifactAccess>,
    /// Paths of reports by report type.
    pub reports: BTreeMap<String, Vec<String>>,
}

/// Who may download artifacts. Jobs that depend on them always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactAccess {
    /// Every user who can see the pipeline.
    All,
    /// Users who may write to the project.
    Developer,
    /// Maintainers of the project.
    Maintainer,
    /// No user.
    Nobody,
}

impl Artifacts {
    /// Returns the expiry, if the file sets one.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.expire_in.as_deref().and_then(parse_lifetime)
    }
}

/// Reads `artifacts`.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Artifacts, ConfigError> {
    let map = expect_map(value, key_path)?;
    let known =
        ["name", "untracked", "paths", "exclude", "when", "expire_in", "expose_as", "reports", "public", "access"];
    reject_unknown_keys(map, key_path, &known)?;
    let is_duration = |value: &Value| owned_text(value).filter(|text| parse_lifetime(text).is_some());
    let public = read_attribute(map, "public", key_path, BOOLEAN, Value::as_bool)?;
    let access = read_attribute(map, "access", key_path, "should be all, developer, maintainer or none", read_access)?;
    if public.is_some() && access.is_some() {
        return Err(key_path.error("config has both `public` and `access`: keep one of them"));
    }
    let of_public = |public| if public { ArtifactAccess::All } else { ArtifactAccess::Developer };
    Ok(Artifacts {
        access: access.or(public.map(of_public)),
        name: read_attribute(map, "name", key_path, STRING, owned_text)?,
        untracked: read_attribute(map, "untracked", key_path, BOOLEAN, Value::as_bool)?.unwrap_or_default(),
        paths: read_attribute(map, "paths", key_path, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        exclude: read_attribute(map, "exclude", key_path, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        when: read_attribute(map, "when", key_path, "should be on_success, on_failure or always", UploadWhen::read)?
            .unwrap_or_default(),
        expire_in: read_attribute(map, "expire_in", key_path, "should be a duration", is_duration)?,
        expose_as: read_attribute(map, "expose_as", key_path, STRING, owned_text)?,
        reports: read_attribute(map, "reports", key_path, "should be a hash of paths", read_reports)?
            .unwrap_or_default(),
    })
}

fn read_access(value: &Value) -> Option<ArtifactAccess> {
    match value.as_text()? {
        "all" => Some(ArtifactAccess::All),
        "developer" => Some(ArtifactAccess::Developer),
        "maintainer" => Some(ArtifactAccess::Maintainer),
        "none" => Some(ArtifactAccess::Nobody),
        _ => None,
    }
}

/// Reads reports. The report type is not checked: runners and servers keep adding new ones.
fn read_reports(value: &Value) -> Option<BTreeMap<String, Vec<String>>> {
    value
        .as_map()?
        .iter()
        .map(|(kind, value)| {
            let paths = match value {
                Value::Map(described) => described.get("path").and_then(text_or_texts),
                Value::Null => Some(Vec::new()),
                other => text_or_texts(other),
            };
            Some((kind.text.clone(), paths?))
        })
        .collect()
}
