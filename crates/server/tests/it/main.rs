//! Stories about a whole forge. One binary, so that it links once.

mod admin;
mod binary;
mod crash;
mod postgres_tls;
mod startup;
