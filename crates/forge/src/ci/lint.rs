//! Validates a CI file that need not be part of a repository.

use ci::{Config, NoFiles};

use crate::{Caller, Forge, Result, Unvalidated};

/// Returns the first error of a CI file; `None` if it is valid. Needs no permissions, because it reads only the given text.
pub async fn check(forge: &Forge, content: Unvalidated<String>) -> Result<Option<String>> {
    // The cost of parsing is bounded, but higher than that of a short read.
    let load = move |content: &str| Config::load(content, &NoFiles).err().map(|invalid| invalid.text);
    forge.run_blocking(Caller::anonymous(), move |_| Ok(load(content.validate()?))).await
}
