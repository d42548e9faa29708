//! Branches: listing, reading, creating, protecting and deleting.

use api::Dialect;
use axum::http::Method;
use insta::assert_snapshot;
use model::{
    ProjectId,
    protections::{Protection, PushLevel},
};
use serde_json::{Value, json};
use testkit::{LocalRepository, TestClient, TestForge};

const PROJECT: ProjectId = ProjectId::new(1);
const BRANCHES: &str = "/projects/1/repository/branches";

/// A forge with project 1 of Ann, where Dan is a developer, and a repository with two commits on `master`.
pub(crate) struct RepositoryFixture {
    pub(crate) forge: TestForge,
    pub(crate) ann: TestClient,
    pub(crate) dan: TestClient,
    pub(crate) local: LocalRepository,
    /// The two commits.
    pub(crate) commits: [String; 2],
}

impl RepositoryFixture {
    pub(crate) async fn start() -> Self {
        Self::start_with_dialect(Dialect::Spec).await
    }

    pub(crate) async fn start_with_dialect(dialect: Dialect) -> Self {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let (ann, dan) = (forge.user("ann").await, forge.user("dan").await);
        assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
        ann.make("/projects/1/members", json!({ "user_id": dan.id.get(), "access_level": 30 })).await;
        let local = LocalRepository::new();
        let commits = [local.commit_file("README.md", "one\n"), local.commit_file("src/main.rs", "fn main() {}\n")];
        forge.push_all(&ann, PROJECT, &local).await;
        Self { forge, ann, dan, local, commits }
    }
}

/// Returns the parameters for a branch from `master`.
pub(crate) fn new_branch(name: &str) -> Value {
    json!({ "branch_name": name, "ref": "master" })
}

