//! Access tables: the status of every route of a project or a group for every kind of caller.
//!
//! Each cell has its own project or group, so that requests do not affect each other.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    fmt::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::http::Method;
use insta::assert_snapshot;
use jiff::civil::Date;
use model::{
    DeliveryId, DeployKeyId, HookId, JobId, NamespaceId, PipelineId, ProjectId, Role, RunnerId, Status, UserId,
    Visibility::{self, Internal, Private, Public},
    keys::NewKey,
    projects::TokenSeed,
    tokens::Digest,
};
use serde_json::{Value, json};
use store::{Conn, jobs::JobChanges, members::MemberSource};
use testkit::{
    TestClient, TestForge, TestResponse,
    fixtures::{self, TrackerItems},
    repository::SMALL_REPOSITORY,
};

/// Uploads a small file.
pub(crate) async fn send_file(client: &TestClient, path: &str) -> TestResponse {
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nmoonshot\r\n--b--\r\n";
    client.body(Method::POST, path, "multipart/form-data; boundary=b", form).await
}

/// The objects that the requests of a cell refer to.
struct Target {
    /// The number of the project or the group.
    id: i64,
    /// Its full path, which ends with its name.
    path: String,
    /// The id of the user who sends the request.
    caller: UserId,
    /// The id of a guest of the project or the group.
    guest: UserId,
    /// The id of a user without memberships.
    non_member: UserId,
    /// The group that the project is shared with, and one that it is not shared with.
    groups: [NamespaceId; 2],
    /// A project in another namespace.
    other_project: ProjectId,
    /// The deploy key of the project.
    key: DeployKeyId,
    /// The ids of its issues, labels and so on, if it has some.
    tracker: Option<TrackerItems>,
    /// Its hook and a delivery of the hook, if it has one.
    hook: Option<(HookId, DeliveryId)>,
    /// Its pipeline, if it has one.
    pipeline: PipelineId,
    /// Its jobs, if it has some.
    jobs: Option<Jobs>,
    /// The runner that is enabled for it and another project, if it has one.
    runner: RunnerId,
}

impl Target {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn project(&self) -> ProjectId {
        ProjectId::new(self.id)
    }
}

/// A row of a table: a request that succeeds for a caller with permission.
struct Row {
    method: Method,
    route: &'static str,
    /// Distinguishes several rows of the same route.
    note: &'static str,
    request: RequestKind,
}

/// The kind of request of a row, and what its cells show.
enum RequestKind {
    /// A request with this body; shows the status.
    Body(fn(&Target) -> Value),
    /// Shows whether the response has this field.
    Field(&'static str),
    /// A request about the repository; shows the status.
    Repository,
    /// A request about issues, labels, milestones or boards; shows the status.
    Tracker,
    /// A request about the hook; shows the status.
    Hook,
    /// A request about the pipeline; shows the status.
    Pipeline,
    /// A request about jobs, variables or triggers; shows the status.
    Ci,
    /// An upload; shows the status.
    Upload,
    /// A download of a file that was uploaded before; shows the status.
    Download,
}

const DOWNLOAD: &str = "{project}/uploads/{secret}/{name}";

fn row(method: Method, route: &'static str, note: &'static str, body: fn(&Target) -> Value) -> Row {
    Row { method, route, note, request: RequestKind::Body(body) }
}

fn empty_body(_: &Target) -> Value {
    json!({})
}

fn project_rows() -> Vec<Row> {
    use Method as M;
    const MEMBER: &str = "/projects/{id}/members/{user_id}";
    vec![
        row(M::GET, "/projects/{id}", "", empty_body),
        Row {
            method: M::GET,
            route: "/projects/{id}",
            note: "runners_token",
            request: RequestKind::Field("runners_token"),
        },
        row(M::POST, "/projects/{id}/star", "", empty_body),
        row(M::DELETE, "/projects/{id}/star", "", empty_body),
        Row { method: M::POST, route: "/projects/{id}/uploads", note: "", request: RequestKind::Upload },
        Row { method: M::GET, route: DOWNLOAD, note: "", request: RequestKind::Download },
        row(M::GET, "/projects/{id}/members", "", empty_body),
        row(M::GET, MEMBER, "", empty_body),
        row(
            M::POST,
            "/projects/{id}/members",
            "",
            |target| json!({ "user_id": target.non_member.get(), "access_level": 30 }),
        ),
        row(M::PUT, MEMBER, "", |_| json!({ "access_level": 40 })),
        row(M::DELETE, MEMBER, "", empty_body),
        row(M::DELETE, MEMBER, "oneself", empty_body),
        row(
            M::POST,
            "/projects/{id}/share",
            "",
            |target| json!({ "group_id": target.groups[1].get(), "group_access": 20 }),
        ),
        row(M::DELETE, "/projects/{id}/share/{group_id}", "", empty_body),
        row(
            M::PUT,
            "/projects/{id}",
            "path",
            |target| json!({ "name": target.name(), "path": format!("other-{}", target.id) }),
        ),
        row(M::PUT, "/projects/{id}", "name", |target| json!({ "name": format!("other-{}", target.id) })),
        row(M::PUT, "/projects/{id}", "visibility", |target| json!({ "name": target.name(), "visibility_level": 0 })),
        row(M::PUT, "/projects/{id}", "public", |target| json!({ "name": target.name(), "public": false })),
        row(M::POST, "/projects/{id}/archive", "", empty_body),
        row(M::POST, "/projects/{id}/unarchive", "", empty_body),
        row(M::DELETE, "/projects/{id}/unarchive", "", empty_body),
        row(M::DELETE, "/projects/{id}", "", empty_body),
        row(M::GET, "/projects/{id}/events", "", empty_body),
        row(M::POST, "/projects/{id}/fork/{project_id}", "", empty_body),
        row(M::DELETE, "/projects/{id}/fork", "", empty_body),
    ]
    .into_iter()
    .chain(deploy_key_rows())
    .chain(runner_rows())
    .chain(repository_rows())
    .chain(tracker_rows())
    .chain(hook_rows())
    .chain(pipeline_rows())
    .chain(build_rows())
    .chain(job_output_rows())
    .collect()
}

fn deploy_key_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/deploy_keys"),
        (M::POST, "/projects/{id}/deploy_keys"),
        (M::GET, "/projects/{id}/deploy_keys/{key_id}"),
        (M::DELETE, "/projects/{id}/deploy_keys/{key_id}"),
        (M::POST, "/projects/{id}/deploy_keys/{key_id}/enable"),
        (M::DELETE, "/projects/{id}/deploy_keys/{key_id}/disable"),
        (M::GET, "/projects/{id}/keys"),
        (M::POST, "/projects/{id}/keys"),
        (M::GET, "/projects/{id}/keys/{key_id}"),
        (M::DELETE, "/projects/{id}/keys/{key_id}"),
        (M::POST, "/projects/{id}/keys/{key_id}/enable"),
        (M::DELETE, "/projects/{id}/keys/{key_id}/disable"),
    ];
    let key = |target: &Target| json!({ "title": "fresh", "key": fixtures::ssh_key(target.id) });
    routes.into_iter().map(|(method, route)| row(method, route, "", key)).collect()
}

