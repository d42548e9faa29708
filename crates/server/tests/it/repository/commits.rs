//! Commits: listing, reading, diffs, and creating.

use axum::http::Method;
use insta::assert_snapshot;
use model::ProjectId;
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, TestResponse};

use crate::repository::branches::RepositoryFixture;

const PROJECT: ProjectId = ProjectId::new(1);
const COMMITS: &str = "/projects/1/repository/commits";

fn new_commit(actions: Value) -> Value {
    json!({ "branch_name": "master", "commit_message": "Change files", "actions": actions })
}

async fn paths(client: &TestClient) -> String {
    let tree = client.get("/projects/1/repository/tree?recursive=true&per_page=100").await.json();
    let files = tree.as_array().expect("a list").iter().filter(|entry| entry["type"] == "blob");
    files.map(|entry| entry["path"].as_str().expect("a path")).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn commits_are_listed_newest_first_in_pages_from_0() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    for number in 0..30 {
        local.commit_file("counter", number.to_string());
    }
    forge.push_all(ann, PROJECT, local).await;
    let titles = async |query: &str| ann.get(&format!("{COMMITS}?{query}")).await.join_field("title");
    let first = ann.get(COMMITS).await;
    assert_eq!(first.json().as_array().map(Vec::len), Some(20));
    assert_eq!(first.header("x-total"), "", "there are no headers here");
    assert_eq!(first.json()[0]["id"], json!(local.git(&["rev-parse", "HEAD"])));
    assert_eq!(titles("page=0&per_page=1").await, "Add counter");
    assert_eq!(titles("page=1&per_page=31").await, "Add README.md");
    assert_eq!(titles("page=30&per_page=1&ref_name=master").await, "Add src/main.rs");
    assert_eq!(titles("page=2&per_page=100").await, "");
    assert_eq!(titles("per_page=1000").await.split(" Add").count(), 32);
    assert_eq!(titles("path=src").await, "Add src/main.rs");
    assert_eq!(titles("path=/src/main.rs").await, "Add src/main.rs");
    assert_eq!(titles("path=nowhere").await, "");
    assert_eq!(titles(&format!("ref_name={}", commits[0])).await, "Add README.md");
    assert_eq!(titles("ref_name=nowhere").await, "");
    assert_eq!(titles("until=2015-02-01T21:59:31%2B01:00").await, "Add README.md");
    assert_eq!(titles("until=2015-02-01T20:59:31Z").await, "Add README.md");
    assert_eq!(titles("since=2015-02-01T21:00:00Z&until=2015-02-01T21:02:00Z").await, "Add src/main.rs");
    assert_eq!(titles("since=2100-01-01").await, "");
    let bad = ann.get(&format!("{COMMITS}?since=yesterday")).await;
    let text = "\"since\" must be a timestamp in ISO 8601 format: YYYY-MM-DDTHH:MM:SSZ";
    assert_eq!((bad.code(), bad.json()), (400, json!({ "message": text })));
    assert_eq!(ann.get(&format!("{COMMITS}?page=-1")).await.json(), json!({ "error": "page is invalid" }));
}

#[tokio::test]
async fn a_commit_is_found_by_id_and_by_name() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    local.git(&["branch", "feature/data.json"]);
    local.git(&["tag", "-a", "v1.0", "-m", "m", &commits[0]]);
    forge.push_all(ann, PROJECT, local).await;
    assert_snapshot!(ann.get(&format!("{COMMITS}/{}", commits[1])).await, @r#"
    200 OK
    {"id":"e3d05f6b77aef72e104fe3dc1a35a8656a1b0f28","short_id":"e3d05f6b","title":"Add src/main.rs","author_name":"Ann Author","author_email":"ann@example.org","created_at":"2015-02-01T22:01:31.000+01:00","message":"Add src/main.rs\n","committer_name":"Carl Committer","committer_email":"carl@example.org","parent_ids":["e21b62d8d2a836e1394e4f9d1fbd9c60e3f17966"],"committed_date":"2015-02-01T22:01:31.000+01:00","authored_date":"2015-02-01T22:01:31.000+01:00","stats":{"additions":1,"deletions":0,"total":1},"status":null}
    "#);
    for (name, id) in [("master", 1), ("feature%2Fdata.json", 1), ("v1.0", 0), (&commits[0][..7], 0), ("HEAD", 1)] {
        assert_eq!(ann.get(&format!("{COMMITS}/{name}")).await.json()["id"], json!(commits[id]), "{name}");
    }
    let tree = local.git(&["rev-parse", "HEAD^{tree}"]);
    for unknown in ["nowhere", &tree, "ffffffffff", "a..b", "abc", &commits[0][..6]] {
        for path in [format!("{COMMITS}/{unknown}"), format!("{COMMITS}/{unknown}/diff")] {
            let answer = ann.get(&path).await;
            assert_eq!((answer.code(), answer.json()), (404, json!({ "message": "404 Commit Not Found" })), "{path}");
        }
    }
}

