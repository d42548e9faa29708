//! Git over smart HTTP and over SSH.

mod address;
mod advertise;
mod archive_request;
mod body;
mod child;
mod commands;
mod fetch;
pub mod http;
mod neighbourhood;
mod origin;
mod pkt;
mod receive;
mod request;
pub mod ssh;
#[cfg(test)]
mod stories;
mod throttle;
mod transfers;
mod version;
mod wants;
mod words;

pub use transfers::{Limits, Transfers};