fn runner_rows() -> Vec<Row> {
    use Method as M;
    vec![
        row(M::GET, "/projects/{id}/runners", "", empty_body),
        // The runner is already enabled, which only callers with permission learn.
        row(M::POST, "/projects/{id}/runners", "", |target| json!({ "runner_id": target.runner.get() })),
        row(M::DELETE, "/projects/{id}/runners/{runner_id}", "", empty_body),
    ]
}

/// The content of the repository of a project: branches `master` and `topic`, the tag `v1.0`, and the tag `light` with a
/// release.
pub(crate) fn repository_script() -> String {
    format!("{SMALL_REPOSITORY}reset refs/heads/topic\nfrom :4\n\n")
}

/// A further branch `built`, which has a CI configuration.
pub(crate) const CI_BRANCH: &str = "commit refs/heads/built\ncommitter A <a@example.com> 1 +0000\ndata 5\nBuild\n\
                                M 100644 inline .gitlab-ci.yml\ndata 20\njob: {script: make}\n\n";

/// Returns a valid body for a route of the repository.
pub(crate) fn repository_body(method: &Method, route: &str) -> Value {
    let changes = *method != Method::GET;
    match route {
        "/projects/{id}/statuses/{sha}" => return json!({ "state": "success" }),
        "/projects/{id}/pipeline" => return json!({ "ref": "built" }),
        _ => {}
    }
    match route.strip_prefix("/projects/{id}/repository/").unwrap_or_default() {
        "branches" if changes => json!({ "branch_name": "fresh", "ref": "master" }),
        "tags" if changes => json!({ "tag_name": "fresh", "ref": "master", "message": "m" }),
        "tags/{tag_name}/release" => json!({ "description": "d" }),
        "blobs/{sha}" | "commits/{sha}/blob" => json!({ "filepath": "README.md" }),
        "compare" => json!({ "from": "v1.0", "to": "master" }),
        "files" if *method == Method::POST => file("fresh"),
        "files" => file("README.md"),
        "commits" if changes => {
            let actions = json!([{ "action": "create", "file_path": "fresh", "content": "c" }]);
            json!({ "branch_name": "topic", "commit_message": "m", "actions": actions })
        }
        "commits/{sha}/comments" if changes => json!({ "note": "n" }),
        _ => json!({}),
    }
}

fn file(path: &str) -> Value {
    json!({ "file_path": path, "ref": "master", "branch_name": "topic", "content": "c", "commit_message": "m" })
}

/// Fills existing names into a route of the repository.
pub(crate) fn repository_path(method: &Method, route: &str) -> String {
    let sha = if route.contains("raw_blobs") { "ce013625030ba8dba906f756967f9e9ca394464a" } else { "master" };
    let tag = if *method == Method::PUT { "light" } else { "v1.0" };
    let path = route.replace("{branch}", "topic").replace("{tag_name}", tag).replace("{sha}", sha);
    path.replace(".{format}", ".tar")
}

fn repository_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/repository/branches"),
        (M::POST, "/projects/{id}/repository/branches"),
        (M::GET, "/projects/{id}/repository/branches/{branch}"),
        (M::DELETE, "/projects/{id}/repository/branches/{branch}"),
        (M::PUT, "/projects/{id}/repository/branches/{branch}/protect"),
        (M::PUT, "/projects/{id}/repository/branches/{branch}/unprotect"),
        (M::DELETE, "/projects/{id}/repository/merged_branches"),
        (M::GET, "/projects/{id}/repository/tags"),
        (M::POST, "/projects/{id}/repository/tags"),
        (M::GET, "/projects/{id}/repository/tags/{tag_name}"),
        (M::DELETE, "/projects/{id}/repository/tags/{tag_name}"),
        (M::POST, "/projects/{id}/repository/tags/{tag_name}/release"),
        (M::PUT, "/projects/{id}/repository/tags/{tag_name}/release"),
        (M::GET, "/projects/{id}/repository/tree"),
        (M::GET, "/projects/{id}/repository/blobs/{sha}"),
        (M::GET, "/projects/{id}/repository/commits/{sha}/blob"),
        (M::GET, "/projects/{id}/repository/raw_blobs/{sha}"),
        (M::GET, "/projects/{id}/repository/archive"),
        (M::GET, "/projects/{id}/repository/archive.{format}"),
        (M::GET, "/projects/{id}/repository/compare"),
        (M::GET, "/projects/{id}/repository/contributors"),
        (M::GET, "/projects/{id}/repository/files"),
        (M::POST, "/projects/{id}/repository/files"),
        (M::PUT, "/projects/{id}/repository/files"),
        (M::DELETE, "/projects/{id}/repository/files"),
        (M::GET, "/projects/{id}/repository/commits"),
        (M::POST, "/projects/{id}/repository/commits"),
        (M::GET, "/projects/{id}/repository/commits/{sha}"),
        (M::GET, "/projects/{id}/repository/commits/{sha}/diff"),
        (M::GET, "/projects/{id}/repository/commits/{sha}/comments"),
        (M::POST, "/projects/{id}/repository/commits/{sha}/comments"),
        (M::GET, "/projects/{id}/repository/commits/{sha}/statuses"),
        (M::GET, "/projects/{id}/repository/commits/{sha}/builds"),
        (M::POST, "/projects/{id}/statuses/{sha}"),
    ];
    routes
        .into_iter()
        .map(|(method, route)| Row { method, route, note: "", request: RequestKind::Repository })
        .collect()
}

/// Returns a valid body for a route of the issue tracker.
pub(crate) fn tracker_body(method: &Method, route: &str, tracker: &TrackerItems, other_project: ProjectId) -> Value {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    match (method.as_str(), below) {
        ("POST", "labels") => json!({ "name": "fresh", "color": "#abcdef" }),
        ("PUT", "labels") => json!({ "name": "bug", "color": "#abcdef" }),
        ("DELETE", "labels") => json!({ "name": "bug" }),
        ("POST", "boards/{board_id}/lists") => json!({ "label_id": tracker.free_label.get() }),
        ("PUT", "boards/{board_id}/lists/{list_id}") => json!({ "position": 1 }),
        ("POST" | "PUT", "issues" | "issues/{issue_id}" | "milestones" | "milestones/{milestone_id}") => {
            json!({ "title": "fresh" })
        }
        ("POST", "issues/{issue_id}/move") => json!({ "to_project_id": other_project.get() }),
        ("POST" | "PUT", "issues/{issue_id}/notes" | "issues/{issue_id}/notes/{note_id}") => json!({ "body": "fresh" }),
        _ => json!({}),
    }
}

