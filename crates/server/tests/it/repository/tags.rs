//! Tags and their releases.

use api::Dialect;
use insta::assert_snapshot;
use model::ProjectId;
use serde_json::{Value, json};

use crate::repository::branches::RepositoryFixture;

const PROJECT: ProjectId = ProjectId::new(1);
const TAGS: &str = "/projects/1/repository/tags";

fn new_tag(name: &str) -> Value {
    json!({ "tag_name": name, "ref": "master" })
}

#[tokio::test]
async fn a_developer_creates_a_lightweight_tag_and_deletes_it() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    assert_snapshot!(dan.post(TAGS, new_tag("v1.0")).await, @r#"
    201 Created
    {"name":"v1.0","message":null,"commit":{"id":"e3d05f6b77aef72e104fe3dc1a35a8656a1b0f28","message":"Add src/main.rs\n","parent_ids":["e21b62d8d2a836e1394e4f9d1fbd9c60e3f17966"],"authored_date":"2015-02-01T22:01:31.000+01:00","author_name":"Ann Author","author_email":"ann@example.org","committed_date":"2015-02-01T22:01:31.000+01:00","committer_name":"Carl Committer","committer_email":"carl@example.org","parents_ids":["e21b62d8d2a836e1394e4f9d1fbd9c60e3f17966"]},"release":null}
    "#);
    assert_snapshot!(dan.post(TAGS, new_tag("v1.0")).await, @r#"
    405 Method Not Allowed
    {"message":"Tag v1.0 already exists"}
    "#);
    assert_eq!(dan.get(&format!("{TAGS}/v1.0")).await.json(), dan.get(TAGS).await.json()[0]);
    assert_snapshot!(dan.delete(&format!("{TAGS}/v1.0")).await, @r#"
    200 OK
    {"tag_name":"v1.0"}
    "#);
    assert_snapshot!(dan.delete(&format!("{TAGS}/v1.0")).await, @r#"
    404 Not Found
    {"message":"No such tag"}
    "#);
    assert_snapshot!(dan.get(&format!("{TAGS}/v1.0")).await, @r#"
    404 Not Found
    {"message":"404 Tag Not Found"}
    "#);
}

#[tokio::test]
async fn a_tag_with_a_message_is_annotated() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, dan, commits, .. } = &fixture;
    let annotated = json!({ "tag_name": "v1", "ref": commits[0], "message": " First\n\nof many\n " });
    let made = dan.post(TAGS, annotated).await;
    assert_eq!((made.code(), &made.json()["message"]), (201, &json!("First\n\nof many")), "{made}");
    assert_eq!(made.json()["commit"]["id"], json!(commits[0]));
    // A tag of a tag has the commit.
    let again = dan.post(TAGS, json!({ "tag_name": "v1-again", "ref": "v1", "message": "x" })).await.json();
    assert_eq!(again["commit"]["id"], json!(commits[0]));
    for blank in ["", " \n"] {
        let name = format!("light{}", blank.len());
        let made = dan.post(TAGS, json!({ "tag_name": name, "ref": "master", "message": blank })).await.json();
        assert_eq!(made["message"], json!(null));
    }
    let folder = forge.repository_folder(PROJECT).await.expect("a repository");
    let shown = testkit::repository::git(&folder, &["cat-file", "-p", "refs/tags/v1"], b"").stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("tagger dan <dan@example.org> 1767323045 +0000\n\nFirst\n\nof many\n"), "{shown}");
}

#[tokio::test]
async fn invalid_tags_are_refused_with_the_messages_of_the_dialect() {
    for (dialect, refused) in [(Dialect::Spec, 405), (Dialect::Gitlab, 400)] {
        let fixture = RepositoryFixture::start_with_dialect(dialect).await;
        let RepositoryFixture { dan, .. } = &fixture;
        assert_eq!(dan.post(TAGS, new_tag("a/b")).await.code(), 201);
        let long = "x".repeat(10_000);
        let cases = [
            (new_tag("v 1"), json!("Tag name invalid")),
            (new_tag("-x"), json!("Tag name invalid")),
            (new_tag("HEAD"), json!("Tag name invalid")),
            (new_tag(&long), json!("Tag name invalid")),
            (new_tag("a"), json!("Tag name invalid")),
            (new_tag("a/b/c"), json!("Tag name invalid")),
            (new_tag("a/b"), json!("Tag a/b already exists")),
            (json!({ "tag_name": "v", "ref": "nowhere" }), json!("Target nowhere is invalid")),
            (json!({ "tag_name": "v", "ref": "--help" }), json!("Target --help is invalid")),
            (
                json!({ "tag_name": "v", "ref": "master", "release_description": " " }),
                json!({ "description": ["can't be blank"] }),
            ),
        ];
        for (body, message) in cases {
            let answer = dan.post(TAGS, body).await;
            assert_eq!((answer.code(), answer.json()), (refused, json!({ "message": message })));
        }
        let missing = dan.post(TAGS, json!({})).await;
        assert_eq!(
            (missing.code(), missing.json()["error"].clone()),
            (400, json!("tag_name is missing, ref is missing"))
        );
        assert_eq!(dan.get(TAGS).await.join_field("name"), "a/b");
    }
}

#[tokio::test]
async fn tags_are_listed_by_name_descending_in_pages() {
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let fixture = RepositoryFixture::start_with_dialect(dialect).await;
        let RepositoryFixture { forge, ann, local, .. } = &fixture;
        for number in 1..=25 {
            local.git(&["tag", &format!("v{number}")]);
        }
        forge.push_all(ann, PROJECT, local).await;
        let all = ann.get(TAGS).await;
        let names = all.join_field("name");
        assert!(names.starts_with("v9 v8 v7 v6 v5 v4 v3 v25 v24"), "{names}");
        let shown = if dialect == Dialect::Spec { 20 } else { 25 };
        assert_eq!((names.split(' ').count(), all.header("x-total")), (shown, "25"));
        assert_eq!(ann.get(&format!("{TAGS}?page=2&per_page=24")).await.join_field("name"), "v1");
    }
}

