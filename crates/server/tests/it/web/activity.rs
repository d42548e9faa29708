//! The activity of a project, and deleted branches and tags that are restored from it.

use model::ProjectId;
use serde_json::json;
use testkit::{LocalRepository, TestForge, TestResponse, browser::Browser};

const PROJECT: ProjectId = ProjectId::new(1);
const ACTIVITY: &str = "/ann/rocket/-/activity";

/// Creates the public project `ann/rocket` with the branches `master` and `spare` and the tag `v1`, of which `spare` and
/// `v1` are deleted. Returns the commit and the tag object.
async fn start() -> (TestForge, String, String) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# x\n");
    local.git(&["checkout", "--quiet", "-b", "spare"]);
    local.commit_file("folder/spare.md", "spare\n");
    let commit = local.commit_file("spare.md", "spare\n");
    local.git(&["tag", "--annotate", "--message", "first", "v1"]);
    let tag = local.git(&["rev-parse", "v1"]);
    forge.push_all(&ann, PROJECT, &local).await;
    let browser = forge.signed_in_browser("ann").await;
    for (kind, name) in [("branches", "spare"), ("tags", "v1")] {
        let deleted = browser.submit("/ann/rocket", &format!("/ann/rocket/-/{kind}/delete"), &[("name", name)]).await;
        assert_eq!(deleted.code(), 303, "{deleted}");
    }
    (forge, commit, tag)
}

/// Presses the button that restores a branch or a tag.
async fn restore(browser: &Browser, name: &str) -> TestResponse {
    let page = browser.get(ACTIVITY).await;
    let button = format!("Restore<span class=\"unseen\"> {name}</span>");
    let (before, _) = page.text.split_once(&button).unwrap_or_else(|| panic!("no button for {name}: {page}"));
    let action = before.rsplit_once("action=\"").and_then(|(_, rest)| rest.split('"').next()).expect("a form");
    browser.submit(ACTIVITY, action, &[]).await
}

#[tokio::test]
async fn the_activity_of_a_project_shows_what_the_visitor_can_see() {
    let (forge, commit, _) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    for issue in [json!({ "title": "a leak" }), json!({ "title": "a confidential leak", "confidential": true })] {
        let title = issue["title"].as_str().expect("a title").to_owned();
        let mut fields = vec![("title", title.as_str())];
        if issue["confidential"] == true {
            fields.extend([("has_confidential", "1"), ("confidential", "1")]);
        }
        let created = ann.submit("/ann/rocket/-/issues/new", "/ann/rocket/-/issues", &fields).await;
        assert_eq!(created.code(), 303, "{created}");
    }
    let visitor = forge.browser();
    let redirect = visitor.get("/ann/rocket/activity").await;
    assert_eq!((redirect.code(), redirect.header("location")), (301, ACTIVITY));
    let page = visitor.get(ACTIVITY).await;
    let author = "<a class=\"strong\" href=\"/ann\"><bdi>ann</bdi></a>";
    // The commit is not reachable, so it has no page.
    let deleted = format!("{author} deleted branch <bdi>spare</bdi> (<code>{}</code>)", &commit[..8]);
    let opened = format!("{author} opened issue <a href=\"/ann/rocket/-/issues/1\"><bdi>#1</bdi></a>");
    for expected in [deleted, opened] {
        assert!(page.text.contains(&expected), "{expected}: {page}");
    }
    assert!(!page.text.contains("a confidential leak") && !page.text.contains("Restore"), "{page}");
    assert!(ann.get(ACTIVITY).await.text.contains("a confidential leak"));
}

#[tokio::test]
async fn deleted_branches_and_tags_are_restored_with_their_commits() {
    let (forge, commit, tag) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    assert_eq!(ann.get(&format!("/ann/rocket/-/commit/{commit}")).await.code(), 404);
    let restored = restore(&ann, "spare").await;
    assert_eq!((restored.code(), restored.header("location")), (303, "/ann/rocket/-/tree/spare"), "{restored}");
    assert_eq!(restore(&ann, "v1").await.code(), 303);
    let refs = forge.refs_of(PROJECT);
    for expected in [("refs/heads/spare", &commit), ("refs/tags/v1", &tag)] {
        assert!(refs.iter().any(|(name, id)| (name.as_str(), id) == expected), "{expected:?}: {refs:?}");
    }
    let page = forge.browser().get(&format!("/ann/rocket/-/commit/{commit}")).await;
    assert!(page.code() == 200 && page.text.contains("Add spare.md"), "{page}");
    let file = forge.browser().get("/ann/rocket/-/raw/spare/folder/spare.md").await;
    assert_eq!((file.code(), file.text.as_str()), (200, "spare\n"));
    // The buttons are gone.
    assert!(!ann.get(ACTIVITY).await.text.contains("Restore"));
}

#[tokio::test]
async fn a_ref_is_not_restored_if_its_commits_are_gone_or_it_exists_again() {
    let (forge, _, _) = start().await;
    let ann = forge.signed_in_browser("ann").await;
    let created = [("name", "spare"), ("ref", "master")];
    let page = ann.get(ACTIVITY).await;
    let action = page.text.split('"').filter(|part| part.ends_with("/restore")).nth(1).expect("two forms").to_owned();
    assert_eq!(ann.submit("/ann/rocket", "/ann/rocket/-/branches/new", &created).await.code(), 303);
    let refused = ann.submit(ACTIVITY, &action, &[]).await;
    assert!(refused.code() == 422 && refused.text.contains("role=\"alert\">spare exists again"), "{refused}");

    forge::maintenance::prune(&forge.forge, PROJECT).await.expect("pruned");
    let refused = restore(&ann, "v1").await;
    let message = "role=\"alert\">The commits of v1 are not stored any more";
    assert!(refused.code() == 422 && refused.text.contains(message), "{refused}");
}

#[tokio::test]
async fn only_developers_restore_what_was_deleted() {
    let (forge, _, _) = start().await;
    let owner = forge.signed_in_browser("ann").await.get(ACTIVITY).await;
    let action = owner.text.split('"').find(|part| part.ends_with("/restore")).expect("a form").to_owned();
    forge.user("bob").await;
    let bob = forge.signed_in_browser("bob").await;
    assert!(!bob.get(ACTIVITY).await.text.contains("Restore"));
    assert_eq!(bob.submit(ACTIVITY, &action, &[]).await.code(), 403);
    // An event that deleted nothing, and one that does not exist.
    let ann = forge.signed_in_browser("ann").await;
    for event in [1, 999] {
        let missing = ann.submit(ACTIVITY, &format!("{ACTIVITY}/{event}/restore"), &[]).await;
        assert_eq!(missing.code(), 404, "{missing}");
    }
}
