//! Endpoints of the instance.

pub(crate) mod instance;
