//! Where a job deploys to.

use serde::{Deserialize, Serialize};

use crate::durations::{Lifetime, read_lifetime};
use crate::entries::{STRING, attribute, known_keys, owned_text};
use crate::invalid::{Invalid, Place};
use crate::value::Value;

/// The environment of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Its name, variables not yet expanded.
    pub name: String,
    /// Where it is found, variables not yet expanded.
    pub url: Option<String>,
    /// What the job does to it.
    pub action: Action,
    /// The job that stops it.
    pub on_stop: Option<String>,
    /// After which time it stops by itself.
    pub auto_stop_in: Option<Lifetime>,
    /// What it is for, such as `production`.
    pub deployment_tier: Option<String>,
}

/// What a job does to its environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Deploys to it.
    #[default]
    Start,
    /// Stops it.
    Stop,
    /// Prepares it, without a deployment.
    Prepare,
    /// Verifies it, without a deployment.
    Verify,
    /// Uses it, without a deployment.
    Access,
}

/// Reads `environment`.
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Environment, Invalid> {
    let plain = |name: String| Environment {
        name,
        url: None,
        action: Action::Start,
        on_stop: None,
        auto_stop_in: None,
        deployment_tier: None,
    };
    let environment = match value {
        Value::Text(name) => plain(name.clone()),
        Value::Map(map) => {
            known_keys(map, place, &["name", "url", "action", "on_stop", "auto_stop_in", "deployment_tier"])?;
            let name = attribute(map, "name", place, STRING, owned_text)?
                .ok_or_else(|| place.invalid("name can't be blank"))?;
            let tier = |value: &Value| owned_text(value).filter(|tier| TIERS.contains(&tier.as_str()));
            let lifetime = |value: &Value| value.as_text().and_then(read_lifetime);
            Environment {
                url: attribute(map, "url", place, STRING, owned_text)?,
                action: attribute(map, "action", place, "should be start or stop", read_action)?.unwrap_or_default(),
                on_stop: attribute(map, "on_stop", place, STRING, owned_text)?,
                auto_stop_in: attribute(map, "auto_stop_in", place, "should be a duration", lifetime)?,
                deployment_tier: attribute(
                    map,
                    "deployment_tier",
                    place,
                    "must be one of production, staging, testing, development, or other",
                    tier,
                )?,
                ..plain(name)
            }
        }
        _ => return Err(place.invalid("config should be a hash or a string")),
    };
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_/${}. ".contains(sign);
    if environment.name.is_empty() {
        return Err(place.invalid("name can't be blank"));
    }
    if !environment.name.chars().all(fits) {
        return Err(
            place.invalid("name can contain only letters, digits, '-', '_', '/', '$', '{', '}', '.' and spaces")
        );
    }
    if environment.name.len() > 255 {
        return Err(place.invalid("name is too long (maximum is 255 characters)"));
    }
    Ok(environment)
}

const TIERS: [&str; 5] = ["production", "staging", "testing", "development", "other"];

fn read_action(value: &Value) -> Option<Action> {
    match value.as_text()? {
        "start" => Some(Action::Start),
        "stop" => Some(Action::Stop),
        "prepare" => Some(Action::Prepare),
        "verify" => Some(Action::Verify),
        "access" => Some(Action::Access),
        _ => None,
    }
}
