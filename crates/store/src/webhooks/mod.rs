//! Statements for webhooks: hooks, events, delivery queues and the delivery log.

pub mod deliveries;
pub mod delivery_log;
pub mod hooks;
pub mod webhook_events;
