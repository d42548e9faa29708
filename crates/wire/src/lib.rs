//! Git over smart HTTP and over SSH.

mod advertise;
mod archive_request;
mod body;
mod child;
mod failed_sign_ins;
mod fetch;
mod fetch_request;
pub mod http;
mod log_context;
mod messages;
mod pkt;
mod project_path;
mod protocol_version;
mod push_request;
mod receive_pack;
pub mod ssh;
#[cfg(test)]
mod tests;
mod transfers;
mod upload_pack_filter;

pub use transfers::{TransferLimits, Transfers};
