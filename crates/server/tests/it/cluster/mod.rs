//! Instances whose nodes share a PostgreSQL database and an S3 bucket.

mod bucket;
mod two_nodes;