#[tokio::test]
async fn a_diff_is_against_the_first_parent_or_nothing() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, commits, .. } = &fixture;
    assert_snapshot!(ann.get(&format!("{COMMITS}/{}/diff", commits[0])).await, @r#"
    200 OK
    [{"old_path":"README.md","new_path":"README.md","a_mode":"0","b_mode":"100644","diff":"--- /dev/null\n+++ b/README.md\n@@ -0,0 +1 @@\n+one\n","new_file":true,"renamed_file":false,"deleted_file":false,"too_large":false}]
    "#);
    let second = ann.get(&format!("{COMMITS}/{}/diff.json", commits[1])).await;
    assert_eq!((second.code(), second.join_field("new_path").as_str()), (200, "src/main.rs"));
}

#[tokio::test]
async fn commits_need_a_signed_in_user_who_may_read_code() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, commits, .. } = &fixture;
    let (guest, stranger) = (forge.user("guest").await, forge.user("stranger").await);
    ann.make("/projects/1/members", json!({ "user_id": guest.id.get(), "access_level": 10 })).await;
    let anonymous = forge.anonymous();
    for visibility in [0, 20] {
        ann.put("/projects/1", json!({ "name": "x", "visibility_level": visibility })).await;
        let seen = if visibility == 20 { [401, 200, 200] } else { [401, 404, 403] };
        for path in ["", &format!("/{}", commits[0]), &format!("/{}/diff", commits[0])] {
            for (client, code) in [&anonymous, &stranger, &guest].into_iter().zip(seen) {
                assert_eq!(client.get(&format!("{COMMITS}{path}")).await.code(), code, "{visibility} {path}");
            }
        }
        let write = if visibility == 20 { [401, 403, 403] } else { [401, 404, 403] };
        for (client, code) in [&anonymous, &stranger, &guest].into_iter().zip(write) {
            assert_eq!(client.post(COMMITS, json!({})).await.code(), code);
        }
    }
}

#[tokio::test]
async fn several_files_change_in_one_commit() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, commits, .. } = &fixture;
    let actions = json!([
        { "action": "create", "file_path": "docs/new.md", "content": "new\r\n" },
        { "action": "create", "file_path": "raw", "content": "AAEC\n", "encoding": "base64" },
        { "action": "update", "file_path": "README.md", "content": "changed\n" },
        { "action": "move", "file_path": "lib/main.rs", "previous_path": "src/main.rs" },
    ]);
    let made = ann.post(COMMITS, new_commit(actions)).await;
    assert_eq!(made.code(), 201, "{made}");
    let body = made.json();
    assert_eq!((&body["title"], &body["parent_ids"]), (&json!("Change files"), &json!([commits[1]])));
    assert_eq!((&body["author_name"], &body["committer_email"]), (&json!("ann"), &json!("ann@example.org")));
    assert_eq!(body["created_at"], "2026-01-02T03:04:05.000+00:00");
    assert_eq!(body["stats"], json!({ "additions": 2, "deletions": 1, "total": 3 }));
    assert_eq!(paths(ann).await, "README.md docs/new.md lib/main.rs raw");
    let raw = async |path: &str| ann.get(&format!("/projects/1/repository/blobs/master?filepath={path}")).await.bytes;
    assert_eq!(raw("docs/new.md").await, b"new\n", "lines of text end in the way of Unix");
    assert_eq!(raw("raw").await, [0, 1, 2]);
    assert_eq!(raw("lib/main.rs").await, b"fn main() {}\n");
    assert_eq!(ann.get(COMMITS).await.json()[0]["id"], body["id"]);
}

