//! Traces in segments: several nodes, archiving, checks, and moves from and to a folder.

use std::{fs, path::PathBuf};

use axum::http::Method;
use files::{Files, logs::Logs};
use forge::{
    Caller, ProjectRef, Unvalidated,
    doctor::{self, DoctorOptions, Level},
    tasks::{self, Task},
    traces::{self, MovedTraces, Trace},
};
use futures_util::TryStreamExt as _;
use jiff::SignedDuration;
use model::{JobId, ProjectId, Status, StorageId};
use serde_json::json;
use testkit::{TestClient, TestForge, TestResponse};

use crate::ci::traces::{JobFixture, ONE_JOB, TraceStore};

const JOB: JobId = JobId::new(1);

async fn in_rows() -> JobFixture {
    JobFixture::with_store(TraceStore::Rows, ONE_JOB).await
}

/// Appends to the trace of the job through a node.
async fn append(node: &TestClient, token: &str, at: usize, text: &str) -> TestResponse {
    let request = node.request(Method::PATCH, "/api/v4/jobs/1/trace");
    let request = request.header("job-token", token).header("content-range", format!("{at}-{}", at + text.len()));
    node.send(request, text.to_owned().into()).await
}

/// Returns Ann as a client of another node.
fn ann_on(fixture: &JobFixture, node: &TestClient) -> TestClient {
    let mut ann = node.clone();
    (ann.id, ann.token) = (fixture.ann.id, fixture.ann.token.clone());
    ann
}

async fn open(fixture: &JobFixture) -> Trace {
    let open = |tx: &mut forge::ReadTx<'_>| {
        traces::open(tx, &ProjectRef::Id(ProjectId::new(1)), &Unvalidated::valid(JobId::new(1)))
    };
    fixture.forge.forge.read(Caller::system(), open).await.expect("a trace")
}

/// The number of rows of each table of segments.
fn rows(fixture: &JobFixture) -> (usize, usize) {
    let dump = fixture.forge.dump();
    let count = |table: &str| dump.lines().filter(|line| line.starts_with(table)).count();
    (count("trace_segments: "), count("trace_objects: "))
}

#[tokio::test]
async fn the_chunks_of_a_job_may_arrive_at_different_nodes() {
    let fixture = in_rows().await;
    let node = fixture.forge.start_configured_node(TestForge::builder().segmented_traces());
    let other = node.anonymous();
    let nodes = [&fixture.anyone, &other];
    let token = fixture.assign(JOB).await;
    // Every node continues with the withheld start of a secret that another one has received.
    let (mut at, mut expected) = (0, String::new());
    for (round, cut) in (1..token.len()).enumerate() {
        for (number, text) in [format!("<{}", &token[..cut]), format!("{}>\n", &token[cut..])].into_iter().enumerate() {
            let response = append(nodes[(round + number) % 2], &token, at, &text).await;
            assert_eq!((response.code(), response.header("job-status")), (202, "running"), "{response}");
            at += text.len();
        }
        expected += &format!("<{}>\n", "x".repeat(token.len()));
    }
    for node in nodes {
        let ann = ann_on(&fixture, node);
        assert_eq!(ann.get("/projects/1/builds/1/trace").await.text, expected);
    }
}

#[tokio::test]
async fn of_two_nodes_that_append_at_the_same_offset_one_succeeds() {
    let fixture = in_rows().await;
    let node = fixture.forge.start_configured_node(TestForge::builder().segmented_traces());
    let other = node.anonymous();
    let token = fixture.assign(JOB).await;
    let mut expected = String::new();
    for round in 0..20 {
        let (one, two) = (format!("one {round}\n"), format!("another {round}\n"));
        let at = expected.len();
        let (first, second) = tokio::join!(append(&fixture.anyone, &token, at, &one), append(&other, &token, at, &two));
        match (first.code(), second.code()) {
            (202, 416) => expected += &one,
            (416, 202) => expected += &two,
            codes => panic!("{codes:?}"),
        }
        assert_eq!(fixture.trace(JOB).await, expected);
    }
}

