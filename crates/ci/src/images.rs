//! Images and services: a name, or a mapping with more to say.

use serde::{Deserialize, Serialize};

use crate::entries::{ARRAY_OF_STRINGS, STRING, attribute, known_keys, owned_text, text_or_texts};
use crate::invalid::{Invalid, Place};
use crate::value::Value;
use crate::variables::{self, Variables};

/// The image that a job runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its name, variables not yet expanded.
    pub name: String,
    /// What to start instead of the image's own entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// When the runner fetches it anew.
    pub pull_policy: Vec<String>,
}

/// A service that runs beside a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The name of its image.
    pub name: String,
    /// The host name under which the job finds it.
    pub alias: Option<String>,
    /// What to start instead of the image's own entrypoint.
    pub entrypoint: Option<Vec<String>>,
    /// What to start instead of the image's own command.
    pub command: Option<Vec<String>>,
    /// Variables for the service alone.
    pub variables: Variables,
    /// When the runner fetches it anew.
    pub pull_policy: Vec<String>,
}

/// Reads `image`.
pub(crate) fn read_image(value: &Value, place: Place<'_>) -> Result<Image, Invalid> {
    match value {
        Value::Text(name) => Ok(Image { name: name.clone(), ..Image::default() }),
        Value::Map(map) => {
            known_keys(map, place, &["name", "entrypoint", "pull_policy"])?;
            Ok(Image {
                name: attribute(map, "name", place, STRING, owned_text)?
                    .ok_or_else(|| place.invalid("name can't be blank"))?,
                entrypoint: attribute(map, "entrypoint", place, ARRAY_OF_STRINGS, Value::texts)?,
                pull_policy: read_pull_policy(map.get("pull_policy"), place)?,
            })
        }
        _ => Err(place.invalid("config should be a string")),
    }
}

/// Reads `services`.
pub(crate) fn read_services(value: &Value, place: Place<'_>) -> Result<Vec<Service>, Invalid> {
    let refuse = || place.invalid("config should be an array of strings");
    value.as_list().ok_or_else(refuse)?.iter().map(|item| read_service(item, place)).collect()
}

fn read_service(value: &Value, place: Place<'_>) -> Result<Service, Invalid> {
    match value {
        Value::Text(name) => Ok(Service { name: name.clone(), ..Service::default() }),
        Value::Map(map) => {
            let place = place.at("service");
            known_keys(map, place, &["name", "alias", "entrypoint", "command", "variables", "pull_policy"])?;
            Ok(Service {
                name: attribute(map, "name", place, STRING, owned_text)?
                    .ok_or_else(|| place.invalid("name can't be blank"))?,
                alias: attribute(map, "alias", place, STRING, owned_text)?,
                entrypoint: attribute(map, "entrypoint", place, ARRAY_OF_STRINGS, Value::texts)?,
                command: attribute(map, "command", place, ARRAY_OF_STRINGS, Value::texts)?,
                variables: map
                    .get("variables")
                    .map(|value| variables::read(value, place.at("variables")))
                    .transpose()?
                    .unwrap_or_default(),
                pull_policy: read_pull_policy(map.get("pull_policy"), place)?,
            })
        }
        _ => Err(place.invalid("config should be an array of strings")),
    }
}

fn read_pull_policy(value: Option<&Value>, place: Place<'_>) -> Result<Vec<String>, Invalid> {
    let Some(value) = value else { return Ok(Vec::new()) };
    text_or_texts(value)
        .filter(|policies| {
            policies.iter().all(|policy| matches!(policy.as_str(), "always" | "if-not-present" | "never"))
        })
        .ok_or_else(|| place.invalid("pull policy should be always, if-not-present or never"))
}
