//! Stories about a whole forge. One binary, so that it links once.

mod accounts;
mod admin;
mod ci;
mod contract;
mod crash;
mod http;
mod policy;
mod projects;
mod repository;
mod tracker;
mod webhooks;
