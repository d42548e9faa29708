//! All SQL statements, written once and compiled for both SQLite and PostgreSQL.

mod accounts;
mod admin;
mod ci;
pub mod projects;
mod repository;
mod tracker;
mod webhooks;

pub use accounts::{emails, identities, keys, tokens, users, web_sessions};
pub use admin::{checks, dump, instance, instance_secrets, nodes, statistics, tasks};
pub use ci::{
    artifacts, job_lists, job_queue, job_runs, jobs, pipelines, runners, statuses, trace_segments, triggers, variables,
};
use projects::access;
pub use projects::{avatars, deploy_keys, events, forks, groups, imports, members, namespaces, project_lists, uploads};
pub use repository::{commit_notes, intents, packs, protections, releases, repositories, unconverted};
use tracker::issue_visibility;
pub use tracker::{boards, issue_lists, issues, labels, mentions, milestones, notes};
pub use webhooks::{deliveries, delivery_log, hooks, webhook_events};

mod conn;
mod constant;
mod count_up_to;
mod database;
mod error;
mod fragment;
mod listener;
mod page_ids;
mod postgres;
mod replication;
mod schema;
mod search;
mod sqlite;
mod times;
mod transactions;

pub use access::Viewer;
pub use conn::Conn;
pub use database::{ConnectionUsage, DataVersion, Database, OpenError, SchemaStatus};
pub use error::{Error, Result};
pub use issue_visibility::IssueVisibility;
pub use listener::{Listener, TimeMeasurement};
pub use replication::{LogPosition, ReplayState};
pub use search::SearchTerm;
pub use transactions::{ServerState, TransactionId, TransactionStatus};