/// Fills existing ids into a route of the issue tracker.
pub(crate) fn tracker_path(route: &str, tracker: &TrackerItems) -> String {
    let TrackerItems { issue, note, milestone, label, free_label: _, board, list } = tracker;
    let path = route.replace("{issue_id}", &issue.to_string()).replace("{note_id}", &note.to_string());
    let path = path.replace("{milestone_id}", &milestone.to_string()).replace("{label_id}", &label.to_string());
    path.replace("{board_id}", &board.to_string()).replace("{list_id}", &list.to_string())
}

/// Returns whether a route belongs to the issue tracker.
pub(crate) fn is_tracker_route(route: &str) -> bool {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    ["labels", "boards", "issues", "milestones"].iter().any(|name| below.starts_with(name))
}

fn tracker_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/labels"),
        (M::POST, "/projects/{id}/labels"),
        (M::PUT, "/projects/{id}/labels"),
        (M::DELETE, "/projects/{id}/labels"),
        (M::POST, "/projects/{id}/labels/{label_id}/subscription"),
        (M::DELETE, "/projects/{id}/labels/{label_id}/subscription"),
        (M::GET, "/projects/{id}/boards"),
        (M::GET, "/projects/{id}/boards/{board_id}/lists"),
        (M::GET, "/projects/{id}/boards/{board_id}/lists/{list_id}"),
        (M::POST, "/projects/{id}/boards/{board_id}/lists"),
        (M::PUT, "/projects/{id}/boards/{board_id}/lists/{list_id}"),
        (M::DELETE, "/projects/{id}/boards/{board_id}/lists/{list_id}"),
        (M::GET, "/projects/{id}/issues"),
        (M::GET, "/projects/{id}/issues/{issue_id}"),
        (M::POST, "/projects/{id}/issues"),
        (M::PUT, "/projects/{id}/issues/{issue_id}"),
        (M::DELETE, "/projects/{id}/issues/{issue_id}"),
        (M::POST, "/projects/{id}/issues/{issue_id}/move"),
        (M::POST, "/projects/{id}/issues/{issue_id}/subscription"),
        (M::DELETE, "/projects/{id}/issues/{issue_id}/subscription"),
        (M::GET, "/projects/{id}/issues/{issue_id}/notes"),
        (M::GET, "/projects/{id}/issues/{issue_id}/notes/{note_id}"),
        (M::POST, "/projects/{id}/issues/{issue_id}/notes"),
        (M::PUT, "/projects/{id}/issues/{issue_id}/notes/{note_id}"),
        (M::DELETE, "/projects/{id}/issues/{issue_id}/notes/{note_id}"),
        (M::GET, "/projects/{id}/milestones"),
        (M::GET, "/projects/{id}/milestones/{milestone_id}"),
        (M::POST, "/projects/{id}/milestones"),
        (M::PUT, "/projects/{id}/milestones/{milestone_id}"),
        (M::GET, "/projects/{id}/milestones/{milestone_id}/issues"),
    ];
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", request: RequestKind::Tracker }).collect()
}

/// The URL of hooks, and the event with which they are tested.
pub(crate) const HOOK: &str = "https://hooks.example.com/x";
pub(crate) const TRIGGER: &str = "issues_events";

fn hook_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/hooks"),
        (M::POST, "/projects/{id}/hooks"),
        (M::GET, "/projects/{id}/hooks/{hook_id}"),
        (M::PUT, "/projects/{id}/hooks/{hook_id}"),
        (M::DELETE, "/projects/{id}/hooks/{hook_id}"),
        (M::POST, "/projects/{id}/hooks/{hook_id}/test/{trigger}"),
        (M::GET, "/projects/{id}/hooks/{hook_id}/deliveries"),
        (M::GET, "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}"),
        (M::POST, "/projects/{id}/hooks/{hook_id}/deliveries/{delivery_id}/resend"),
    ];
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", request: RequestKind::Hook }).collect()
}

fn pipeline_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/pipelines"),
        (M::GET, "/projects/{id}/pipelines/{pipeline_id}"),
        (M::POST, "/projects/{id}/pipeline"),
        (M::POST, "/projects/{id}/pipelines/{pipeline_id}/retry"),
        (M::POST, "/projects/{id}/pipelines/{pipeline_id}/cancel"),
    ];
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", request: RequestKind::Pipeline }).collect()
}

/// The ids of jobs of a project.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jobs {
    /// A pending job.
    pub(crate) waiting: JobId,
    /// A failed job.
    pub(crate) failed: JobId,
    /// A manual job that was not started.
    pub(crate) manual: JobId,
}

/// Creates jobs, the variable `KEY` and a trigger directly in the database.
pub(crate) async fn create_jobs(forge: &TestForge, project: ProjectId) -> Jobs {
    let file = "waiting: {script: x}\nfailed: {script: x}\nmanual: {script: x, when: manual}";
    let pipeline = forge.start_pipeline(project, None, file).await;
    let now = forge.forge.now();
    forge.in_transaction(|db| {
        store::variables::insert(db, project, "KEY", b"encrypted elsewhere").expect("a variable");
        let token = Digest::of(&trigger_token(project));
        store::triggers::insert(db, project, &TokenSeed(vec![1]), &token, now).expect("a trigger");
        let jobs = store::jobs::latest_of_pipeline(db, pipeline.id).expect("jobs");
        let number = |name: &str| jobs.iter().find(|job| job.name == name).expect("a job").id;
        let failed = number("failed");
        store::jobs::set_status(db, &[failed], Status::Failed, &JobChanges::default(), now).expect("failed");
        Jobs { waiting: number("waiting"), failed, manual: number("manual") }
    })
}

/// Returns the token of the trigger of a project.
pub(crate) fn trigger_token(project: ProjectId) -> String {
    format!("trigger-of-{project}")
}

/// Returns whether a route belongs to jobs, variables or triggers of a project.
pub(crate) fn is_ci_route(route: &str) -> bool {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    ["builds", "variables", "trigger", "ref/"].iter().any(|name| below.starts_with(name))
}

/// Returns a valid body for a route of jobs, variables and triggers.
pub(crate) fn ci_body(method: &Method, route: &str, project: ProjectId) -> Value {
    match (method.as_str(), route.strip_prefix("/projects/{id}/").unwrap_or_default()) {
        ("POST", "variables") => json!({ "key": "FRESH", "value": "v" }),
        ("PUT", "variables/{key}") => json!({ "value": "v" }),
        ("GET", path) if path.ends_with("/download") => json!({ "job": "failed" }),
        // A caller with the token is authorized and learns that there is no such branch.
        ("POST", path) if path.ends_with("trigger/builds") => {
            json!({ "token": trigger_token(project), "ref": "nowhere" })
        }
        _ => json!({}),
    }
}

