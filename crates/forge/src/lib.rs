//! What one can do here: rights, use cases, events and jobs. Synchronous below the [`bridge`].

mod accounts;
mod admin;
mod ci;
pub mod projects;
mod repository;
mod runtime;
mod tracker;
mod webhooks;

pub use accounts::{emails, keys, passwords, sessions, tokens, users};
pub use admin::{doctor, first_start, instance_key, tasks};
use ci::job_notifier;
pub use ci::{
    artifacts, assignments, builds, lint, pipelines, runners, stale_jobs, statuses, traces, triggers, variables,
    waiting,
};
pub use projects::{deploy_keys, events, fork_links, forks, groups, members, namespaces, uploads};
use projects::{import_slots, imports};
pub use repository::{branches, commit_notes, commits, contents, downloads, pushes, repository_files, tags, transport};
pub use runtime::{bridge, clock, disk_space};
use runtime::{commit_outcome, memo, repository_locks, stored_files};
use tracker::mentions;
pub use tracker::{boards, issues, labels, milestones, notes};
pub use webhooks::{announcements, deliveries, hooks, outgoing};
use webhooks::{hook_samples, webhook_events};

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
