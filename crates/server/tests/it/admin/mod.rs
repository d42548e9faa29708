//! Tests of administration.

mod admin_commands;
pub(crate) mod backup;
mod backup_damage;
pub(crate) mod backup_forms;
pub(crate) mod binary;
mod doctor;
mod instance;
mod packaging;
mod startup;
mod tasks;
mod upgrades;
