//! Tests of webhooks.

mod deliveries;
mod hook_story;
mod hook_targets;
pub(crate) mod hooks;
mod system_hooks;
mod webhook_events;
