//! Resolution of names that may be a branch, a tag or a commit: in this order.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use model::ProjectId;
use serde_json::{Value, json};

use crate::{
    ci::traces::ONE_JOB,
    repository::branches::RepositoryFixture,
    repository::git_clients::{GitServer, Transport, make_project},
};

const REPOSITORY: &str = "/projects/1/repository";

/// Sets up a tag with the name of the protected branch, pushed by a developer, on an older commit.
async fn with_a_tag_called_master() -> RepositoryFixture {
    let fixture = RepositoryFixture::start().await;
    let tag = json!({ "tag_name": "master", "ref": fixture.commits[0] });
    assert_eq!(fixture.dan.post(&format!("{REPOSITORY}/tags"), tag).await.code(), 201);
    fixture
}

#[tokio::test]
async fn every_route_that_takes_a_ref_shows_the_branch_and_not_the_tag_of_its_name() {
    let fixture = with_a_tag_called_master().await;
    let RepositoryFixture { ann, commits: [old, new], .. } = &fixture;
    let get = async |path: &str| {
        let answer = ann.get(&format!("{REPOSITORY}/{path}")).await;
        assert_eq!(answer.code(), 200, "{path}: {answer}");
        answer
    };
    for (name, tip) in [("master", new), ("refs/heads/master", new), ("refs/tags/master", old), ("tags/master", old)] {
        let coded = name.replace('/', "%2F");
        let is_new = tip == new;
        assert_eq!(get(&format!("commits?ref_name={name}")).await.json()[0]["id"], json!(tip), "{name}");
        assert_eq!(get(&format!("commits/{coded}")).await.json()["id"], json!(tip), "{name}");
        let changed = if is_new { "src/main.rs" } else { "README.md" };
        assert_eq!(get(&format!("commits/{coded}/diff")).await.join_field("new_path"), changed, "{name}");
        let folder = if is_new { "src README.md" } else { "README.md" };
        assert_eq!(get(&format!("tree?ref_name={name}")).await.join_field("name"), folder, "{name}");
        let archive = get(&format!("archive?sha={name}")).await;
        assert!(archive.header("content-disposition").contains(tip.as_str()), "{name}: {archive:?}");
        let added = get(&format!("compare?from={old}&to={name}")).await.json()["commits"].as_array().map(Vec::len);
        assert_eq!(added, Some(usize::from(is_new)), "{name}");
        let removed = get(&format!("compare?from={name}&to={new}")).await.json()["commits"].as_array().map(Vec::len);
        assert_eq!(removed, Some(usize::from(!is_new)), "{name}");
        let code = if is_new { 200 } else { 404 };
        for path in [
            format!("blobs/{coded}?filepath=src/main.rs"),
            format!("commits/{coded}/blob?filepath=src/main.rs"),
            format!("files?file_path=src/main.rs&ref={name}"),
        ] {
            assert_eq!(ann.get(&format!("{REPOSITORY}/{path}")).await.code(), code, "{path}");
        }
    }
    // Writes start from the branch, too.
    let branch = ann.post(&format!("{REPOSITORY}/branches"), json!({ "branch_name": "b", "ref": "master" })).await;
    assert_eq!(branch.json()["commit"]["id"], json!(new));
    let tag = ann.post(&format!("{REPOSITORY}/tags"), json!({ "tag_name": "t", "ref": "master" })).await;
    assert_eq!(tag.json()["commit"]["id"], json!(new));
    let status = ann.post("/projects/1/statuses/master", json!({ "state": "success", "ref": "master" })).await;
    assert_eq!((status.code(), &status.json()["sha"]), (201, &json!(new)));
    assert_eq!(get("commits/master/statuses").await.join_field("sha"), *new);
    ann.post(&format!("{REPOSITORY}/commits/master/comments"), json!({ "note": "fine" })).await;
    assert_eq!(get(&format!("commits/{new}/comments")).await.join_field("note"), "fine");
    assert_eq!(get("commits/master/comments").await.join_field("note"), "fine");
}

#[tokio::test]
async fn a_pipeline_for_an_ambiguous_name_is_for_the_branch() {
    let fixture = with_a_tag_called_master().await;
    let RepositoryFixture { forge, ann, local, commits: [old, _], .. } = &fixture;
    let new = local.commit_file(".gitlab-ci.yml", ONE_JOB);
    // The tag is unchanged.
    local.git(&["tag", "master", old]);
    forge.push_all(ann, ProjectId::new(1), local).await;
    let pipeline = ann.post("/projects/1/pipeline", json!({ "ref": "master" })).await;
    assert_eq!(pipeline.code(), 201, "{pipeline}");
    let pipeline = pipeline.json();
    assert_eq!((&pipeline["sha"], &pipeline["tag"]), (&json!(new), &json!(false)));
    let trigger = ann.post("/projects/1/triggers", json!({})).await.json()["token"].clone();
    let call = json!({ "token": trigger });
    let started = ann.post("/projects/1/ref/master/trigger/builds", call).await;
    assert_eq!(started.code(), 201, "{started}");
    let newest = &ann.get("/projects/1/pipelines").await.json()[0];
    assert_eq!((&newest["sha"], &newest["tag"]), (&json!(new), &json!(false)));
    // A runner gets the full ref name, so it fetches the branch.
    let builds = ann.get(&format!("{REPOSITORY}/commits/master/builds")).await.json();
    let builds = builds.as_array().expect("a list");
    assert!(!builds.is_empty());
    for build in builds {
        assert_eq!((&build["tag"], &build["commit"]["id"]), (&json!(false), &json!(new)));
    }
}

