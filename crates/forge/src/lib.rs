//! The use cases of the forge: permissions, business rules, events and background tasks. Synchronous below the [`bridge`].

mod accounts;
mod admin;
mod ci;
pub mod projects;
mod repository;
mod runtime;
mod tracker;
mod webhooks;

pub use accounts::{emails, keys, passwords, sessions, tokens, user_pages, users, web_sessions};
pub use admin::{doctor, first_start, instance_key, instance_secrets, nodes, overview, storage_upgrade, tasks};
use ci::job_notifier;
pub use ci::{
    artifact_files, artifacts, ci_setting_pages, job_pages, job_queue, jobs, lint, pipeline_pages, pipelines, runners,
    stale_jobs, statuses, stuck_jobs, traces, triggers, variables,
};
pub use projects::{
    avatars, deploy_keys, events, explore, fork_links, forks, group_pages, groups, member_pages, members, namespaces,
    project_pages, search_pages, uploads,
};
use projects::{import_slots, imports};
pub use repository::{
    branches, browse, code_search, commit_authors, commit_notes, commits, contents, deleted_refs, downloads,
    edit_pages, history_pages, maintenance, node_cache, pushes, ref_pages, release_pages, repository_files, tags,
    transport,
};
use runtime::{
    blocking, commit_outcome, lookups, read_cache, repository_cache, repository_locks, stored_files, work_queue,
};
pub use runtime::{bridge, clock, disk_space, outbound_addresses, rate_limiter, wakeups, weak_map};
use tracker::mentions;
pub use tracker::{
    board_pages, boards, issue_pages, issues, label_pages, labels, milestone_pages, milestones, notes, references,
};
pub use webhooks::{deliveries, hook_pages, hooks, outbox};
use webhooks::{sample_payloads, system_events};

pub mod caller;
pub mod error;
pub mod policy;
pub mod unvalidated;

pub use bridge::{BlockingContext, Forge, Options, ReadTx, WriteTx, panic_text};
pub use caller::{Actor, Caller};
pub use error::{Error, Result};
pub use instance_key::InstanceKey;
pub use policy::{Ability, GroupAbility, GroupRef, ProjectAbility, ProjectRef};
pub use unvalidated::Unvalidated;