#[tokio::test]
async fn a_commit_may_be_sent_as_a_form_with_an_author() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    let form = "branch_name=master&commit_message=m&author_name=Eve%20%3Cx%3E%0Aparent&author_email=eve@example.org\
        &actions[][action]=delete&actions[][file_path]=README.md\
        &actions[][action]=create&actions[][file_path]=b&actions[][content]=c";
    let made = ann.body(Method::POST, COMMITS, "application/x-www-form-urlencoded", form).await;
    assert_eq!(made.code(), 201, "{made}");
    // Characters that could forge a header of the commit are removed.
    assert_eq!(
        (&made.json()["author_name"], &made.json()["author_email"]),
        (&json!("Eve xparent"), &json!("eve@example.org"))
    );
    assert_eq!(made.json()["committer_name"], "ann");
    assert_eq!(paths(ann).await, "b src/main.rs");
    let mut half = new_commit(json!([{ "action": "delete", "file_path": "b" }]));
    half["author_name"] = json!("Eve");
    assert_eq!(ann.post(COMMITS, half).await.json()["author_name"], "ann", "both or none");
}

#[tokio::test]
async fn all_actions_are_applied_or_none() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, commits, .. } = &fixture;
    let created = json!({ "action": "create", "file_path": "ok", "content": "" });
    let cases = [
        (json!({ "action": "create", "content": "" }), "You must specify a file_path."),
        (json!({ "action": "create", "file_path": "", "content": "x" }), "You must specify a file_path."),
        (
            json!({ "action": "create", "file_path": "README.md", "content": "x" }),
            "Your changes could not be committed because a file with the name `README.md` already exists.",
        ),
        (
            json!({ "action": "create", "file_path": "README.md/below", "content": "x" }),
            "Your changes could not be committed because a file with the name `README.md/below` already exists.",
        ),
        (
            json!({ "action": "create", "file_path": "src", "content": "x" }),
            "Your changes could not be committed because a file with the name `src` already exists.",
        ),
        (json!({ "action": "update", "file_path": "x", "content": "x" }), "File to be updated `x` does not exist."),
        (json!({ "action": "delete", "file_path": "src" }), "File to be deleted `src` does not exist."),
        (json!({ "action": "move", "file_path": "x", "previous_path": "y" }), "File to be moved `y` does not exist."),
        (
            json!({ "action": "move", "file_path": "README.md", "previous_path": "src/main.rs" }),
            "Move destination `README.md` already exists.",
        ),
        (json!({ "action": "move", "file_path": "x" }), "You must supply the original file path when moving file `x`."),
        (json!({ "action": "chmod", "file_path": "x" }), "Unknown action type `chmod`."),
    ];
    for (action, text) in cases {
        let answer = ann.post(COMMITS, new_commit(json!([created, action]))).await;
        assert_eq!((answer.code(), answer.json()), (400, json!({ "message": text })));
    }
    let nothing = ann.post(COMMITS, new_commit(json!([]))).await;
    assert_eq!((nothing.code(), nothing.json()), (400, json!({ "message": "No files to update." })));
    let mut elsewhere = new_commit(json!([created]));
    elsewhere["branch_name"] = json!("nowhere");
    let text = "You can only create or edit files when you are on a branch";
    assert_eq!(ann.post(COMMITS, elsewhere).await.json(), json!({ "message": text }));
    let malformed = [
        (json!({}), "branch_name is missing, commit_message is missing, actions is missing"),
        (new_commit(json!("x")), "actions is invalid"),
        (new_commit(json!([{ "file_path": "x" }])), "actions[0][action] is missing"),
        (
            new_commit(json!([{ "action": "create", "file_path": "x", "content": "%", "encoding": "base64" }])),
            "actions[0][content] is invalid",
        ),
        (
            new_commit(json!([{ "action": "create", "file_path": "x", "content": "x", "encoding": "rot13" }])),
            "actions[0][encoding] does not have a valid value",
        ),
    ];
    for (body, text) in malformed {
        let answer = ann.post(COMMITS, body).await;
        assert_eq!((answer.code(), answer.json()), (400, json!({ "error": text })));
    }
    assert_eq!(ann.get(COMMITS).await.json()[0]["id"], json!(commits[1]), "nothing happened");
}

