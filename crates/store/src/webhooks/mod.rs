//! The statements of webhooks.

pub mod deliveries;
pub mod delivery_log;
pub mod hooks;
pub mod webhook_events;