#[tokio::test]
async fn a_writer_that_was_given_up_changes_nothing() {
    let fixture = in_rows().await;
    let first = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &first, 0, "from the first").await;
    let find =
        || fixture.forge.with_read_connection(|db| store::job_runs::find(db, JOB).expect("asked").expect("a run"));
    let stale = find();
    fixture.append_trace(JOB, &first, 14, ", more").await;
    let now = fixture.forge.forge.now();
    let extend =
        |run| fixture.forge.in_transaction(|db| store::job_runs::extend_trace(db, &run, 99, 0, now).expect("run"));
    assert!(!extend(stale));
    let stale = find();
    let changes = store::jobs::JobChanges::default();
    fixture
        .forge
        .in_transaction(|db| store::jobs::set_status(db, &[JOB], Status::Pending, &changes, now).expect("set"));
    let second = fixture.assign(JOB).await;
    assert!(!extend(stale));
    assert_eq!(rows(&fixture), (0, 0));
    fixture.append_trace(JOB, &second, 0, "from the second").await;
    assert_eq!(fixture.trace(JOB).await, "from the second");
}

#[tokio::test]
async fn a_trace_is_archived_after_a_mebibyte_and_when_its_job_ends() {
    let fixture = in_rows().await;
    let token = fixture.assign(JOB).await;
    let line = "0123456789abcde\n".repeat(40_000);
    let mut expected = String::new();
    for _ in 0..5 {
        assert_eq!(fixture.append_trace(JOB, &token, expected.len(), &line).await.code(), 202);
        expected += &line;
        fixture.forge.run_due_tasks().await;
        assert!(fixture.trace(JOB).await == expected);
    }
    // 640,000 bytes each: the second chunk passes 1 MiB, the fourth 2 MiB, the fifth 3 MiB.
    let sizes = |fixture: &JobFixture| -> Vec<u64> {
        let paths = fixture.forge.trace_objects();
        let mut sizes: Vec<u64> = paths
            .iter()
            .map(|path| fs::metadata(fixture.forge.files_folder().join(path)).expect("an object").len())
            .collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&fixture), [640_000, 1_280_000, 1_280_000]);
    assert_eq!(rows(&fixture), (3, 3));
    // The withheld end becomes visible when the job ends, and is archived, too.
    fixture.append_trace(JOB, &token, expected.len(), &format!("the end: {}", &token[..7])).await;
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 200);
    expected += &format!("the end: {}", &token[..7]);
    assert!(fixture.trace(JOB).await == expected);
    assert_eq!(rows(&fixture), (5, 3));
    fixture.forge.run_due_tasks().await;
    assert_eq!((rows(&fixture), sizes(&fixture)), ((4, 4), vec![16, 640_000, 1_280_000, 1_280_000]));
    assert!(fixture.trace(JOB).await == expected);
    // A range across objects.
    let range = [("range", "bytes=1279990-1280009")];
    let part = fixture.ann.get_with("/projects/1/builds/1/trace", &range).await;
    assert_eq!((part.code(), part.text.as_str()), (206, &expected[1_279_990..1_280_010]));
}

#[tokio::test]
async fn the_last_line_of_an_ended_job_is_archived() {
    let fixture = in_rows().await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "half a li").await;
    assert_eq!(fixture.ann.post("/projects/1/builds/1/cancel", json!({})).await.code(), 201);
    fixture.forge.run_due_tasks().await;
    assert_eq!(rows(&fixture), (1, 1));
    assert_eq!(fixture.trace(JOB).await, "half a li\nERROR: job canceled by ann\n");
}

/// The coverage is in an object, in a row and in the withheld end.
#[tokio::test]
async fn the_coverage_is_found_across_segments() {
    let file = "one: {script: make, coverage: '/Covered: (\\d+\\.\\d+)%.*$/'}";
    let fixture = JobFixture::with_store(TraceStore::Rows, file).await;
    assert_eq!(
        fixture.ann.post("/projects/1/variables", json!({ "key": "KEY", "value": "% in total" })).await.code(),
        201
    );
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "Covered: 9").await;
    fixture.archive(JOB).await;
    fixture.append_trace(JOB, &token, 10, "8.7").await;
    fixture.append_trace(JOB, &token, 13, "6% in").await;
    assert_eq!(fixture.trace(JOB).await, "Covered: 98.76");
    assert_eq!(fixture.update_job(JOB, &token, json!({ "state": "success" })).await.code(), 200);
    assert_eq!(fixture.jobs()[0].coverage, Some(98.76));
    assert_eq!(fixture.trace(JOB).await, "Covered: 98.76% in");
}

