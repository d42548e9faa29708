//! Statements of repositories.

mod columns;
pub mod commit_notes;
pub mod intents;
pub mod packs;
pub mod protections;
pub mod releases;
pub mod repositories;
pub mod unconverted;

#[cfg(test)]
mod tests;
