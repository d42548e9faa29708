//! Tests of producers and followers.

use std::time::Duration;

use futures_util::{FutureExt as _, TryStreamExt as _};

use super::*;

const KEY: &str = "key";

fn spools(max_bytes: u64) -> (tempfile::TempDir, Spools) {
    let folder = tempfile::tempdir().expect("a folder");
    let spools = Spools::open(folder.path(), max_bytes).expect("spools");
    (folder, spools)
}

fn join_new(spools: &Spools, key: Option<&str>) -> (Producer, Follower) {
    match spools.join(key.map(str::to_owned)).expect("joined") {
        Joined::New(producer, follower) => (producer, follower),
        Joined::Existing(_) => panic!("the key was not new"),
    }
}

fn join_existing(spools: &Spools, key: &str) -> Follower {
    match spools.join(Some(key.to_owned())).expect("joined") {
        Joined::New(..) => panic!("the key was new"),
        Joined::Existing(follower) => follower,
    }
}

async fn read_all(follower: Follower) -> io::Result<Vec<u8>> {
    follower.map_ok(|chunk| chunk.to_vec()).try_concat().await
}

async fn write_and_finish(spools: &Spools, key: &str, content: &[u8]) {
    let (mut producer, follower) = join_new(spools, Some(key));
    producer.write_all(content).expect("written");
    producer.finish().expect("finished");
    assert_eq!(read_all(follower).await.expect("whole"), content);
}

fn count_files(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path()).expect("a folder").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_that_join_at_any_time_all_read_the_same() {
    let (_folder, spools) = spools(u64::MAX);
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut producer, follower) = join_new(&spools, Some(KEY));
    let mut followers = vec![tokio::spawn(read_all(follower))];
    // Chunks of all lengths, so that followers stop at all offsets.
    for (number, chunk) in content.chunks(7_919).enumerate() {
        producer.write_all(chunk).expect("written");
        if number % 10 == 0 {
            followers.push(tokio::spawn(read_all(join_existing(&spools, KEY))));
            tokio::task::yield_now().await;
        }
    }
    producer.finish().expect("finished");
    let late = join_existing(&spools, KEY);
    assert_eq!(late.len(), Some(3_000_000));
    followers.push(tokio::spawn(read_all(late)));
    for follower in followers {
        assert!(follower.await.expect("no panic").expect("whole") == content);
    }
}

#[tokio::test]
async fn a_follower_reads_what_is_written_before_the_file_is_finished() {
    let (_folder, spools) = spools(100);
    let (mut producer, mut follower) = join_new(&spools, Some(KEY));
    producer.write_all(b"hello").expect("written");
    assert_eq!(follower.len(), None);
    assert_eq!(follower.next().await.expect("a piece").expect("read"), "hello");
    assert!(follower.next().now_or_never().is_none());
    producer.finish().expect("finished");
    assert!(follower.next().await.is_none());
    assert_eq!(follower.len(), Some(5));
}

#[tokio::test]
async fn a_producer_that_fails_fails_its_followers_and_frees_the_key() {
    let (folder, spools) = spools(100);
    let (mut producer, mut follower) = join_new(&spools, Some(KEY));
    let mut waiting = join_existing(&spools, KEY);
    producer.write_all(b"half").expect("written");
    drop(producer);
    for follower in [&mut follower, &mut waiting] {
        assert_eq!(follower.next().await.expect("a piece").expect("read"), "half");
        let error = follower.next().await.expect("an answer").expect_err("not whole");
        assert_eq!(error.to_string(), "the spool ended before it was finished");
        assert!(follower.next().await.is_none());
        assert_eq!(follower.len(), None);
    }
    assert_eq!(count_files(&folder), 0);
    write_and_finish(&spools, KEY, b"whole").await;
}