/// Fills existing ids and names into a route of jobs, variables and triggers.
pub(crate) fn ci_path(route: &str, project: ProjectId, jobs: &Jobs) -> String {
    let job = match route.rsplit('/').next() {
        Some("retry" | "erase") => jobs.failed,
        Some("play") => jobs.manual,
        _ => jobs.waiting,
    };
    let path = route.replace("{build_id}", &job.to_string()).replace("{key}", "KEY").replace("{ref}", "nowhere");
    let path = path.replace("{ref_name}", "nowhere");
    path.replace("{token}", &trigger_token(project))
}

fn build_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/builds"),
        (M::GET, "/projects/{id}/builds/{build_id}"),
        (M::POST, "/projects/{id}/builds/{build_id}/cancel"),
        (M::POST, "/projects/{id}/builds/{build_id}/retry"),
        (M::POST, "/projects/{id}/builds/{build_id}/play"),
        (M::GET, "/projects/{id}/variables"),
        (M::POST, "/projects/{id}/variables"),
        (M::GET, "/projects/{id}/variables/{key}"),
        (M::PUT, "/projects/{id}/variables/{key}"),
        (M::DELETE, "/projects/{id}/variables/{key}"),
        (M::GET, "/projects/{id}/triggers"),
        (M::POST, "/projects/{id}/triggers"),
        (M::GET, "/projects/{id}/triggers/{token}"),
        (M::DELETE, "/projects/{id}/triggers/{token}"),
        (M::POST, "/projects/{id}/trigger/builds"),
        (M::POST, "/projects/{id}/ref/{ref}/trigger/builds"),
    ];
    let note = |route: &str| if route.ends_with("trigger/builds") { "no such ref" } else { "" };
    let row = |(method, route)| Row { method, route, note: note(route), request: RequestKind::Ci };
    routes.into_iter().map(row).collect()
}

/// Rows about traces and artifacts. There are no artifacts, so a caller with permission gets a 404.
fn job_output_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/builds/{build_id}/trace"),
        (M::POST, "/projects/{id}/builds/{build_id}/erase"),
        (M::GET, "/projects/{id}/builds/{build_id}/artifacts"),
        (M::POST, "/projects/{id}/builds/{build_id}/artifacts/keep"),
        (M::GET, "/projects/{id}/builds/artifacts/{ref_name}/download"),
    ];
    let note = |route: &str| if route.contains("/artifacts") { "none there" } else { "" };
    let row = |(method, route)| Row { method, route, note: note(route), request: RequestKind::Ci };
    routes.into_iter().map(row).collect()
}

fn group_rows() -> Vec<Row> {
    use Method as M;
    const MEMBER: &str = "/groups/{id}/members/{user_id}";
    vec![
        row(M::GET, "/groups/{id}", "", empty_body),
        row(M::GET, "/groups/{id}/projects", "", empty_body),
        row(M::GET, "/groups/{id}/issues", "", empty_body),
        row(M::GET, "/groups/{id}/members", "", empty_body),
        row(M::GET, MEMBER, "", empty_body),
        row(M::POST, "/projects", "in it", |target| json!({ "name": "fresh", "namespace_id": target.id })),
        row(M::PUT, "/groups/{id}", "", |_| json!({ "description": "d" })),
        row(M::PUT, "/groups/{id}", "visibility", |_| json!({ "visibility_level": 0 })),
        row(
            M::POST,
            "/groups/{id}/members",
            "",
            |target| json!({ "user_id": target.non_member.get(), "access_level": 50 }),
        ),
        row(M::PUT, MEMBER, "", |_| json!({ "access_level": 40 })),
        row(M::DELETE, MEMBER, "", empty_body),
        row(M::DELETE, MEMBER, "oneself", empty_body),
        row(M::DELETE, "/groups/{id}", "", empty_body),
        row(M::POST, "/groups/{id}/projects/{project_id}", "", empty_body),
    ]
}

/// A column of a table: a caller, and how the project or group of each cell is created.
struct Column<'a> {
    block: &'static str,
    heading: String,
    client: &'a TestClient,
    make: Box<Make<'a>>,
}

/// Creates the project or the group of a cell with a name.
type Make<'a> = dyn Fn(&mut Conn, &str) -> CreatedResource + Send + Sync + 'a;

/// The number and the full path of the project or group of a cell.
type CreatedResource = (i64, String);

fn project_resource((id, path): (ProjectId, String)) -> CreatedResource {
    (id.get(), path)
}

fn group_resource((id, path): (NamespaceId, String)) -> CreatedResource {
    (id.get(), path)
}

/// A forge with the users and objects that all tables share.
struct AccessFixture {
    forge: TestForge,
    anonymous: TestClient,
    root: TestClient,
    ann: TestClient,
    guest: TestClient,
    non_member: TestClient,
    groups: [NamespaceId; 2],
    other_project: ProjectId,
    serial: AtomicUsize,
}

impl AccessFixture {
    async fn start() -> Self {
        let forge = TestForge::start().await;
        let root = forge.admin().await;
        let ann = forge.user("ann").await;
        let (guest, non_member) = (forge.user("gus").await, forge.user("nia").await);
        let now = forge.forge.now();
        let (groups, other_project) = forge.in_transaction(|db| {
            let groups = ["partners", "strangers"].map(|path| fixtures::group(db, path, None, Public, now));
            (groups, fixtures::project(db, "spare", groups[0], root.id, Private, now))
        });
        forge.fast_import(&root, other_project, &format!("{}{CI_BRANCH}", repository_script())).await;
        let serial = AtomicUsize::new(0);
        Self { anonymous: forge.anonymous(), forge, root, ann, guest, non_member, groups, other_project, serial }
    }

    /// Creates a project with a guest and a deploy key, shared with a group.
    fn add_project(
        &self,
        db: &mut Conn,
        name: &str,
        namespace: (NamespaceId, &str),
        visibility: Visibility,
    ) -> (ProjectId, String) {
        let now = self.forge.forge.now();
        let id = fixtures::project(db, name, namespace.0, self.root.id, visibility, now);
        store::members::upsert(db, MemberSource::Project(id), self.guest.id, Role::Guest, None, now).expect("a guest");
        store::members::insert_share(db, id, self.groups[0], Role::Guest, None, now).expect("a share");
        let key = NewKey { title: name.into(), key: name.into(), fingerprint: name.into() };
        store::deploy_keys::insert(db, id, &key, now).expect("a key");
        (id, format!("{}/{name}", namespace.1))
    }

    fn add_group(
        &self,
        db: &mut Conn,
        path: &str,
        visibility: Visibility,
        members: &[(UserId, Role)],
    ) -> (NamespaceId, String) {
        let now = self.forge.forge.now();
        let id = fixtures::group(db, path, None, visibility, now);
        for (user, role) in members {
            store::members::upsert(db, MemberSource::Group(id), *user, *role, None, now).expect("a member");
        }
        (id, path.to_owned())
    }

    fn join(&self, db: &mut Conn, place: MemberSource, user: &TestClient, role: Role, until: Option<Date>) {
        store::members::upsert(db, place, user.id, role, until, self.forge.forge.now()).expect("a member");
    }

