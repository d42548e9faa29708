//! Crash tests: kills, power cuts and full disks during writes.

mod accounts;
mod campaign;
mod disk_full;
mod disk_full_crashes;
mod jobs;
mod power_cuts;
mod projects;
mod pushes;
mod webhooks;
