//! What those who write and follow spools rely on.

use std::time::Duration;

use futures_util::{FutureExt as _, TryStreamExt as _};

use super::*;

const KEY: &str = "key";

fn spools(most_bytes: u64) -> (tempfile::TempDir, Spools) {
    let folder = tempfile::tempdir().expect("a folder");
    let spools = Spools::in_folder(folder.path(), most_bytes).expect("spools");
    (folder, spools)
}

fn first(spools: &Spools, key: Option<&str>) -> (Producer, Follower) {
    match spools.join(key.map(str::to_owned)).expect("a seat") {
        Seat::First(producer, follower) => (producer, follower),
        Seat::Another(_) => panic!("somebody was here before"),
    }
}

fn another(spools: &Spools, key: &str) -> Follower {
    match spools.join(Some(key.to_owned())).expect("a seat") {
        Seat::First(..) => panic!("nobody was here before"),
        Seat::Another(follower) => follower,
    }
}

async fn all(follower: Follower) -> io::Result<Vec<u8>> {
    follower.map_ok(|piece| piece.to_vec()).try_concat().await
}

async fn made(spools: &Spools, key: &str, content: &[u8]) {
    let (mut producer, follower) = first(spools, Some(key));
    producer.write_all(content).expect("written");
    producer.finish().expect("finished");
    assert_eq!(all(follower).await.expect("whole"), content);
}

fn files(folder: &tempfile::TempDir) -> usize {
    fs::read_dir(folder.path()).expect("a folder").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_followers_who_join_at_any_time_all_read_the_same() {
    let (_folder, spools) = spools(u64::MAX);
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut producer, follower) = first(&spools, Some(KEY));
    let mut followers = vec![tokio::spawn(all(follower))];
    // Pieces of all lengths, so that followers stop at all places.
    for (number, piece) in content.chunks(7_919).enumerate() {
        producer.write_all(piece).expect("written");
        if number % 10 == 0 {
            followers.push(tokio::spawn(all(another(&spools, KEY))));
            tokio::task::yield_now().await;
        }
    }
    producer.finish().expect("finished");
    let late = another(&spools, KEY);
    assert_eq!(late.len(), Some(3_000_000));
    followers.push(tokio::spawn(all(late)));
    for follower in followers {
        assert!(follower.await.expect("no panic").expect("whole") == content);
    }
}

#[tokio::test]
async fn a_follower_gets_what_is_there_before_the_end_is_known() {
    let (_folder, spools) = spools(100);
    let (mut producer, mut follower) = first(&spools, Some(KEY));
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
    let (mut producer, mut follower) = first(&spools, Some(KEY));
    let mut waiting = another(&spools, KEY);
    producer.write_all(b"half").expect("written");
    drop(producer);
    for follower in [&mut follower, &mut waiting] {
        assert_eq!(follower.next().await.expect("a piece").expect("read"), "half");
        let error = follower.next().await.expect("an answer").expect_err("not whole");
        assert_eq!(error.to_string(), "what was being written has not come to its end");
        assert!(follower.next().await.is_none());
        assert_eq!(follower.len(), None);
    }
    assert_eq!(files(&folder), 0);
    made(&spools, KEY, b"whole").await;
}

#[tokio::test]
async fn a_producer_learns_that_the_last_follower_has_gone() {
    let (folder, spools) = spools(100);
    let (mut producer, follower) = first(&spools, Some(KEY));
    let other = another(&spools, KEY);
    drop(follower);
    producer.write_all(b"still heard").expect("written");
    let mut deserted = Box::pin(producer.deserted());
    assert!(deserted.as_mut().now_or_never().is_none());
    drop(other);
    tokio::time::timeout(Duration::from_secs(10), deserted).await.expect("told");
    let error = producer.write_all(b"in vain").expect_err("nobody follows");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    // The key is free before the producer has gone, and its going takes nothing from the next.
    let (mut next, follower) = first(&spools, Some(KEY));
    drop(producer);
    let other = another(&spools, KEY);
    next.write_all(b"anew").expect("written");
    next.finish().expect("finished");
    assert_eq!(
        (all(follower).await.expect("whole"), all(other).await.expect("whole")),
        (b"anew".into(), b"anew".into())
    );
    assert_eq!(files(&folder), 1);
}

#[tokio::test]
async fn what_was_used_least_lately_makes_room_even_while_it_is_read() {
    let (folder, spools) = spools(10);
    made(&spools, "a", b"aaaa").await;
    made(&spools, "b", b"bbbb").await;
    let reading = another(&spools, "b");
    assert_eq!(all(another(&spools, "a")).await.expect("whole"), b"aaaa");
    made(&spools, "c", b"cccc").await;
    assert_eq!(files(&folder), 2);
    assert_eq!(all(reading).await.expect("whole"), b"bbbb");
    assert_eq!(all(another(&spools, "a")).await.expect("whole"), b"aaaa");
    assert_eq!(all(another(&spools, "c")).await.expect("whole"), b"cccc");
    made(&spools, "b", b"bb").await;
}

#[tokio::test]
async fn what_is_larger_than_all_the_room_is_served_but_not_kept() {
    let (folder, spools) = spools(10);
    made(&spools, "small", b"small").await;
    made(&spools, "large", b"larger than ten").await;
    assert_eq!(files(&folder), 1);
    made(&spools, "large", b"larger than ten").await;
    assert_eq!(all(another(&spools, "small")).await.expect("whole"), b"small");
}

#[tokio::test]
async fn without_a_key_nothing_is_shared_and_nothing_stays() {
    let (folder, spools) = spools(100);
    let (mut one, follower) = first(&spools, None);
    let (_two, _) = first(&spools, None);
    one.write_all(b"mine").expect("written");
    one.finish().expect("finished");
    assert_eq!(files(&folder), 0);
    assert_eq!(all(follower).await.expect("whole"), b"mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_on_the_disk_the_rest_goes_past_it_and_nothing_is_kept() {
    let (folder, spools) = spools(u64::MAX);
    made(&spools, "kept", b"gives way").await;
    let spools = spools.mindful_of(Room::around(folder.path(), u64::MAX));
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    let (mut producer, follower) = first(&spools, Some(KEY));
    let other = another(&spools, KEY);
    let given = content.clone();
    let writing = spawn_blocking(move || {
        for piece in given.chunks(70_001) {
            producer.write_all(piece).expect("taken");
        }
        producer.finish().expect("finished");
    });
    let (one, two) = tokio::join!(all(follower), all(other));
    writing.await.expect("no panic");
    assert!(one.expect("whole") == content && two.expect("whole") == content);
    assert_eq!(files(&folder), 0);
    let (_, follower) = first(&spools, Some(KEY));
    assert_eq!(follower.len(), None, "nobody finds it again");
}

#[tokio::test]
async fn nothing_survives_a_restart() {
    let (folder, spools) = spools(100);
    made(&spools, KEY, b"old").await;
    let (_producer, _follower) = first(&spools, Some("half"));
    assert_eq!(files(&folder), 2);
    let spools = Spools::in_folder(folder.path(), 100).expect("spools");
    assert_eq!(files(&folder), 0);
    made(&spools, KEY, b"new").await;
}

#[tokio::test]
async fn a_file_that_somebody_removed_is_made_anew() {
    let (folder, spools) = spools(6);
    made(&spools, KEY, b"once").await;
    for entry in fs::read_dir(folder.path()).expect("a folder") {
        fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    made(&spools, KEY, b"twice").await;
    assert_eq!(all(another(&spools, KEY)).await.expect("whole"), b"twice");
}