/// The contract has a differently spelled field of the commit here.
#[tokio::test]
async fn a_commit_of_a_tag_has_its_parents_twice() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, commits, .. } = &fixture;
    let made = dan.post(TAGS, new_tag("v1")).await.json();
    assert_eq!(made["commit"]["parent_ids"], json!([commits[0]]));
    assert_eq!(made["commit"]["parents_ids"], json!([commits[0]]));
}

#[tokio::test]
async fn a_tag_may_point_to_an_object_other_than_a_commit() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, local, .. } = &fixture;
    local.git(&["tag", "tree", "HEAD^{tree}"]);
    local.git(&["tag", "-a", "blob", "-m", "a file", "HEAD:README.md"]);
    forge.push_all(ann, PROJECT, local).await;
    let tags = ann.get(TAGS).await;
    assert_snapshot!(tags, @r#"
    200 OK
    [{"name":"tree","message":null,"commit":null,"release":null},{"name":"blob","message":"a file","commit":null,"release":null}]
    "#);
    assert_eq!(ann.get("/projects/1/repository/tree?ref_name=tree").await.code(), 404);
    assert_eq!(ann.get("/projects/1/repository/commits/blob").await.code(), 404);
}

#[tokio::test]
async fn a_release_is_created_once_updated_and_deleted_with_its_tag() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let release = format!("{TAGS}/v/1.0/release");
    let notes = |text: &str| json!({ "description": text });
    assert_snapshot!(dan.post(&release, notes("Great")).await, @r#"
    404 Not Found
    {"message":"Tag does not exist"}
    "#);
    assert_eq!(dan.post(TAGS, new_tag("v/1.0")).await.json()["release"], json!(null));
    assert_snapshot!(dan.put(&release, notes("Great")).await, @r#"
    404 Not Found
    {"message":"Release does not exist"}
    "#);
    assert_snapshot!(dan.post(&release, notes(" ")).await, @r#"
    400 Bad Request
    {"message":{"description":["can't be blank"]}}
    "#);
    assert_snapshot!(dan.post(&release, json!({})).await, @r#"
    400 Bad Request
    {"error":"description is missing"}
    "#);
    assert_snapshot!(dan.post(&release, notes("Great")).await, @r#"
    201 Created
    {"tag_name":"v/1.0","description":"Great"}
    "#);
    assert_snapshot!(dan.post(&release, notes("Great")).await, @r#"
    409 Conflict
    {"message":"Release already exists"}
    "#);
    assert_snapshot!(dan.put(&format!("{TAGS}/v%2F1.0/release"), notes("Greater")).await, @r#"
    200 OK
    {"tag_name":"v/1.0","description":"Greater"}
    "#);
    let shown = dan.get(&format!("{TAGS}/v%2F1.0")).await.json();
    assert_eq!(shown["release"], json!({ "tag_name": "v/1.0", "description": "Greater" }));
    assert_eq!(dan.get(TAGS).await.json()[0], shown);
    assert_eq!(dan.delete(&format!("{TAGS}/v/1.0")).await.json(), json!({ "tag_name": "v/1.0" }));
    assert_eq!(dan.post(TAGS, new_tag("v/1.0")).await.json()["release"], json!(null));
}

#[tokio::test]
async fn a_tag_may_be_created_with_its_release() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let new = json!({ "tag_name": "v1", "ref": "master", "message": "m", "release_description": "All *new*" });
    let made = dan.post(TAGS, new).await;
    assert_eq!(made.code(), 201);
    assert_eq!(made.json()["release"], json!({ "tag_name": "v1", "description": "All *new*" }));
}

/// The gem gitlab sends the parameter with every tag.
#[tokio::test]
async fn a_tag_with_an_empty_release_description_has_no_release() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { dan, .. } = &fixture;
    let new = json!({ "tag_name": "v1", "ref": "master", "message": "", "release_description": "" });
    let made = dan.post(TAGS, new).await;
    assert_eq!((made.code(), made.json()["release"].clone()), (201, json!(null)));
    assert_eq!(dan.post(&format!("{TAGS}/v1/release"), json!({ "description": "All *new*" })).await.code(), 201);
}

#[tokio::test]
async fn a_developer_may_delete_any_tag_with_the_api_but_not_with_a_push() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, local, .. } = &fixture;
    local.git(&["tag", "v1"]);
    forge.push_all(ann, PROJECT, local).await;
    local.git(&["tag", "--force", "v1", "HEAD~1"]);
    let refused = forge.push(dan, PROJECT, local).await;
    let text = "You are not allowed to change existing tags on this project.";
    assert_eq!(refused[0].rejection.as_ref().expect("a rejection").to_string(), text);
    assert_eq!(dan.delete(&format!("{TAGS}/v1")).await.code(), 200);
}

#[tokio::test]
async fn tags_of_public_projects_are_public() {
    let fixture = RepositoryFixture::start().await;
    let RepositoryFixture { forge, ann, dan, .. } = &fixture;
    dan.post(TAGS, new_tag("v1")).await;
    let anonymous = forge.anonymous();
    assert_eq!(anonymous.get(TAGS).await.json(), json!({ "message": "404 Project Not Found" }));
    assert_eq!(anonymous.post(TAGS, json!({})).await.json(), json!({ "message": "401 Unauthorized" }));
    ann.put("/projects/1", json!({ "name": "x", "visibility_level": 20 })).await;
    assert_eq!(anonymous.get(TAGS).await.join_field("name"), "v1");
    assert_eq!(anonymous.get(&format!("{TAGS}/v1")).await.code(), 200);
    assert_eq!(anonymous.delete(&format!("{TAGS}/v1")).await.code(), 401);
    let stranger = forge.user("stranger").await;
    assert_eq!(stranger.post(TAGS, json!({})).await.code(), 403);
    assert_eq!(stranger.post(&format!("{TAGS}/v1/release"), json!({})).await.code(), 403);
    ann.post("/projects/1/archive", json!({})).await;
    assert_eq!(ann.post(TAGS, new_tag("v2")).await.code(), 403);
    assert_eq!(ann.delete(&format!("{TAGS}/v1")).await.code(), 403);
    assert_eq!(ann.post(&format!("{TAGS}/v1/release"), json!({ "description": "d" })).await.code(), 403);
}