    fn share(&self, db: &mut Conn, project: ProjectId, group: NamespaceId, role: Role, until: Option<Date>) {
        let now = self.forge.forge.now();
        store::members::insert_share(db, project, group, role, until, now).expect("a share");
    }

    /// Creates the targets of all cells, row by row.
    fn create_targets(&self, rows: &[Row], columns: &[Column<'_>]) -> Vec<Target> {
        // Reads change nothing, so these rows share a project.
        let shares = |row: &Row| {
            matches!(
                row.request,
                RequestKind::Repository
                    | RequestKind::Tracker
                    | RequestKind::Hook
                    | RequestKind::Pipeline
                    | RequestKind::Ci
            )
        };
        let reads = |row: &Row| shares(row) && row.method == Method::GET;
        let first = rows.iter().position(reads);
        let created: Vec<CreatedResource> = self.forge.in_transaction(|db| {
            let mut created: Vec<CreatedResource> = Vec::new();
            for (line, row) in rows.iter().enumerate() {
                for (at, column) in columns.iter().enumerate() {
                    if let Some(first) = first.filter(|first| reads(row) && line > *first) {
                        created.push(created[first * columns.len() + at].clone());
                        continue;
                    }
                    // Names are unique within a namespace.
                    let number = self.serial.fetch_add(1, Ordering::SeqCst);
                    created.push((column.make)(db, &format!("p{number}")));
                }
            }
            created
        });
        self.create_repositories(rows, columns.len(), &created);
        let tracker_ids = self.create_tracker_items(rows, columns.len(), &created);
        let clients = columns.iter().map(|column| column.client.id).cycle();
        let target = |((id, path), caller): (CreatedResource, UserId)| Target {
            tracker: tracker_ids.get(&ProjectId::new(id)).copied(),
            ..self.target(id, path, caller)
        };
        let targets: Vec<Target> = created.into_iter().zip(clients).map(target).collect();
        let now = self.forge.forge.now();
        self.forge.in_transaction(|db| {
            let targets = targets.into_iter().enumerate();
            let target = |(at, target): (usize, Target)| {
                let target = with_key(db, target);
                if !rows[at / columns.len()].route.contains("/runners") {
                    return target;
                }
                Target { runner: fixtures::runner(db, &[target.project(), target.other_project], now), ..target }
            };
            targets.map(target).collect()
        })
    }

    /// Creates the repositories for rows that need one.
    fn create_repositories(&self, rows: &[Row], columns: usize, created: &[CreatedResource]) {
        let needs_it =
            |at: usize| matches!(rows[at / columns].request, RequestKind::Repository | RequestKind::Pipeline);
        let projects = created.iter().enumerate().filter(|(at, _)| needs_it(*at));
        let projects: BTreeSet<ProjectId> = projects.map(|(_, created)| ProjectId::new(created.0)).collect();
        self.forge.copy_repository(self.other_project, projects.iter().copied());
        let now = self.forge.forge.now();
        self.forge.in_transaction(|db| {
            for project in projects {
                store::releases::insert(db, project, "light", "d", now).expect("a release");
            }
        });
    }

    /// Creates issues, labels and so on for rows that need them.
    fn create_tracker_items(
        &self,
        rows: &[Row],
        columns: usize,
        created: &[CreatedResource],
    ) -> HashMap<ProjectId, TrackerItems> {
        let needs_it = |at: usize| matches!(rows[at / columns].request, RequestKind::Tracker | RequestKind::Hook);
        let projects = created.iter().enumerate().filter(|(at, _)| needs_it(*at));
        let projects: BTreeSet<ProjectId> = projects.map(|(_, created)| ProjectId::new(created.0)).collect();
        let now = self.forge.forge.now();
        self.forge.in_transaction(|db| {
            projects
                .into_iter()
                .map(|project| (project, fixtures::tracker_items(db, project, self.root.id, now)))
                .collect()
        })
    }

    fn target(&self, id: i64, path: String, caller: UserId) -> Target {
        let (guest, non_member, groups) = (self.guest.id, self.non_member.id, self.groups);
        Target {
            id,
            path,
            caller,
            guest,
            non_member,
            groups,
            other_project: self.other_project,
            key: DeployKeyId::new(0),
            tracker: None,
            hook: None,
            pipeline: PipelineId::new(0),
            jobs: None,
            runner: RunnerId::new(0),
        }
    }

    async fn table(&self, rows: &[Row], columns: &[Column<'_>]) -> String {
        let mut targets = self.create_targets(rows, columns);
        self.create_hooks(rows, &mut targets, columns.len()).await;
        self.create_pipelines(rows, &mut targets, columns.len()).await;
        self.create_project_jobs(rows, &mut targets, columns.len()).await;
        let downloads = self.upload_files(rows, &targets, columns.len()).await;
        let mut cells = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            let row = &rows[index / columns.len()];
            cells.push(cell(row, columns[index % columns.len()].client, target, &downloads[index]).await);
        }
        let headings: Vec<(&str, &str)> =
            columns.iter().map(|column| (column.block, column.heading.as_str())).collect();
        print(rows, &headings, &cells)
    }

    /// Creates hooks with a delivery for rows that need one.
    async fn create_hooks(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<ProjectId, (HookId, DeliveryId)> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].request, RequestKind::Hook) {
                continue;
            }
            if let Entry::Vacant(entry) = known.entry(target.project()) {
                let hook = self.root.make(&format!("/projects/{}/hooks", target.id), json!({ "url": HOOK })).await;
                let hook = HookId::new(hook);
                let now = self.forge.forge.now();
                let delivery = self.forge.in_transaction(|db| fixtures::delivery(db, hook, "{}", now));
                entry.insert((hook, delivery));
            }
            target.hook = Some(known[&target.project()]);
        }
    }

    /// Creates pipelines for rows that need one.
    async fn create_pipelines(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<ProjectId, PipelineId> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].request, RequestKind::Pipeline) {
                continue;
            }
            if let Entry::Vacant(entry) = known.entry(target.project()) {
                entry.insert(self.forge.start_pipeline(target.project(), None, "job: {script: make}").await.id);
            }
            target.pipeline = known[&target.project()];
        }
    }

    /// Creates jobs for rows that need them.
    async fn create_project_jobs(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<ProjectId, Jobs> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].request, RequestKind::Ci) {
                continue;
            }
            if let Entry::Vacant(entry) = known.entry(target.project()) {
                entry.insert(create_jobs(&self.forge, target.project()).await);
            }
            target.jobs = Some(known[&target.project()]);
        }
    }

    /// Uploads the files for rows that download one, and returns their paths.
    async fn upload_files(&self, rows: &[Row], targets: &[Target], columns: usize) -> Vec<String> {
        let mut pages = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            pages.push(match rows[index / columns].request {
                RequestKind::Download => {
                    let sent = send_file(&self.root, &format!("/projects/{}/uploads", target.id)).await.json();
                    format!("/{}{}", target.path, sent["url"].as_str().expect("a URL"))
                }
                _ => String::new(),
            });
        }
        pages
    }
}

