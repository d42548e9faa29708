//! Looking over a CI file that need not be in any repository.

use ci::{Config, NoFiles};

use crate::{Caller, Forge, Result, Unvalidated};

/// The first error of a CI file; nothing if it is in order. Anybody may ask: all there is to learn is what they said.
pub async fn check(forge: &Forge, content: Unvalidated<String>) -> Result<Option<String>> {
    // What reading a file costs is bounded, and yet more than a short read.
    let load = move |content: &str| Config::load(content, &NoFiles).err().map(|invalid| invalid.text);
    forge.run_blocking(Caller::anonymous(), move |_| Ok(load(content.get()?))).await
}