#[tokio::test]
async fn a_developer_creates_a_branch_once_and_deletes_it() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    assert_snapshot!(dan.post(BRANCHES, new_branch("feature")).await, @r#"
    200 OK
    {"name":"feature","commit":{"id":"e3d05f6b77aef72e104fe3dc1a35a8656a1b0f28","message":"Add src/main.rs\n","parent_ids":["e21b62d8d2a836e1394e4f9d1fbd9c60e3f17966"],"authored_date":"2015-02-01T22:01:31.000+01:00","author_name":"Ann Author","author_email":"ann@example.org","committed_date":"2015-02-01T22:01:31.000+01:00","committer_name":"Carl Committer","committer_email":"carl@example.org"},"protected":false,"developers_can_push":false,"developers_can_merge":false}
    "#);
    assert_snapshot!(dan.post(BRANCHES, new_branch("feature")).await, @r#"
    400 Bad Request
    {"message":"Branch already exists"}
    "#);
    assert_snapshot!(dan.get(&format!("{BRANCHES}/feature")).await.json()["name"], @r#""feature""#);
    assert_snapshot!(dan.delete(&format!("{BRANCHES}/feature")).await, @r#"
    200 OK
    {"branch_name":"feature"}
    "#);
    assert_snapshot!(dan.delete(&format!("{BRANCHES}/feature")).await, @r#"
    404 Not Found
    {"message":"No such branch"}
    "#);
    assert_snapshot!(dan.get(&format!("{BRANCHES}/feature")).await, @r#"
    404 Not Found
    {"message":"404 Branch Not Found"}
    "#);
}

#[tokio::test]
async fn a_branch_starts_from_a_branch_a_tag_or_a_commit() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, commits } = &fixture;
    local.git(&["tag", "-a", "v1", "-m", "first", &commits[0]]);
    forge.push_all(ann, PROJECT, local).await;
    for (name, from, expected) in [
        ("a", "master", &commits[1]),
        ("b", "v1", &commits[0]),
        ("c", commits[0].as_str(), &commits[0]),
        ("d", &commits[0][..8], &commits[0]),
        ("e", "HEAD", &commits[1]),
        ("f", "refs/heads/master", &commits[1]),
    ] {
        let made = dan.post(BRANCHES, json!({ "branch_name": name, "ref": from })).await;
        assert_eq!((made.code(), &made.json()["commit"]["id"]), (200, &json!(expected)), "{made}");
    }
    for unknown in ["nowhere", "", " ", "-x", "--upload-pack=id", "a..b", "master:README.md", "@{", &"f".repeat(40)] {
        let refused = dan.post(BRANCHES, json!({ "branch_name": "z", "ref": unknown })).await;
        assert_eq!(refused.to_string(), "400 Bad Request\n{\"message\":\"Invalid reference name\"}", "{unknown}");
    }
    let tree = local.git(&["rev-parse", "HEAD^{tree}"]);
    assert_eq!(dan.post(BRANCHES, json!({ "branch_name": "z", "ref": tree })).await.code(), 400);
}

#[tokio::test]
async fn a_name_that_git_refuses_is_refused() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let long = "x".repeat(10_000);
    for bad in ["new design", "", "a..b", "a~1", ".a", "a.lock", "a/", "/a", "a//b", "refs/heads/a", "a\nb", &long] {
        let refused = dan.post(BRANCHES, new_branch(bad)).await;
        assert_eq!(refused.to_string(), "400 Bad Request\n{\"message\":\"Branch name is invalid\"}", "{bad:.40}");
    }
    assert_eq!(dan.post(BRANCHES, new_branch("a\0b")).await.json(), json!({ "error": "branch_name is invalid" }));
    let missing = dan.post(BRANCHES, json!({})).await;
    assert_eq!(missing.json(), json!({ "error": "branch_name is missing, ref is missing" }));
}

#[tokio::test]
async fn a_branch_cannot_lie_below_another() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    assert_eq!(dan.post(BRANCHES, new_branch("a/b")).await.code(), 200);
    for clash in ["a", "a/b/c", "master/x"] {
        let refused = dan.post(BRANCHES, new_branch(clash)).await;
        assert_eq!(refused.to_string(), "400 Bad Request\n{\"message\":\"Branch name is invalid\"}", "{clash}");
    }
    assert_eq!(dan.post(BRANCHES, new_branch("a/c")).await.code(), 200);
    assert_eq!(dan.post(BRANCHES, new_branch("ab")).await.code(), 200);
}

#[tokio::test]
async fn names_that_differ_only_in_case_are_different_branches() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    for name in ["Topic", "topic", "TOPIC/x"] {
        // "TOPIC/x" is below neither of the others.
        assert_eq!(dan.post(BRANCHES, new_branch(name)).await.code(), 200, "{name}");
    }
    let listed = dan.get(BRANCHES).await.json();
    let names: Vec<&str> = listed.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(["Topic", "topic", "TOPIC/x"].iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!(dan.delete(&format!("{BRANCHES}/Topic")).await.code(), 200);
    assert_eq!(dan.get(&format!("{BRANCHES}/topic")).await.json()["name"], "topic");
    assert_eq!(dan.get(&format!("{BRANCHES}/Topic")).await.code(), 404);
}

/// No route may pass a ref name to git as a command-line option.
#[tokio::test]
async fn a_ref_name_is_never_a_command_line_option() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let hostile = ["-x", "--help", "--upload-pack=id", "-c", "--output=/tmp/x", "HEAD", "--exec=id"];
    for name in hostile {
        assert_eq!(dan.post(BRANCHES, new_branch(name)).await.code(), 400, "{name}");
        let tag = json!({ "tag_name": name, "ref": "master" });
        assert_eq!(dan.post("/projects/1/repository/tags", tag).await.code(), 405, "{name}");
        let mut asked = Vec::new();
        for route in api::routes::v3().iter().filter(|route| route.path.contains("/repository/")) {
            let path = route.path.replace("{id}", "1").replace(".{format}", ".tar");
            let path = path.replace("{branch}", name).replace("{tag_name}", name).replace("{sha}", name);
            let body = json!({
                "ref": name, "ref_name": name, "sha": name, "from": name, "to": name, "path": name, "filepath": name,
                "file_path": name, "branch_name": name, "tag_name": name, "commit_message": "m", "content": "c",
                "actions": [{ "action": "update", "file_path": name }], "description": "d", "name": "n", "state": "success",
            });
            let answer = dan.json(route.method.clone(), &path, body).await;
            assert!(answer.code() < 500, "{} {path}: {answer}", route.method);
            asked.push(answer);
        }
        assert!(asked.len() >= 25, "{}", asked.len());
    }
    assert_eq!(dan.get(BRANCHES).await.join_field("name"), "master");
}

