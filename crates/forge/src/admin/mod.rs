//! Use cases of administration: background tasks, the first administrator, the instance key and `gable doctor`.

pub mod doctor;
pub mod first_start;
pub mod instance_key;
pub mod tasks;