#[tokio::test]
async fn forty_hexadecimal_digits_are_a_commit_id_and_never_a_ref_name() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, commits: [old, new] } = &fixture;
    let refused = |answer: testkit::TestResponse| (answer.code(), answer.json());
    let branch = dan.post(&format!("{REPOSITORY}/branches"), json!({ "branch_name": new, "ref": old })).await;
    assert_eq!(refused(branch), (400, json!({ "message": "Branch name is invalid" })));
    let tag = dan.post(&format!("{REPOSITORY}/tags"), json!({ "tag_name": new.to_uppercase(), "ref": old })).await;
    assert_eq!(refused(tag), (405, json!({ "message": "Tag name invalid" })));
    local.git(&["branch", new, old]);
    local.git(&["tag", new, old]);
    let rejections =
        forge.push(ann, ProjectId::new(1), local).await.into_iter().filter_map(|outcome| outcome.rejection);
    let reasons: Vec<String> = rejections.map(|rejection| rejection.to_string()).collect();
    assert_eq!(
        reasons,
        [
            "You cannot create a branch with a 40-character hexadecimal branch name.",
            "You cannot create a tag with a 40-character hexadecimal tag name.",
        ]
    );
    assert_eq!(ann.get(&format!("{REPOSITORY}/commits/{new}")).await.json()["id"], json!(new));
    // Not even for the first branch of an empty project.
    let empty = ann.make("/projects", json!({ "name": "empty" })).await;
    let file = json!({ "file_path": "a", "branch_name": new, "content": "x", "commit_message": "Add it" });
    let first = ann.post(&format!("/projects/{empty}/repository/files"), file).await;
    assert_eq!(refused(first), (400, json!({ "message": "Branch name is invalid" })));
}

#[tokio::test]
async fn revisions_have_no_special_syntax() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { ann, .. } = &fixture;
    for name in ["master~1", "master^", "master^{tree}", "master@{1}", "@", ":/Add", "master:README.md"] {
        let coded: String = name.bytes().fold(String::new(), |coded, byte| coded + &format!("%{byte:02X}"));
        let answer = ann.get(&format!("{REPOSITORY}/commits/{coded}")).await;
        assert_eq!((answer.code(), answer.json()), (404, json!({ "message": "404 Commit Not Found" })), "{name}");
    }
}

#[test]
fn a_branch_whose_name_begins_with_refs_comes_before_a_ref_of_that_name() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    let id = make_project(&ann, "rocket", 0);
    let url = setup.url(Some(&ann), Transport::Http, "ann/rocket");
    setup.git_ok(None, "ann", &["init", "-q", "-b", "main"]);
    let first = setup.commit("ann", "README.md", "hello\n");
    setup.commit("ann", "README.md", "other\n");
    setup.git_ok(Some(&ann), "ann", &["push", "-q", &url, "main", "main:refs/foo/x"]);
    setup.git_ok(Some(&ann), "ann", &["push", "-q", &url, &format!("{first}:refs/heads/refs/foo/x")]);
    let shown = ann.client.get(&format!("/api/v3/projects/{id}/repository/commits/refs%2Ffoo%2Fx")).json();
    assert_eq!(shown["id"], json!(first));
}

#[test]
fn a_name_that_is_not_utf_8_is_refused_over_both_transports() {
    let setup = GitServer::start();
    let ann = setup.person("ann");
    let id = make_project(&ann, "rocket", 0);
    setup.git_ok(None, "ann", &["init", "-q", "-b", "main"]);
    setup.commit("ann", "README.md", "hello\n");
    for transport in [Transport::Http, Transport::Ssh] {
        let url = setup.url(Some(&ann), transport, "ann/rocket");
        setup.git_ok(Some(&ann), "ann", &["push", "-q", &url, "main"]);
        let mut git = setup.command(Some(&ann), "ann");
        git.args(["push", &url]).arg(OsStr::from_bytes(b"main:refs/heads/\xff\xfe"));
        let output = git.output().expect("git runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        // Git shows the reason next to the ref only if the report has its exact bytes.
        assert!(said.contains("[remote rejected]") && said.contains("(the ref name is not valid UTF-8)"), "{said}");
        let branches = ann.client.get(&format!("/api/v3/projects/{id}/repository/branches")).json();
        let names: Vec<&Value> = branches.as_array().expect("a list").iter().map(|branch| &branch["name"]).collect();
        assert_eq!(names, [&json!("main")]);
    }
}
