//! Tests of the HTTP server: limits, TLS, proxies, slow and hostile clients, concurrency.

mod arrows;
mod hostile_requests;
pub(crate) mod limits;
mod postgres_tls;
mod proxies;
mod races;
mod recalled;
mod slow_clients;
mod statements;
mod tls;
