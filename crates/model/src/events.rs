//! What happened: the activity of users and projects.

/// Something that happened. Nothing records events yet, so there is none, and the type says so.
#[derive(Clone, Copy, Debug)]
pub enum Event {}
