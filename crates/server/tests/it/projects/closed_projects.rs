//! Projects without access: nothing of them is shown, and protected fields cannot be set.

use jiff::SignedDuration;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, fixtures};

use crate::policy::access_to_projects::send_file;

/// The name that no response may contain.
const SECRET: &str = "moonshot";

/// Requests everything in which the project could appear; no response may contain its name.
async fn assert_hidden(client: &TestClient, paths: &[String]) {
    let lists = [
        "/projects",
        "/projects/visible",
        "/projects/visible?visibility=private",
        "/projects/owned",
        "/projects/starred",
        "/projects/search/moonshot",
        "/projects/search/mo",
        "/projects?search=moonshot",
        "/projects/visible?search=moonshot",
        "/projects/starred?search=moonshot",
        "/groups",
        "/groups?all_available=true",
        "/groups?all_available=true&search=moonshot",
        "/groups/owned",
        "/namespaces",
        "/users/1/events",
    ];
    for path in lists.into_iter().chain(paths.iter().map(String::as_str)) {
        let answer = if path.contains("/uploads/") { client.page(path).await } else { client.get(path).await };
        assert!(!answer.text.contains(SECRET), "{path}: {answer}");
        if answer.code() == 200 && lists.contains(&path) {
            let listed = answer.json().as_array().map(Vec::len);
            assert_eq!(answer.header("x-total"), listed.unwrap_or_default().to_string(), "{path}: {answer}");
        }
    }
}

