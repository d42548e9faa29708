//! Webhooks: renders [`payloads`] and delivers them ([`dispatcher`], [`client`]).

pub mod client;
pub mod dispatcher;
pub mod payloads;

pub use client::Client;
pub use payloads::{JsonPayloadRenderer, TimeFormat};
