//! Endpoints of project hooks and system hooks.

pub(crate) mod deliveries;
pub(crate) mod hooks;
pub(crate) mod system_hooks;
