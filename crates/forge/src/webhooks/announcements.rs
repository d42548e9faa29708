//! Telling hooks: what there is to tell is written down with the change itself.

use model::{EventKind, WebhookEvent};
use store::webhook_events::NewHookEvent;

use crate::{ReadTx, Result, WriteTx};

/// Puts into words what hooks are told.
pub trait PayloadRenderer: Send + Sync {
    /// The text of a payload.
    fn write(&self, happening: WebhookEvent<'_>) -> String;
}

/// Whether any hook wants to be told of this.
pub(crate) fn is_wanted(tx: &mut ReadTx<'_>, occasion: EventKind, project: Option<i64>) -> Result<bool> {
    Ok(store::webhook_events::is_wanted(tx.db(), occasion, project)?)
}

/// Tells the hooks that want to hear of it, once the change around this is durable.
pub(crate) fn announce(
    tx: &mut WriteTx<'_>,
    occasion: EventKind,
    project: Option<i64>,
    happening: WebhookEvent<'_>,
) -> Result<()> {
    if !is_wanted(tx, occasion, project)? {
        return Ok(());
    }
    write_down(tx, occasion, project, happening, None)
}

/// Writes down what there is to tell. What is part of a push waits until that has happened.
pub(crate) fn write_down(
    tx: &mut WriteTx<'_>,
    occasion: EventKind,
    project: Option<i64>,
    happening: WebhookEvent<'_>,
    push: Option<(i64, &str)>,
) -> Result<()> {
    let (seed, depth, now) = (seed(tx), tx.depth(), tx.now());
    let payload = tx.shared().payload_renderer.write(happening);
    let (intent, ref_name) = push.unzip();
    let event =
        NewHookEvent { occasion, project, depth, seed: &seed, intent, ref_name, payload: &payload, waiting: true, now };
    store::webhook_events::insert(tx.db(), &event)?;
    if intent.is_none() {
        tx.ring();
    }
    Ok(())
}

/// What makes the numbers of the deliveries of one message.
pub(crate) fn seed(tx: &ReadTx<'_>) -> String {
    let mut bytes = [0; 16];
    tx.shared().secrets.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}
