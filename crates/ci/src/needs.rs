//! The `needs` keyword: jobs that a job waits for, regardless of stages.

use crate::budget::MAX_NEEDS;
use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{BOOLEAN, owned_text, read_attribute, reject_unknown_keys};
use crate::value::{Value, flatten};

/// A job that another one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The name of the job in the file.
    pub job: String,
    /// Whether its artifacts are downloaded.
    pub artifacts: bool,
    /// Whether the pipeline may lack the job.
    pub optional: bool,
}

/// Reads `needs`: names or mappings.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Vec<Need>, ConfigError> {
    let error = || key_path.error("config should be an array of job names or hashes");
    let items = flatten(value.as_list().ok_or_else(error)?).ok_or_else(error)?;
    if items.len() > MAX_NEEDS {
        return Err(key_path.error(format_args!("config lists {} jobs (maximum is {MAX_NEEDS})", items.len())));
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::Text(job) => Ok(Need { job: job.clone(), artifacts: true, optional: false }),
            Value::Map(map) => {
                let key_path = key_path.child("need");
                reject_unknown_keys(map, key_path, &["job", "artifacts", "optional"])?;
                Ok(Need {
                    job: read_attribute(map, "job", key_path, "should be a string", owned_text)?
                        .ok_or_else(|| key_path.error("job can't be blank"))?,
                    artifacts: read_attribute(map, "artifacts", key_path, BOOLEAN, Value::as_bool)?.unwrap_or(true),
                    optional: read_attribute(map, "optional", key_path, BOOLEAN, Value::as_bool)?.unwrap_or(false),
                })
            }
            _ => Err(error()),
        })
        .collect()
}
