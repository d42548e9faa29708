//! The endpoints of administration.

pub(crate) mod instance;
