//! The pages of members of projects and groups.

use serde_json::json;
use testkit::TestForge;

use super::submit;

const MEMBERS: &str = "/ann/rocket/-/project_members";

#[tokio::test]
async fn the_owner_adds_changes_and_removes_members() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket" })).await;
    let owner = forge.signed_in_browser("ann").await;
    let found = owner.get(&format!("{MEMBERS}?find=DA")).await;
    assert!(found.text.contains(&format!("href=\"{MEMBERS}?username=dan\"")), "{found}");
    assert!(!found.text.contains("@bob"), "{found}");
    let chosen = owner.get(&format!("{MEMBERS}?username=dan")).await;
    assert!(chosen.text.contains("name=\"username\" value=\"dan\""), "{chosen}");
    let fields = [("username", "@dan"), ("access_level", "30"), ("expires_at", "2099-01-31")];
    let added = submit(&owner, MEMBERS, MEMBERS, &fields).await;
    assert_eq!((added.code(), added.header("location")), (303, MEMBERS), "{added}");
    let path = format!("/projects/1/members/{}", dan.id);
    let member = ann.get(&path).await.json();
    assert_eq!((&member["access_level"], &member["expires_at"]), (&json!(30), &json!("2099-01-31")));
    for (fields, message) in [
        ([("username", "nobody<"), ("access_level", "30"), ("expires_at", "")], "Username does not exist"),
        ([("username", " "), ("access_level", "30"), ("expires_at", "")], "Username can&#39;t be blank"),
        ([("username", "bob"), ("access_level", "30"), ("expires_at", "soon")], "The expiry is not a date"),
        ([("username", "bob"), ("access_level", "7"), ("expires_at", "")], "Access level is not known"),
        ([("username", "dan"), ("access_level", "40"), ("expires_at", "")], "Username is a member already"),
    ] {
        let refused = submit(&owner, MEMBERS, MEMBERS, &fields).await;
        assert_eq!(refused.code(), 422, "{message}");
        assert!(refused.text.contains(message), "{message}: {refused}");
    }
    let row = format!("{MEMBERS}/{}", dan.id);
    let changed = submit(&owner, MEMBERS, &row, &[("access_level", "20"), ("expires_at", "")]).await;
    assert_eq!(changed.code(), 303);
    let member = ann.get(&path).await.json();
    assert_eq!((&member["access_level"], &member["expires_at"]), (&json!(20), &json!(null)));
    // Other members see the list, and cannot change it.
    let reporter = forge.signed_in_browser("dan").await;
    let page = reporter.get(MEMBERS).await;
    assert!(page.text.contains("reporter") && page.text.contains(">Leave</button>"), "{page}");
    assert!(!page.text.contains("Add a member") && !page.text.contains("Remove"), "{page}");
    assert_eq!(submit(&reporter, MEMBERS, MEMBERS, &[("username", "bob"), ("access_level", "30")]).await.code(), 403);
    assert_eq!(submit(&reporter, MEMBERS, &row, &[("access_level", "40")]).await.code(), 403);
    let left = submit(&reporter, MEMBERS, &format!("{MEMBERS}/leave"), &[]).await;
    assert_eq!((left.code(), left.header("location")), (303, "/dashboard"));
    assert_eq!(reporter.get(MEMBERS).await.code(), 404);
    // The owner of a personal project cannot be removed.
    let page = owner.get(MEMBERS).await;
    assert!(!page.text.contains("Remove") && !page.text.contains(">Leave<"), "{page}");
    let removed = submit(&owner, MEMBERS, &format!("{MEMBERS}/{}/delete", ann.id), &[]).await;
    assert_eq!(removed.code(), 403);
    assert_eq!(owner.get(&format!("{MEMBERS}/x/delete")).await.code(), 405);
    assert_eq!(submit(&owner, MEMBERS, &format!("{MEMBERS}/x/delete"), &[]).await.code(), 404);
}

#[tokio::test]
async fn a_project_is_shared_with_a_group() {
    let forge = TestForge::start().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    let group = ann.make("/groups", json!({ "name": "Acme", "path": "acme" })).await;
    bob.make("/groups", json!({ "name": "hidden", "path": "hidden", "visibility_level": 0 })).await;
    let owner = forge.signed_in_browser("ann").await;
    let links = "/ann/rocket/-/group_links";
    let shared = submit(&owner, MEMBERS, links, &[("group", "acme"), ("group_access", "30")]).await;
    assert_eq!(shared.code(), 303, "{shared}");
    assert_eq!(ann.get("/projects/1").await.json()["shared_with_groups"][0]["group_access_level"], 30);
    assert!(owner.get(MEMBERS).await.text.contains("href=\"/acme\""));
    for path in ["hidden", "missing"] {
        let refused = submit(&owner, MEMBERS, links, &[("group", path), ("group_access", "30")]).await;
        assert_eq!(refused.code(), 422);
        assert!(refused.text.contains("Group does not exist"), "{refused}");
    }
    let removed = submit(&owner, MEMBERS, &format!("{links}/{group}/delete"), &[]).await;
    assert_eq!(removed.code(), 303);
    assert_eq!(ann.get("/projects/1").await.json()["shared_with_groups"], json!([]));
}

#[tokio::test]
async fn a_group_keeps_an_owner() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    let owner = forge.signed_in_browser("ann").await;
    let members = "/groups/acme/-/group_members";
    let page = owner.get(members).await;
    assert!(!page.text.contains(">Leave<") && !page.text.contains("Remove"), "{page}");
    let added = submit(&owner, members, members, &[("username", "dan"), ("access_level", "50")]).await;
    assert_eq!((added.code(), added.header("location")), (303, members), "{added}");
    assert_eq!(ann.get(&format!("/groups/{group}/members")).await.json().as_array().map(Vec::len), Some(2));
    let again = submit(&owner, members, members, &[("username", "dan"), ("access_level", "50")]).await;
    assert_eq!(again.code(), 422);
    assert!(again.text.contains("Member already exists"), "{again}");
    assert_eq!(submit(&owner, members, &format!("{members}/leave"), &[]).await.code(), 303);
    let other = forge.signed_in_browser("dan").await;
    assert_eq!(submit(&other, members, &format!("{members}/leave"), &[]).await.code(), 403);
    let row = format!("{members}/{}", dan.id);
    assert_eq!(submit(&other, members, &row, &[("access_level", "30")]).await.code(), 403);
    assert_eq!(forge.browser().get(members).await.code(), 303);
    assert_eq!(owner.get(members).await.code(), 200, "the group is public");
    assert_eq!(submit(&owner, members, members, &[("username", "ann"), ("access_level", "50")]).await.code(), 403);
}
