//! Files in a bucket, against an S3 server that fails on demand.

use std::{convert::Infallible, fs, ops::Range, path::PathBuf, time::Duration};

use bytes::{Bytes, BytesMut};
use files::{
    Error, Files, WriteError,
    bucket::{Bucket, BucketError, BucketOptions},
};
use futures_util::{TryStreamExt as _, stream};
use tempfile::TempDir;
use testkit::bucket::{Fault, TestBucket};

/// A server, a client, and a folder with local files.
struct Setup {
    server: TestBucket,
    folder: TempDir,
    files: Files,
}

impl Setup {
    fn new() -> Self {
        let (server, folder) = (TestBucket::start(), tempfile::tempdir().expect("a folder"));
        let files = Files::in_bucket(server.client("prefix", folder.path()));
        Self { server, folder, files }
    }

    async fn write(&self, key: &str, content: &[u8]) -> Result<u64, WriteError<Infallible>> {
        let chunks: Vec<_> = content.chunks(70_000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        self.files.write(key, 100 << 20, stream::iter(chunks)).await
    }

    async fn read(&self, key: &str, range: Option<Range<u64>>) -> std::io::Result<Option<Vec<u8>>> {
        let Some(content) = self.files.read(key, range).await.map_err(std::io::Error::other)? else { return Ok(None) };
        let bytes: BytesMut = content.bytes.try_collect().await?;
        Ok(Some(bytes.to_vec()))
    }

    fn local(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).expect("written");
        path
    }

    fn fetch(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let to = self.folder.path().join("fetched");
        let found = self.files.fetch_file(key, &to);
        let content = fs::read(&to).ok();
        let _ = fs::remove_file(&to);
        assert!(!matches!(found, Ok(false) | Err(_)) || content.is_none(), "a failed fetch leaves no file");
        found.map(|found| content.filter(|_| found))
    }

    fn keys(&self, folder: &str) -> Vec<(String, u64)> {
        let mut keys = Vec::new();
        let mut add = |entry: files::FileEntry| {
            keys.push((entry.key, entry.size));
            Ok(())
        };
        self.files.list(folder, &mut add).expect("listed");
        keys.sort();
        keys
    }
}