/// A project that is made private or deleted leaves no trace in lists, counts and files.
#[tokio::test]
async fn nothing_of_a_closed_project_is_shown() {
    let forge = TestForge::start().await;
    let root = forge.admin().await;
    let ann = forge.user("ann").await;
    let (bob, eve, dan) = (forge.user("bob").await, forge.external("eve").await, forge.user("dan").await);
    let group = |path: &str| json!({ "name": path, "path": path, "visibility_level": 0 });
    let home = ann.post("/groups", json!({ "name": "home", "path": "home" })).await.json()["id"].clone();
    let crew = ann.post("/groups", group("crew")).await.json()["id"].clone();
    let new = json!({ "name": SECRET, "namespace_id": home, "visibility_level": 20, "description": "moonshot it is" });
    assert_eq!(ann.post("/projects", new).await.json()["id"], 1);
    ann.post("/projects/1/share", json!({ "group_id": crew, "group_access": 20 })).await;
    ann.post("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 40 })).await;
    ann.post(&format!("/groups/{crew}/members"), json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
    let sent = send_file(&ann, "/projects/1/uploads").await.json();
    let page = format!("/home/moonshot{}", sent["url"].as_str().expect("a URL"));
    for client in [&bob, &eve, &dan] {
        assert_eq!(client.post("/projects/1/star", json!({})).await.code(), 201);
        assert_eq!(client.get("/projects/starred").await.join_field("star_count").len(), 1);
        assert_eq!(client.page(&page).await.text, SECRET);
        assert_eq!(client.get("/groups/crew").await.json()["shared_projects"][0]["id"], 1);
    }
    let places: Vec<String> = ["/projects/1", "/projects/home%2Fmoonshot", "/projects/1/members", "/groups/crew"]
        .into_iter()
        .chain(["/groups/crew/projects", "/groups/crew/members", "/groups/home", "/groups/home/projects"])
        .map(str::to_owned)
        .chain([page.clone(), format!("/projects/1/members/{}", dan.id)])
        .collect();

    // A user who saw it because it was public.
    assert_eq!(ann.put("/projects/1", json!({ "name": SECRET, "visibility_level": 0 })).await.code(), 200);
    for client in [&bob, &eve, &forge.anonymous()] {
        assert_hidden(client, &places).await;
        assert_ne!(client.page(&page).await.code(), 200);
    }
    for client in [&bob, &eve] {
        // The group was visible because of the project.
        assert_eq!(client.get("/groups/crew").await.code(), 404);
        assert_eq!(client.post("/projects/1/star", json!({})).await.code(), 404);
        assert_eq!(client.delete("/projects/1/star").await.code(), 404);
        assert_eq!(client.get("/projects/starred").await.header("x-total"), "0");
    }
    assert_eq!(root.get("/projects/1").await.json()["star_count"], 3);

    // A member of the project and of a group: either membership gives access.
    assert_eq!(dan.get("/projects/1").await.code(), 200);
    assert_eq!(ann.delete(&format!("/projects/1/members/{}", dan.id)).await.code(), 200);
    assert_eq!(dan.get("/projects/1").await.code(), 200);
    assert_eq!(dan.get("/groups/crew").await.json()["shared_projects"][0]["id"], 1);
    assert_eq!(ann.delete(&format!("/projects/1/share/{crew}")).await.code(), 204);
    assert_hidden(&dan, &places).await;
    assert_eq!(dan.get("/groups/crew").await.code(), 200);
    assert_eq!(dan.page(&page).await.code(), 404);

    // Shared again, and then the group membership is removed.
    ann.post("/projects/1/share", json!({ "group_id": crew, "group_access": 20 })).await;
    assert_eq!(dan.get("/projects/starred").await.join_field("id"), "1");
    assert_eq!(ann.delete(&format!("/groups/{crew}/members/{}", dan.id)).await.code(), 200);
    assert_hidden(&dan, &places).await;
    assert_eq!(dan.get("/groups/crew").await.code(), 404);

    // With an expiry date that passes.
    let until = json!({ "user_id": dan.id.get(), "access_level": 10, "expires_at": "2026-01-03" });
    assert_eq!(ann.post("/projects/1/members", until).await.code(), 201);
    assert_eq!(dan.page(&page).await.text, SECRET);
    forge.clock.advance(SignedDuration::from_hours(21));
    assert_hidden(&dan, &places).await;

    // Deleted: not even the owner finds it, before and after the cleanup.
    assert_eq!(ann.delete("/projects/1").await.code(), 200);
    for _ in 0..2 {
        assert_hidden(&ann, &places).await;
        assert_hidden(&root, &places).await;
        assert_eq!(root.get("/projects/all").await.header("x-total"), "0");
        while forge::tasks::run_next(&forge.forge).await.expect("worked") {}
    }
    assert!(!forge.dump().contains(SECRET));
}

/// Mass assignment: fields without a parameter have no effect.
#[tokio::test]
async fn protected_fields_cannot_be_mass_assigned() {
    let forge = TestForge::start().await;
    forge.admin().await;
    let (ann, bob) = (forge.user("ann").await, forge.user("bob").await);
    let group = bob.post("/groups", json!({ "name": "g", "path": "g" })).await.json()["id"].clone();
    let own = ann.post("/groups", json!({ "name": "own", "path": "own" })).await.json()["id"].clone();
    assert_eq!(ann.post("/projects", json!({ "name": "x" })).await.json()["id"], 1);
    assert_eq!(bob.post("/projects", json!({ "name": "x" })).await.json()["id"], 2);
    let protected_fields = |body: Value| {
        let mut protected_fields = json!({
            "creator_id": bob.id.get(), "id": 2, "user_id": bob.id.get(), "star_count": 7, "forks_count": 7, "owner_id": bob.id.get(),
            "runners_token": "stolen", "runners_seed": "stolen", "projects_limit": 1000, "personal_projects": -9,
            "archived": true, "deleted_at": "2026-01-01", "created_at": "2001-01-01", "last_activity_at": "2001-01-01",
            "parent_id": group, "ancestor_id": group, "full_path": "g/x", "kind": "group",
            "share_with_group_lock": true, "admin": true, "external": false, "permissions": { "project_access": 50 },
            "shared_with_groups": [{ "group_id": own, "group_access_level": 40 }], "project_id": 2, "access_level": 50,
        });
        for (key, value) in body.as_object().expect("an object") {
            protected_fields[key] = value.clone();
        }
        protected_fields
    };
    let see = async |path: &str| ann.get(path).await.json();
    let (user, project, own_group) = (see("/user").await, see("/projects/1").await, see("/groups/own").await);
    // The search index may be rewritten.
    let rows = || forge.dump().lines().filter(|line| !line.contains("_search_")).collect::<Vec<_>>().join("\n");
    let everything = rows();

    // An update without changes; the namespace is not a parameter of updates.
    let edited = ann.put("/projects/1", protected_fields(json!({ "name": "x", "namespace_id": group }))).await;
    assert_eq!(edited.code(), 200, "{edited}");
    assert_eq!(see("/projects/1").await, project);
    let edited = ann.put(&format!("/groups/{own}"), protected_fields(json!({ "name": "own" }))).await;
    assert_eq!(edited.code(), 200, "{edited}");
    assert_eq!(see("/groups/own").await, own_group);
    assert_eq!(ann.post("/projects/1/archive", protected_fields(json!({}))).await.code(), 201);
    assert_eq!(ann.post("/projects/1/unarchive", protected_fields(json!({}))).await.code(), 201);
    assert_eq!(see("/projects/1").await, project);
    assert_eq!(see("/user").await, user);
    assert_eq!(rows(), everything, "the clock stands still, so not even an edit shows");

    // New objects belong to the caller.
    let made = ann.post("/projects", protected_fields(json!({ "name": "y" }))).await.json();
    assert_eq!((&made["id"], &made["creator_id"], &made["star_count"]), (&json!(3), &json!(ann.id.get()), &json!(0)));
    assert_eq!((&made["path_with_namespace"], &made["archived"]), (&json!("ann/y"), &json!(false)));
    assert_eq!((&made["created_at"], &made["shared_with_groups"]), (&project["created_at"], &json!([])));
    assert_ne!(made["runners_token"], "stolen");
    let made = ann
        .post("/projects/1/members", protected_fields(json!({ "user_id": bob.id.get(), "access_level": 10 })))
        .await
        .json();
    assert_eq!((&made["id"], &made["access_level"]), (&json!(bob.id.get()), &json!(10)));
    let mut star = ann.post("/projects/1/star", protected_fields(json!({}))).await.json();
    assert_eq!(star["star_count"].take(), 1);
    assert_eq!(bob.get("/projects/starred").await.text, "[]");

    // Creating in other namespaces requires permission; creating for other users requires an administrator.
    assert_eq!(ann.post("/projects", json!({ "name": "z", "namespace_id": group })).await.code(), 400);
    let theirs = forge.in_transaction(|db| fixtures::personal_namespace(db, bob.id));
    assert_eq!(ann.post("/projects", json!({ "name": "z", "namespace_id": theirs.get() })).await.code(), 400);
    assert_eq!(ann.post(&format!("/projects/user/{}", bob.id), json!({ "name": "z" })).await.code(), 403);
    assert_eq!(ann.post(&format!("/groups/{own}/projects/1"), json!({})).await.code(), 403);
    let made = ann
        .post("/groups", protected_fields(json!({ "name": "fresh", "path": "fresh", "visibility_level": 0 })))
        .await
        .json();
    assert_eq!(made["web_url"], "http://gable.test/groups/fresh");
    assert_eq!(bob.get(&format!("/groups/{}", made["id"])).await.code(), 404);
    assert_eq!(see("/user").await, user);
}
