//! Tells hooks what happens: how it reads ([`payloads`]), and how it gets there ([`client`], [`rounds`]).

pub mod client;
pub mod payloads;
pub mod rounds;

pub use client::Client;
pub use payloads::{Clerk, TimeFormat};
