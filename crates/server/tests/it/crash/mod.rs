//! Crash tests: kills, power cuts and full disks during writes.

pub(crate) mod crash;
mod crash_full;
pub(crate) mod crash_hooks;
pub(crate) mod crash_jobs;
mod crash_power;
pub(crate) mod crash_projects;
pub(crate) mod crash_pushes;
pub(crate) mod crash_ways;
mod disk_full;
