//! The pages that create and delete branches and tags, protect branches, and manage deploy keys.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge, browser::Browser, fixtures::ssh_key};

use super::submit;

const SETTINGS: &str = "/ann/rocket/-/settings/repository";

/// A forge with the project `ann/rocket`, which has the branches `master` and `next` and a developer `dan`.
async fn start() -> (TestForge, Browser, Browser) {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# rocket\n");
    local.git(&["branch", "next"]);
    forge.push_all(&ann, ProjectId::new(1), &local).await;
    let (owner, developer) = (forge.signed_in_browser("ann").await, forge.signed_in_browser("dan").await);
    (forge, owner, developer)
}

#[tokio::test]
async fn branches_are_created_and_deleted() {
    let (forge, _, developer) = start().await;
    let (branches, new) = ("/ann/rocket/-/branches", "/ann/rocket/-/branches/new");
    let form = developer.get(new).await;
    assert!(
        form.text.contains("name=\"ref\" value=\"master\"") && form.text.contains("<option value=\"next\">"),
        "{form}"
    );
    let created = submit(&developer, new, new, &[("name", "feature/x"), ("ref", "next")]).await;
    assert_eq!((created.code(), created.header("location")), (303, "/ann/rocket/-/tree/feature/x"), "{created}");
    for (name, from, message) in [
        ("feature/x", "next", "Branch already exists"),
        ("a..b", "next", "Branch name is invalid"),
        ("y", "<none>", "Invalid reference name"),
    ] {
        let refused = submit(&developer, new, new, &[("name", name), ("ref", from)]).await;
        assert_eq!(refused.code(), 422, "{name}");
        assert!(refused.text.contains(message) && refused.text.contains(&format!("value=\"{name}\"")), "{refused}");
    }
    let page = developer.get(branches).await;
    assert!(page.text.contains("aria-label=\"Delete feature/x\""), "{page}");
    assert!(!page.text.contains("aria-label=\"Delete master\""), "{page}");
    let delete = format!("{branches}/delete");
    assert_eq!(submit(&developer, branches, &delete, &[("name", "feature/x")]).await.code(), 303);
    assert!(!developer.get(branches).await.text.contains("feature/x"));
    assert_eq!(submit(&developer, branches, &delete, &[("name", "feature/x")]).await.code(), 404);
    let refused = submit(&developer, branches, &delete, &[("name", "master")]).await;
    assert_eq!(refused.code(), 422);
    forge.user("bob").await;
    let bob = forge.signed_in_browser("bob").await;
    assert_eq!(bob.get(new).await.code(), 404);
    assert_eq!(submit(&bob, "/explore", &delete, &[("name", "next")]).await.code(), 404);
}

#[tokio::test]
async fn tags_are_created_and_deleted() {
    let (_forge, _, developer) = start().await;
    let (tags, new) = ("/ann/rocket/-/tags", "/ann/rocket/-/tags/new");
    let fields = [("name", "v1"), ("ref", "master"), ("message", "First <b>release</b>")];
    let created = submit(&developer, new, new, &fields).await;
    assert_eq!((created.code(), created.header("location")), (303, tags), "{created}");
    let page = developer.get(tags).await;
    assert!(page.text.contains("First &lt;b&gt;release"), "{page}");
    let again = submit(&developer, new, new, &fields).await;
    assert_eq!(again.code(), 422);
    assert!(again.text.contains("Tag v1 already exists"), "{again}");
    assert_eq!(submit(&developer, tags, &format!("{tags}/delete"), &[("name", "v1")]).await.code(), 303);
    assert!(developer.get(tags).await.text.contains("There are no tags."));
}

