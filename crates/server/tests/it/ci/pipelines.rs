//! Pipelines of projects: which pushes and calls create them. The contract is checked line by line in
//! `pipelines_contract.txt`.

use std::fmt::Write as _;

use ci::StatusEvent;
use forge::{
    Caller,
    pushes::{self, Push, PushSource},
};
use insta::assert_snapshot;
use model::{PipelineId, ProjectId, RefChange, RefName};
use serde_json::{Value, json};
use testkit::{TestClient, TestForge, fixtures, repository::SMALL_REPOSITORY};

const JOB: &str = "job: {script: make}\n";

/// A commit on a branch or a tag for `git fast-import`: its ref, message and files.
pub(crate) fn commit(to: &str, message: &str, files: &[(&str, &str)]) -> String {
    let mut script = format!("commit {to}\ncommitter A <a@example.com> 1 +0000\ndata {}\n{message}\n", message.len());
    for (path, content) in files {
        let _ = write!(script, "M 100644 inline {path}\ndata {}\n{content}\n", content.len());
    }
    script + "\n"
}

/// A commit with a CI file only.
pub(crate) fn commit_with_ci_file(to: &str, file: &str) -> String {
    commit(to, "Build", &[(".gitlab-ci.yml", file)])
}

/// A forge with Ann and her project.
pub(crate) async fn setup() -> (TestForge, TestClient, ProjectId) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    (forge, ann, project)
}

/// The pipelines of a project as `id ref status`, newest first; tags are marked.
async fn list_pipelines(client: &TestClient, project: ProjectId) -> String {
    let list = client.get(&format!("/projects/{project}/pipelines?per_page=100")).await.json();
    let one = |pipeline: &Value| {
        let tag = if pipeline["tag"] == true { "tag " } else { "" };
        format!(
            "{} {tag}{} {}",
            pipeline["id"],
            pipeline["ref"].as_str().expect("text"),
            pipeline["status"].as_str().expect("text")
        )
    };
    list.as_array().expect("a list").iter().map(one).collect::<Vec<_>>().join(", ")
}

fn tip(forge: &TestForge, project: ProjectId, name: &str) -> String {
    forge.refs_of(project).into_iter().find(|(found, _)| found == name).expect("a ref").1
}

async fn push(forge: &TestForge, client: &TestClient, project: ProjectId, changes: Vec<RefChange>) {
    let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
    let caller = Caller::with_tokens(client.token.as_deref());
    for outcome in pushes::push(&forge.forge, caller, project, push, PushSource::Git).await.expect("a push") {
        assert_eq!(outcome.rejection, None, "{}", outcome.name);
    }
}

fn change(name: &str, old: Option<&str>, new: Option<&str>) -> RefChange {
    let id = |text: Option<&str>| text.map(|text| text.parse().expect("an id"));
    RefChange { name: RefName::new(name).expect("a name"), old: id(old), new: id(new) }
}

