//! The `environment` keyword: where a job deploys to.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, KeyPath};
use crate::durations::{Lifetime, parse_lifetime};
use crate::fields::{STRING, owned_text, read_attribute, reject_unknown_keys};
use crate::value::Value;

/// The environment of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The name, variables not yet expanded.
    pub name: String,
    /// The URL, variables not yet expanded.
    pub url: Option<String>,
    /// What the job does to the environment.
    pub action: EnvironmentAction,
    /// The name of the job that stops the environment.
    pub on_stop: Option<String>,
    /// The time after which the environment is stopped automatically.
    pub auto_stop_in: Option<Lifetime>,
    /// The tier, such as `production`.
    pub deployment_tier: Option<String>,
}

/// What a job does to its environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvironmentAction {
    /// Deploys to the environment.
    #[default]
    Start,
    /// Stops the environment.
    Stop,
    /// Prepares the environment, without a deployment.
    Prepare,
    /// Verifies the environment, without a deployment.
    Verify,
    /// Accesses the environment, without a deployment.
    Access,
}

/// Reads `environment`.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Environment, ConfigError> {
    let plain = |name: String| Environment {
        name,
        url: None,
        action: EnvironmentAction::Start,
        on_stop: None,
        auto_stop_in: None,
        deployment_tier: None,
    };
    let environment = match value {
        Value::Text(name) => plain(name.clone()),
        Value::Map(map) => {
            reject_unknown_keys(
                map,
                key_path,
                &["name", "url", "action", "on_stop", "auto_stop_in", "deployment_tier"],
            )?;
            let name = read_attribute(map, "name", key_path, STRING, owned_text)?
                .ok_or_else(|| key_path.error("name can't be blank"))?;
            let tier = |value: &Value| owned_text(value).filter(|tier| TIERS.contains(&tier.as_str()));
            let lifetime = |value: &Value| value.as_text().and_then(parse_lifetime);
            Environment {
                url: read_attribute(map, "url", key_path, STRING, owned_text)?,
                action: read_attribute(map, "action", key_path, "should be start or stop", read_action)?
                    .unwrap_or_default(),
                on_stop: read_attribute(map, "on_stop", key_path, STRING, owned_text)?,
                auto_stop_in: read_attribute(map, "auto_stop_in", key_path, "should be a duration", lifetime)?,
                deployment_tier: read_attribute(
                    map,
                    "deployment_tier",
                    key_path,
                    "must be one of production, staging, testing, development, or other",
                    tier,
                )?,
                ..plain(name)
            }
        }
        _ => return Err(key_path.error("config should be a hash or a string")),
    };
    let is_allowed = |ch: char| ch.is_ascii_alphanumeric() || "-_/${}. ".contains(ch);
    if environment.name.is_empty() {
        return Err(key_path.error("name can't be blank"));
    }
    if !environment.name.chars().all(is_allowed) {
        return Err(
            key_path.error("name can contain only letters, digits, '-', '_', '/', '$', '{', '}', '.' and spaces")
        );
    }
    if environment.name.len() > 255 {
        return Err(key_path.error("name is too long (maximum is 255 characters)"));
    }
    Ok(environment)
}

const TIERS: [&str; 5] = ["production", "staging", "testing", "development", "other"];

fn read_action(value: &Value) -> Option<EnvironmentAction> {
    match value.as_text()? {
        "start" => Some(EnvironmentAction::Start),
        "stop" => Some(EnvironmentAction::Stop),
        "prepare" => Some(EnvironmentAction::Prepare),
        "verify" => Some(EnvironmentAction::Verify),
        "access" => Some(EnvironmentAction::Access),
        _ => None,
    }
}
