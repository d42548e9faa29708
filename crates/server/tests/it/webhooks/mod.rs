//! Tests of webhooks.

mod deliveries;
mod end_to_end;
mod hook_targets;
pub(crate) mod hooks;
mod system_hooks;
mod webhook_events;
