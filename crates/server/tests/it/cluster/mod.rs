//! Instances whose nodes share a PostgreSQL database and an S3 bucket.

mod backup;
mod bucket;
mod fixture;
mod migrate_store;
mod two_nodes;
