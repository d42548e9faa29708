//! `needs`: a job that starts as soon as certain others are done, whatever the stages say.

use crate::budget::MAX_NEEDS;
use crate::entries::{BOOLEAN, attribute, known_keys, owned_text};
use crate::invalid::{Invalid, Place};
use crate::value::{Value, flatten};

/// A job that another one needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its name in the file.
    pub job: String,
    /// Whether its artifacts are fetched.
    pub artifacts: bool,
    /// Whether the pipeline may lack it.
    pub optional: bool,
}

/// Reads `needs`: names, or mappings with more to say.
pub(crate) fn read(value: &Value, place: Place<'_>) -> Result<Vec<Need>, Invalid> {
    let refuse = || place.invalid("config should be an array of job names or hashes");
    let items = flatten(value.as_list().ok_or_else(refuse)?).ok_or_else(refuse)?;
    if items.len() > MAX_NEEDS {
        return Err(place.invalid(format_args!("config lists {} jobs (maximum is {MAX_NEEDS})", items.len())));
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::Text(job) => Ok(Need { job: job.clone(), artifacts: true, optional: false }),
            Value::Map(map) => {
                let place = place.at("need");
                known_keys(map, place, &["job", "artifacts", "optional"])?;
                Ok(Need {
                    job: attribute(map, "job", place, "should be a string", owned_text)?
                        .ok_or_else(|| place.invalid("job can't be blank"))?,
                    artifacts: attribute(map, "artifacts", place, BOOLEAN, Value::as_bool)?.unwrap_or(true),
                    optional: attribute(map, "optional", place, BOOLEAN, Value::as_bool)?.unwrap_or(false),
                })
            }
            _ => Err(refuse()),
        })
        .collect()
}