#[tokio::test]
async fn a_push_creates_a_pipeline_for_each_branch_and_tag_with_a_ci_file() {
    let (forge, ann, project) = setup().await;
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    assert_eq!(list_pipelines(&ann, project).await, "", "there is nothing to build");
    let script = commit_with_ci_file("refs/heads/topic", JOB)
        + "tag v1\nfrom refs/heads/topic\ntagger A <a@example.com> 1 +0000\ndata 1\nx\n"
        + "reset refs/other/topic\nfrom refs/heads/topic\n\n";
    forge.fast_import(&ann, project, &script).await;
    assert_eq!(list_pipelines(&ann, project).await, "2 tag v1 pending, 1 topic pending");
    let sha = tip(&forge, project, "refs/heads/topic");
    let topic = ann.get(&format!("/projects/{project}/pipelines/1")).await;
    assert_snapshot!(topic.to_string().replace(&sha, "SHA"), @r#"
    200 OK
    {"id":1,"sha":"SHA","ref":"topic","status":"pending","before_sha":"SHA","tag":false,"yaml_errors":null,"user":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","started_at":null,"finished_at":null,"committed_at":null,"duration":null,"coverage":null}
    "#);
    let tag = ann.get(&format!("/projects/{project}/pipelines/2")).await.json();
    assert_eq!((&tag["sha"], &tag["before_sha"], &tag["tag"]), (&json!(sha), &json!(sha), &json!(true)));
    // A deleted ref gets no pipeline, and a restored one does.
    forge.remove_ref(&ann, project, "refs/heads/topic").await;
    assert_eq!(list_pipelines(&ann, project).await, "2 tag v1 pending, 1 topic pending");
    push(&forge, &ann, project, vec![change("refs/heads/topic", None, Some(&sha))]).await;
    assert_eq!(list_pipelines(&ann, project).await, "3 topic pending, 2 tag v1 pending, 1 topic pending");
}

#[tokio::test]
async fn a_commit_that_skips_ci_is_skipped_and_an_invalid_file_fails() {
    let (forge, ann, project) = setup().await;
    let subscribed =
        model::hooks::SubscribedEvents { pipeline: true, build: true, ..model::hooks::SubscribedEvents::default() };
    forge.in_transaction(|db| fixtures::hook(db, Some(project), subscribed));
    for (number, message) in ["[ci skip] Fix", "Fix\n\n[Skip CI]"].into_iter().enumerate() {
        let to = format!("refs/heads/skip-{number}");
        forge.fast_import(&ann, project, &commit(&to, message, &[(".gitlab-ci.yml", JOB)])).await;
    }
    assert_eq!(list_pipelines(&ann, project).await, "2 skip-1 skipped, 1 skip-0 skipped");
    forge
        .fast_import(&ann, project, &commit_with_ci_file("refs/heads/wrong", "job: {stage: nowhere, script: make}"))
        .await;
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/torn", "job: [")).await;
    let wrong = ann.get(&format!("/projects/{project}/pipelines/3")).await.json();
    assert_eq!(wrong["yaml_errors"], "job job: stage parameter should be build, test, deploy");
    assert_eq!(
        (&wrong["status"], &wrong["started_at"], &wrong["duration"]),
        (&json!("failed"), &json!(null), &json!(null))
    );
    assert_eq!(wrong["finished_at"], wrong["created_at"]);
    let torn = ann.get(&format!("/projects/{project}/pipelines/4")).await.json();
    assert!(torn["yaml_errors"].as_str().is_some_and(|text| text.contains("line")), "{torn}");
    // There is nothing to retry and nothing to cancel.
    for (id, status) in [(1, "skipped"), (3, "failed")] {
        let retried = ann.post(&format!("/projects/{project}/pipelines/{id}/retry"), json!({})).await;
        assert_eq!((retried.code(), &retried.json()["status"]), (201, &json!(status)));
        let canceled = ann.post(&format!("/projects/{project}/pipelines/{id}/cancel"), json!({})).await;
        assert_eq!((canceled.code(), &canceled.json()["status"]), (200, &json!(status)));
    }
    // An external status does not change the failure of an invalid file.
    let sha = tip(&forge, project, "refs/heads/wrong");
    let status = json!({ "state": "success", "ref": "wrong" });
    assert_eq!(ann.post(&format!("/projects/{project}/statuses/{sha}"), status).await.code(), 201);
    assert!(list_pipelines(&ann, project).await.ends_with("3 wrong failed, 2 skip-1 skipped, 1 skip-0 skipped"));
    let announced = forge.in_transaction(fixtures::take_hook_events);
    let statuses: Vec<&str> =
        announced.iter().filter_map(|one| one.payload["object_attributes"]["status"].as_str()).collect();
    assert_eq!(statuses, ["skipped", "skipped", "failed", "failed"]);
}

#[tokio::test]
async fn jobs_are_selected_by_ref() {
    let (forge, ann, project) = setup().await;
    let file = "
a: {script: x, only: [branches]}
b: {script: x, only: [tags]}
c: {script: x, only: [/^top/]}
d: {script: x, except: [master]}
e: {script: x, only: [master@ann/rocket]}
f: {script: x, only: [master@bob/rocket]}
g: {script: x, only: [triggers]}
";
    let script = commit_with_ci_file("refs/heads/master", file)
        + "reset refs/heads/topic\nfrom refs/heads/master\n\nreset refs/tags/topic\nfrom refs/heads/master\n\n";
    forge.fast_import(&ann, project, &script).await;
    let jobs = async |at: &str, tag: bool| {
        let id = forge.in_transaction(|db| {
            let sha = tip(&forge, project, "refs/heads/master").parse().expect("an id");
            store::pipelines::newest_at(db, project, sha, at, tag).expect("asked").expect("a pipeline")
        });
        let jobs = forge.in_transaction(|db| store::jobs::latest_of_pipeline(db, id).expect("asked"));
        jobs.into_iter().map(|job| job.name).collect::<String>()
    };
    assert_eq!(jobs("master", false).await, "ae");
    assert_eq!(jobs("topic", false).await, "acd");
    assert_eq!(jobs("topic", true).await, "bcd");
    // Without jobs, nothing is stored, and a caller gets an error.
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/none", "g: {script: x, only: [triggers]}")).await;
    forge
        .fast_import(
            &ann,
            project,
            &commit_with_ci_file("refs/heads/off", "workflow: {rules: [{when: never}]}\ng: {script: x}"),
        )
        .await;
    assert_eq!(list_pipelines(&ann, project).await, "3 tag topic pending, 2 topic pending, 1 master pending");
    let start = async |at: &str| ann.post(&format!("/projects/{project}/pipeline"), json!({ "ref": at })).await;
    assert_snapshot!(start("none").await, @r#"
    400 Bad Request
    {"message":{"base":["No builds for this pipeline."]}}
    "#);
    assert_snapshot!(start("off").await, @r#"
    400 Bad Request
    {"message":{"base":["Pipeline filtered out by workflow rules."]}}
    "#);
}

#[tokio::test]
async fn a_branch_and_a_tag_of_the_same_name_are_distinguished() {
    let (forge, ann, project) = setup().await;
    let script = commit_with_ci_file("refs/heads/x", "branch: {script: x, only: [branches]}")
        + &commit_with_ci_file("refs/tags/x", "tag: {script: x, only: [tags]}")
        + &commit_with_ci_file("refs/tags/y", "tag: {script: x, only: [tags]}");
    forge.fast_import(&ann, project, &script).await;
    let (branch, tag) = (tip(&forge, project, "refs/heads/x"), tip(&forge, project, "refs/tags/x"));
    assert_ne!(branch, tag);
    let start = async |at: &str| {
        let made = ann.post(&format!("/projects/{project}/pipeline"), json!({ "ref": at })).await;
        let body = made.json();
        match made.code() {
            201 => (body["sha"].as_str().expect("an id").to_owned(), body["tag"] == true, body["ref"].to_string()),
            _ => (body["message"]["base"][0].as_str().expect("a text").to_owned(), false, String::new()),
        }
    };
    let x = || "\"x\"".to_owned();
    assert_eq!(start("x").await, (branch.clone(), false, x()));
    assert_eq!(start("refs/heads/x").await, (branch.clone(), false, x()));
    assert_eq!(start("refs/tags/x").await, (tag, true, x()));
    assert!(start("y").await.1);
    let missing = || ("Reference not found".to_owned(), false, String::new());
    for name in ["refs/heads/y", "heads/x", "refs/x", "HEAD", "", &branch, &branch[..8]] {
        assert_eq!(start(name).await, missing(), "{name}");
    }
    let made = ann.get(&format!("/projects/{project}/pipelines")).await.json();
    assert_eq!(made[0]["before_sha"], "0".repeat(40));
}

#[tokio::test]
async fn lists_by_scope_show_running_pipelines_and_the_newest_of_each_existing_ref() {
    let (forge, ann, project) = setup().await;
    let script = commit_with_ci_file("refs/heads/a", JOB)
        + "reset refs/heads/b\nfrom refs/heads/a\n\nreset refs/tags/a\nfrom refs/heads/a\n\nreset refs/tags/b\n\
           from refs/heads/a\n\n";
    forge.fast_import(&ann, project, &script).await;
    let path = format!("/projects/{project}/pipelines");
    for at in ["a", "refs/tags/a", "b"] {
        ann.make(&format!("/projects/{project}/pipeline"), json!({ "ref": at })).await;
    }
    assert_eq!(list_pipelines(&ann, project).await.split(", ").count(), 7);
    let list = async |query: &str| {
        let answer = ann.get(&format!("{path}?{query}")).await;
        format!("{} of {}", answer.join_field("id"), answer.header("x-total"))
    };
    assert_eq!(list("scope=branches").await, "7 5 of 2");
    assert_eq!(list("scope=tags").await, "6 4 of 2");
    assert_eq!(list("scope=tags&per_page=1&page=2").await, "4 of 2");
    assert_eq!(list("scope=running").await, "7 6 5 4 3 2 1 of 7");
    assert_eq!(ann.post(&format!("{path}/7/cancel"), json!({})).await.json()["status"], "canceled");
    assert_eq!(list("scope=running&per_page=2").await, "6 5 of 6");
    assert_eq!(list("scope=branches").await, "7 5 of 2");
    forge.remove_ref(&ann, project, "refs/tags/a").await;
    assert_eq!(list("scope=tags").await, "4 of 1");
    assert_snapshot!(ann.get(&format!("{path}?scope=all")).await, @r#"
    400 Bad Request
    {"error":"scope does not have a valid value"}
    "#);
    let empty = ann.make("/projects", json!({ "name": "empty" })).await;
    assert_eq!(ann.get(&format!("/projects/{empty}/pipelines?scope=branches")).await.text, "[]");
}

#[tokio::test]
async fn endpoints_that_change_refs_create_pipelines() {
    let (forge, ann, project) = setup().await;
    let base = format!("/projects/{project}/repository");
    let action = json!({ "action": "create", "file_path": ".gitlab-ci.yml", "content": JOB });
    let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
    let made = ann.post(&format!("{base}/commits"), new).await.json();
    // The commit is shown with the status of its pipeline.
    assert_eq!(made["status"], "pending");
    ann.post(&format!("{base}/branches"), json!({ "branch_name": "topic", "ref": "master" })).await;
    ann.post(&format!("{base}/tags"), json!({ "tag_name": "v1", "ref": "master", "message": "m" })).await;
    let file = json!({ "file_path": "a", "branch_name": "topic", "content": "c", "commit_message": "m [ci skip]" });
    assert_eq!(ann.post(&format!("{base}/files"), file).await.code(), 201);
    assert_eq!(
        list_pipelines(&ann, project).await,
        "4 topic skipped, 3 tag v1 pending, 2 topic pending, 1 master pending"
    );
    let status = async |at: &str| ann.get(&format!("{base}/commits/{at}")).await.json()["status"].clone();
    assert_eq!((status("master").await, status("topic").await), (json!("pending"), json!("skipped")));
    forge.fast_import(&ann, project, &commit("refs/heads/bare", "Nothing", &[("a", "b")])).await;
    assert_eq!(status("bare").await, json!(null));
}

#[tokio::test]
async fn pushes_without_permission_or_to_projects_without_ci_create_no_pipelines() {
    let (forge, ann, project) = setup().await;
    let path = format!("/projects/{project}");
    assert_eq!(ann.put(&path, json!({ "name": "Rocket", "builds_enabled": false })).await.code(), 200);
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/master", JOB)).await;
    for (method, at) in [("GET", "pipelines"), ("POST", "pipeline"), ("POST", "pipelines/1/retry")] {
        let method = method.parse().expect("a method");
        let refused = ann.json(method, &format!("{path}/{at}"), json!({ "ref": "master" })).await;
        assert_eq!((refused.code(), refused.text.as_str()), (403, "{\"message\":\"403 Forbidden\"}"));
    }
    assert_eq!(ann.put(&path, json!({ "name": "Rocket", "builds_enabled": true })).await.code(), 200);
    assert_eq!(list_pipelines(&ann, project).await, "");
    // Nor does a rejected push.
    let bob = forge.user("bob").await;
    ann.post(&format!("{path}/members"), json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
    let script =
        commit_with_ci_file("refs/heads/bob", JOB) + &commit("refs/heads/master", "Other", &[(".gitlab-ci.yml", JOB)]);
    assert!(forge.try_fast_import(&bob, project, &script).await.iter().all(|one| one.rejection.is_some()));
    assert_eq!(list_pipelines(&ann, project).await, "");
    forge.fast_import(&bob, project, &commit_with_ci_file("refs/heads/bob", JOB)).await;
    let made = ann.get(&format!("{path}/pipelines")).await.json();
    assert_eq!((&made[0]["ref"], &made[0]["user"]["username"]), (&json!("bob"), &json!("bob")));
}

#[tokio::test]
async fn pipelines_of_other_projects_are_not_found() {
    let (forge, ann, project) = setup().await;
    let other = ann.make("/projects", json!({ "name": "Other" })).await;
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/master", JOB)).await;
    for (method, at) in [("GET", ""), ("POST", "/retry"), ("POST", "/cancel")] {
        let answer =
            ann.json(method.parse().expect("a method"), &format!("/projects/{other}/pipelines/1{at}"), json!({})).await;
        assert_eq!((answer.code(), answer.text.as_str()), (404, "{\"message\":\"404 Not found\"}"));
    }
    assert_eq!(list_pipelines(&ann, project).await, "1 master pending");
}

#[tokio::test]
async fn rules_use_paths_variables_and_included_files() {
    let (forge, ann, project) = setup().await;
    let file = "
include: /ci/more.yml
docs: {script: x, rules: [{changes: [docs/**/*]}]}
rust: {script: x, rules: [{exists: ['**/*.rs']}]}
go: {script: x, rules: [{exists: [go.mod]}]}
lock: {script: x, rules: [{exists: [Cargo.lock]}]}
safe: {script: x, rules: [{if: $CI_COMMIT_REF_PROTECTED == 'true'}]}
new: {script: x, rules: [{if: $CI_COMMIT_BEFORE_SHA =~ /^0+$/}]}
said: {script: x, rules: [{if: $CI_COMMIT_TITLE == 'Go on' && $CI_COMMIT_MESSAGE =~ /please/}]}
here: {script: x, rules: [{if: $CI_PROJECT_PATH == 'ann/rocket' && $CI_PROJECT_NAME == 'rocket'}]}
main: {script: x, rules: [{if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH}]}
";
    let files = [
        (".gitlab-ci.yml", file),
        ("ci/more.yml", "more: {script: x}"),
        ("src/a/main.rs", "x"),
        ("Cargo.lock", "x"),
        ("docs/a.md", "x"),
    ];
    forge.fast_import(&ann, project, &commit("refs/heads/master", "First", &files)).await;
    let names = |pipeline: PipelineId| {
        let jobs = forge.in_transaction(|db| store::jobs::latest_of_pipeline(db, pipeline).expect("asked"));
        jobs.into_iter().map(|job| job.name).collect::<Vec<_>>().join(" ")
    };
    // New files count as changed.
    assert_eq!(names(PipelineId::new(1)), "more docs rust lock safe new here main");
    let add = async |branch: &str, path: &str, message: &str| {
        let action = json!({ "action": "create", "file_path": path, "content": "c" });
        let new = json!({ "branch_name": branch, "commit_message": message, "actions": [action] });
        let made = ann.post(&format!("/projects/{project}/repository/commits"), new).await;
        assert_eq!(made.code(), 201, "{made}");
    };
    add("master", "src/b.rs", "Go on\n\nplease").await;
    assert_eq!(names(PipelineId::new(2)), "more rust lock safe said here main");
    add("master", "docs/deep/b.md", "More").await;
    assert_eq!(names(PipelineId::new(3)), "more docs rust lock safe here main");
    ann.post(&format!("/projects/{project}/repository/branches"), json!({ "branch_name": "t", "ref": "master" })).await;
    assert_eq!(names(PipelineId::new(4)), "more docs rust lock new here");
    // A pipeline started through the API has no changes.
    ann.make(&format!("/projects/{project}/pipeline"), json!({ "ref": "t" })).await;
    assert_eq!(names(PipelineId::new(5)), "more docs rust lock new here");
    let missing = commit_with_ci_file("refs/heads/missing", "include: no.yml\na: {script: x}");
    forge.fast_import(&ann, project, &missing).await;
    let failed = ann.get(&format!("/projects/{project}/pipelines/6")).await.json();
    assert_eq!(failed["yaml_errors"], "Local file `no.yml` does not exist!");
}

#[tokio::test]
async fn the_cost_of_a_file_and_of_a_push_is_bounded() {
    let (forge, ann, project) = setup().await;
    let comment = |bytes: usize| format!("#{}\n{JOB}", "x".repeat(bytes));
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/large", &comment(1 << 20))).await;
    let large = ann.get(&format!("/projects/{project}/pipelines/1")).await.json();
    let text = "The file is too large: it has 1048598 bytes, at most 1048576 are allowed";
    assert_eq!((&large["status"], &large["yaml_errors"]), (&json!("failed"), &json!(text)));
    let includes = [(".gitlab-ci.yml", "include: large.yml\njob: {script: x}"), ("large.yml", &*comment(1 << 20))];
    forge.fast_import(&ann, project, &commit("refs/heads/includes", "m", &includes)).await;
    let large = ann.get(&format!("/projects/{project}/pipelines/2")).await.json();
    assert_eq!(large["yaml_errors"], format!("Included file `large.yml`: {text}"));
    // The error quotes the file, but not all of it.
    let long = format!("{}: {{script: x, stage: nowhere}}", "n".repeat(200_000));
    forge.fast_import(&ann, project, &commit_with_ci_file("refs/heads/long", &long)).await;
    let long = ann.get(&format!("/projects/{project}/pipelines/3")).await.json();
    assert!(long["yaml_errors"].as_str().is_some_and(|text| text.len() <= 64 << 10), "{long}");
    let mut script = commit_with_ci_file("refs/heads/many", JOB);
    for number in 0..30 {
        let _ = write!(script, "reset refs/heads/many-{number}\nfrom refs/heads/many\n\n");
    }
    forge.fast_import(&ann, project, &script).await;
    let answer = ann.get(&format!("/projects/{project}/pipelines")).await;
    assert_eq!(answer.header("x-total"), "23");
    // Symbolic links and folders are not files.
    let link = "commit refs/heads/link\ncommitter A <a@example.com> 1 +0000\ndata 1\nm\n\
                M 120000 inline .gitlab-ci.yml\ndata 5\nother\n\n";
    forge
        .fast_import(
            &ann,
            project,
            &(link.to_owned() + &commit("refs/heads/folder", "m", &[(".gitlab-ci.yml/a", "b")])),
        )
        .await;
    assert_eq!(ann.get(&format!("/projects/{project}/pipelines")).await.header("x-total"), "23");
    let start = ann.post(&format!("/projects/{project}/pipeline"), json!({ "ref": "link" })).await;
    assert_eq!(start.json(), json!({ "message": { "base": ["Missing .gitlab-ci.yml file"] } }));
}

#[tokio::test]
async fn a_manual_job_that_was_never_started_is_not_started_by_a_retry() {
    let (forge, ann, project) = setup().await;
    let file = "stages: [a, b]\nbuild: {stage: a, script: x}\ndeploy: {stage: b, script: x, when: manual}";
    let pipeline = forge.start_pipeline(project, Some(ann.id), file).await;
    let path = format!("/projects/{project}/pipelines/{}", pipeline.id);
    assert_eq!(ann.post(&format!("{path}/cancel"), json!({})).await.json()["status"], "canceled");
    let retried = ann.post(&format!("{path}/retry"), json!({})).await.json();
    // Nothing has run yet.
    assert_eq!(retried["started_at"], Value::Null, "{retried}");
    let standing = || {
        let jobs = forge.in_transaction(|db| store::jobs::latest_of_pipeline(db, pipeline.id).expect("jobs"));
        jobs.iter().map(|job| format!("{} {}", job.name, job.status.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(standing(), ["build pending", "deploy created"]);
    let job = forge.in_transaction(|db| store::jobs::latest_of_pipeline(db, pipeline.id).expect("jobs"))[0].id;
    forge.assign_job(job, forge.insert_runner("one")).await;
    assert!(ann.get(&path).await.json()["started_at"].is_string());
    forge.apply_job_event(job, StatusEvent::Succeed).await;
    assert_eq!(standing(), ["build success", "deploy skipped"]);
    assert_eq!(ann.post(&format!("{path}/retry"), json!({})).await.json()["status"], "success");
    assert_eq!(standing(), ["build success", "deploy skipped"]);
}

/// The packs of endpoints are written by the server, and those of pushes by git.
#[tokio::test]
async fn packs_of_endpoints_and_of_pushes_are_combined() {
    let (forge, ann, project) = setup().await;
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "By an endpoint" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/files"), file).await.code(), 201);
    let first = tip(&forge, project, "refs/heads/master");
    let local = testkit::LocalRepository::new();
    local.write("b", "y");
    local.commit("By a push");
    local.git(&["branch", "-m", "topic"]);
    forge.push_all(&ann, project, &local).await;
    forge.run_housekeeping(project).await;
    assert_eq!(tip(&forge, project, "refs/heads/master"), first);
}
