//! Variables without a flag, because they contain secrets: other users can read the arguments of a process.

use std::env::{self, VarError};

use anyhow::{Result, anyhow};

/// The password of the first administrator.
pub(crate) const ROOT_PASSWORD: &str = "GABLE_ROOT_PASSWORD";
/// The token of the first administrator.
pub(crate) const ROOT_TOKEN: &str = "GABLE_ROOT_TOKEN";
/// The token with which a runner is registered.
pub(crate) const REGISTRATION_TOKEN: &str = "GABLE_REGISTRATION_TOKEN";
/// The token of a registered runner.
pub(crate) const RUNNER_TOKEN: &str = "GABLE_RUNNER_TOKEN";

/// All of them.
pub(crate) const ALL: [&str; 4] = [ROOT_PASSWORD, ROOT_TOKEN, REGISTRATION_TOKEN, RUNNER_TOKEN];

/// Returns the value of a variable, unless it is empty.
pub(crate) fn read(name: &str) -> Result<Option<String>> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(anyhow!("{name} is not valid UTF-8")),
    }
}
