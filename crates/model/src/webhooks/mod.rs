//! Types for webhooks: hooks, deliveries and events.

pub mod hooks;
pub mod webhook_events;
