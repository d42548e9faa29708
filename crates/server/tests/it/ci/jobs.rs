//! Jobs of a project: list, show, cancel, retry and play them.

use insta::assert_snapshot;
use jiff::SignedDuration;
use model::{JobId, Oid, ProjectId, Status};
use serde_json::{Value, json};
use store::jobs::JobChanges;
use testkit::{TestClient, TestForge, TestResponse, fixtures, repository::SMALL_REPOSITORY};

/// Two stages, of which the second needs the first, and a manual job.
const FILE: &str = "
stages: [build, test]
make: {stage: build, script: make}
hand: {stage: build, script: make by hand, when: manual}
check: {stage: test, script: make check}
";

/// A forge with Ann and her project, and its newest commit.
async fn setup() -> (TestForge, TestClient, ProjectId, Oid) {
    let forge = TestForge::start().await;
    let ann = forge.user("ann").await;
    let project = ProjectId::new(ann.make("/projects", json!({ "name": "Rocket" })).await);
    forge.fast_import(&ann, project, SMALL_REPOSITORY).await;
    let tip = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/heads/master").expect("a branch").1;
    (forge, ann, project, tip.parse().expect("an id"))
}

/// The IDs of the jobs of a pipeline by name.
async fn job_ids(client: &TestClient, project: ProjectId, names: &[&str]) -> Vec<JobId> {
    let listed = client.get(&format!("/projects/{project}/builds?per_page=100")).await.json();
    let listed = listed.as_array().expect("a list");
    let id = |name: &&str| listed.iter().find(|job| job["name"] == **name).and_then(|job| job["id"].as_i64());
    names.iter().map(|name| id(name).map_or_else(|| panic!("no {name}"), JobId::new)).collect()
}

/// Sets the final status of a job in the database.
fn set_final_status(forge: &TestForge, job: JobId, status: Status) {
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        store::jobs::set_status(db, &[job], status, &JobChanges::default(), now).expect("set");
    });
}

/// The name and status of each latest job, oldest first, and the status of the pipeline.
async fn states(client: &TestClient, project: ProjectId) -> String {
    let listed = client.get(&format!("/projects/{project}/builds?per_page=100")).await.json();
    let listed = listed.as_array().expect("a list");
    let mut states: Vec<String> =
        listed.iter().map(|job| format!("{} {}", job["name"], job["status"]).replace('"', "")).collect();
    states.reverse();
    format!("{}: {}", listed[0]["pipeline"]["status"].as_str().expect("a state"), states.join(", "))
}

fn normalized(answer: &TestResponse, tip: Oid) -> String {
    let tip = tip.to_string();
    answer.to_string().replace(&tip, "TIP").replace(&tip[..8], "SHORT")
}