#[tokio::test]
async fn a_reader_is_not_disturbed_by_archiving() {
    let fixture = in_rows().await;
    let token = fixture.assign(JOB).await;
    let mut expected = String::new();
    for number in 0..10 {
        let text = format!("{number}").repeat(60_000);
        assert_eq!(fixture.append_trace(JOB, &token, expected.len(), &text).await.code(), 202);
        expected += &text;
    }
    let trace = open(&fixture).await;
    let mut stream = traces::read(&fixture.forge.forge, &trace, 0..trace.size).await.expect("a stream");
    let mut read = stream.try_next().await.expect("read").expect("a part").to_vec();
    assert!(read.len() < expected.len());
    fixture.archive(JOB).await;
    assert_eq!(rows(&fixture), (1, 1));
    while let Some(part) = stream.try_next().await.expect("read") {
        read.extend(part);
    }
    assert!(read == expected.as_bytes());
    // A reader ends when the trace is erased, and one whose object is lost fails.
    let stream = traces::read(&fixture.forge.forge, &trace, 0..trace.size).await.expect("a stream");
    fs::remove_file(fixture.forge.files_folder().join(&fixture.forge.trace_objects()[0])).expect("removed");
    let error = stream.try_collect::<Vec<_>>().await.expect_err("the object is lost");
    assert!(error.to_string().ends_with("of the trace of job 1 is missing"), "{error}");
    let stream = traces::read(&fixture.forge.forge, &trace, 0..trace.size).await.expect("a stream");
    fixture.update_job(JOB, &token, json!({ "state": "success" })).await;
    assert_eq!(fixture.ann.post("/projects/1/builds/1/erase", json!({})).await.code(), 201);
    assert_eq!(stream.try_collect::<Vec<_>>().await.expect("read"), [] as [&[u8]; 0]);
}

#[tokio::test]
async fn an_object_is_used_only_for_the_segments_it_was_written_from() {
    let fixture = in_rows().await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "0123456789").await;
    let find =
        || fixture.forge.with_read_connection(|db| store::job_runs::find(db, JOB).expect("asked").expect("a run"));
    let storage = StorageId::parse("abc").expect("a storage id");
    let now = fixture.forge.forge.now();
    let new_object = || {
        fixture.forge.in_transaction(|db| store::trace_segments::insert_object(db, &storage, now).expect("inserted"))
    };
    let archive = |run: &store::job_runs::JobRun, range, object: &_| {
        fixture.forge.in_transaction(|db| store::trace_segments::archive(db, run, &range, object).expect("run"))
    };
    let (run, object) = (find(), new_object());
    // Bytes that do not exist, and an object that was removed because it was abandoned.
    assert!(!archive(&run, 0..11, &object));
    let removed = new_object();
    fixture.forge.in_transaction(|db| store::trace_segments::delete_objects(db, &[removed.id]).expect("deleted"));
    assert!(!archive(&run, 0..10, &removed));
    assert_eq!((rows(&fixture), fixture.trace(JOB).await.as_str()), ((1, 1), "0123456789"));
    // Another node has archived them.
    assert!(archive(&run, 0..10, &object));
    assert!(!archive(&run, 0..10, &new_object()));
    // The job was assigned again, and has a trace of the same size.
    let changes = store::jobs::JobChanges::default();
    fixture
        .forge
        .in_transaction(|db| store::jobs::set_status(db, &[JOB], Status::Pending, &changes, now).expect("set"));
    let second = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &second, 0, "abcdefghi\n").await;
    assert!(!archive(&run, 0..10, &new_object()));
    assert_eq!(fixture.trace(JOB).await, "abcdefghi\n");
}

