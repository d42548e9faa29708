//! Tests of the REST contract and of the conventions that all endpoints share.

#[expect(clippy::module_inception, reason = "the tests that give the folder its name")]
mod contract;
mod conventions;
mod openapi;