#[tokio::test]
async fn a_name_with_slashes_and_dots_is_found_raw_and_encoded() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    for name in ["feature/x.y", "data.json", "a/protect", "a/b/unprotect.json", "ä ö/ü?".split(' ').next().expect("ä")]
    {
        assert_eq!(ann.post(BRANCHES, new_branch(name)).await.code(), 200, "{name}");
        let encoded = name.replace('/', "%2F").replace('ä', "%C3%A4");
        let raw = name.replace('ä', "%C3%A4");
        for path in [&encoded, &raw] {
            let path = format!("{BRANCHES}/{path}");
            assert_eq!(ann.get(&path).await.json()["name"], json!(name), "{path}");
            let protected = ann.put(&format!("{path}/protect"), json!({})).await;
            assert_eq!((&protected.json()["name"], &protected.json()["protected"]), (&json!(name), &json!(true)));
            let bare = ann.put(&format!("{path}/unprotect"), json!({})).await;
            assert_eq!((&bare.json()["name"], &bare.json()["protected"]), (&json!(name), &json!(false)));
            assert_eq!(ann.get(&format!("/{path}/")).await.json()["name"], json!(name), "with more slashes");
        }
        let gone = ann.delete(&format!("{BRANCHES}/{raw}")).await;
        assert_eq!((gone.code(), gone.json()), (200, json!({ "branch_name": name })));
    }
    assert_eq!(ann.get(&format!("{BRANCHES}.json")).await.join_field("name"), "master");
    // A branch is not a folder and has no other actions.
    assert_eq!(ann.put(&format!("{BRANCHES}/master"), json!({})).await.code(), 405);
    assert_eq!(ann.post(&format!("{BRANCHES}/master/protect"), json!({})).await.code(), 405);
    assert_eq!(ann.get("/projects/ann%2Fx/repository/branches/master").await.json()["name"], "master");
}

#[tokio::test]
async fn the_first_default_branch_is_protected_from_developers() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, .. } = &fixture;
    let master = dan.get(&format!("{BRANCHES}/master")).await.json();
    let flags = ["protected", "developers_can_push", "developers_can_merge"].map(|flag| master[flag].clone());
    assert_eq!(flags, [json!(true), json!(false), json!(false)]);
    assert_eq!(ann.get("/projects/1").await.json()["default_branch"], "master");
    local.commit_file("more", "x");
    let refused = forge.push(dan, PROJECT, local).await;
    let text = "You are not allowed to push code to protected branches on this project.";
    assert_eq!(refused[0].rejection.as_ref().expect("a rejection").to_string(), text);
    ann.put(&format!("{BRANCHES}/master/protect"), json!({ "developers_can_push": true })).await;
    forge.push_all(dan, PROJECT, local).await;
}

