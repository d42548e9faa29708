//! REST: parameters in, JSON out. Everything that all versions of the interface share lies here; `v3` is the first.

pub mod dialect;
pub mod routes;

mod access_log;
mod app;
mod bodies;
mod buffered;
mod cors;
mod error;
mod extract;
mod file_part;
mod headers;
mod identicon;
mod inbox;
mod json_items;
mod limits;
mod metrics;
mod names;
mod neighbourhood;
mod openapi;
mod pages;
mod paging;
mod params;
mod proxies;
mod raw;
mod raw_body;
mod reply;
mod runner;
mod sign_in;
mod site;
mod v3;

pub use access_log::{AccessLog, Answered};
pub use app::{App, AppOptions, CourierDoor, Door, GitDoor};
pub use dialect::Dialect;
pub use error::plain_error;
pub use extract::shown_by;
pub use limits::Guards;
pub use neighbourhood::neighbourhood;
pub use proxies::{Reached, TrustedProxies, parse_proxy};
