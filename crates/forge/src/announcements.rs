//! Telling hooks: what there is to tell is written down with the change itself.

use model::{Happening, Occasion};
use store::hook_events::NewHookEvent;

use crate::{Reader, Result, Writer};

/// Puts into words what hooks are told.
pub trait Scribe: Send + Sync {
    /// The text of a payload.
    fn write(&self, happening: Happening<'_>) -> String;
}

/// Whether any hook wants to be told of this.
pub(crate) fn is_wanted(it: &mut Reader<'_>, occasion: Occasion, project: Option<i64>) -> Result<bool> {
    Ok(store::hook_events::is_wanted(it.db(), occasion, project)?)
}

/// Tells the hooks that want to hear of it, once the change around this is durable.
pub(crate) fn announce(
    it: &mut Writer<'_>,
    occasion: Occasion,
    project: Option<i64>,
    happening: Happening<'_>,
) -> Result<()> {
    if !is_wanted(it, occasion, project)? {
        return Ok(());
    }
    write_down(it, occasion, project, happening, None)
}

/// Writes down what there is to tell. What is part of a push waits until that has happened.
pub(crate) fn write_down(
    it: &mut Writer<'_>,
    occasion: Occasion,
    project: Option<i64>,
    happening: Happening<'_>,
    push: Option<(i64, &str)>,
) -> Result<()> {
    let (seed, depth, now) = (seed(it), it.depth(), it.now());
    let payload = it.shared().scribe.write(happening);
    let (intent, ref_name) = push.unzip();
    let event =
        NewHookEvent { occasion, project, depth, seed: &seed, intent, ref_name, payload: &payload, waiting: true, now };
    store::hook_events::insert(it.db(), &event)?;
    if intent.is_none() {
        it.ring();
    }
    Ok(())
}

/// What makes the numbers of the deliveries of one message.
pub(crate) fn seed(it: &Reader<'_>) -> String {
    let mut bytes = [0; 16];
    it.shared().secrets.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}