#[tokio::test]
async fn a_protection_keeps_omitted_options() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, dan, .. } = &fixture;
    assert_eq!(ann.post(BRANCHES, new_branch("b")).await.code(), 200);
    let flags =
        |body: Value| ["protected", "developers_can_push", "developers_can_merge"].map(|flag| body[flag] == true);
    let protect = async |body: Value| flags(ann.put(&format!("{BRANCHES}/b/protect"), body).await.json());
    assert_eq!(protect(json!({ "developers_can_push": true })).await, [true, true, false]);
    assert_eq!(protect(json!({})).await, [true, true, false]);
    assert_eq!(protect(json!({ "developers_can_merge": "yes" })).await, [true, true, true]);
    assert_eq!(protect(json!({ "developers_can_push": false })).await, [true, false, true]);
    for _ in 0..2 {
        let bare = ann.put(&format!("{BRANCHES}/b/unprotect"), json!({})).await;
        assert_eq!((bare.code(), flags(bare.json())), (200, [false; 3]));
    }
    assert_eq!(protect(json!({})).await, [true, false, false]);
    let garbled = ann.put(&format!("{BRANCHES}/b/protect"), json!({ "developers_can_push": "maybe" })).await;
    assert_eq!(garbled.json(), json!({ "error": "developers_can_push is invalid" }));
    for verb in ["protect", "unprotect"] {
        let missing = ann.put(&format!("{BRANCHES}/nowhere/{verb}"), json!({})).await;
        assert_eq!(missing.to_string(), "404 Not Found\n{\"message\":\"404 Branch Not Found\"}");
        let denied = dan.put(&format!("{BRANCHES}/b/{verb}"), json!({ "developers_can_push": "maybe" })).await;
        assert_eq!(denied.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
    }
}

/// Wildcard rules cannot be created through this route, but they apply.
#[tokio::test]
async fn a_wildcard_rule_outlasts_an_unprotect() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, .. } = &fixture;
    let now = forge.forge.now();
    let rule = Protection { name: "stable/*".into(), push: PushLevel::Masters, merge: PushLevel::Developers };
    forge.with_connection(|db| store::protections::put(db, PROJECT, &rule, now).expect("a rule"));
    let refused = dan.post(BRANCHES, new_branch("stable/1")).await;
    let text = "GitLab: You are not allowed to push code to protected branches on this project.";
    assert_eq!((refused.code(), refused.json()), (400, json!({ "message": text })));
    assert_eq!(ann.post(BRANCHES, new_branch("stable/1")).await.json()["protected"], true);
    let after = ann.put(&format!("{BRANCHES}/stable/1/unprotect"), json!({})).await.json();
    assert_eq!((&after["protected"], &after["developers_can_merge"]), (&json!(true), &json!(true)));
    assert_eq!(ann.delete(&format!("{BRANCHES}/stable/1")).await.code(), 400);
}

#[tokio::test]
async fn the_default_branch_and_protected_ones_cannot_be_deleted() {
    for (dialect, made, kept) in [(Dialect::Spec, 200, 400), (Dialect::Gitlab, 201, 405)] {
        let fixture = RepositoryFixture::start_with_dialect(dialect).await;
        let RepositoryFixture { ann, .. } = &fixture;
        assert_eq!(ann.post(BRANCHES, new_branch("b")).await.code(), made);
        let head = ann.delete(&format!("{BRANCHES}/master")).await;
        assert_eq!((head.code(), head.json()), (kept, json!({ "message": "Cannot remove HEAD branch" })));
        ann.put(&format!("{BRANCHES}/b/protect"), json!({})).await;
        let protected = ann.delete(&format!("{BRANCHES}/b")).await;
        assert_eq!(
            (protected.code(), protected.json()),
            (kept, json!({ "message": "Protected branch cant be removed" }))
        );
        let missing = ann.delete(&format!("{BRANCHES}/nowhere")).await;
        assert_eq!((missing.code(), missing.json()), (404, json!({ "message": "No such branch" })));
        ann.put(&format!("{BRANCHES}/b/unprotect"), json!({})).await;
        assert_eq!(ann.delete(&format!("{BRANCHES}/b")).await.code(), 200);
    }
}

#[tokio::test]
async fn branches_are_listed_in_byte_order_and_in_pages() {
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let fixture = RepositoryFixture::start_with_dialect(dialect).await;
        let RepositoryFixture { forge, ann, local, .. } = &fixture;
        for number in 0..30 {
            local.git(&["branch", &format!("b{number:02}")]);
        }
        local.git(&["branch", "Z"]);
        forge.push_all(ann, PROJECT, local).await;
        let all = ann.get(BRANCHES).await;
        let names = all.join_field("name");
        assert!(names.starts_with("Z b00 b01"), "{names}");
        let shown = if dialect == Dialect::Spec { 20 } else { 32 };
        assert_eq!((names.split(' ').count(), all.header("x-total")), (shown, "32"));
        let page = ann.get(&format!("{BRANCHES}?page=4&per_page=10")).await;
        assert_eq!((page.join_field("name").as_str(), page.header("x-prev-page")), ("b29 master", "3"));
        assert_eq!(ann.get(&format!("{BRANCHES}?page=-1")).await.code(), 400);
    }
}

