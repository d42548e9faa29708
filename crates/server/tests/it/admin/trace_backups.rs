//! Backups of traces in segments.

use std::fs;

use model::{JobId, StorageId, Time};
use store::{Database, trace_segments};

use crate::{
    admin::backup::{create_test_data, rows_of},
    support::TestInstance,
};

/// Moves the trace of the first job, `hello\n`, from its file to a row and an object.
fn move_to_segments(instance: &TestInstance) {
    let database = match instance.database_url() {
        None => Database::sqlite(instance.data().join("gable.sqlite3")),
        Some(url) => Database::postgres(url.as_str()).expect("a good URL"),
    };
    let storage = StorageId::parse("0123456789abcdef").expect("a storage id");
    let job = JobId::new(1);
    let mut db = database.connect_writer().expect("a connection");
    let object = db.write(|db| {
        let run = store::job_runs::find(db, job)?.expect("a run");
        assert_eq!(run.visible(), 6);
        let object = trace_segments::insert_object(db, &storage, Time::UNIX_EPOCH)?;
        assert!(trace_segments::append_object(db, &run, &(0..4), &object)?);
        trace_segments::insert(db, job, 4, b"o\n")?;
        // A node died before it wrote this one.
        trace_segments::insert_object(db, &storage, Time::UNIX_EPOCH)?;
        Ok(object)
    });
    let folder = instance.data().join("files/traces/0123456789abcdef");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join(object.expect("moved").id.to_string()), "hell").expect("written");
    fs::remove_dir_all(instance.data().join("traces")).expect("removed");
}

#[test]
fn traces_in_segments_are_restored_from_a_backup() {
    let instance = TestInstance::new();
    let server = instance.start();
    create_test_data(&server);
    server.stop();
    move_to_segments(&instance);
    let file = instance.file("backup.tar", "");
    fs::remove_file(&file).expect("removed");
    let output = instance.gable(&["backup", &file]).finish();
    let text = output.combined_output();
    assert!(!text.contains("missing") && !text.contains("damaged"), "{text}");
    output.succeeded();
    instance.gable(&["backup", "--verify", &file]).finish().succeeded();
    let other = TestInstance::new();
    other.gable(&["restore", &file]).finish().succeeded();
    let object = other.data().join("files/traces/0123456789abcdef/1");
    assert_eq!(fs::read_to_string(object).expect("the object"), "hell");
    let rows = |instance| {
        let mut rows = rows_of(instance);
        rows.retain(|table, _| table.starts_with("trace_") || table == "build_runs");
        rows
    };
    let restored = rows(&other);
    assert_eq!((restored["trace_segments"].len(), restored["trace_objects"].len()), (2, 2));
    assert_eq!(restored, rows(&instance));
    // A missing object is reported.
    fs::remove_dir_all(instance.data().join("files/traces")).expect("removed");
    let folder = instance.data().join("backups");
    let text = instance.gable(&["backup", &folder.display().to_string()]).finish().combined_output();
    assert!(text.contains("missing: files/traces/0123456789abcdef/1"), "{text}");
}
