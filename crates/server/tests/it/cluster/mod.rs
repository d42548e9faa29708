//! Instances whose nodes share a PostgreSQL database and an S3 bucket.

mod backup;
mod bucket;
mod doctor;
mod fixture;
mod instance_key;
mod migrate_store;
mod node_cache;
mod read_replica;
mod two_nodes;
