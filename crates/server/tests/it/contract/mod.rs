//! Tests of the REST contract and of the conventions that all endpoints share.

mod contract;
mod conventions;
mod openapi;
