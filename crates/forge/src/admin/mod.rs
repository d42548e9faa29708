//! Use cases of administration: background tasks, the first administrator, the instance key, shared
//! secrets, the registry of nodes, the upgrade of repositories and
//! `gable doctor`.

pub mod doctor;
pub mod first_start;
pub mod instance_key;
pub mod instance_secrets;
pub mod nodes;
pub mod overview;
pub mod storage_upgrade;
pub mod tasks;
