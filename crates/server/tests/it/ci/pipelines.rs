//! Pipelines of projects: which pushes and calls make them. What the contract says of them, line by line, is in
//! `pipelines_contract.txt`.

use std::fmt::Write as _;

use ci::Event;
use forge::{
    Caller,
    pushes::{self, Push, Via},
};
use insta::assert_snapshot;
use model::{Change, Oid, RefChange, RefName, Status, pipelines::Source};
use serde_json::{Value, json};
use store::{intents::NewIntent, pipelines::NewPipeline};
use testkit::{Client, TestForge, repository::SMALL, rows};

const JOB: &str = "job: {script: make}\n";

/// A commit on a branch or a tag in the words of `git fast-import`: where it goes, what it says, and its files.
pub(crate) fn commit(to: &str, message: &str, files: &[(&str, &str)]) -> String {
    let mut script = format!("commit {to}\ncommitter A <a@example.com> 1 +0000\ndata {}\n{message}\n", message.len());
    for (path, content) in files {
        let _ = write!(script, "M 100644 inline {path}\ndata {}\n{content}\n", content.len());
    }
    script + "\n"
}

/// The same with a CI file alone.
pub(crate) fn built(to: &str, file: &str) -> String {
    commit(to, "Build", &[(".gitlab-ci.yml", file)])
}

/// A forge with Ann and her project.
pub(crate) async fn scene() -> (TestForge, Client, i64) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ann.make("/projects", json!({ "name": "Rocket" })).await;
    (forge, ann, project)
}

/// The pipelines of a project as `id ref status`, the newest first; tags are marked.
async fn shown(client: &Client, project: i64) -> String {
    let list = client.get(&format!("/projects/{project}/pipelines?per_page=100")).await.json();
    let one = |tx: &Value| {
        let tag = if tx["tag"] == true { "tag " } else { "" };
        format!("{} {tag}{} {}", tx["id"], tx["ref"].as_str().expect("text"), tx["status"].as_str().expect("text"))
    };
    list.as_array().expect("a list").iter().map(one).collect::<Vec<_>>().join(", ")
}

fn tip(forge: &TestForge, project: i64, name: &str) -> String {
    forge.refs_of(project).into_iter().find(|(found, _)| found == name).expect("a ref").1
}

async fn push(forge: &TestForge, client: &Client, project: i64, changes: Vec<RefChange>) {
    let push = Push { changes, incoming: None, atomic: false, options: Vec::new() };
    let caller = Caller::with_tokens(client.token.as_deref());
    for outcome in pushes::push(&forge.forge, caller, project, push, Via::Push).await.expect("a push") {
        assert_eq!(outcome.refusal, None, "{}", outcome.name);
    }
}

fn change(name: &str, old: Option<&str>, new: Option<&str>) -> RefChange {
    let id = |text: Option<&str>| text.map(|text| text.parse().expect("an id"));
    RefChange { name: RefName::new(name).expect("a name"), old: id(old), new: id(new) }
}

