//! The nouns of administration.

pub mod tasks;
