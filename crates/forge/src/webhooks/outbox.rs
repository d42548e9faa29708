//! Writes webhook events to the outbox, in the transaction of the change that caused them.

use model::{EventKind, ProjectId, WebhookEvent};
use store::webhook_events::NewHookEvent;

use crate::{ReadTx, Result, WriteTx};

/// Renders the payloads of webhooks.
pub trait PayloadRenderer: Send + Sync {
    /// Returns the payload of an event.
    fn render(&self, event: WebhookEvent<'_>) -> String;
}

/// Returns whether any hook subscribes to a kind of event.
pub(crate) fn has_subscribers(tx: &mut ReadTx<'_>, kind: EventKind, project: Option<ProjectId>) -> Result<bool> {
    Ok(store::webhook_events::has_subscribers(tx.db(), kind, project)?)
}

/// Enqueues an event if any hook subscribes to it.
pub(crate) fn publish(
    tx: &mut WriteTx<'_>,
    kind: EventKind,
    project: Option<ProjectId>,
    event: WebhookEvent<'_>,
) -> Result<()> {
    if !has_subscribers(tx.read(), kind, project)? {
        return Ok(());
    }
    enqueue(tx, kind, project, event)
}

/// Enqueues an event.
pub(crate) fn enqueue(
    tx: &mut WriteTx<'_>,
    kind: EventKind,
    project: Option<ProjectId>,
    event: WebhookEvent<'_>,
) -> Result<()> {
    let (seed, depth, now) = (new_seed(tx.read()), tx.read().hook_depth(), tx.now());
    let payload = tx.shared().payload_renderer.render(event);
    let event = NewHookEvent { kind, project, depth, seed: &seed, payload: &payload, waiting: true, now };
    store::webhook_events::insert(tx.db(), &event)?;
    tx.notify_dispatcher();
    Ok(())
}

/// Returns a random seed for the UUIDs of an event's deliveries.
pub(crate) fn new_seed(tx: &ReadTx<'_>) -> String {
    let mut bytes = [0; 16];
    tx.shared().secrets.fill(&mut bytes);
    format!("{:032x}", u128::from_be_bytes(bytes))
}