#[tokio::test]
async fn a_job_is_shown_with_its_commit_user_and_pipeline() {
    let (forge, ann, project, tip) = setup().await;
    forge.start_pipeline_at(project, Some(ann.id), "master", tip, FILE).await;
    let [make, hand] = job_ids(&ann, project, &["make", "hand"]).await[..] else { panic!("two") };
    let runner = forge.insert_runner("the fast one");
    forge.assign_job(make, runner).await;
    forge.clock.advance(SignedDuration::from_millis(2500));
    let path = format!("/projects/{project}/builds/{make}");
    assert_snapshot!(normalized(&ann.get(&path).await, tip), @r#"
    200 OK
    {"id":1,"status":"running","stage":"build","name":"make","ref":"master","tag":false,"coverage":null,"allow_failure":false,"failure_reason":null,"created_at":"2026-01-02T03:04:05.678Z","started_at":"2026-01-02T03:04:05.678Z","finished_at":null,"duration":2.5,"user":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z","is_admin":false,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":""},"artifacts_expire_at":null,"erased_at":null,"commit":{"id":"TIP","short_id":"SHORT","title":"Second commit","author_name":"Bob","author_email":"bob@example.com","created_at":"2015-02-01T17:33:20.000-05:00","message":"Second commit\n","committer_name":"Bob","committer_email":"bob@example.com"},"runner":{"id":1,"description":"the fast one","active":true,"is_shared":true,"name":null},"pipeline":{"id":1,"sha":"TIP","ref":"master","status":"running"}}
    "#);
    assert_snapshot!(normalized(&ann.get(&format!("/projects/{project}/builds/{hand}")).await, tip), @r#"
    200 OK
    {"id":2,"status":"skipped","stage":"build","name":"hand","ref":"master","tag":false,"coverage":null,"allow_failure":false,"failure_reason":null,"created_at":"2026-01-02T03:04:05.678Z","started_at":null,"finished_at":null,"duration":null,"user":{"name":"ann","username":"ann","id":1,"state":"active","avatar_url":"http://gable.test/-/identicon/482c89484cbd62c8.svg","web_url":"http://gable.test/ann","created_at":"2026-01-02T03:04:05.678Z","is_admin":false,"bio":null,"location":null,"skype":"","linkedin":"","twitter":"","website_url":"","organization":""},"artifacts_expire_at":null,"erased_at":null,"commit":{"id":"TIP","short_id":"SHORT","title":"Second commit","author_name":"Bob","author_email":"bob@example.com","created_at":"2015-02-01T17:33:20.000-05:00","message":"Second commit\n","committer_name":"Bob","committer_email":"bob@example.com"},"runner":null,"pipeline":{"id":1,"sha":"TIP","ref":"master","status":"running"}}
    "#);
    // The job stays when its user, runner and commit are deleted.
    set_final_status(&forge, make, Status::Failed);
    forge.in_transaction(|db| {
        let set = "UPDATE builds SET coverage = 12.5, failure_reason = 'script_failure', user_id = NULL, \
                   runner_id = NULL WHERE name = 'make'";
        fixtures::execute_sql(db, set);
        let expires_at = "3000-01-01T00:00:00Z".parse().expect("a time");
        fixtures::artifacts_archive(db, project, make, "out.zip", 7, Some(expires_at));
    });
    let shown = ann.get(&path).await.json();
    assert_eq!(
        json!([shown["coverage"], shown["failure_reason"], shown["user"], shown["runner"], shown["duration"]]),
        json!([12.5, "script_failure", null, null, 2.5])
    );
    assert_eq!(shown["artifacts_file"], json!({ "filename": "out.zip", "size": 7 }));
    assert_eq!(shown["artifacts_expire_at"], "3000-01-01T00:00:00.000Z");
    // A missing commit is shown as null.
    forge.start_pipeline(project, Some(ann.id), FILE).await;
    let listed = ann.get(&format!("/projects/{project}/builds")).await;
    assert_eq!(listed.json()[0]["commit"], json!(null));
    assert_eq!(listed.json()[5]["commit"]["title"], "Second commit");
}

#[tokio::test]
async fn jobs_are_listed_by_status_newest_first() {
    let (forge, ann, project, tip) = setup().await;
    for _ in 0..2 {
        forge.start_pipeline_at(project, Some(ann.id), "master", tip, FILE).await;
    }
    let first = forge.refs_of(project).into_iter().find(|(name, _)| name == "refs/tags/v1.0").expect("a tag").1;
    assert_ne!(first, tip.to_string());
    forge.start_pipeline(project, None, "other: {script: make}").await;
    set_final_status(&forge, job_ids(&ann, project, &["make"]).await[0], Status::Failed);
    let list = async |path: &str| {
        let answer = ann.get(&format!("/projects/{project}/{path}")).await;
        format!("{} of {}", answer.join_field("name"), answer.header("x-total"))
    };
    assert_eq!(list("builds").await, "other check hand make check hand make of 7");
    assert_eq!(list("builds?per_page=3&page=2").await, "make check hand of 7");
    assert_eq!(list("builds?page=9").await, " of 7");
    assert_eq!(list("builds?scope=pending").await, "other make of 2");
    assert_eq!(list("builds?scope[]=failed&scope[]=created").await, "check make check of 3");
    assert_eq!(list("builds?scope[0]=skipped&scope[1]=failed").await, "hand make hand of 3");
    assert_eq!(list("builds?scope=manual").await, " of 0");
    assert_eq!(list("builds?scope=").await, "other check hand make check hand make of 7");
    assert_eq!(list("repository/commits/master/builds").await, "check hand make check hand make of 6");
    assert_eq!(list(&format!("repository/commits/{tip}/builds?scope=pending")).await, "make of 1");
    assert_eq!(list("repository/commits/master/builds?per_page=2&page=3").await, "hand make of 6");
    assert_eq!(list("repository/commits/v1.0/builds").await, " of 0");
    for refused in
        ["builds?scope=waiting", "builds?scope[]=failed&scope[]=x", "repository/commits/master/builds?scope=x"]
    {
        assert_eq!(
            ann.get(&format!("/projects/{project}/{refused}")).await.to_string(),
            "400 Bad Request\n{\"error\":\"scope does not have a valid value\"}"
        );
    }
    for missing in ["nowhere", &"f".repeat(40)] {
        let answer = ann.get(&format!("/projects/{project}/repository/commits/{missing}/builds")).await;
        assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Commit Not Found\"}");
    }
    let links = ann.get(&format!("/projects/{project}/builds?scope[]=failed&scope[]=created&per_page=1")).await;
    assert!(links.header("link").contains("scope%5B%5D=created&scope%5B%5D=failed"), "{}", links.header("link"));
}

