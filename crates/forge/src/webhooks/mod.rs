//! Use cases for webhooks: hooks, the outbox of events and delivery queues.

pub mod deliveries;
pub mod hook_pages;
pub mod hooks;
pub mod outbox;
pub(crate) mod sample_payloads;
pub(crate) mod system_events;
