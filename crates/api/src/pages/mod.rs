//! What is served beside the interface, below the page of a project.

pub(crate) mod uploads;
