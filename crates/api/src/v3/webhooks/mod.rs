//! The endpoints of webhooks.

pub(crate) mod deliveries;
pub(crate) mod hooks;
pub(crate) mod system_hooks;