#[tokio::test]
async fn abandoned_and_replaced_objects_are_swept() {
    let fixture = in_rows().await;
    let token = fixture.assign(JOB).await;
    fixture.append_trace(JOB, &token, 0, "kept").await;
    fixture.archive(JOB).await;
    // A node died while it wrote an object, and another one before it wrote anything.
    let (storage, now) = (StorageId::parse("abc").expect("a storage id"), fixture.forge.forge.now());
    let insert = || {
        fixture.forge.in_transaction(|db| store::trace_segments::insert_object(db, &storage, now).expect("inserted"))
    };
    let (half, none) = (insert(), insert());
    let folder = fixture.forge.files_folder().join("traces/abc");
    fixture.forge.plant_unfinished_file(&format!("traces/abc/{}", half.id));
    assert_eq!((half.id.get(), none.id.get()), (2, 3));
    let sweep = async || {
        let enqueue = |tx: &mut forge::WriteTx<'_>| {
            let now = tx.now();
            tasks::enqueue(tx, &Task::SweepArtifacts, now)
        };
        fixture.forge.forge.write(Caller::system(), enqueue).await.expect("enqueued");
        fixture.forge.run_due_tasks().await;
    };
    sweep().await;
    assert_eq!((rows(&fixture), fixture.forge.trace_objects().len()), ((1, 3), 2));
    fixture.forge.clock.advance(SignedDuration::from_hours(2));
    sweep().await;
    assert_eq!((rows(&fixture), fixture.forge.trace_objects().len()), ((1, 1), 1));
    // A bucket has no folders.
    assert!(fixture.forge.uses_bucket() || !folder.exists());
    assert_eq!(fixture.trace(JOB).await, "kept");
}

fn doctor_options(fix: bool, lost_and_found: PathBuf) -> DoctorOptions {
    DoctorOptions {
        deep: false,
        fix,
        forget_missing: fix,
        server_running: false,
        lost_and_found,
        progress: Box::new(|_, _, _| {}),
    }
}

/// Returns the findings about traces.
async fn examine(fixture: &JobFixture, options: &DoctorOptions) -> Vec<(&'static str, Level, String)> {
    let findings = doctor::run_checks(&fixture.forge.forge, options).await;
    let about_traces = findings.into_iter().filter(|finding| finding.check.contains("traces"));
    about_traces.map(|finding| (finding.check, finding.level, finding.text)).collect()
}

#[tokio::test]
async fn the_doctor_finds_missing_segments_and_objects() {
    let fixture = JobFixture::with_store(TraceStore::Rows, "one: {script: make}\ntwo: {script: make}").await;
    if fixture.forge.uses_bucket() {
        // Objects of a bucket are only reported.
        return;
    }
    let two = JobId::new(2);
    for job in [JOB, two] {
        let token = fixture.assign(job).await;
        fixture.append_trace(job, &token, 0, &format!("one {}", &token[..9])).await;
        fixture.append_trace(job, &token, 13, "-two").await;
    }
    fixture.archive(JOB).await;
    let healthy = [
        ("parts of traces", Level::Ok, "every row has its file".to_owned()),
        ("parts of traces without rows", Level::Ok, "there are none".to_owned()),
        ("traces", Level::Ok, "every trace has all its segments".to_owned()),
    ];
    let place = tempfile::tempdir().expect("a folder");
    let lost_and_found = || place.path().join("lost+found");
    assert_eq!(examine(&fixture, &doctor_options(false, lost_and_found())).await, healthy);
    let object = fixture.forge.files_folder().join(&fixture.forge.trace_objects()[0]);
    fs::rename(&object, object.with_file_name("77")).expect("renamed");
    fixture.forge.execute_sql("DELETE FROM trace_segments WHERE job_id = 2 AND start = 0");
    let found = examine(&fixture, &doctor_options(false, lost_and_found())).await;
    let texts: Vec<&str> = found.iter().map(|(_, _, text)| text.as_str()).collect();
    assert_eq!(texts[0], "1 files are missing or truncated, such as 1");
    assert!(texts[1].starts_with("1 are not in the database"), "{}", texts[1]);
    assert_eq!(texts[2], "1 traces lack segments, such as those of jobs 2");
    assert!(found.iter().all(|(_, level, _)| *level != Level::Ok), "{found:?}");
    examine(&fixture, &doctor_options(true, lost_and_found())).await;
    assert_eq!(examine(&fixture, &doctor_options(false, lost_and_found())).await, healthy);
    assert_eq!((fixture.trace(JOB).await, fixture.trace(two).await), (String::new(), String::new()));
    assert_eq!(rows(&fixture), (0, 0));
}