#[tokio::test]
async fn branches_are_protected() {
    let (_forge, owner, developer) = start().await;
    let protect = "/ann/rocket/-/protected_branches";
    let refused = submit(&owner, SETTINGS, protect, &[("name", "a b"), ("developers_can_push", "1")]).await;
    assert_eq!(refused.code(), 422);
    for part in
        ["Name is not the name of a branch", "value=\"a b\"", "name=\"developers_can_push\" value=\"1\" checked"]
    {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    assert_eq!(submit(&owner, SETTINGS, protect, &[("name", "ne*")]).await.code(), 303);
    let page = developer.get("/ann/rocket/-/branches").await;
    assert!(!page.text.contains("aria-label=\"Delete next\""), "{page}");
    let delete = "/ann/rocket/-/branches/delete";
    let refused = submit(&developer, "/ann/rocket", delete, &[("name", "next")]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("Protected branch"), "{refused}");
    assert_eq!(submit(&owner, SETTINGS, protect, &[("name", "ne*"), ("developers_can_push", "1")]).await.code(), 303);
    let page = owner.get(SETTINGS).await;
    assert_eq!(page.text.matches("name=\"developers_can_push\" value=\"1\" checked").count(), 1, "{page}");
    assert_eq!(developer.get(SETTINGS).await.code(), 403);
    assert_eq!(submit(&developer, "/ann/rocket", protect, &[("name", "x")]).await.code(), 403);
    let unprotect = format!("{protect}/delete");
    assert_eq!(submit(&developer, "/ann/rocket", &unprotect, &[("name", "ne*")]).await.code(), 403);
    assert_eq!(submit(&owner, SETTINGS, &unprotect, &[("name", "ne*")]).await.code(), 303);
    assert_eq!(submit(&owner, SETTINGS, &unprotect, &[("name", "ne*")]).await.code(), 404);
    assert_eq!(submit(&owner, SETTINGS, &unprotect, &[("name", "\u{1}")]).await.code(), 404);
    assert_eq!(submit(&developer, "/ann/rocket", delete, &[("name", "next")]).await.code(), 303);
}

#[tokio::test]
async fn deploy_keys_are_added_enabled_and_removed() {
    let (forge, owner, developer) = start().await;
    let keys = "/ann/rocket/-/deploy_keys";
    let refused = submit(&owner, SETTINGS, keys, &[("title", "<x>"), ("key", "nonsense <k>")]).await;
    assert_eq!(refused.code(), 422);
    for part in ["id=\"key-error\"", "value=\"&#60;x&#62;\"", "nonsense &#60;k&#62;</textarea>"] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    let key = ssh_key(7);
    assert_eq!(submit(&owner, SETTINGS, keys, &[("title", "server <x>"), ("key", &key)]).await.code(), 303);
    let page = owner.get(SETTINGS).await;
    assert!(page.text.contains("server &lt;x&gt;") && page.text.contains("SHA256:"), "{page}");
    submit(&owner, "/projects/new", "/projects/new", &[("namespace", "ann"), ("name", "second")]).await;
    let second = "/ann/second/-/settings/repository";
    assert!(owner.get(second).await.text.contains("Enable server"));
    assert_eq!(submit(&owner, second, "/ann/second/-/deploy_keys/1/enable", &[]).await.code(), 303);
    assert!(owner.get(second).await.text.contains("Remove server"));
    assert_eq!(submit(&developer, "/ann/rocket", &format!("{keys}/1/disable"), &[]).await.code(), 403);
    assert_eq!(submit(&owner, SETTINGS, &format!("{keys}/1/disable"), &[]).await.code(), 303);
    assert!(owner.get(SETTINGS).await.text.contains("Enable server"), "it stays enabled in the other project");
    // A master of no project with the key cannot enable it.
    let bob = forge.user("bob").await;
    bob.make("/projects", json!({ "name": "third" })).await;
    let stranger = forge.signed_in_browser("bob").await;
    let third = "/bob/third/-/settings/repository";
    assert!(!stranger.get(third).await.text.contains("server"));
    assert_eq!(submit(&stranger, third, "/bob/third/-/deploy_keys/1/enable", &[]).await.code(), 404);
}
