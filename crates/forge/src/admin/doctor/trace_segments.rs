//! Checks that the segments of traces have all bytes that were acknowledged.

use store::checks::{self, StoredFileKind, StoredFileRow};

use super::{BATCH, DoctorOptions, Finding, MAX_EXAMPLES, stored_files::write_list};
use crate::{Caller, Error, Forge, Result, WriteTx, traces::LogStore};

const CHECK: &str = "traces";

/// Reports traces whose segments do not have all their bytes. Nothing is checked if traces are in a folder.
pub(super) async fn check(forge: &Forge, options: &DoctorOptions) -> Result<Option<Finding>> {
    if !matches!(forge.shared().logs, LogStore::Segments) {
        return Ok(None);
    }
    let mut incomplete: Vec<StoredFileRow> = Vec::new();
    loop {
        let after = incomplete.last().map_or(0, |row| row.id);
        let query = move |tx: &mut crate::ReadTx<'_>| {
            checks::prepare_for_whole_tables(tx.db())?;
            Ok(checks::incomplete_segments(tx.db(), after, BATCH)?)
        };
        let batch = forge.read(Caller::system(), query).await?;
        if batch.is_empty() {
            break;
        }
        incomplete.extend(batch);
    }
    if incomplete.is_empty() {
        return Ok(Some(Finding::ok(CHECK, "every trace has all its segments")));
    }
    let examples: Vec<String> = incomplete.iter().take(MAX_EXAMPLES).map(|row| row.id.to_string()).collect();
    let text = format!("{} traces lack segments, such as those of jobs {}", incomplete.len(), examples.join(", "));
    if !options.fix || !options.forget_missing {
        let remedy = "restore them from a backup; `gable doctor --fix --forget-missing` makes these traces empty";
        return Ok(Some(Finding::problem(CHECK, text, remedy)));
    }
    let list = options.lost_and_found.join("forgotten-traces.txt");
    write_list(&list, &incomplete)
        .map_err(|error| Error::internal(format!("cannot write {}", list.display()), error))?;
    let ids: Vec<i64> = incomplete.iter().map(|row| row.id).collect();
    let empty = move |tx: &mut WriteTx<'_>| {
        for batch in ids.chunks(1000) {
            checks::delete_file_rows(tx.db(), StoredFileKind::Traces, batch)?;
        }
        Ok(())
    };
    forge.write(Caller::system(), empty).await?;
    let done = format!("make these traces empty; {} lists them", list.display());
    Ok(Some(Finding::problem(CHECK, text, done).fixed()))
}