#[tokio::test]
async fn merged_branches_are_deleted() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, commits } = &fixture;
    for name in ["merged", "a/merged", "kept"] {
        local.git(&["branch", name, &commits[0]]);
    }
    local.git(&["branch", "just-begun"]);
    local.git(&["switch", "--quiet", "--create", "open", &commits[0]]);
    local.commit_file("open", "x");
    forge.push_all(ann, PROJECT, local).await;
    ann.put(&format!("{BRANCHES}/kept/protect"), json!({})).await;
    let reporter = forge.user("rita").await;
    ann.make("/projects/1/members", json!({ "user_id": reporter.id.get(), "access_level": 20 })).await;
    let refused = reporter.delete("/projects/1/repository/merged_branches").await;
    assert_eq!((refused.code(), refused.text.as_str()), (403, r#"{"message":"403 Forbidden"}"#));
    assert_eq!(ann.get(BRANCHES).await.join_field("name"), "a/merged just-begun kept master merged open");
    assert_eq!(dan.delete("/projects/1/repository/merged_branches").await.to_string(), "200 OK\n200");
    assert_eq!(ann.get(BRANCHES).await.join_field("name"), "just-begun kept master open");
    assert_eq!(forge.anonymous().delete("/projects/1/repository/merged_branches").await.code(), 401);
}

#[tokio::test]
async fn in_the_dialect_gitlab_a_reporter_deletes_no_merged_branch_and_gets_200() {
    let fixture = RepositoryFixture::start_with_dialect(Dialect::Gitlab).await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    local.git(&["branch", "merged", &commits[0]]);
    forge.push_all(ann, PROJECT, local).await;
    let reporter = forge.user("rita").await;
    ann.make("/projects/1/members", json!({ "user_id": reporter.id.get(), "access_level": 20 })).await;
    assert_eq!(reporter.delete("/projects/1/repository/merged_branches").await.to_string(), "200 OK\n200");
    assert_eq!(ann.get(BRANCHES).await.join_field("name"), "master merged");
}

#[tokio::test]
async fn many_merged_branches_are_deleted_in_the_background() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    for number in 0..250 {
        local.git(&["update-ref", &format!("refs/heads/b{number}"), &commits[0]]);
    }
    forge.push_all(ann, PROJECT, local).await;
    assert_eq!(ann.delete("/projects/1/repository/merged_branches").await.code(), 200);
    assert_eq!(ann.get(BRANCHES).await.header("x-total"), "251");
    forge.run_due_tasks().await;
    assert_eq!(ann.get(BRANCHES).await.join_field("name"), "master");
}

#[tokio::test]
async fn permissions_are_checked_before_parameters() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, .. } = &fixture;
    let (stranger, guest) = (forge.user("stranger").await, forge.user("guest").await);
    ann.make("/projects/1/members", json!({ "user_id": guest.id.get(), "access_level": 10 })).await;
    for (client, code, text) in [
        (&forge.anonymous(), 401, "401 Unauthorized"),
        (&stranger, 404, "404 Project Not Found"),
        (&guest, 403, "403 Forbidden"),
    ] {
        let list = client.get(&format!("{BRANCHES}?page=x")).await;
        let create = client.post(BRANCHES, json!({})).await;
        let one = client.get(&format!("{BRANCHES}/nowhere")).await;
        let remove = client.delete(&format!("{BRANCHES}/nowhere")).await;
        for answer in [list, create, one, remove] {
            assert_eq!((answer.code(), answer.json()), (code, json!({ "message": text })));
        }
    }
    let token = ann.token.clone().expect("a token");
    assert_eq!(ann.put("/projects/1", json!({ "name": "x", "visibility_level": 20 })).await.code(), 200);
    assert_eq!(forge.anonymous().get(BRANCHES).await.code(), 401, "branches need a login, even of public projects");
    assert_eq!(stranger.get(BRANCHES).await.code(), 200);
    assert_eq!(stranger.post(BRANCHES, json!({})).await.code(), 403);
    assert_eq!(ann.post("/projects/1/archive", json!({})).await.code(), 201);
    let archived = ann.post(BRANCHES, new_branch("b")).await;
    assert_eq!(archived.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
    assert_eq!(ann.with_token(&token).get(BRANCHES).await.join_field("name"), "master");
    // Protecting does not change the repository.
    assert_eq!(ann.put(&format!("{BRANCHES}/master/protect"), json!({})).await.code(), 200);
}

