//! The pages that create and administer projects and groups.

use serde_json::json;
use testkit::{LocalRepository, TestForge};

use super::submit;

#[tokio::test]
async fn a_user_creates_a_project_in_a_group() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let browser = forge.signed_in_browser("ann").await;
    let dashboard = browser.get("/dashboard").await;
    assert!(dashboard.text.contains("href=\"/projects/new\"") && dashboard.text.contains("href=\"/groups/new\""));
    let group = [("path", "acme"), ("name", "Acme <b>"), ("description", "Rockets"), ("visibility_level", "20")];
    let refused = submit(&browser, "/groups/new", "/groups/new", &group).await;
    assert_eq!(refused.code(), 422);
    for part in ["id=\"name-error\">Name can contain only", "value=\"Acme &#60;b&#62;\"", "value=\"20\" selected"] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    let group = [("path", "acme"), ("name", ""), ("description", "Rockets"), ("visibility_level", "20")];
    let created = submit(&browser, "/groups/new", "/groups/new", &group).await;
    assert_eq!((created.code(), created.header("location")), (303, "/acme"));
    let page = browser.get("/acme").await;
    assert!(page.text.contains("href=\"/projects/new?namespace=acme\""), "{page}");
    let form = browser.get("/projects/new?namespace=acme").await;
    assert!(form.text.contains("<option value=\"acme\" selected>"), "{form}");
    assert!(form.text.contains("<option value=\"ann\">"), "{form}");
    let fields = [
        ("namespace", "acme"),
        ("name", "Moon Rocket"),
        ("path", ""),
        ("description", "To the \"moon\"\0"),
        ("visibility_level", "10"),
    ];
    let created = submit(&browser, "/projects/new", "/projects/new", &fields).await;
    assert_eq!((created.code(), created.header("location")), (303, "/acme/moon-rocket"), "{created}");
    let project = ann.get("/projects/1").await.json();
    assert_eq!(project["name"], "Moon Rocket");
    assert_eq!(project["description"], "To the \"moon\"");
    assert_eq!(project["visibility_level"], 10);
    let again = submit(&browser, "/projects/new", "/projects/new", &fields).await;
    assert_eq!(again.code(), 422);
    for part in ["Name has already been taken", "aria-describedby=\"name-error\"", "value=\"Moon Rocket\""] {
        assert!(again.text.contains(part), "{part}: {again}");
    }
    let bad_url = [("namespace", "acme"), ("name", "x"), ("visibility_level", "20"), ("import_url", "file:///etc")];
    let refused = submit(&browser, "/projects/new", "/projects/new", &bad_url).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("id=\"import_url-error\""), "{refused}");
}

#[tokio::test]
async fn projects_are_created_only_where_the_user_may() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    let member = json!({ "user_id": dan.id.get(), "access_level": 30 });
    ann.make(&format!("/groups/{group}/members"), member).await;
    let developer = forge.signed_in_browser("dan").await;
    let page = developer.get("/acme").await;
    assert!(!page.text.contains("New project") && !page.text.contains("/-/edit"), "{page}");
    assert!(!developer.get("/projects/new?namespace=acme").await.text.contains("value=\"acme\""));
    let refused = submit(&developer, "/projects/new", "/projects/new", &[("namespace", "acme"), ("name", "x")]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("Namespace is not valid"), "{refused}");
    assert_eq!(developer.get("/groups/acme/-/edit").await.code(), 403);
    forge.external("ext").await;
    let external = forge.signed_in_browser("ext").await;
    assert_eq!(external.get("/groups/new").await.code(), 403);
    assert!(!external.get("/dashboard").await.text.contains("/groups/new"));
    let anonymous = forge.browser().get("/projects/new").await;
    assert_eq!((anonymous.code(), anonymous.header("location")), (303, "/users/sign_in?return_to=/projects/new"));
}