#[tokio::test]
async fn a_producer_notices_that_the_last_follower_is_gone() {
    let (folder, spools) = spools(100);
    let (mut producer, follower) = join_new(&spools, Some(KEY));
    let other = join_existing(&spools, KEY);
    drop(follower);
    producer.write_all(b"still read").expect("written");
    let mut abandoned = Box::pin(producer.abandoned());
    assert!(abandoned.as_mut().now_or_never().is_none());
    drop(other);
    tokio::time::timeout(Duration::from_secs(10), abandoned).await.expect("notified");
    let error = producer.write_all(b"in vain").expect_err("no follower is left");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    // The key is free before the producer is dropped, and dropping it does not affect the next one.
    let (mut next, follower) = join_new(&spools, Some(KEY));
    drop(producer);
    let other = join_existing(&spools, KEY);
    next.write_all(b"anew").expect("written");
    next.finish().expect("finished");
    assert_eq!(
        (read_all(follower).await.expect("whole"), read_all(other).await.expect("whole")),
        (b"anew".into(), b"anew".into())
    );
    assert_eq!(count_files(&folder), 1);
}

#[tokio::test]
async fn the_least_recently_used_file_is_evicted_even_while_it_is_read() {
    let (folder, spools) = spools(10);
    write_and_finish(&spools, "a", b"aaaa").await;
    write_and_finish(&spools, "b", b"bbbb").await;
    let reading = join_existing(&spools, "b");
    assert_eq!(read_all(join_existing(&spools, "a")).await.expect("whole"), b"aaaa");
    write_and_finish(&spools, "c", b"cccc").await;
    assert_eq!(count_files(&folder), 2);
    assert_eq!(read_all(reading).await.expect("whole"), b"bbbb");
    assert_eq!(read_all(join_existing(&spools, "a")).await.expect("whole"), b"aaaa");
    assert_eq!(read_all(join_existing(&spools, "c")).await.expect("whole"), b"cccc");
    write_and_finish(&spools, "b", b"bb").await;
}

#[tokio::test]
async fn a_file_larger_than_the_cache_is_served_but_not_cached() {
    let (folder, spools) = spools(10);
    write_and_finish(&spools, "small", b"small").await;
    write_and_finish(&spools, "large", b"larger than ten").await;
    assert_eq!(count_files(&folder), 1);
    write_and_finish(&spools, "large", b"larger than ten").await;
    assert_eq!(read_all(join_existing(&spools, "small")).await.expect("whole"), b"small");
}

#[tokio::test]
async fn without_a_key_nothing_is_shared_or_cached() {
    let (folder, spools) = spools(100);
    let (mut one, follower) = join_new(&spools, None);
    let (_two, _) = join_new(&spools, None);
    one.write_all(b"mine").expect("written");
    one.finish().expect("finished");
    assert_eq!(count_files(&folder), 0);
    assert_eq!(read_all(follower).await.expect("whole"), b"mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_the_rest_is_passed_in_memory_and_nothing_is_cached() {
    let (folder, spools) = spools(u64::MAX);
    write_and_finish(&spools, "kept", b"gives way").await;
    let spools = spools.with_disk_space(DiskSpace::new(folder.path(), u64::MAX));
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut producer, follower) = join_new(&spools, Some(KEY));
    let other = join_existing(&spools, KEY);
    let input = content.clone();
    let writing = spawn_blocking(move || {
        for chunk in input.chunks(70_001) {
            producer.write_all(chunk).expect("taken");
        }
        producer.finish().expect("finished");
    });
    let (one, two) = tokio::join!(read_all(follower), read_all(other));
    writing.await.expect("no panic");
    assert!(one.expect("whole") == content && two.expect("whole") == content);
    assert_eq!(count_files(&folder), 0);
    let (_, follower) = join_new(&spools, Some(KEY));
    assert_eq!(follower.len(), None, "it is not found again");
}

#[tokio::test]
async fn nothing_survives_a_restart() {
    let (folder, spools) = spools(100);
    write_and_finish(&spools, KEY, b"old").await;
    let (_producer, _follower) = join_new(&spools, Some("half"));
    assert_eq!(count_files(&folder), 2);
    let spools = Spools::open(folder.path(), 100).expect("spools");
    assert_eq!(count_files(&folder), 0);
    write_and_finish(&spools, KEY, b"new").await;
}

#[tokio::test]
async fn a_file_that_was_removed_from_outside_is_produced_again() {
    let (folder, spools) = spools(6);
    write_and_finish(&spools, KEY, b"once").await;
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    write_and_finish(&spools, KEY, b"twice").await;
    assert_eq!(read_all(join_existing(&spools, KEY)).await.expect("whole"), b"twice");
    fs::remove_dir_all(folder.path()).expect("removed");
    write_and_finish(&spools, KEY, b"again").await;
}
