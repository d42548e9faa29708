//! The `retry` keyword: automatic retries of a failed job.

use serde::{Deserialize, Serialize};

use crate::config_error::{ConfigError, KeyPath};
use crate::fields::{read_attribute, reject_unknown_keys, text_or_texts};
use crate::value::Value;

/// The maximum number of retries.
const MAX_RETRIES: i64 = 2;

/// When a failed job is retried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The maximum number of retries.
    pub max: u8,
    /// The failure reasons to retry; empty for all.
    pub when: Vec<String>,
    /// The exit codes to retry; empty for all.
    pub exit_codes: Vec<i64>,
}

impl Retry {
    /// Returns whether a failed job is retried. `attempts` counts the attempts so far, including the first.
    pub fn allows(&self, attempts: usize, reason: &str, exit_code: Option<i64>) -> bool {
        if attempts > usize::from(self.max) {
            return false;
        }
        let any = self.when.is_empty() && self.exit_codes.is_empty();
        let by_reason = self.when.iter().any(|known| known == "always" || known == reason);
        let by_code = exit_code.is_some_and(|code| self.exit_codes.contains(&code));
        any || by_reason || by_code
    }
}

/// Reads `retry`: a number or a mapping.
pub(crate) fn read(value: &Value, key_path: KeyPath<'_>) -> Result<Retry, ConfigError> {
    match value {
        Value::Int(number) => Ok(Retry { max: read_max(*number, key_path, "config")?, ..Retry::default() }),
        Value::Map(map) => {
            reject_unknown_keys(map, key_path, &["max", "when", "exit_codes"])?;
            let max = read_attribute(map, "max", key_path, "must be an integer", Value::as_int)?;
            let reasons = |value: &Value| {
                text_or_texts(value).filter(|reasons| reasons.iter().all(|reason| REASONS.contains(&reason.as_str())))
            };
            Ok(Retry {
                max: max.map(|number| read_max(number, key_path, "max")).transpose()?.unwrap_or_default(),
                when: read_attribute(map, "when", key_path, "is not one of the known reasons", reasons)?
                    .unwrap_or_default(),
                exit_codes: read_attribute(
                    map,
                    "exit_codes",
                    key_path,
                    "should be an integer or a list",
                    read_exit_codes,
                )?
                .unwrap_or_default(),
            })
        }
        _ => Err(key_path.error("config has to be either an integer or a hash")),
    }
}

fn read_max(number: i64, key_path: KeyPath<'_>, subject: &str) -> Result<u8, ConfigError> {
    if number > MAX_RETRIES {
        return Err(key_path.error(format_args!("{subject} must be less than or equal to {MAX_RETRIES}")));
    }
    u8::try_from(number).map_err(|_| key_path.error(format_args!("{subject} must be greater than or equal to 0")))
}

/// Reads one exit code or a list.
pub(crate) fn read_exit_codes(value: &Value) -> Option<Vec<i64>> {
    match value {
        Value::Int(code) => Some(vec![*code]),
        Value::List(items) => items.iter().map(Value::as_int).collect(),
        _ => None,
    }
}

const REASONS: [&str; 18] = [
    "always",
    "unknown_failure",
    "script_failure",
    "api_failure",
    "stuck_or_timeout_failure",
    "runner_system_failure",
    "runner_unsupported",
    "stale_schedule",
    "job_execution_timeout",
    "archived_failure",
    "unmet_prerequisites",
    "scheduler_failure",
    "data_integrity_failure",
    "missing_dependency_failure",
    "forward_deployment_failure",
    "no_matching_runner",
    "image_pull_failure",
    "ci_quota_exceeded",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_retried_for_the_given_reasons_only() {
        let plain = Retry { max: 1, ..Retry::default() };
        assert!(plain.allows(1, "script_failure", Some(1)));
        assert!(!plain.allows(2, "script_failure", Some(1)));
        let system = Retry { max: 2, when: vec!["runner_system_failure".into()], exit_codes: vec![137] };
        assert!(system.allows(2, "runner_system_failure", None));
        assert!(system.allows(1, "script_failure", Some(137)));
        assert!(!system.allows(1, "script_failure", Some(1)));
        assert!(!Retry::default().allows(1, "script_failure", None));
    }
}
