//! The `image` and `services` keywords.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{ARRAY_OF_STRINGS, STRING, owned_text, read_attribute, reject_unknown_keys, text_or_texts};
use crate::value::Value;
use crate::variables::{self, Variables};

/// The image that a job runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The name, variables not yet expanded.
    pub name: String,
    /// Overrides the entrypoint of the image.
    pub entrypoint: Option<Vec<String>>,
    /// When the runner pulls the image.
    pub pull_policy: Vec<String>,
}

/// A service container that runs beside a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The name of the image.
    pub name: String,
    /// The host name of the service.
    pub alias: Option<String>,
    /// Overrides the entrypoint of the image.
    pub entrypoint: Option<Vec<String>>,
    /// Overrides the command of the image.
    pub command: Option<Vec<String>>,
    /// Variables for the service only.
    pub variables: Variables,
    /// When the runner pulls the image.
    pub pull_policy: Vec<String>,
}

/// Reads `image`.
pub(crate) fn read_image(value: &Value, key_path: KeyPath<'_>) -> Result<Image, ConfigError> {
    match value {
        Value::Text(name) => Ok(Image { name: name.clone(), ..Image::default() }),
        Value::Map(map) => {
            reject_unknown_keys(map, key_path, &["name", "entrypoint", "pull_policy"])?;
            Ok(Image {
                name: read_attribute(map, "name", key_path, STRING, owned_text)?
                    .ok_or_else(|| key_path.error("name can't be blank"))?,
                entrypoint: read_attribute(map, "entrypoint", key_path, ARRAY_OF_STRINGS, Value::texts)?,
                pull_policy: read_pull_policy(map.get("pull_policy"), key_path)?,
            })
        }
        _ => Err(key_path.error("config should be a string")),
    }
}

/// Reads `services`.
pub(crate) fn read_services(value: &Value, key_path: KeyPath<'_>) -> Result<Vec<Service>, ConfigError> {
    let error = || key_path.error("config should be an array of strings");
    value.as_list().ok_or_else(error)?.iter().map(|item| read_service(item, key_path)).collect()
}

fn read_service(value: &Value, key_path: KeyPath<'_>) -> Result<Service, ConfigError> {
    match value {
        Value::Text(name) => Ok(Service { name: name.clone(), ..Service::default() }),
        Value::Map(map) => {
            let key_path = key_path.child("service");
            reject_unknown_keys(
                map,
                key_path,
                &["name", "alias", "entrypoint", "command", "variables", "pull_policy"],
            )?;
            Ok(Service {
                name: read_attribute(map, "name", key_path, STRING, owned_text)?
                    .ok_or_else(|| key_path.error("name can't be blank"))?,
                alias: read_attribute(map, "alias", key_path, STRING, owned_text)?,
                entrypoint: read_attribute(map, "entrypoint", key_path, ARRAY_OF_STRINGS, Value::texts)?,
                command: read_attribute(map, "command", key_path, ARRAY_OF_STRINGS, Value::texts)?,
                variables: map
                    .get("variables")
                    .map(|value| variables::read(value, key_path.child("variables")))
                    .transpose()?
                    .unwrap_or_default(),
                pull_policy: read_pull_policy(map.get("pull_policy"), key_path)?,
            })
        }
        _ => Err(key_path.error("config should be an array of strings")),
    }
}

fn read_pull_policy(value: Option<&Value>, key_path: KeyPath<'_>) -> Result<Vec<String>, ConfigError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    text_or_texts(value)
        .filter(|policies| {
            policies.iter().all(|policy| matches!(policy.as_str(), "always" | "if-not-present" | "never"))
        })
        .ok_or_else(|| key_path.error("pull policy should be always, if-not-present or never"))
}