/// Sets the id of the deploy key of a target, if it is a project.
fn with_key(db: &mut Conn, target: Target) -> Target {
    let found = store::deploy_keys::by_fingerprint(db, target.name()).expect("asked");
    Target { key: found.map_or(DeployKeyId::new(0), |(key, _)| key.id), ..target }
}

async fn cell(row: &Row, client: &TestClient, target: &Target, page: &str) -> String {
    let user = if row.note == "oneself" { target.caller } else { target.guest };
    let path = row.route.replace("{id}", &target.id.to_string()).replace("{user_id}", &user.to_string());
    let path = path.replace("{group_id}", &target.groups[0].to_string());
    let path = path.replace("{project_id}", &target.other_project.to_string());
    let path = path.replace("{key_id}", &target.key.to_string());
    let path = path.replace("{runner_id}", &target.runner.to_string());
    let answer = match row.request {
        RequestKind::Body(body) => client.json(row.method.clone(), &path, body(target)).await,
        RequestKind::Field(_) => client.get(&path).await,
        RequestKind::Repository => {
            let path = repository_path(&row.method, &path);
            client.json(row.method.clone(), &path, repository_body(&row.method, row.route)).await
        }
        RequestKind::Tracker => {
            let tracker = target.tracker.as_ref().expect("created");
            let body = tracker_body(&row.method, row.route, tracker, target.other_project);
            client.json(row.method.clone(), &tracker_path(&path, tracker), body).await
        }
        RequestKind::Hook => {
            let (hook, delivery) = target.hook.expect("created");
            let path = path.replace("{hook_id}", &hook.to_string()).replace("{delivery_id}", &delivery.to_string());
            client.json(row.method.clone(), &path.replace("{trigger}", TRIGGER), json!({ "url": HOOK })).await
        }
        RequestKind::Pipeline => {
            let path = path.replace("{pipeline_id}", &target.pipeline.to_string());
            client.json(row.method.clone(), &path, repository_body(&row.method, row.route)).await
        }
        RequestKind::Ci => {
            let body = ci_body(&row.method, row.route, target.project());
            client
                .json(
                    row.method.clone(),
                    &ci_path(&path, target.project(), target.jobs.as_ref().expect("created")),
                    body,
                )
                .await
        }
        RequestKind::Upload => send_file(client, &path).await,
        RequestKind::Download => client.page(page).await,
    };
    match row.request {
        RequestKind::Field(field) if answer.code() == 200 => {
            (if answer.json()[field].is_null() { "-" } else { "yes" }).into()
        }
        _ => answer.code().to_string(),
    }
}

/// The width of the row labels.
const LABEL: usize = 74;

fn print(rows: &[Row], headings: &[(&str, &str)], cells: &[String]) -> String {
    let mut table = [format!("{:<LABEL$}", ""), format!("{:<LABEL$}", "")];
    for (index, (block, heading)) in headings.iter().enumerate() {
        let begins = index == 0 || headings[index - 1].0 != *block;
        let gap = if begins && !block.is_empty() { "  " } else { "" };
        let width = heading.len().max(3);
        let block = if begins { block } else { "" };
        // The name of a block may extend over its columns.
        let above = table[1].len() + gap.len() + 1;
        if table[0].len() < above {
            table[0] = format!("{:<above$}", table[0]);
        }
        table[0] += block;
        let _ = write!(table[1], "{gap} {heading:>width$}");
    }
    let mut table = table.map(|line| line.trim_end().to_owned()).join("\n");
    for (number, row) in rows.iter().enumerate() {
        let _ = write!(table, "\n{:<7}{:<54}{:<13}", row.method.as_str(), row.route, row.note);
        for (index, (block, heading)) in headings.iter().enumerate() {
            let begins = index == 0 || headings[index - 1].0 != *block;
            let gap = if begins && !block.is_empty() { "  " } else { "" };
            let (width, cell) = (heading.len().max(3), &cells[number * headings.len() + index]);
            let _ = write!(table, "{gap} {cell:>width$}");
        }
    }
    table
}

/// Every route of a project or a group must be in the tables.
#[test]
fn no_route_is_missing_in_the_tables() {
    let known: Vec<(Method, &str)> =
        project_rows().into_iter().chain(group_rows()).map(|row| (row.method, row.route)).collect();
    for route in api::routes::v3() {
        let names_one = route.path.starts_with("/projects/{id}") || route.path.starts_with("/groups/{id}");
        let is_known = known.iter().any(|(method, path)| *method == route.method && *path == route.path);
        assert!(!names_one || is_known, "{} {}", route.method, route.path);
    }
}

const ROLES: [(&str, Role); 5] = [
    ("guest", Role::Guest),
    ("reporter", Role::Reporter),
    ("developer", Role::Developer),
    ("master", Role::Master),
    ("owner", Role::Owner),
];
const LEVELS: [(&str, Visibility); 3] = [("private", Private), ("internal", Internal), ("public", Public)];

/// Returns every kind of caller, with their role in a group.
async fn all_callers(fixture: &AccessFixture) -> Vec<(&'static str, TestClient, Option<Role>)> {
    let forge = &fixture.forge;
    let mut all_callers = vec![("ano", fixture.anonymous.clone(), None)];
    let blocked = forge.user("blocked").await;
    assert_eq!(fixture.root.put(&format!("/users/{}/block", blocked.id), json!({})).await.code(), 200);
    all_callers.push(("blo", blocked, Some(Role::Owner)));
    all_callers.push(("ext", forge.external("external").await, None));
    all_callers.push(("str", forge.user("stranger").await, None));
    for (name, role) in ROLES {
        all_callers.push((&name[..3], forge.user(name).await, Some(role)));
    }
    all_callers.push(("adm", fixture.root.clone(), None));
    all_callers
}

/// No role in a group may gain access to its projects unintentionally.
#[tokio::test(flavor = "multi_thread")]
async fn access_to_a_project_in_a_group_by_role_and_visibility() {
    let fixture = AccessFixture::start().await;
    let all_callers = all_callers(&fixture).await;
    let members: Vec<(UserId, Role)> =
        all_callers.iter().filter_map(|(_, client, role)| role.map(|role| (client.id, role))).collect();
    let fixture = &fixture;
    let homes: Vec<(NamespaceId, String)> = fixture.forge.in_transaction(|db| {
        LEVELS.iter().map(|(path, level)| fixture.add_group(db, &format!("g-{path}"), *level, &members)).collect()
    });
    let mut columns = Vec::new();
    for ((block, level), (home, path)) in LEVELS.into_iter().zip(&homes) {
        for (heading, client, _) in &all_callers {
            let make = Box::new(move |db: &mut Conn, name: &str| {
                project_resource(fixture.add_project(db, name, (*home, path), level))
            });
            columns.push(Column { block, heading: (*heading).into(), client, make });
        }
    }
    assert_snapshot!("project_in_a_group", fixture.table(&project_rows(), &columns).await);
}