/// Returns bytes that differ from part to part.
fn bytes(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..size).map(next).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_read_in_whole_and_in_part_until_it_is_removed() {
    let setup = Setup::new();
    for (size, parts) in [(0, 1), (11, 1), (8 << 20, 1), ((20 << 20) + 7, 5)] {
        let content = bytes(size);
        setup.server.take_requests();
        assert_eq!(setup.write("a/b/1", &content).await.expect("written"), size as u64);
        let writes = setup.server.take_requests();
        assert_eq!(writes.iter().filter(|request| !request.starts_with("GET")).count(), parts, "{writes:?}");
        assert_eq!(setup.read("a/b/1", None).await.expect("read").expect("there"), content);
        let end = size as u64;
        let part = setup.read("a/b/1", Some(end / 2..end)).await.expect("read").expect("there");
        assert_eq!(part, &content[size / 2..]);
        assert_eq!(setup.files.read("a/b/1", Some(0..end.min(1))).await.expect("read").expect("there").size, end);
        assert_eq!(setup.files.size("a/b/1").expect("asked"), Some(end));
    }
    assert_eq!(setup.server.stored("prefix/a/b/1").expect("below the prefix").len(), (20 << 20) + 7);
    let too_large = setup.files.write("a/b/2", 10, stream::iter([Ok::<_, Infallible>(Bytes::from_static(&[0; 11]))]));
    assert!(matches!(too_large.await, Err(WriteError::TooLarge)));
    let keys = ["a/b/1".to_owned(), "a/b/2".to_owned()];
    setup.files.remove(&keys).await.expect("removed");
    setup.files.remove(&keys).await.expect("removed already");
    assert_eq!(setup.read("a/b/1", None).await.expect("asked"), None);
    assert_eq!(setup.files.size("a/b/1").expect("asked"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_files_are_stored_fetched_and_listed() {
    let setup = Setup::new();
    let (pack, index) = (setup.local("pack", &bytes(9 << 20)), setup.local("idx", b"index"));
    setup.files.store_files(&[("packs/1.pack", &pack), ("packs/1.idx", &index)]).expect("stored");
    assert!(fs::metadata(&pack).expect("still there").permissions().readonly());
    setup.write("uploads/1/2", b"upload").await.expect("written");
    assert_eq!(setup.keys("packs"), [("packs/1.idx".to_owned(), 5), ("packs/1.pack".to_owned(), 9 << 20)]);
    assert_eq!(setup.keys("").len(), 3);
    assert_eq!(setup.keys("nothing"), []);
    assert_eq!(setup.fetch("packs/1.pack").expect("fetched").expect("there"), bytes(9 << 20));
    assert_eq!(setup.fetch("packs/2.pack").expect("asked"), None);
    let other = Files::in_bucket(setup.server.client("prefix2", setup.folder.path()));
    assert_eq!(other.size("packs/1.pack").expect("asked"), None, "another prefix is another store");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_repeated_until_the_store_answers() {
    let setup = Setup::new();
    for fault in [Fault::Unavailable, Fault::NoAnswer, Fault::Slow(Duration::from_secs(3))] {
        let content = format!("{fault:?}");
        setup.server.fail_next(1, fault);
        setup.write("a", content.as_bytes()).await.expect("written");
        assert_eq!(setup.server.stored("prefix/a").expect("stored"), content.as_bytes());
        setup.server.fail_next(1, fault);
        assert_eq!(setup.read("a", None).await.expect("read").expect("there"), content.as_bytes());
    }
}

/// The store has joined the parts then, and refuses to do it again.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_parts_succeeds_if_only_the_last_response_is_lost() {
    let setup = Setup::new();
    let content = bytes(9 << 20);
    for fault in [Fault::NoAnswer, Fault::Torn] {
        let key = format!("{fault:?}");
        setup.server.fail_next_completion(fault);
        setup.write(&key, &content).await.expect("written");
        assert_eq!(setup.read(&key, None).await.expect("read").expect("there"), content, "{fault:?}");
    }
    setup.server.fail_next_completion(Fault::Refused("AccessDenied"));
    let Err(WriteError::Failed(error)) = setup.write("b", &content).await else { panic!("it must fail") };
    assert_eq!(error.to_string(), "the store failed: AccessDenied");
    assert_eq!(setup.read("b", None).await.expect("asked"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stays_away_is_an_error_that_says_so() {
    let setup = Setup::new();
    setup.write("a", b"old").await.expect("written");
    setup.server.fail_next(1000, Fault::Unavailable);
    let Err(WriteError::Failed(error)) = setup.write("a", b"new").await else { panic!("it must fail") };
    assert!(error.is_unavailable(), "{error:?}");
    assert_eq!(error.to_string(), "the store failed: SlowDown");
    assert!(setup.fetch("a").expect_err("it fails").is_unavailable());
    setup.server.recover();
    assert_eq!(setup.read("a", None).await.expect("read").expect("there"), b"old");
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_and_changed_content_is_never_passed_on_as_complete() {
    let setup = Setup::new();
    let content = bytes(100_000);
    setup.write("a", &content).await.expect("written");
    setup.server.fail_next(1, Fault::Torn);
    if let Ok(read) = setup.read("a", None).await {
        assert_eq!(read.expect("there"), content, "the rest was requested again");
    }
    setup.server.fail_next(1, Fault::Torn);
    if let Ok(fetched) = setup.fetch("a") {
        assert_eq!(fetched.expect("there"), content);
    }
    setup.server.fail_next(1, Fault::Changed);
    match setup.read("a", None).await {
        Ok(read) => panic!("damaged content was passed on: {}", read != Some(content)),
        Err(error) => assert_eq!(error.to_string(), "the object a of the store is damaged"),
    }
    // Not cached yet.
    setup.write("b", &content).await.expect("written");
    setup.server.fail_next(1, Fault::Changed);
    let error = setup.fetch("b").expect_err("damaged");
    assert!(matches!(&error, Error::Bucket(BucketError::Damaged { key }) if key == "b"), "{error:?}");
    assert!(!error.is_unavailable());
    assert_eq!(setup.fetch("b").expect("fetched").expect("there"), content);
    setup.write("c", &content).await.expect("written");
    setup.server.overwrite("prefix/c", &bytes(99_999));
    assert!(setup.fetch("c").is_err(), "damaged in the store");
}

/// A client that knows the size must not get the whole size, so that it notices.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_damaged_content_is_never_passed_on() {
    let setup = Setup::new();
    for size in [1, 100_000, 3 << 20] {
        let content = bytes(size);
        setup.write("a", &content).await.expect("written");
        // A range may be the whole object.
        for range in [None, Some(0..size as u64)] {
            assert_eq!(setup.read("a", range.clone()).await.expect("read").expect("there"), content);
            setup.server.fail_next(1, Fault::Changed);
            let mut damaged = setup.files.read("a", range.clone()).await.expect("read").expect("there");
            assert_eq!(damaged.size, size as u64);
            let mut received = 0;
            let error = loop {
                match damaged.bytes.try_next().await {
                    Ok(Some(chunk)) => received += chunk.len(),
                    Ok(None) => panic!("damaged content was passed on: {size} {range:?}"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.to_string(), "the object a of the store is damaged");
            assert!(received < size, "{received} of {size} bytes were passed on");
        }
    }
}

#[test]
fn the_check_at_start_says_what_is_wrong_with_a_bucket() {
    let (server, folder) = (TestBucket::start(), tempfile::tempdir().expect("a folder"));
    let probe = |url: &str, changes: &[(&str, &str)]| {
        let mut variables = server.variables();
        for (name, value) in changes {
            variables.retain(|(known, _)| known != name);
            variables.push(((*name).to_owned(), (*value).to_owned()));
        }
        let options = BucketOptions::new(url, variables).expect("valid options");
        let bucket = Bucket::new(&options, folder.path()).map_err(|error| error.to_string())?;
        bucket.probe("1").map_err(|error| error.to_string())
    };
    let name = format!("s3://gable/p at {}", server.endpoint());
    assert_eq!(probe("s3://gable/p", &[]), Ok(()));
    assert_eq!(server.stored("p/probe/1"), None, "the object of the check is removed");
    for (code, reason) in [
        ("NoSuchBucket", "the bucket does not exist; create it, or correct the name in `store`"),
        ("InvalidAccessKeyId", "the access key is unknown to the store; check AWS_ACCESS_KEY_ID"),
        ("RequestTimeTooSkewed", "the clock of this machine differs from that of the store; set it right"),
        (
            "AuthorizationHeaderMalformed",
            "the bucket is in another region (AuthorizationHeaderMalformed); set AWS_REGION",
        ),
        (
            "AccessDenied",
            "the credentials do not permit to write objects (AccessDenied); gable needs to write, read, list and remove them",
        ),
        ("Surprise", "cannot write an object: Surprise"),
    ] {
        server.fail_next(1, Fault::Refused(code));
        let error = probe("s3://gable/p", &[]).expect_err(code);
        assert_eq!(error, format!("cannot use the store {name}: {reason}"));
    }
    // As some gateways in front of a store do.
    server.fail_next(2, Fault::NoMetadata);
    assert_eq!(
        probe("s3://gable/p", &[]).expect_err("refused"),
        format!(
            "cannot use the store {name}: it does not keep the metadata of objects (x-amz-meta-sha256), with which gable \
             finds damaged ones"
        )
    );
    for endpoint in ["https://key:secret@s3.example.com", "key:secret@s3.example.com"] {
        let variables = [("AWS_ENDPOINT_URL".to_owned(), endpoint.to_owned())];
        let error = BucketOptions::new("s3://gable/p", variables).expect_err("refused").to_string();
        assert!(error.starts_with("AWS_ENDPOINT_URL contains a user name or a password; remove it"), "{error}");
        assert!(!error.contains("secret@"), "{error}");
    }
    assert_eq!(
        probe("s3://gable/p", &[("AWS_SECRET_ACCESS_KEY", "wrong")]).expect_err("refused"),
        format!(
            "cannot use the store {name}: the store refuses the signature; check AWS_SECRET_ACCESS_KEY and AWS_REGION"
        )
    );
    let unknown = probe("s3://gable/p", &[("AWS_ACCESS_KEY_ID", "unknown")]).expect_err("refused");
    assert!(unknown.starts_with(&format!("cannot use the store {name}: ")), "{unknown}");
    assert_eq!(
        probe("s3://gable/p", &[("AWS_ENDPOINT_URL", "localhost:9000")]).expect_err("refused"),
        "AWS_ENDPOINT_URL is \"localhost:9000\", but must start with https:// or http://"
    );
    let without_secret = probe("s3://gable/p", &[("AWS_SECRET_ACCESS_KEY", "")]).expect_err("refused");
    assert!(without_secret.starts_with("the settings of the store are wrong: "), "{without_secret}");
}

#[test]
fn another_process_does_not_remove_a_fetch_in_progress() {
    let setup = Setup::new();
    let unfinished = setup.folder.path().join("objects/packs/fetching-1");
    fs::create_dir_all(unfinished.parent().expect("a folder")).expect("created");
    fs::write(&unfinished, "half").expect("written");
    // A command that runs beside the server has the same folder.
    let command = setup.server.client("prefix", setup.folder.path());
    assert!(unfinished.exists());
    command.remove_unfinished_fetches().expect("removed");
    assert!(!unfinished.exists());
}
