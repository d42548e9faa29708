//! Integration tests of a whole forge, linked into one binary.

mod accounts;
mod admin;
mod ci;
mod cluster;
mod contract;
mod crash;
mod http;
mod policy;
mod projects;
mod repository;
mod support;
mod tracker;
mod web;
mod webhooks;