#[tokio::test]
async fn anonymous_visitors_cannot_read_a_private_project() {
    let fixture = AccessFixture::start().await;
    let path = format!("/projects/{}", fixture.other_project);
    assert_eq!(fixture.root.get(&path).await.json()["name"], "spare");
    let answer = fixture.anonymous.get(&path).await;
    assert_eq!((answer.code(), answer.text.as_str()), (401, r#"{"message":"401 Unauthorized"}"#));
}

/// No role in a group may gain access to it unintentionally.
#[tokio::test(flavor = "multi_thread")]
async fn access_to_a_group() {
    let fixture = AccessFixture::start().await;
    let all_callers = all_callers(&fixture).await;
    let mut members: Vec<(UserId, Role)> =
        all_callers.iter().filter_map(|(_, client, role)| role.map(|role| (client.id, role))).collect();
    // The blocked user is not an owner here, so that there is only one owner.
    members[0].1 = Role::Master;
    members.push((fixture.guest.id, Role::Guest));
    let (fixture, members) = (&fixture, &members);
    let mut columns = Vec::new();
    for (block, level) in LEVELS {
        for (heading, client, _) in &all_callers {
            let make =
                Box::new(move |db: &mut Conn, name: &str| group_resource(fixture.add_group(db, name, level, members)));
            columns.push(Column { block, heading: (*heading).into(), client, make });
        }
    }
    // A private group is visible to those who can see a project that is shared with it.
    for (heading, client, _) in all_callers.iter().take(4) {
        let make = Box::new(move |db: &mut Conn, name: &str| {
            let created = fixture.add_group(db, name, Private, members);
            let (project, _) = fixture.add_project(db, &format!("in-{name}"), (fixture.groups[1], "strangers"), Public);
            fixture.share(db, project, created.0, Role::Guest, None);
            group_resource(created)
        });
        columns.push(Column {
            block: "private, and a public project is shared with it",
            heading: (*heading).into(),
            client,
            make,
        });
    }
    // Each transfer needs its own project.
    let mut rows = group_rows();
    let transfer = rows.pop().expect("the last row");
    let mut table = fixture.table(&rows, &columns).await;
    table += &fixture.transfers(&transfer, &columns).await;
    assert_snapshot!("group", table);
}

impl AccessFixture {
    /// Returns the row of the table for transfers of a project.
    async fn transfers(&self, row: &Row, columns: &[Column<'_>]) -> String {
        let rows = std::slice::from_ref(row);
        let mut targets = self.create_targets(rows, columns);
        let now = self.forge.forge.now();
        let spare: Vec<ProjectId> = self.forge.in_transaction(|db| {
            let names = (0..targets.len()).map(|number| format!("spare-{number}"));
            names.map(|name| fixtures::project(db, &name, self.groups[0], self.root.id, Private, now)).collect()
        });
        let mut cells = Vec::new();
        for ((target, spare), column) in targets.iter_mut().zip(spare).zip(columns) {
            target.other_project = spare;
            cells.push(cell(row, column.client, target, "").await);
        }
        let headings: Vec<(&str, &str)> =
            columns.iter().map(|column| (column.block, column.heading.as_str())).collect();
        let line = print(rows, &headings, &cells);
        format!("\n{}", line.lines().last().unwrap_or_default())
    }
}

/// Only the owner of the namespace and members may access a private personal project.
#[tokio::test(flavor = "multi_thread")]
async fn access_to_a_personal_project_by_role_and_visibility() {
    let fixture = AccessFixture::start().await;
    let all_callers = all_callers(&fixture).await;
    let external = fixture.forge.external("outside").await;
    let fixture = &fixture;
    let home = fixture.forge.in_transaction(|db| fixtures::personal_namespace(db, fixture.ann.id));
    let mut callers: Vec<(&str, &TestClient, Option<Role>)> = all_callers
        .iter()
        .filter(|(name, ..)| *name != "own")
        .map(|(name, client, role)| (*name, client, role.map(|role| role.min(Role::Master))))
        .collect();
    callers.insert(8, ("mas/ext", &external, Some(Role::Master)));
    callers.insert(9, ("ann", &fixture.ann, None));
    let mut columns = Vec::new();
    for (block, level) in LEVELS {
        for (heading, client, role) in callers.clone() {
            let make = Box::new(move |db: &mut Conn, name: &str| {
                let created = fixture.add_project(db, name, (home, "ann"), level);
                fixture.join(db, MemberSource::Project(created.0), &fixture.ann, Role::Master, None);
                if let Some(role) = role {
                    fixture.join(db, MemberSource::Project(created.0), client, role, None);
                }
                project_resource(created)
            });
            columns.push(Column { block, heading: heading.into(), client, make });
        }
    }
    assert_snapshot!("personal_project", fixture.table(&project_rows(), &columns).await);
}

/// Access to a private project for members of a group that it is shared with. The heading of a column is the
/// maximum role of the share and the role in the group.
#[tokio::test(flavor = "multi_thread")]
async fn access_to_a_shared_project() {
    let fixture = AccessFixture::start().await;
    let external = fixture.forge.external("outside").await;
    let fixture = &fixture;
    let (home, locked) = fixture.forge.in_transaction(|db| {
        let locked = fixture.add_group(db, "locked", Private, &[]);
        fixtures::lock_sharing(db, locked.0);
        (fixture.add_group(db, "home", Private, &[]), locked)
    });
    let gone = Date::constant(2026, 1, 2);
    let pairs = [
        (Role::Guest, Role::Owner, ""),
        (Role::Reporter, Role::Owner, ""),
        (Role::Developer, Role::Owner, ""),
        (Role::Master, Role::Guest, ""),
        (Role::Master, Role::Developer, ""),
        (Role::Master, Role::Master, ""),
        (Role::Master, Role::Owner, ""),
        (Role::Master, Role::Owner, "external"),
        (Role::Master, Role::Owner, "locked"),
        (Role::Master, Role::Owner, "ended"),
    ];
    let mut columns = Vec::new();
    for (share, role, how) in pairs {
        let client = if how == "external" { &external } else { &fixture.ann };
        let (home, path) = if how == "locked" { &locked } else { &home };
        let make = Box::new(move |db: &mut Conn, name: &str| {
            let created = fixture.add_project(db, name, (*home, path), Private);
            let (crew, _) =
                fixture.add_group(db, &format!("crew-{name}-{}{how}", role.level()), Private, &[(client.id, role)]);
            fixture.share(db, created.0, crew, share, (how == "ended").then_some(gone));
            project_resource(created)
        });
        let heading = format!("{}/{} {how}", share.level(), role.level()).trim_end().to_owned();
        columns.push(Column { block: "", heading, client, make });
    }
    assert_snapshot!("shared_project", fixture.table(&project_rows(), &columns).await);
}

/// An event that ends or limits access to a project.
#[derive(Clone, Copy, PartialEq)]
enum AccessChange {
    Nothing,
    MembershipEnds,
    MembershipExpires,
    GroupMembershipEnds,
    GroupMembershipExpires,
    ShareEnds,
    ShareExpires,
    ProjectTurnsPrivate,
    UserIsBlocked,
    ProjectIsArchived,
    ProjectIsRemoved,
}

/// Why a user has access to a project.
#[derive(Clone, Copy, PartialEq)]
enum AccessPath {
    Membership,
    Group,
    Share,
    Visibility,
}

const TOMORROW: Date = Date::constant(2026, 1, 3);

/// Creates a project for each row, applies a change to each, and returns the cells.
async fn cells_after_change(access_path: AccessPath, change: AccessChange) -> Vec<String> {
    let fixture = AccessFixture::start().await;
    let fixture = &fixture;
    let until = |which: AccessChange| (change == which).then_some(TOMORROW);
    let (home, crew) = fixture.forge.in_transaction(|db| {
        let home =
            fixture.add_group(db, "home", if access_path == AccessPath::Visibility { Public } else { Private }, &[]);
        let crew = fixture.add_group(db, "crew", Private, &[(fixture.ann.id, Role::Owner)]);
        let expires = until(AccessChange::GroupMembershipExpires);
        if access_path == AccessPath::Group {
            fixture.join(db, MemberSource::Group(home.0), &fixture.ann, Role::Owner, expires);
        }
        (home, crew.0)
    });
    let visibility = if access_path == AccessPath::Visibility { Public } else { Private };
    let make = Box::new(|db: &mut Conn, name: &str| {
        let created = fixture.add_project(db, name, (home.0, &home.1), visibility);
        match access_path {
            AccessPath::Membership => {
                let expires = until(AccessChange::MembershipExpires);
                fixture.join(db, MemberSource::Project(created.0), &fixture.ann, Role::Master, expires);
            }
            AccessPath::Share => fixture.share(db, created.0, crew, Role::Master, until(AccessChange::ShareExpires)),
            AccessPath::Group | AccessPath::Visibility => {}
        }
        project_resource(created)
    });
    let columns = [Column { block: "", heading: String::new(), client: &fixture.ann, make }];
    let rows = project_rows();
    let mut targets = fixture.create_targets(&rows, &columns);
    fixture.create_hooks(&rows, &mut targets, 1).await;
    fixture.create_pipelines(&rows, &mut targets, 1).await;
    fixture.create_project_jobs(&rows, &mut targets, 1).await;
    let downloads = fixture.upload_files(&rows, &targets, 1).await;
    fixture.apply_job_event(change, &targets, home.0, crew).await;
    let mut cells = Vec::new();
    for ((row, target), page) in rows.iter().zip(&targets).zip(&downloads) {
        cells.push(cell(row, &fixture.ann, target, page).await);
    }
    cells
}

impl AccessFixture {
    async fn apply_job_event(&self, change: AccessChange, targets: &[Target], home: NamespaceId, crew: NamespaceId) {
        let (root, ann) = (&self.root, self.ann.id);
        match change {
            AccessChange::Nothing => {}
            AccessChange::MembershipExpires | AccessChange::GroupMembershipExpires | AccessChange::ShareExpires => {
                // The start of the day.
                let midnight = model::Time::from_microsecond(model::members::start_of_day(TOMORROW)).expect("a moment");
                self.forge.clock.set(midnight);
            }
            AccessChange::UserIsBlocked => {
                assert_eq!(root.put(&format!("/users/{ann}/block"), json!({})).await.code(), 200);
            }
            AccessChange::GroupMembershipEnds => {
                let owner = json!({ "user_id": root.id.get(), "access_level": 50 });
                assert_eq!(root.post(&format!("/groups/{home}/members"), owner).await.code(), 201);
                assert_eq!(root.delete(&format!("/groups/{home}/members/{ann}")).await.code(), 200);
            }
            _ => {
                let mut seen = BTreeSet::new();
                for target in targets.iter().filter(|target| seen.insert(target.id)) {
                    let project = format!("/projects/{}", target.id);
                    let code = match change {
                        AccessChange::MembershipEnds => root.delete(&format!("{project}/members/{ann}")).await,
                        AccessChange::ShareEnds => root.delete(&format!("{project}/share/{crew}")).await,
                        AccessChange::ProjectTurnsPrivate => {
                            root.put(&project, json!({ "name": target.name(), "visibility_level": 0 })).await
                        }
                        AccessChange::ProjectIsArchived => root.post(&format!("{project}/archive"), json!({})).await,
                        _ => root.delete(&project).await,
                    };
                    assert!(code.status.is_success(), "{code}");
                }
            }
        }
    }
}

/// Access to a project must end immediately with the membership, share or visibility that granted it.
#[tokio::test(flavor = "multi_thread")]
async fn access_to_a_project_after_it_was_revoked() {
    let columns = [
        ("master of it", "before", AccessPath::Membership, AccessChange::Nothing),
        ("master of it", "revoked", AccessPath::Membership, AccessChange::MembershipEnds),
        ("master of it", "expired", AccessPath::Membership, AccessChange::MembershipExpires),
        ("master of it", "blocked", AccessPath::Membership, AccessChange::UserIsBlocked),
        ("master of it", "archived", AccessPath::Membership, AccessChange::ProjectIsArchived),
        ("master of it", "removed", AccessPath::Membership, AccessChange::ProjectIsRemoved),
        ("owner of its group", "before", AccessPath::Group, AccessChange::Nothing),
        ("owner of its group", "revoked", AccessPath::Group, AccessChange::GroupMembershipEnds),
        ("owner of its group", "expired", AccessPath::Group, AccessChange::GroupMembershipExpires),
        ("owner of its group", "archived", AccessPath::Group, AccessChange::ProjectIsArchived),
        ("master by a share", "before", AccessPath::Share, AccessChange::Nothing),
        ("master by a share", "unshared", AccessPath::Share, AccessChange::ShareEnds),
        ("master by a share", "expired", AccessPath::Share, AccessChange::ShareExpires),
        ("stranger", "public", AccessPath::Visibility, AccessChange::Nothing),
        ("stranger", "private", AccessPath::Visibility, AccessChange::ProjectTurnsPrivate),
    ];
    let rows = project_rows();
    let mut cells = vec![String::new(); rows.len() * columns.len()];
    for (at, (_, _, access_path, change)) in columns.iter().enumerate() {
        for (line, cell) in cells_after_change(*access_path, *change).await.into_iter().enumerate() {
            cells[line * columns.len() + at] = cell;
        }
    }
    let headings: Vec<(&str, &str)> = columns.iter().map(|(block, heading, ..)| (*block, *heading)).collect();
    assert_snapshot!("project_afterwards", print(&rows, &headings, &cells));
}