/// No path may lead out of the tree of a commit, or into git's own folder.
#[tokio::test]
async fn a_path_cannot_lead_out_of_a_repository() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, commits, .. } = &fixture;
    std::os::unix::fs::symlink("/etc", local.path().join("link")).expect("a link");
    std::os::unix::fs::symlink(".git", local.path().join("hidden")).expect("a link");
    local.git(&["add", "--all"]);
    local.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},module", commits[0])]);
    local.git(&["commit", "--quiet", "--message", "links"]);
    forge.push_all(ann, PROJECT, local).await;
    let head = ann.get(COMMITS).await.json()[0]["id"].clone();
    let hostile = [
        "../x",
        "a/../../x",
        "..",
        ".",
        "./x",
        "a/./x",
        "/x",
        "a//x",
        ".git",
        ".git/config",
        "a/.git/hooks/x",
        ".GIT/config",
        ".Git",
        "git~1/config",
        "GIT~1",
        ".git ",
        ".git.",
        ".git::$INDEX_ALLOCATION",
        ".g\u{200c}it/config",
        "\u{feff}.git",
        "a\\..\\x",
        "a\\.git\\config",
        "x\ny",
        "x\u{7f}",
        "link/passwd",
        "hidden/config",
        "module/x",
        "README.md/x",
    ];
    for path in hostile {
        let answer =
            ann.post(COMMITS, new_commit(json!([{ "action": "create", "file_path": path, "content": "x" }]))).await;
        assert_eq!(answer.code(), 400, "{path:?}: {answer}");
        let moved = json!([{ "action": "move", "file_path": path, "previous_path": "README.md" }]);
        assert_eq!(ann.post(COMMITS, new_commit(moved)).await.code(), 400, "{path:?}");
        let file = json!({ "file_path": path, "branch_name": "master", "content": "x", "commit_message": "m" });
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            let answer = ann.json(method.clone(), "/projects/1/repository/files", file.clone()).await;
            assert_eq!(answer.code(), 400, "{method} {path:?}: {answer}");
        }
    }
    assert_eq!(ann.get(COMMITS).await.json()[0]["id"], head, "nothing happened");
    let response =
        ann.post(COMMITS, new_commit(json!([{ "action": "create", "file_path": "a/../x", "content": "x" }]))).await;
    let text = "Your changes could not be committed, because the file name cannot include directory traversal.";
    assert_eq!(response.json(), json!({ "message": text }));
    // A symbolic link itself is changed, never its target.
    let link = json!({ "action": "update", "file_path": "link", "content": "elsewhere" });
    assert_eq!(ann.post(COMMITS, new_commit(json!([link]))).await.code(), 201);
    let folder = forge.repository_folder(PROJECT).await.expect("a repository");
    testkit::repository::git(&folder, &["fsck", "--strict", "--full"], b"");
}

#[tokio::test]
async fn concurrent_commits_do_not_overwrite_each_other() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    let writes = (0..12).map(|number| {
        let action = json!([{ "action": "create", "file_path": format!("f{number}"), "content": "x" }]);
        ann.post(COMMITS, new_commit(action))
    });
    let answers: Vec<TestResponse> = futures_util::future::join_all(writes).await;
    let made = answers.iter().filter(|answer| answer.code() == 201).count();
    let stale = "Could not update branch master. Please refresh and try again.";
    for refused in answers.iter().filter(|answer| answer.code() != 201) {
        assert_eq!((refused.code(), refused.json()), (400, json!({ "message": stale })));
    }
    assert!(made >= 1);
    assert_eq!(paths(ann).await.matches(" f").count(), made);
}

#[tokio::test]
async fn the_first_commit_creates_the_default_branch() {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    ann.make("/projects", json!({ "name": "x" })).await;
    let update = ann.post(COMMITS, new_commit(json!([{ "action": "update", "file_path": "a", "content": "x" }]))).await;
    assert_eq!((update.code(), update.json()), (400, json!({ "message": "No files to update." })));
    let mut bad = new_commit(json!([{ "action": "create", "file_path": "a", "content": "x" }]));
    bad["branch_name"] = json!("-x");
    assert_eq!(ann.post(COMMITS, bad).await.json(), json!({ "message": "Branch name is invalid" }));
    let first = ann.post(COMMITS, new_commit(json!([{ "action": "create", "file_path": "a", "content": "x" }]))).await;
    assert_eq!((first.code(), &first.json()["parent_ids"]), (201, &json!([])));
    assert_eq!(ann.get("/projects/1").await.json()["default_branch"], "master");
    assert_eq!(ann.get("/projects/1/repository/branches/master").await.json()["protected"], true);
    ann.post("/projects/1/archive", json!({})).await;
    let archived =
        ann.post(COMMITS, new_commit(json!([{ "action": "create", "file_path": "b", "content": "x" }]))).await;
    assert_eq!(archived.to_string(), "403 Forbidden\n{\"message\":\"403 Forbidden\"}");
}
