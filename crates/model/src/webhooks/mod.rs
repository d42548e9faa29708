//! The nouns of webhooks.

pub mod hooks;
pub mod webhook_events;