#[tokio::test]
async fn a_job_is_canceled_once() {
    let (forge, ann, project, tip) = setup().await;
    forge.start_pipeline_at(project, None, "master", tip, FILE).await;
    let [make, check] = job_ids(&ann, project, &["make", "check"]).await[..] else { panic!("two") };
    let cancel = async |job: JobId| ann.post(&format!("/projects/{project}/builds/{job}/cancel"), json!({})).await;
    let canceled = cancel(make).await;
    let shown = canceled.json();
    assert_eq!((canceled.code(), &shown["status"]), (201, &json!("canceled")));
    assert_eq!((&shown["finished_at"], &shown["started_at"]), (&json!("2026-01-02T03:04:05.678Z"), &json!(null)));
    assert_eq!(
        (&shown["commit"]["title"], &shown["pipeline"]["status"]),
        (&json!("Second commit"), &json!("canceled"))
    );
    assert_eq!(states(&ann, project).await, "canceled: make canceled, hand skipped, check skipped");
    let before = forge.dump();
    for (job, status) in [(make, "canceled"), (check, "skipped")] {
        let again = cancel(job).await;
        assert_eq!((again.code(), again.json()["status"].as_str()), (201, Some(status)));
    }
    assert_eq!(forge.dump(), before);
}

#[tokio::test]
async fn a_finished_job_is_retried() {
    let (forge, ann, project, tip) = setup().await;
    let bob = forge.user("bob").await;
    ann.post(&format!("/projects/{project}/members"), json!({ "user_id": bob.id.get(), "access_level": 30 })).await;
    forge.start_pipeline_at(project, Some(ann.id), "master", tip, FILE).await;
    let [make, hand, check] = job_ids(&ann, project, &["make", "hand", "check"]).await[..] else { panic!("three") };
    let retry = async |job: JobId| bob.post(&format!("/projects/{project}/builds/{job}/retry"), json!({})).await;
    let refused = "403 Forbidden\n{\"message\":\"403 Forbidden  - Build is not retryable\"}";
    for job in [make, hand, check] {
        assert_eq!(retry(job).await.to_string(), refused);
    }
    ann.post(&format!("/projects/{project}/builds/{make}/cancel"), json!({})).await;
    assert_eq!(states(&ann, project).await, "canceled: make canceled, hand skipped, check skipped");
    let retried = retry(make).await;
    let new = retried.json();
    assert_eq!((retried.code(), &new["status"], &new["user"]["username"]), (201, &json!("pending"), &json!("bob")));
    assert!(new["id"].as_i64().expect("a number") > check.get());
    assert_eq!((&new["name"], &new["stage"], &new["finished_at"]), (&json!("make"), &json!("build"), &json!(null)));
    assert_eq!(new["pipeline"]["status"], "running");
    // The jobs that need it are pending again; the old job is unchanged and is no longer the latest one.
    let expected = "running: make canceled, hand skipped, check created, make pending";
    assert_eq!(states(&ann, project).await, expected);
    assert_eq!(retry(make).await.to_string(), refused);
    let old = ann.post(&format!("/projects/{project}/builds/{make}/cancel"), json!({})).await;
    assert_eq!((old.code(), old.json()["status"].as_str()), (201, Some("canceled")));
    assert_eq!(states(&ann, project).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_retries_one_succeeds() {
    let (forge, ann, project, _) = setup().await;
    forge.start_pipeline(project, None, FILE).await;
    let make = job_ids(&ann, project, &["make"]).await[0];
    ann.post(&format!("/projects/{project}/builds/{make}/cancel"), json!({})).await;
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (ann, path) = (ann.clone(), format!("/projects/{project}/builds/{make}/retry"));
            tokio::spawn(async move { ann.post(&path, json!({})).await.code() })
        })
        .collect();
    let mut codes = Vec::new();
    for task in tasks {
        codes.push(task.await.expect("an answer"));
    }
    codes.sort_unstable();
    assert_eq!(codes, [201, 403, 403, 403, 403, 403]);
    assert_eq!(ann.get(&format!("/projects/{project}/builds?scope=pending")).await.join_field("name"), "make");
}

