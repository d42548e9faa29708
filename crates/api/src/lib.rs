//! The REST API over HTTP: parameters in, JSON out. Machinery that all versions share is here; `v3` is the first version.

pub mod dialect;
pub mod routes;

mod access_log;
mod app;
mod client_address;
mod context;
mod cors;
mod error;
mod extract;
mod file_part;
mod file_response;
mod json_params;
mod limits;
mod metrics;
mod openapi;
mod paging;
mod params;
mod path_normalization;
mod proxies;
mod public_files;
mod raw_body;
mod reply;
mod request_body;
mod request_params;
mod response_buffer;
mod runner;
mod security_headers;
mod site;
mod v3;

pub use access_log::{AccessLog, AccessLogEntry};
pub use app::{App, AppOptions, ErrorPage, GitHandler, HttpService, PageHandler, PageService, WebhookSender};
pub use dialect::Dialect;
pub use error::plain_error;
pub use extract::caller_from_headers;
pub use limits::LimitOptions;
pub use proxies::{InvalidProxy, PublicEndpoint, TrustedProxies, parse_proxy};
pub use v3::openapi_document;
