//! Tests of the HTTP server: limits, TLS, proxies, slow and hostile clients, concurrency; and of the crate structure.

mod cached_responses;
mod concurrent_requests;
mod crate_dependencies;
mod hostile_requests;
pub(crate) mod limits;
mod postgres_tls;
mod proxies;
mod query_counts;
mod slow_clients;
mod tls;
