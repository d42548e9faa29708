//! Tests of administration: commands, start and stop, backups, upgrades, packaging.

mod admin_commands;
mod avatars;
pub(crate) mod backup;
mod backup_damage;
mod backup_formats;
mod database_outages;
mod doctor;
mod instance;
mod nodes;
mod packaging;
mod repository_commands;
mod schema;
mod startup;
mod tasks;
mod upgrades;
