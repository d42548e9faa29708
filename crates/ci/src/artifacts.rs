//! What a job leaves behind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::caches::Outcome;
use crate::durations::{Lifetime, read_lifetime};
use crate::entries::{ARRAY_OF_STRINGS, BOOLEAN, STRING, attribute, known_keys, mapping, owned_text, text_or_texts};
use crate::invalid::{Invalid, Place};
use crate::value::Value;

/// Files that a job hands over to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifacts {
    /// The name of the archive.
    pub name: Option<String>,
    /// Whether files that git does not track belong to it.
    pub untracked: bool,
    /// What belongs to it.
    pub paths: Vec<String>,
    /// What does not, although its path does.
    pub exclude: Vec<String>,
    /// After which outcome it is uploaded.
    pub when: Outcome,
    /// How long it is kept, as it was written; runners send it back.
    pub expire_in: Option<String>,
    /// Under which name a merge request shows it.
    pub expose_as: Option<String>,
    /// Who may fetch it, if the file says so.
    pub access: Option<ArtifactAccess>,
    /// Reports by kind, each with its paths.
    pub reports: BTreeMap<String, Vec<String>>,
}

/// Who may fetch artifacts, besides the jobs that get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactAccess {
    /// Everybody who sees the pipeline.
    All,
    /// Those who may write to the project.
    Developer,
    /// Those who run the project.
    Maintainer,
    /// Nobody.
    Nobody,
}

impl Artifacts {
    /// How long it is kept, if the file says so.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.expire_in.as_deref().and_then(read_lifetime)
    }
}

/// Reads `artifacts`.
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Artifacts, Invalid> {
    let map = mapping(value, place)?;
    let known =
        ["name", "untracked", "paths", "exclude", "when", "expire_in", "expose_as", "reports", "public", "access"];
    known_keys(map, place, &known)?;
    let is_duration = |value: &Value| owned_text(value).filter(|text| read_lifetime(text).is_some());
    let public = attribute(map, "public", place, BOOLEAN, Value::as_bool)?;
    let access = attribute(map, "access", place, "should be all, developer, maintainer or none", read_access)?;
    if public.is_some() && access.is_some() {
        return Err(place.invalid("config has both `public` and `access`: keep one of them"));
    }
    let of_public = |public| if public { ArtifactAccess::All } else { ArtifactAccess::Developer };
    Ok(Artifacts {
        access: access.or(public.map(of_public)),
        name: attribute(map, "name", place, STRING, owned_text)?,
        untracked: attribute(map, "untracked", place, BOOLEAN, Value::as_bool)?.unwrap_or_default(),
        paths: attribute(map, "paths", place, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        exclude: attribute(map, "exclude", place, ARRAY_OF_STRINGS, Value::texts)?.unwrap_or_default(),
        when: attribute(map, "when", place, "should be on_success, on_failure or always", Outcome::read)?
            .unwrap_or_default(),
        expire_in: attribute(map, "expire_in", place, "should be a duration", is_duration)?,
        expose_as: attribute(map, "expose_as", place, STRING, owned_text)?,
        reports: attribute(map, "reports", place, "should be a hash of paths", read_reports)?.unwrap_or_default(),
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

/// Reads reports without asking which kinds there are: runners and servers learn new ones all the time.
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
