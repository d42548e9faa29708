//! The use cases of webhooks.

pub mod announcements;
pub mod deliveries;
pub(crate) mod hook_samples;
pub mod hooks;
pub mod outgoing;
pub(crate) mod webhook_events;