#[tokio::test]
async fn traces_are_moved_from_a_folder_to_segments_and_back() {
    let names = ["one", "two", "three", "four"];
    let file = names.map(|name| format!("{name}: {{script: make}}\n")).concat();
    let fixture = JobFixture::with(&file).await;
    let jobs = [1, 2, 3, 4].map(JobId::new);
    let mut tokens = Vec::new();
    for job in jobs {
        let token = fixture.assign(job).await;
        let text = format!("job {job}: {}{}", "x".repeat(200_000), &token[..9]);
        assert_eq!(fixture.append_trace(job, &token, 0, &text).await.code(), 202);
        tokens.push((token, text.len()));
    }
    assert_eq!(fixture.update_job(JOB, &tokens[0].0, json!({ "state": "success" })).await.code(), 200);
    fs::remove_file(fixture.forge.project_traces_folder(ProjectId::new(1)).join("4")).expect("removed");
    let traces_of = async || {
        let mut texts = Vec::new();
        for job in jobs {
            texts.push(fixture.ann.get(&format!("/projects/1/builds/{job}/trace")).await.text);
        }
        texts
    };
    let before = traces_of().await;

    let folder = Logs::open(&fixture.forge.traces_folder()).expect("the folder");
    let files = Files::open(fixture.forge.files_folder()).expect("the files");
    let forge = &fixture.forge.forge;
    let import = async || traces::import_from_folder(forge, &folder, &files).await.expect("moved");
    let visible = before[..3].iter().map(|text| text.len() as u64).sum();
    let expected = MovedTraces { jobs: 3, copied: visible, missing: vec![JobId::new(4)] };
    assert_eq!(import().await, expected);
    // Nothing is copied twice, and what was added later is copied.
    assert_eq!(import().await, MovedTraces { copied: 0, ..expected.clone() });
    let (token, size) = &tokens[1];
    assert_eq!(fixture.append_trace(jobs[1], token, *size, "-added\nlast").await.code(), 202);
    assert_eq!(import().await, MovedTraces { copied: 20, ..expected.clone() });
    assert_eq!(rows(&fixture), (4, 4));
    let after = traces_of().await;

    // A node without the folder continues the traces.
    let node = fixture.forge.start_configured_node(TestForge::builder().segmented_traces());
    let (other_forge, other) = (&node.forge, node.anonymous());
    let ann = ann_on(&fixture, &other);
    for (job, text) in jobs.iter().zip(&after).take(3) {
        assert!(ann.get(&format!("/projects/1/builds/{job}/trace")).await.text == *text, "{job}");
    }
    let (token, size) = &tokens[2];
    let request = other.request(Method::PATCH, "/api/v4/jobs/3/trace");
    let request = request.header("job-token", token).header("content-range", format!("{size}-0"));
    let rest = format!("{}, then {}", &token[9..], &token[..5]);
    assert_eq!(other.send(request, rest.into()).await.code(), 202);
    let grown = ann.get("/projects/1/builds/3/trace").await.text;
    assert_eq!(grown, format!("{}{}, then ", after[2], "x".repeat(20)));

    // And back, into another folder.
    let place = tempfile::tempdir().expect("a folder");
    let back = Logs::open(place.path()).expect("a folder");
    let export = async || traces::export_to_folder(other_forge, &files, &back).await.expect("moved");
    let copied = [&after[0], &after[1], &grown].map(|text| text.len() as u64).iter().sum();
    let expected = MovedTraces { jobs: 3, copied, missing: vec![JobId::new(4)] };
    assert_eq!(export().await, expected);
    // Only traces that have a withheld end are copied again.
    assert_eq!(export().await, MovedTraces { copied: grown.len() as u64, ..expected });
    traces::forget_segments(other_forge).await.expect("forgotten");
    assert_eq!(rows(&fixture).0, 0);
    let project = fixture.forge.project_traces_folder(ProjectId::new(1));
    fs::remove_dir_all(&project).expect("removed");
    let exported = place.path().join(project.file_name().expect("a name"));
    fs::create_dir(&project).expect("a folder");
    for entry in fs::read_dir(exported).expect("a folder") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, project.join(path.file_name().expect("a name"))).expect("copied");
    }
    assert_eq!(fixture.trace(jobs[2]).await, grown);
    let at = size + token.len() - 9 + ", then ".len() + 5;
    assert_eq!(fixture.append_trace(jobs[2], token, at, &token[5..]).await.code(), 202);
    assert_eq!(fixture.trace(jobs[2]).await, format!("{grown}{}", "x".repeat(20)));
}