#[tokio::test]
async fn a_project_is_starred_and_forked() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let bob = forge.user("bob").await;
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# rocket\n");
    forge.push_all(&ann, model::ProjectId::new(1), &local).await;
    let browser = forge.signed_in_browser("bob").await;
    let starred = submit(&browser, "/ann/rocket", "/ann/rocket/-/star", &[("starred", "1")]).await;
    assert_eq!((starred.code(), starred.header("location")), (303, "/ann/rocket"));
    assert_eq!(submit(&browser, "/ann/rocket", "/ann/rocket/-/star", &[("starred", "1")]).await.code(), 303);
    let page = browser.get("/ann/rocket").await;
    assert!(page.text.contains("<li>1 star</li>") && page.text.contains(">Unstar</button>"), "{page}");
    submit(&browser, "/ann/rocket", "/ann/rocket/-/star", &[("starred", "0")]).await;
    assert!(browser.get("/ann/rocket").await.text.contains("<li>0 stars</li>"));
    let fork = submit(&browser, "/ann/rocket/-/forks/new", "/ann/rocket/-/forks/new", &[("namespace", "bob")]).await;
    assert_eq!((fork.code(), fork.header("location")), (303, "/bob/rocket"), "{fork}");
    let again = submit(&browser, "/ann/rocket/-/forks/new", "/ann/rocket/-/forks/new", &[("namespace", "bob")]).await;
    assert_eq!(again.code(), 422);
    assert!(again.text.contains("Name has already been taken"), "{again}");
    assert!(forge.browser().get("/ann/rocket/-/forks").await.text.contains("href=\"/bob/rocket\""));
    bob.put("/projects/2", json!({ "name": "rocket", "visibility_level": 0 })).await;
    let forks = forge.browser().get("/ann/rocket/-/forks").await;
    assert!(!forks.text.contains("bob/rocket") && forks.text.contains("There are no forks"), "{forks}");
    let visitor = forge.browser().get("/ann/rocket").await;
    assert!(!visitor.text.contains(">Star<") && !visitor.text.contains(">Fork<"), "{visitor}");
    let settings = "/bob/rocket/-/settings/general";
    assert!(browser.get(settings).await.text.contains("no longer a fork of <bdi>ann/rocket</bdi>"));
    assert_eq!(submit(&browser, settings, &format!("{settings}/unlink_fork"), &[]).await.code(), 303);
    assert!(bob.get("/projects/2").await.json().get("forked_from_project").is_none());
}

#[tokio::test]
async fn the_settings_of_a_project_are_changed() {
    let forge = TestForge::start().await;
    let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
    ann.make("/projects", json!({ "name": "rocket", "visibility_level": 20 })).await;
    ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 40 })).await;
    let local = LocalRepository::new();
    local.commit_file("README.md", "# rocket\n");
    local.git(&["branch", "next"]);
    forge.push_all(&ann, model::ProjectId::new(1), &local).await;
    let owner = forge.signed_in_browser("ann").await;
    let settings = "/ann/rocket/-/settings/general";
    let page = owner.get(settings).await;
    for part in ["name=\"issues_enabled\" value=\"1\" checked", "<option value=\"next\">", "Delete project", "Archive"]
    {
        assert!(page.text.contains(part), "{part}: {page}");
    }
    assert!(!page.text.contains("Transfer"), "only administrators transfer projects: {page}");
    let moved = owner.get("/ann/rocket/edit").await;
    assert_eq!((moved.code(), moved.header("location")), (301, "/ann/rocket/-/edit"));
    assert_eq!(owner.get("/ann/rocket/-/edit").await.header("location"), settings);
    let fields = [
        ("name", "Rocket 2"),
        ("path", "rocket2"),
        ("description", "Faster"),
        ("default_branch", "next"),
        ("visibility_level", "10"),
        ("builds_enabled", "1"),
    ];
    let saved = submit(&owner, settings, settings, &fields).await;
    assert_eq!((saved.code(), saved.header("location")), (303, "/ann/rocket2/-/settings/general"), "{saved}");
    let project = ann.get("/projects/1").await.json();
    for (field, expected) in [
        ("name", json!("Rocket 2")),
        ("path", json!("rocket2")),
        ("description", json!("Faster")),
        ("default_branch", json!("next")),
        ("visibility_level", json!(10)),
        ("issues_enabled", json!(false)),
        ("builds_enabled", json!(true)),
        ("public_builds", json!(false)),
    ] {
        assert_eq!(project[field], expected, "{field}");
    }
    let settings = "/ann/rocket2/-/settings/general";
    let bad = [("name", "<x>"), ("path", "a b"), ("default_branch", "none"), ("visibility_level", "20")];
    let refused = submit(&owner, settings, settings, &bad).await;
    assert_eq!(refused.code(), 422);
    for part in ["id=\"name-error\"", "id=\"path-error\"", "Default branch does not exist", "value=\"&#60;x&#62;\""] {
        assert!(refused.text.contains(part), "{part}: {refused}");
    }
    // A master cannot rename, archive or delete the project, and has no fields for it.
    let master = forge.signed_in_browser("dan").await;
    let page = master.get(settings).await;
    for part in ["id=\"name\"", "visibility_level", "Delete project", "Archive project"] {
        assert!(!page.text.contains(part), "{part}: {page}");
    }
    let saved = submit(&master, settings, settings, &[("path", "rocket2"), ("description", "By Dan")]).await;
    assert_eq!(saved.code(), 303, "{saved}");
    assert_eq!(ann.get("/projects/1").await.json()["description"], "By Dan");
    let renamed = submit(&master, settings, settings, &[("path", "rocket2"), ("name", "Mine")]).await;
    assert_eq!(renamed.code(), 403);
    for action in ["archive", "delete"] {
        let path = format!("{settings}/{action}");
        let fields = [("archived", "1"), ("confirmation", "ann/rocket2")];
        assert_eq!(submit(&master, settings, &path, &fields).await.code(), 403, "{action}");
    }
    let archived = submit(&owner, settings, &format!("{settings}/archive"), &[("archived", "1")]).await;
    assert_eq!(archived.code(), 303);
    assert_eq!(ann.get("/projects/1").await.json()["archived"], true);
    assert!(owner.get(settings).await.text.contains("Unarchive project"));
    let delete = format!("{settings}/delete");
    let refused = submit(&owner, settings, &delete, &[("confirmation", "rocket2")]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("This is not the path of the project"), "{refused}");
    let deleted = submit(&owner, settings, &delete, &[("confirmation", "ann/rocket2")]).await;
    assert_eq!((deleted.code(), deleted.header("location")), (303, "/ann"));
    assert_eq!(owner.get("/ann/rocket2").await.code(), 404);
}