/// Branches, tags and objects of other projects must not be readable through a project.
#[tokio::test]
async fn refs_and_objects_of_another_project_are_not_found() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, commits, .. } = &fixture;
    let eve = forge.user("eve").await;
    let own = ProjectId::new(eve.make("/projects", json!({ "name": "own" })).await);
    let local = LocalRepository::new();
    local.commit_file("mine", "mine\n");
    forge.push_all(&eve, own, &local).await;
    let foreign = &commits[0];
    let asked = [
        format!("/projects/{own}/repository/commits/{foreign}"),
        format!("/projects/{own}/repository/blobs/{foreign}?filepath=README.md"),
        format!("/projects/{own}/repository/archive?sha={foreign}"),
        format!("/projects/{own}/repository/tree?ref_name={foreign}"),
        format!("/projects/{own}/repository/files?ref={foreign}&file_path=README.md"),
        "/projects/1/repository/tree".to_owned(),
        "/projects/1/repository/archive".to_owned(),
    ];
    for path in &asked {
        assert_eq!(eve.get(path).await.code(), 404, "{path}");
    }
    let blob = ann.get("/projects/1/repository/tree").await.json()[1]["id"].clone();
    let blob = blob.as_str().expect("an id");
    assert_eq!(ann.get(&format!("/projects/1/repository/raw_blobs/{blob}")).await.text, "one\n");
    assert_eq!(eve.get(&format!("/projects/{own}/repository/raw_blobs/{blob}")).await.code(), 404);
    let branch = json!({ "branch_name": "b", "ref": foreign });
    assert_eq!(eve.post(&format!("/projects/{own}/repository/branches"), branch).await.code(), 400);
    let compare = eve.get(&format!("/projects/{own}/repository/compare?from={foreign}&to=master")).await;
    assert_eq!((compare.code(), compare.text.as_str()), (404, r#"{"message":"404 Ref Not Found"}"#));
}

/// No endpoint and no transport may bypass the protection of a branch.
#[tokio::test]
async fn a_protected_branch_is_protected_against_every_kind_of_write() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, .. } = &fixture;
    let before = ann.get(&format!("{BRANCHES}/master")).await.json();
    let file =
        |path: &str| json!({ "file_path": path, "branch_name": "master", "content": "c", "commit_message": "m" });
    let many = json!({
        "branch_name": "master", "commit_message": "m", "actions": [{ "action": "create", "file_path": "z", "content": "" }],
    });
    let files = "/projects/1/repository/files";
    let answers = [
        dan.post(files, file("new")).await,
        dan.put(files, file("README.md")).await,
        dan.json(Method::DELETE, files, file("README.md")).await,
        dan.post("/projects/1/repository/commits", many).await,
    ];
    for answer in answers {
        let text = "You are not allowed to push into this branch";
        assert_eq!((answer.code(), answer.json()), (400, json!({ "message": text })));
    }
    assert_eq!(dan.delete(&format!("{BRANCHES}/master")).await.code(), 400);
    local.commit_file("pushed", "x");
    assert!(forge.push(dan, PROJECT, local).await[0].rejection.is_some());
    assert_eq!(ann.get(&format!("{BRANCHES}/master")).await.json(), before);
}
