//! Stories about a whole forge. One binary, so that it links once.

mod access;
mod admin;
mod arrows;
mod binary;
mod conventions;
mod crash;
mod emails;
mod identity;
mod jobs;
mod keys;
mod openapi;
mod postgres_tls;
mod races;
mod sessions;
mod startup;
mod users;