#[tokio::test]
async fn an_administrator_transfers_a_project() {
    let forge = TestForge::start().await;
    let (root, ann) = (forge.admin().await, forge.user("ann").await);
    ann.make("/projects", json!({ "name": "rocket" })).await;
    root.make("/groups", json!({ "name": "acme", "path": "acme" })).await;
    let admin = forge.signed_in_browser("root").await;
    let settings = "/ann/rocket/-/settings/general";
    let transfer = format!("{settings}/transfer");
    let refused = submit(&admin, settings, &transfer, &[("new_namespace", "none")]).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("There is no such group"), "{refused}");
    let moved = submit(&admin, settings, &transfer, &[("new_namespace", "acme")]).await;
    assert_eq!((moved.code(), moved.header("location")), (303, "/acme/rocket/-/settings/general"));
    let owner = forge.signed_in_browser("ann").await;
    let refused = submit(&owner, "/dashboard", "/acme/rocket/-/settings/general/transfer", &[]).await;
    assert_eq!(refused.code(), 403);
}

#[tokio::test]
async fn the_settings_of_a_group_are_changed() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let group = ann.make("/groups", json!({ "name": "acme", "path": "acme", "visibility_level": 20 })).await;
    ann.make("/projects", json!({ "name": "rocket", "namespace_id": group, "visibility_level": 20 })).await;
    let owner = forge.signed_in_browser("ann").await;
    let settings = "/groups/acme/-/edit";
    let fields = [("name", "Acme"), ("path", "acme2"), ("description", "New"), ("visibility_level", "0")];
    let refused = submit(&owner, settings, settings, &fields).await;
    assert_eq!(refused.code(), 422);
    assert!(refused.text.contains("projects with higher visibility"), "{refused}");
    let fields = [("name", "Acme"), ("path", "acme2"), ("description", "New"), ("visibility_level", "20")];
    let saved = submit(&owner, settings, settings, &fields).await;
    assert_eq!((saved.code(), saved.header("location")), (303, "/groups/acme2/-/edit"), "{saved}");
    let found = ann.get("/groups/acme2").await.json();
    assert_eq!((&found["name"], &found["description"]), (&json!("Acme"), &json!("New")));
    let settings = "/groups/acme2/-/edit";
    let refused = submit(&owner, settings, "/groups/acme2/-/delete", &[("confirmation", "acme")]).await;
    assert_eq!(refused.code(), 422);
    let deleted = submit(&owner, settings, "/groups/acme2/-/delete", &[("confirmation", "acme2")]).await;
    assert_eq!((deleted.code(), deleted.header("location")), (303, "/dashboard"));
    assert_eq!(owner.get("/groups/acme2").await.code(), 404);
    assert_eq!(owner.get("/acme2/rocket").await.code(), 404);
}