#[tokio::test]
async fn a_manual_job_is_started() {
    let (forge, ann, project, tip) = setup().await;
    forge.start_pipeline_at(project, None, "master", tip, FILE).await;
    let [make, hand] = job_ids(&ann, project, &["make", "hand"]).await[..] else { panic!("two") };
    let play = async |job: JobId| ann.post(&format!("/projects/{project}/builds/{job}/play"), json!({})).await;
    let unplayable = "400 Bad Request\n{\"message\":\"400 (Bad request) \\\"Unplayable Build\\\" not given\"}";
    assert_eq!(play(make).await.to_string(), unplayable);
    let played = play(hand).await;
    let shown = played.json();
    assert_eq!((played.code(), &shown["status"], &shown["user"]["username"]), (200, &json!("pending"), &json!("ann")));
    assert_eq!(shown["commit"]["title"], "Second commit");
    assert_eq!(states(&ann, project).await, "pending: make pending, hand pending, check created");
    assert_eq!(play(hand).await.to_string(), unplayable);
}

#[tokio::test]
async fn a_job_of_another_project_is_not_found() {
    let (forge, ann, project, _) = setup().await;
    forge.start_pipeline(project, None, FILE).await;
    let elsewhere = ProjectId::new(ann.make("/projects", json!({ "name": "elsewhere" })).await);
    let [make, hand, check] = job_ids(&ann, project, &["make", "hand", "check"]).await[..] else { panic!("three") };
    // External statuses share the IDs of jobs and are not jobs.
    forge.execute_sql("UPDATE builds SET kind = 1 WHERE name = 'check'");
    let before = forge.dump();
    for (place, job) in [(elsewhere, make), (elsewhere, hand), (project, check), (project, JobId::new(999))] {
        let path = format!("/projects/{place}/builds/{job}");
        let mut answers = vec![ann.get(&path).await];
        for action in ["cancel", "retry", "play"] {
            answers.push(ann.post(&format!("{path}/{action}"), json!({})).await);
        }
        for answer in answers {
            assert_eq!(answer.to_string(), "404 Not Found\n{\"message\":\"404 Not Found\"}");
        }
    }
    assert_eq!(forge.dump(), before);
    let listed = ann.get(&format!("/projects/{project}/builds")).await;
    assert_eq!((listed.join_field("name"), listed.header("x-total")), ("hand make".into(), "2"));
    let response = ann.get(&format!("/projects/{project}/builds/x")).await;
    assert_eq!(response.to_string(), "400 Bad Request\n{\"error\":\"build_id is invalid\"}");
}

#[tokio::test]
async fn permissions_to_read_and_change_jobs() {
    let (forge, ann, project, _) = setup().await;
    forge.start_pipeline(project, None, FILE).await;
    let make = job_ids(&ann, project, &["make"]).await[0];
    let bob = forge.user("bob").await;
    let codes = async |client: &TestClient| {
        let path = format!("/projects/{project}/builds/{make}");
        let play = client.post(&format!("{path}/play"), json!({})).await;
        (client.get(&format!("/projects/{project}/builds")).await.code(), client.get(&path).await.code(), play.code())
    };
    assert_eq!(codes(&forge.anonymous()).await, (401, 401, 401));
    assert_eq!(codes(&bob).await, (404, 404, 404));
    let set = async |body: Value| {
        let mut body = body;
        body["name"] = json!("Rocket");
        assert_eq!(ann.put(&format!("/projects/{project}"), body).await.code(), 200);
    };
    set(json!({ "visibility_level": 20 })).await;
    assert_eq!(codes(&bob).await, (200, 200, 403));
    set(json!({ "public_builds": false })).await;
    assert_eq!(codes(&bob).await, (403, 403, 403));
    ann.post(&format!("/projects/{project}/members"), json!({ "user_id": bob.id.get(), "access_level": 10 })).await;
    for (level, expected) in [(10, (403, 403, 403)), (20, (200, 200, 403)), (30, (200, 200, 400))] {
        ann.put(&format!("/projects/{project}/members/{}", bob.id), json!({ "access_level": level })).await;
        assert_eq!(codes(&bob).await, expected, "{level}");
    }
    set(json!({ "builds_enabled": false })).await;
    assert_eq!(codes(&ann).await, (403, 403, 403));
    set(json!({ "builds_enabled": true })).await;
    assert_eq!(ann.post(&format!("/projects/{project}/archive"), json!({})).await.code(), 201);
    assert_eq!(codes(&ann).await, (200, 200, 403));
}