#[tokio::test]
async fn a_push_makes_a_pipeline_for_each_branch_and_tag_with_a_file() {
    let (forge, ann, project) = scene().await;
    forge.fill(&ann, project, SMALL).await;
    assert_eq!(shown(&ann, project).await, "", "there is nothing to build");
    let script = built("refs/heads/topic", JOB)
        + "tag v1\nfrom refs/heads/topic\ntagger A <a@example.com> 1 +0000\ndata 1\nx\n"
        + "reset refs/other/topic\nfrom refs/heads/topic\n\n";
    forge.fill(&ann, project, &script).await;
    assert_eq!(shown(&ann, project).await, "2 tag v1 pending, 1 topic pending");
    let sha = tip(&forge, project, "refs/heads/topic");
    let topic = ann.get(&format!("/projects/{project}/pipelines/1")).await;
    assert_snapshot!(topic.to_string().replace(&sha, "SHA"), @r#"
    200 OK
    {"id":1,"sha":"SHA","ref":"topic","status":"pending","before_sha":"SHA","tag":false,"yaml_errors":null,"user":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann"},"created_at":"2026-01-02T03:04:05.678Z","updated_at":"2026-01-02T03:04:05.678Z","started_at":null,"finished_at":null,"committed_at":null,"duration":null,"coverage":null}
    "#);
    let tag = ann.get(&format!("/projects/{project}/pipelines/2")).await.json();
    assert_eq!((&tag["sha"], &tag["before_sha"], &tag["tag"]), (&json!(sha), &json!(sha), &json!(true)));
    // What goes away is not built, and what comes back is.
    forge.remove_ref(&ann, project, "refs/heads/topic").await;
    assert_eq!(shown(&ann, project).await, "2 tag v1 pending, 1 topic pending");
    push(&forge, &ann, project, vec![change("refs/heads/topic", None, Some(&sha))]).await;
    assert_eq!(shown(&ann, project).await, "3 topic pending, 2 tag v1 pending, 1 topic pending");
}

#[tokio::test]
async fn a_commit_that_asks_for_nothing_is_skipped_and_a_wrong_file_fails() {
    let (forge, ann, project) = scene().await;
    let told = model::hooks::Switches { pipeline: true, build: true, ..model::hooks::Switches::default() };
    forge.in_one_go(|db| rows::hook(db, Some(project), told));
    for (number, message) in ["[ci skip] Fix", "Fix\n\n[Skip CI]"].into_iter().enumerate() {
        let to = format!("refs/heads/skip-{number}");
        forge.fill(&ann, project, &commit(&to, message, &[(".gitlab-ci.yml", JOB)])).await;
    }
    assert_eq!(shown(&ann, project).await, "2 skip-1 skipped, 1 skip-0 skipped");
    forge.fill(&ann, project, &built("refs/heads/wrong", "job: {stage: nowhere, script: make}")).await;
    forge.fill(&ann, project, &built("refs/heads/torn", "job: [")).await;
    let wrong = ann.get(&format!("/projects/{project}/pipelines/3")).await.json();
    assert_eq!(wrong["yaml_errors"], "job job: stage parameter should be build, test, deploy");
    assert_eq!(
        (&wrong["status"], &wrong["started_at"], &wrong["duration"]),
        (&json!("failed"), &json!(null), &json!(null))
    );
    assert_eq!(wrong["finished_at"], wrong["created_at"]);
    let torn = ann.get(&format!("/projects/{project}/pipelines/4")).await.json();
    assert!(torn["yaml_errors"].as_str().is_some_and(|text| text.contains("line")), "{torn}");
    // There is nothing to try again and nothing to stop.
    for (id, status) in [(1, "skipped"), (3, "failed")] {
        let retried = ann.post(&format!("/projects/{project}/pipelines/{id}/retry"), json!({})).await;
        assert_eq!((retried.code(), &retried.json()["status"]), (201, &json!(status)));
        let canceled = ann.post(&format!("/projects/{project}/pipelines/{id}/cancel"), json!({})).await;
        assert_eq!((canceled.code(), &canceled.json()["status"]), (200, &json!(status)));
    }
    // What others find out does not make a wrong file right.
    let sha = tip(&forge, project, "refs/heads/wrong");
    let status = json!({ "state": "success", "ref": "wrong" });
    assert_eq!(ann.post(&format!("/projects/{project}/statuses/{sha}"), status).await.code(), 201);
    assert!(shown(&ann, project).await.ends_with("3 wrong failed, 2 skip-1 skipped, 1 skip-0 skipped"));
    let announced = forge.in_one_go(rows::take_announcements);
    let statuses: Vec<&str> =
        announced.iter().filter_map(|one| one.payload["object_attributes"]["status"].as_str()).collect();
    assert_eq!(statuses, ["skipped", "skipped", "failed", "failed"]);
}

#[tokio::test]
async fn jobs_are_chosen_by_ref() {
    let (forge, ann, project) = scene().await;
    let file = "
a: {script: x, only: [branches]}
b: {script: x, only: [tags]}
c: {script: x, only: [/^top/]}
d: {script: x, except: [master]}
e: {script: x, only: [master@ann/rocket]}
f: {script: x, only: [master@bob/rocket]}
g: {script: x, only: [triggers]}
";
    let script = built("refs/heads/master", file)
        + "reset refs/heads/topic\nfrom refs/heads/master\n\nreset refs/tags/topic\nfrom refs/heads/master\n\n";
    forge.fill(&ann, project, &script).await;
    let jobs = async |at: &str, tag: bool| {
        let id = forge.in_one_go(|db| {
            let sha = tip(&forge, project, "refs/heads/master").parse().expect("an id");
            store::pipelines::newest_at(db, project, sha, at, tag).expect("asked").expect("a pipeline")
        });
        let builds = forge.in_one_go(|db| store::builds::latest_of(db, id).expect("asked"));
        builds.into_iter().map(|build| build.name).collect::<String>()
    };
    assert_eq!(jobs("master", false).await, "ae");
    assert_eq!(jobs("topic", false).await, "acd");
    assert_eq!(jobs("topic", true).await, "bcd");
    // No job is left: nothing is stored, and whoever calls is told.
    forge.fill(&ann, project, &built("refs/heads/none", "g: {script: x, only: [triggers]}")).await;
    forge.fill(&ann, project, &built("refs/heads/off", "workflow: {rules: [{when: never}]}\ng: {script: x}")).await;
    assert_eq!(shown(&ann, project).await, "3 tag topic pending, 2 topic pending, 1 master pending");
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
async fn a_branch_and_a_tag_of_one_name_are_never_mixed_up() {
    let (forge, ann, project) = scene().await;
    let script = built("refs/heads/x", "branch: {script: x, only: [branches]}")
        + &built("refs/tags/x", "tag: {script: x, only: [tags]}")
        + &built("refs/tags/y", "tag: {script: x, only: [tags]}");
    forge.fill(&ann, project, &script).await;
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
async fn lists_by_scope_show_what_runs_and_the_newest_of_each_ref_that_is_there() {
    let (forge, ann, project) = scene().await;
    let script = built("refs/heads/a", JOB)
        + "reset refs/heads/b\nfrom refs/heads/a\n\nreset refs/tags/a\nfrom refs/heads/a\n\nreset refs/tags/b\n\
           from refs/heads/a\n\n";
    forge.fill(&ann, project, &script).await;
    let path = format!("/projects/{project}/pipelines");
    for at in ["a", "refs/tags/a", "b"] {
        ann.make(&format!("/projects/{project}/pipeline"), json!({ "ref": at })).await;
    }
    assert_eq!(shown(&ann, project).await.split(", ").count(), 7);
    let list = async |query: &str| {
        let answer = ann.get(&format!("{path}?{query}")).await;
        format!("{} of {}", answer.each("id"), answer.header("x-total"))
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
async fn endpoints_that_move_refs_make_pipelines_too() {
    let (forge, ann, project) = scene().await;
    let base = format!("/projects/{project}/repository");
    let action = json!({ "action": "create", "file_path": ".gitlab-ci.yml", "content": JOB });
    let new = json!({ "branch_name": "master", "commit_message": "m", "actions": [action] });
    let made = ann.post(&format!("{base}/commits"), new).await.json();
    // Where the commit is shown, its pipeline is too.
    assert_eq!(made["status"], "pending");
    ann.post(&format!("{base}/branches"), json!({ "branch_name": "topic", "ref": "master" })).await;
    ann.post(&format!("{base}/tags"), json!({ "tag_name": "v1", "ref": "master", "message": "m" })).await;
    let file = json!({ "file_path": "a", "branch_name": "topic", "content": "c", "commit_message": "m [ci skip]" });
    assert_eq!(ann.post(&format!("{base}/files"), file).await.code(), 201);
    assert_eq!(shown(&ann, project).await, "4 topic skipped, 3 tag v1 pending, 2 topic pending, 1 master pending");
    let status = async |at: &str| ann.get(&format!("{base}/commits/{at}")).await.json()["status"].clone();
    assert_eq!((status("master").await, status("topic").await), (json!("pending"), json!("skipped")));
    forge.fill(&ann, project, &commit("refs/heads/bare", "Nothing", &[("a", "b")])).await;
    assert_eq!(status("bare").await, json!(null));
}

#[tokio::test]
async fn whoever_may_not_build_or_pushes_to_what_builds_nothing_makes_none() {
    let (forge, ann, project) = scene().await;
    let path = format!("/projects/{project}");
    assert_eq!(ann.put(&path, json!({ "name": "Rocket", "builds_enabled": false })).await.code(), 200);
    forge.fill(&ann, project, &built("refs/heads/master", JOB)).await;
    for (method, at) in [("GET", "pipelines"), ("POST", "pipeline"), ("POST", "pipelines/1/retry")] {
        let method = method.parse().expect("a method");
        let refused = ann.json(method, &format!("{path}/{at}"), json!({ "ref": "master" })).await;
        assert_eq!((refused.code(), refused.text.as_str()), (403, "{\"message\":\"403 Forbidden\"}"));
    }
    assert_eq!(ann.put(&path, json!({ "name": "Rocket", "builds_enabled": true })).await.code(), 200);
    assert_eq!(shown(&ann, project).await, "");
    // A push that is refused makes none either.
    let bob = forge.user("bob").await;
    ann.post(&format!("{path}/members"), json!({ "user_id": bob.id, "access_level": 30 })).await;
    let script = built("refs/heads/bob", JOB) + &commit("refs/heads/master", "Other", &[(".gitlab-ci.yml", JOB)]);
    assert!(forge.try_fill(&bob, project, &script).await.iter().all(|one| one.refusal.is_some()));
    assert_eq!(shown(&ann, project).await, "");
    forge.fill(&bob, project, &built("refs/heads/bob", JOB)).await;
    let made = ann.get(&format!("{path}/pipelines")).await.json();
    assert_eq!((&made[0]["ref"], &made[0]["user"]["username"]), (&json!("bob"), &json!("bob")));
}

#[tokio::test]
async fn numbers_of_other_projects_are_not_there() {
    let (forge, ann, project) = scene().await;
    let other = ann.make("/projects", json!({ "name": "Other" })).await;
    forge.fill(&ann, project, &built("refs/heads/master", JOB)).await;
    for (method, at) in [("GET", ""), ("POST", "/retry"), ("POST", "/cancel")] {
        let answer =
            ann.json(method.parse().expect("a method"), &format!("/projects/{other}/pipelines/1{at}"), json!({})).await;
        assert_eq!((answer.code(), answer.text.as_str()), (404, "{\"message\":\"404 Not found\"}"));
    }
    assert_eq!(shown(&ann, project).await, "1 master pending");
}

#[tokio::test]
async fn rules_look_at_paths_variables_and_included_files() {
    let (forge, ann, project) = scene().await;
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
    forge.fill(&ann, project, &commit("refs/heads/master", "First", &files)).await;
    let names = |pipeline: i64| {
        let builds = forge.in_one_go(|db| store::builds::latest_of(db, pipeline).expect("asked"));
        builds.into_iter().map(|build| build.name).collect::<Vec<_>>().join(" ")
    };
    // What is new counts as changed.
    assert_eq!(names(1), "more docs rust lock safe new here main");
    let add = async |branch: &str, path: &str, message: &str| {
        let action = json!({ "action": "create", "file_path": path, "content": "c" });
        let new = json!({ "branch_name": branch, "commit_message": message, "actions": [action] });
        let made = ann.post(&format!("/projects/{project}/repository/commits"), new).await;
        assert_eq!(made.code(), 201, "{made}");
    };
    add("master", "src/b.rs", "Go on\n\nplease").await;
    assert_eq!(names(2), "more rust lock safe said here main");
    add("master", "docs/deep/b.md", "More").await;
    assert_eq!(names(3), "more docs rust lock safe here main");
    ann.post(&format!("/projects/{project}/repository/branches"), json!({ "branch_name": "t", "ref": "master" })).await;
    assert_eq!(names(4), "more docs rust lock new here");
    // Whoever calls the interface knows of no change.
    ann.make(&format!("/projects/{project}/pipeline"), json!({ "ref": "t" })).await;
    assert_eq!(names(5), "more docs rust lock new here");
    let missing = built("refs/heads/missing", "include: no.yml\na: {script: x}");
    forge.fill(&ann, project, &missing).await;
    let failed = ann.get(&format!("/projects/{project}/pipelines/6")).await.json();
    assert_eq!(failed["yaml_errors"], "Local file `no.yml` does not exist!");
}

#[tokio::test]
async fn lesson_26_what_a_file_and_a_push_may_cost_is_bounded() {
    let (forge, ann, project) = scene().await;
    let comment = |bytes: usize| format!("#{}\n{JOB}", "x".repeat(bytes));
    forge.fill(&ann, project, &built("refs/heads/large", &comment(1 << 20))).await;
    let large = ann.get(&format!("/projects/{project}/pipelines/1")).await.json();
    let text = "The file is too large: it has 1048598 bytes, at most 1048576 are allowed";
    assert_eq!((&large["status"], &large["yaml_errors"]), (&json!("failed"), &json!(text)));
    let includes = [(".gitlab-ci.yml", "include: large.yml\njob: {script: x}"), ("large.yml", &*comment(1 << 20))];
    forge.fill(&ann, project, &commit("refs/heads/includes", "m", &includes)).await;
    let large = ann.get(&format!("/projects/{project}/pipelines/2")).await.json();
    assert_eq!(large["yaml_errors"], format!("Included file `large.yml`: {text}"));
    // The text of an error repeats what is in the file, but not all of it.
    let long = format!("{}: {{script: x, stage: nowhere}}", "n".repeat(200_000));
    forge.fill(&ann, project, &built("refs/heads/long", &long)).await;
    let long = ann.get(&format!("/projects/{project}/pipelines/3")).await.json();
    assert!(long["yaml_errors"].as_str().is_some_and(|text| text.len() <= 64 << 10), "{long}");
    let mut script = built("refs/heads/many", JOB);
    for number in 0..30 {
        let _ = write!(script, "reset refs/heads/many-{number}\nfrom refs/heads/many\n\n");
    }
    forge.fill(&ann, project, &script).await;
    let answer = ann.get(&format!("/projects/{project}/pipelines")).await;
    assert_eq!(answer.header("x-total"), "23");
    // Links are no files, and folders are none either.
    let link = "commit refs/heads/link\ncommitter A <a@example.com> 1 +0000\ndata 1\nm\n\
                M 120000 inline .gitlab-ci.yml\ndata 5\nother\n\n";
    forge
        .fill(&ann, project, &(link.to_owned() + &commit("refs/heads/folder", "m", &[(".gitlab-ci.yml/a", "b")])))
        .await;
    assert_eq!(ann.get(&format!("/projects/{project}/pipelines")).await.header("x-total"), "23");
    let start = ann.post(&format!("/projects/{project}/pipeline"), json!({ "ref": "link" })).await;
    assert_eq!(start.json(), json!({ "message": { "base": ["Missing .gitlab-ci.yml file"] } }));
}

#[tokio::test]
async fn a_push_that_was_interrupted_makes_its_pipelines_once_or_never() {
    let (forge, ann, project) = scene().await;
    forge.fill(&ann, project, SMALL).await;
    let master = tip(&forge, project, "refs/heads/master");
    let sha: Oid = master.parse().expect("an id");
    let (now, user) = (forge.forge.now(), ann.id);
    let plan = {
        let config = ci::Config::load(JOB, &ci::NoFiles).expect("a good file");
        ci::plan(&config, &ci::Circumstances::default()).expect("a plan")
    };
    let intend = |names: [&str; 2]| {
        let full = names.map(|name| format!("refs/heads/{name}"));
        let changes = full.map(|name| change(&name, None, Some(&master)));
        forge.in_one_go(|db| {
            let intent = NewIntent {
                project,
                user: Some(user),
                changes: &changes,
                default_branch: Change::Keep,
                protection: None,
                now,
            };
            let intent = store::intents::insert(db, &intent).expect("written");
            let text = plan.to_text();
            for (name, plan, status, fault) in
                [(names[0], Some(&*text), Status::Created, None), (names[1], None, Status::Failed, Some("wrong"))]
            {
                let new = NewPipeline {
                    project,
                    ref_name: name,
                    tag: false,
                    sha,
                    before_sha: Some(sha),
                    source: Source::Push,
                    status,
                    yaml_errors: fault,
                    stages: &plan.map(|_| vec!["test".to_owned()]).unwrap_or_default(),
                    user: Some(user),
                    trigger: None,
                    variables: None,
                    intent: Some(intent),
                    plan,
                    now,
                };
                store::pipelines::insert(db, &new).expect("written");
            }
        });
    };
    // Nothing has moved: it never was. Nobody sees it before that is known, whatever they ask for.
    intend(["never", "nowhere"]);
    assert_eq!(shown(&ann, project).await, "");
    let base = format!("/projects/{project}/pipelines");
    for query in ["?scope=running", "?scope=branches"] {
        assert_eq!(ann.get(&format!("{base}{query}")).await.text, "[]");
    }
    assert_eq!(ann.get(&format!("{base}/1")).await.code(), 404);
    assert_eq!(ann.post(&format!("{base}/1/cancel"), json!({})).await.code(), 404);
    assert_eq!(
        ann.get(&format!("/projects/{project}/repository/commits/{master}")).await.json()["status"],
        json!(null)
    );
    pushes::settle_all(&forge.forge).await.expect("settled");
    assert_eq!(shown(&ann, project).await, "");
    assert!(!forge.dump().contains("nowhere"));
    // One of two has moved: the other one follows, and both are built.
    intend(["half", "other"]);
    let folder = forge.repository_folder(project).expect("a repository");
    std::fs::write(folder.join("refs/heads/half"), format!("{master}\n")).expect("written");
    pushes::settle_all(&forge.forge).await.expect("settled");
    assert_eq!(shown(&ann, project).await, "4 other failed, 3 half pending");
    pushes::settle_all(&forge.forge).await.expect("settled again");
    assert_eq!(shown(&ann, project).await, "4 other failed, 3 half pending");
    let builds = forge.in_one_go(|db| store::builds::latest_of(db, 3).expect("asked"));
    assert_eq!(
        builds.iter().map(|build| (build.name.as_str(), build.status)).collect::<Vec<_>>(),
        [("job", Status::Pending)]
    );
}

#[tokio::test]
async fn a_job_that_nobody_has_started_is_not_started_by_a_retry() {
    let (forge, ann, project) = scene().await;
    let file = "stages: [a, b]\nbuild: {stage: a, script: x}\ndeploy: {stage: b, script: x, when: manual}";
    let pipeline = forge.plant_pipeline(project, Some(ann.id), file).await;
    let path = format!("/projects/{project}/pipelines/{}", pipeline.id);
    assert_eq!(ann.post(&format!("{path}/cancel"), json!({})).await.json()["status"], "canceled");
    let retried = ann.post(&format!("{path}/retry"), json!({})).await.json();
    // Nothing has run yet.
    assert_eq!(retried["started_at"], Value::Null, "{retried}");
    let standing = || {
        let builds = forge.in_one_go(|db| store::builds::latest_of(db, pipeline.id).expect("builds"));
        builds.iter().map(|build| format!("{} {}", build.name, build.status.word())).collect::<Vec<_>>()
    };
    assert_eq!(standing(), ["build pending", "deploy created"]);
    let build = forge.in_one_go(|db| store::builds::latest_of(db, pipeline.id).expect("builds"))[0].id;
    forge.take_build(build, forge.plant_runner("one")).await;
    assert!(ann.get(&path).await.json()["started_at"].is_string());
    forge.let_happen(build, Event::Succeed).await;
    assert_eq!(standing(), ["build success", "deploy skipped"]);
    assert_eq!(ann.post(&format!("{path}/retry"), json!({})).await.json()["status"], "success");
    assert_eq!(standing(), ["build success", "deploy skipped"]);
}

/// What an endpoint writes lies about until it is packed, and what is pushed comes in packs.
#[tokio::test]
async fn a_repository_that_was_written_to_in_both_ways_is_kept() {
    let (forge, ann, project) = scene().await;
    let file = json!({ "file_path": "a", "branch_name": "master", "content": "x", "commit_message": "By an endpoint" });
    assert_eq!(ann.post(&format!("/projects/{project}/repository/files"), file).await.code(), 201);
    let first = tip(&forge, project, "refs/heads/master");
    let local = testkit::LocalRepository::new();
    local.write("b", "y");
    local.commit("By a push");
    local.git(&["branch", "-m", "topic"]);
    forge.push_all(&ann, project, &local).await;
    forge.keep_house(project);
    assert_eq!(tip(&forge, project, "refs/heads/master"), first);
}
