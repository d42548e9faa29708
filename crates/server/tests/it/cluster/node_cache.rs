//! The cache of a node whose files are in a bucket. Needs `GABLE_TEST_STORE=bucket`.

use std::{io::Write as _, path::PathBuf, time::Duration};

use forge::{
    Caller, Forge, ProjectRef, node_cache,
    transport::{self, OpenRepository, Service},
};
use model::ProjectId;
use serde_json::json;
use testkit::{TestClient, TestForge};

use super::fixture::large_content;

const MANY: u64 = u64::MAX;
const QUARTER: Duration = Duration::from_secs(15 * 60);

/// A forge with two projects whose packs are in the bucket; `None` if the tests use a folder.
async fn two_projects() -> Option<(TestForge, TestClient, [ProjectId; 2])> {
    let forge = TestForge::start().await;
    if !forge.uses_bucket() {
        return None;
    }
    let ann = forge.user("ann").await;
    let mut projects = Vec::new();
    for name in ["a", "b"] {
        let id = ProjectId::new(ann.make("/projects", json!({ "name": name })).await);
        let digits = large_content().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let text: String = digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
        let script = format!(
            "commit refs/heads/master\ncommitter Ann <ann@example.org> 1000000000 +0000\ndata 1\n{name}\n\
             M 100644 inline file\ndata {}\n{text}\n",
            text.len()
        );
        forge.fast_import(&ann, id, &script).await;
        projects.push(id);
    }
    Some((forge, ann, projects.try_into().expect("two")))
}

async fn open(forge: &Forge, client: &TestClient, project: ProjectId) -> OpenRepository {
    let caller = Caller::with_tokens([client.token.as_deref().expect("a token")]);
    transport::open(forge, caller, ProjectRef::Id(project), Service::Fetch).await.expect("opened")
}

/// Returns whether the repository has a folder in the cache.
fn is_cached(forge: &TestForge, project: ProjectId) -> bool {
    let folder: PathBuf = forge.repositories().path_of(&forge.storage_of(project));
    folder.exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_git_reads_stays_in_a_cache_that_is_too_large() {
    let Some((forge, ann, [a, b])) = two_projects().await else { return };
    let (of_a, of_b) = (open(&forge.forge, &ann, a).await, open(&forge.forge, &ann, b).await);
    drop(of_b);
    let left = node_cache::shrink(&forge.forge, 1, Duration::ZERO).await.expect("worked");
    assert!(left > 100_000, "{left}");
    assert_eq!((is_cached(&forge, a), is_cached(&forge, b)), (true, false));
    let mut reading = of_a.upload_pack(None, false).await.expect("a command").spawn().expect("git runs");
    // A client that wants nothing.
    reading.stdin.take().expect("a pipe").write_all(b"0000").expect("sent");
    let output = reading.wait_with_output().expect("git runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("refs/heads/master"));
    drop(of_a);
    assert_eq!(node_cache::shrink(&forge.forge, 1, Duration::ZERO).await.expect("worked"), 0);
    assert_eq!((is_cached(&forge, a), is_cached(&forge, b)), (false, false));
    // What was removed is fetched again.
    open(&forge.forge, &ann, a).await;
    assert!(is_cached(&forge, a));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_used_since_the_start_is_removed_first() {
    let Some((forge, ann, [a, b])) = two_projects().await else { return };
    drop((open(&forge.forge, &ann, b).await, open(&forge.forge, &ann, a).await));
    let node = forge.restart_node();
    drop(open(&node.forge, &ann, b).await);
    node_cache::find_folders(&node.forge).await.expect("found");
    let all = node_cache::shrink(&node.forge, MANY, QUARTER).await.expect("worked");
    let left = node_cache::shrink(&node.forge, all - 1, QUARTER).await.expect("worked");
    assert!(left > 100_000 && left < all, "{left} of {all}");
    assert_eq!((is_cached(&forge, a), is_cached(&forge, b)), (false, true));
    // The other one was used a moment ago.
    assert!(node_cache::shrink(&node.forge, 1, QUARTER).await.expect("worked") > 100_000);
    assert!(is_cached(&forge, b));
}
