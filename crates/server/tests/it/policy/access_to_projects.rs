//! Every route that names a project or a group, asked by everybody who can stand to it: the tables of who gets what.
//!
//! Each cell has a project or a group of its own, so that no answer meets what another one changed.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    fmt::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::http::Method;
use insta::assert_snapshot;
use jiff::civil::Date;
use model::{
    Role, Status,
    Visibility::{self, Internal, Private, Public},
    keys::NewKey,
    projects::Seed,
    tokens::Digest,
};
use serde_json::{Value, json};
use store::{Conn, builds::NewBuildState, members::Place};
use testkit::{
    Answer, Client, TestForge,
    repository::SMALL,
    rows::{self, Desk},
};

/// Sends a small file.
pub(crate) async fn send_file(client: &Client, path: &str) -> Answer {
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nmoonshot\r\n--b--\r\n";
    client.body(Method::POST, path, "multipart/form-data; boundary=b", form).await
}

/// What a request is aimed at.
struct Target {
    /// The project or the group.
    id: i64,
    /// Its full path, which ends in its name.
    path: String,
    /// Who is asking.
    me: i64,
    /// A guest of the project or the group.
    guest: i64,
    /// Somebody who belongs to nothing.
    newcomer: i64,
    /// The group that the project is shared with, and one that it is not shared with.
    groups: [i64; 2],
    /// A project that lives elsewhere.
    elsewhere: i64,
    /// The deploy key of the project.
    key: i64,
    /// What lies on its desk, if something does.
    desk: Desk,
    /// Its hook and something that this was sent, if it has one.
    hook: [i64; 2],
    /// Its pipeline, if it has one.
    pipeline: i64,
    /// Its builds, if it has some.
    builds: Builds,
    /// The runner that builds it and another project, if it has one.
    runner: i64,
}

impl Target {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A line of a table: a request with which somebody who may would succeed.
struct Row {
    method: Method,
    route: &'static str,
    /// What tells it from others of the same route.
    note: &'static str,
    ask: Ask,
}

/// How a line is asked, and what its cells show.
enum Ask {
    /// With this body; the status is shown.
    Body(fn(&Target) -> Value),
    /// Whether the answer has this field.
    Field(&'static str),
    /// For or to what is in its repository; the status is shown.
    Repository,
    /// For or to what lies on its desk; the status is shown.
    Desk,
    /// For or to its hook; the status is shown.
    Hook,
    /// For or to its pipeline; the status is shown.
    Pipeline,
    /// For or to its builds, variables and triggers; the status is shown.
    Builds,
    /// With a file.
    Upload,
    /// For a file that was sent before.
    Download,
}

const DOWNLOAD: &str = "{project}/uploads/{secret}/{name}";

fn row(method: Method, route: &'static str, note: &'static str, body: fn(&Target) -> Value) -> Row {
    Row { method, route, note, ask: Ask::Body(body) }
}

fn nothing(_: &Target) -> Value {
    json!({})
}

fn project_rows() -> Vec<Row> {
    use Method as M;
    const MEMBER: &str = "/projects/{id}/members/{user_id}";
    vec![
        row(M::GET, "/projects/{id}", "", nothing),
        Row { method: M::GET, route: "/projects/{id}", note: "runners_token", ask: Ask::Field("runners_token") },
        row(M::POST, "/projects/{id}/star", "", nothing),
        row(M::DELETE, "/projects/{id}/star", "", nothing),
        Row { method: M::POST, route: "/projects/{id}/uploads", note: "", ask: Ask::Upload },
        Row { method: M::GET, route: DOWNLOAD, note: "", ask: Ask::Download },
        row(M::GET, "/projects/{id}/members", "", nothing),
        row(M::GET, MEMBER, "", nothing),
        row(M::POST, "/projects/{id}/members", "", |tx| json!({ "user_id": tx.newcomer, "access_level": 30 })),
        row(M::PUT, MEMBER, "", |_| json!({ "access_level": 40 })),
        row(M::DELETE, MEMBER, "", nothing),
        row(M::DELETE, MEMBER, "oneself", nothing),
        row(M::POST, "/projects/{id}/share", "", |tx| json!({ "group_id": tx.groups[1], "group_access": 20 })),
        row(M::DELETE, "/projects/{id}/share/{group_id}", "", nothing),
        row(M::PUT, "/projects/{id}", "path", |tx| json!({ "name": tx.name(), "path": format!("other-{}", tx.id) })),
        row(M::PUT, "/projects/{id}", "name", |tx| json!({ "name": format!("other-{}", tx.id) })),
        row(M::PUT, "/projects/{id}", "visibility", |tx| json!({ "name": tx.name(), "visibility_level": 0 })),
        row(M::PUT, "/projects/{id}", "public", |tx| json!({ "name": tx.name(), "public": false })),
        row(M::POST, "/projects/{id}/archive", "", nothing),
        row(M::POST, "/projects/{id}/unarchive", "", nothing),
        row(M::DELETE, "/projects/{id}/unarchive", "", nothing),
        row(M::DELETE, "/projects/{id}", "", nothing),
        row(M::GET, "/projects/{id}/events", "", nothing),
        row(M::POST, "/projects/{id}/fork/{project_id}", "", nothing),
        row(M::DELETE, "/projects/{id}/fork", "", nothing),
    ]
    .into_iter()
    .chain(deploy_key_rows())
    .chain(runner_rows())
    .chain(repository_rows())
    .chain(desk_rows())
    .chain(hook_rows())
    .chain(pipeline_rows())
    .chain(build_rows())
    .chain(left_rows())
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
    let key = |tx: &Target| json!({ "title": "fresh", "key": rows::ssh_key(tx.id) });
    routes.into_iter().map(|(method, route)| row(method, route, "", key)).collect()
}

fn runner_rows() -> Vec<Row> {
    use Method as M;
    vec![
        row(M::GET, "/projects/{id}/runners", "", nothing),
        // It builds the project already, which only those hear who may let it.
        row(M::POST, "/projects/{id}/runners", "", |tx| json!({ "runner_id": tx.runner })),
        row(M::DELETE, "/projects/{id}/runners/{runner_id}", "", nothing),
    ]
}

/// What is in the repository that such a project has: branches `master` and `topic`, the tag `v1.0`, and the tag `light`
/// with a release.
pub(crate) fn repository_script() -> String {
    format!("{SMALL}reset refs/heads/topic\nfrom :4\n\n")
}

/// A branch `built` beside all others, of which there is something to build.
pub(crate) const BUILT: &str = "commit refs/heads/built\ncommitter A <a@example.com> 1 +0000\ndata 5\nBuild\n\
                                M 100644 inline .gitlab-ci.yml\ndata 20\njob: {script: make}\n\n";

/// A body with which a route of a repository would succeed.
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

/// The path of a route of a repository with names in it that are there.
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
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", ask: Ask::Repository }).collect()
}

/// A body with which a route of issues and what belongs to them would succeed.
pub(crate) fn desk_body(method: &Method, route: &str, desk: &Desk, elsewhere: i64) -> Value {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    match (method.as_str(), below) {
        ("POST", "labels") => json!({ "name": "fresh", "color": "#abcdef" }),
        ("PUT", "labels") => json!({ "name": "bug", "color": "#abcdef" }),
        ("DELETE", "labels") => json!({ "name": "bug" }),
        ("POST", "boards/{board_id}/lists") => json!({ "label_id": desk.free_label }),
        ("PUT", "boards/{board_id}/lists/{list_id}") => json!({ "position": 1 }),
        ("POST" | "PUT", "issues" | "issues/{issue_id}" | "milestones" | "milestones/{milestone_id}") => {
            json!({ "title": "fresh" })
        }
        ("POST", "issues/{issue_id}/move") => json!({ "to_project_id": elsewhere }),
        ("POST" | "PUT", "issues/{issue_id}/notes" | "issues/{issue_id}/notes/{note_id}") => json!({ "body": "fresh" }),
        _ => json!({}),
    }
}

/// The path of a route of issues and what belongs to them, with numbers in it that are there.
pub(crate) fn desk_path(route: &str, desk: &Desk) -> String {
    let Desk { issue, note, milestone, label, free_label: _, board, list } = desk;
    let path = route.replace("{issue_id}", &issue.to_string()).replace("{note_id}", &note.to_string());
    let path = path.replace("{milestone_id}", &milestone.to_string()).replace("{label_id}", &label.to_string());
    path.replace("{board_id}", &board.to_string()).replace("{list_id}", &list.to_string())
}

/// Whether a route asks for something on the desk of a project.
pub(crate) fn is_about_the_desk(route: &str) -> bool {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    ["labels", "boards", "issues", "milestones"].iter().any(|name| below.starts_with(name))
}

fn desk_rows() -> Vec<Row> {
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
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", ask: Ask::Desk }).collect()
}

/// Where hooks lead, and what they are tried out with.
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
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", ask: Ask::Hook }).collect()
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
    routes.into_iter().map(|(method, route)| Row { method, route, note: "", ask: Ask::Pipeline }).collect()
}

/// The builds of a project, by numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Builds {
    /// One that waits for a runner.
    pub(crate) waiting: i64,
    /// One that failed.
    pub(crate) failed: i64,
    /// One that waits for somebody to start it.
    pub(crate) manual: i64,
}

/// Gives a project builds, the variable `KEY` and a trigger, behind the forge's back.
pub(crate) async fn plant_builds(forge: &TestForge, project: i64) -> Builds {
    let file = "waiting: {script: x}\nfailed: {script: x}\nmanual: {script: x, when: manual}";
    let pipeline = forge.plant_pipeline(project, None, file).await;
    let now = forge.forge.now();
    forge.in_one_go(|db| {
        store::variables::insert(db, project, "KEY", b"sealed elsewhere").expect("a variable");
        let token = Digest::of(&trigger_token(project));
        store::triggers::insert(db, project, &Seed(vec![1]), &token, now).expect("a trigger");
        let builds = store::builds::latest_of(db, pipeline.id).expect("builds");
        let number = |name: &str| builds.iter().find(|build| build.name == name).expect("a build").id;
        let failed = number("failed");
        store::builds::set_status(db, &[failed], Status::Failed, &NewBuildState::default(), now).expect("failed");
        Builds { waiting: number("waiting"), failed, manual: number("manual") }
    })
}

/// A token that is good enough for a trigger.
pub(crate) fn trigger_token(project: i64) -> String {
    format!("trigger-of-{project}")
}

/// Whether a route asks for builds, variables or triggers of a project.
pub(crate) fn is_about_builds(route: &str) -> bool {
    let below = route.strip_prefix("/projects/{id}/").unwrap_or_default();
    ["builds", "variables", "trigger", "ref/"].iter().any(|name| below.starts_with(name))
}

/// A body with which a route of builds, variables and triggers would succeed.
pub(crate) fn builds_body(method: &Method, route: &str, project: i64) -> Value {
    match (method.as_str(), route.strip_prefix("/projects/{id}/").unwrap_or_default()) {
        ("POST", "variables") => json!({ "key": "FRESH", "value": "v" }),
        ("PUT", "variables/{key}") => json!({ "value": "v" }),
        ("GET", path) if path.ends_with("/download") => json!({ "job": "failed" }),
        // Whoever shows the token is let in and hears that there is no such branch.
        ("POST", path) if path.ends_with("trigger/builds") => {
            json!({ "token": trigger_token(project), "ref": "nowhere" })
        }
        _ => json!({}),
    }
}

/// The path of a route of builds, variables and triggers, with what is there.
pub(crate) fn builds_path(route: &str, project: i64, builds: &Builds) -> String {
    let build = match route.rsplit('/').next() {
        Some("retry" | "erase") => builds.failed,
        Some("play") => builds.manual,
        _ => builds.waiting,
    };
    let path = route.replace("{build_id}", &build.to_string()).replace("{key}", "KEY").replace("{ref}", "nowhere");
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
    let row = |(method, route)| Row { method, route, note: note(route), ask: Ask::Builds };
    routes.into_iter().map(row).collect()
}

/// What builds say and leave behind. Of the latter there is none, so whoever may ask hears just that.
fn left_rows() -> Vec<Row> {
    use Method as M;
    let routes = [
        (M::GET, "/projects/{id}/builds/{build_id}/trace"),
        (M::POST, "/projects/{id}/builds/{build_id}/erase"),
        (M::GET, "/projects/{id}/builds/{build_id}/artifacts"),
        (M::POST, "/projects/{id}/builds/{build_id}/artifacts/keep"),
        (M::GET, "/projects/{id}/builds/artifacts/{ref_name}/download"),
    ];
    let note = |route: &str| if route.contains("/artifacts") { "none there" } else { "" };
    let row = |(method, route)| Row { method, route, note: note(route), ask: Ask::Builds };
    routes.into_iter().map(row).collect()
}

fn group_rows() -> Vec<Row> {
    use Method as M;
    const MEMBER: &str = "/groups/{id}/members/{user_id}";
    vec![
        row(M::GET, "/groups/{id}", "", nothing),
        row(M::GET, "/groups/{id}/projects", "", nothing),
        row(M::GET, "/groups/{id}/issues", "", nothing),
        row(M::GET, "/groups/{id}/members", "", nothing),
        row(M::GET, MEMBER, "", nothing),
        row(M::POST, "/projects", "in it", |tx| json!({ "name": "fresh", "namespace_id": tx.id })),
        row(M::PUT, "/groups/{id}", "", |_| json!({ "description": "d" })),
        row(M::PUT, "/groups/{id}", "visibility", |_| json!({ "visibility_level": 0 })),
        row(M::POST, "/groups/{id}/members", "", |tx| json!({ "user_id": tx.newcomer, "access_level": 50 })),
        row(M::PUT, MEMBER, "", |_| json!({ "access_level": 40 })),
        row(M::DELETE, MEMBER, "", nothing),
        row(M::DELETE, MEMBER, "oneself", nothing),
        row(M::DELETE, "/groups/{id}", "", nothing),
        row(M::POST, "/groups/{id}/projects/{project_id}", "", nothing),
    ]
}

/// A column of a table: somebody, and how what they ask for comes about.
struct Column<'a> {
    block: &'static str,
    heading: String,
    client: &'a Client,
    make: Box<Make<'a>>,
}

/// Makes the project or the group of a cell under a name.
type Make<'a> = dyn Fn(&mut Conn, &str) -> Made + Send + Sync + 'a;

/// What was made for a cell: the number and the full path.
type Made = (i64, String);

/// A forge with people in it, and what all tables share.
struct Scene {
    forge: TestForge,
    anonymous: Client,
    root: Client,
    ann: Client,
    guest: Client,
    newcomer: Client,
    groups: [i64; 2],
    elsewhere: i64,
    serial: AtomicUsize,
}

impl Scene {
    async fn start() -> Self {
        let forge = TestForge::start().await;
        let root = forge.admin().await;
        let ann = forge.user("ann").await;
        let (guest, newcomer) = (forge.user("gus").await, forge.user("nia").await);
        let now = forge.forge.now();
        let (groups, elsewhere) = forge.in_one_go(|db| {
            let groups = ["partners", "strangers"].map(|path| rows::group(db, path, None, Public, now));
            (groups, rows::project(db, "spare", groups[0], root.id, Private, now))
        });
        forge.fill(&root, elsewhere, &format!("{}{BUILT}", repository_script())).await;
        let serial = AtomicUsize::new(0);
        Self { anonymous: forge.anonymous(), forge, root, ann, guest, newcomer, groups, elsewhere, serial }
    }

    /// A project with a guest and a deploy key of its name, shared with a group.
    fn add_project(&self, db: &mut Conn, name: &str, place: (i64, &str), visibility: Visibility) -> Made {
        let now = self.forge.forge.now();
        let id = rows::project(db, name, place.0, self.root.id, visibility, now);
        store::members::put(db, Place::Project(id), self.guest.id, Role::Guest, None, now).expect("a guest");
        store::members::insert_share(db, id, self.groups[0], Role::Guest, None, now).expect("a share");
        let key = NewKey { title: name.into(), key: name.into(), fingerprint: name.into() };
        store::deploy_keys::insert(db, id, &key, now).expect("a key");
        (id, format!("{}/{name}", place.1))
    }

    fn add_group(&self, db: &mut Conn, path: &str, visibility: Visibility, members: &[(i64, Role)]) -> Made {
        let now = self.forge.forge.now();
        let id = rows::group(db, path, None, visibility, now);
        for (user, role) in members {
            store::members::put(db, Place::Group(id), *user, *role, None, now).expect("a member");
        }
        (id, path.to_owned())
    }

    fn join(&self, db: &mut Conn, place: Place, user: &Client, role: Role, until: Option<Date>) {
        store::members::put(db, place, user.id, role, until, self.forge.forge.now()).expect("a member");
    }

    fn share(&self, db: &mut Conn, project: i64, group: i64, role: Role, until: Option<Date>) {
        let now = self.forge.forge.now();
        store::members::insert_share(db, project, group, role, until, now).expect("a share");
    }

    /// What each of the lines is aimed at in each of the columns, line by line.
    fn make(&self, rows: &[Row], columns: &[Column<'_>]) -> Vec<Target> {
        // Reading changes nothing, so those lines share what they read.
        let shares =
            |row: &Row| matches!(row.ask, Ask::Repository | Ask::Desk | Ask::Hook | Ask::Pipeline | Ask::Builds);
        let reads = |row: &Row| shares(row) && row.method == Method::GET;
        let first = rows.iter().position(reads);
        let made: Vec<Made> = self.forge.in_one_go(|db| {
            let mut made: Vec<Made> = Vec::new();
            for (line, row) in rows.iter().enumerate() {
                for (at, column) in columns.iter().enumerate() {
                    if let Some(first) = first.filter(|first| reads(row) && line > *first) {
                        made.push(made[first * columns.len() + at].clone());
                        continue;
                    }
                    // Where they live, no two have the same name.
                    let number = self.serial.fetch_add(1, Ordering::SeqCst);
                    made.push((column.make)(db, &format!("p{number}")));
                }
            }
            made
        });
        self.fill(rows, columns.len(), &made);
        let desks = self.furnish(rows, columns.len(), &made);
        let clients = columns.iter().map(|column| column.client.id).cycle();
        let target = |((id, path), me): (Made, i64)| Target {
            desk: desks.get(&id).copied().unwrap_or_default(),
            ..self.target(id, path, me)
        };
        let targets: Vec<Target> = made.into_iter().zip(clients).map(target).collect();
        let now = self.forge.forge.now();
        self.forge.in_one_go(|db| {
            let targets = targets.into_iter().enumerate();
            let target = |(at, target): (usize, Target)| {
                let target = with_key(db, target);
                if !rows[at / columns.len()].route.contains("/runners") {
                    return target;
                }
                Target { runner: rows::runner(db, &[target.id, target.elsewhere], now), ..target }
            };
            targets.map(target).collect()
        })
    }

    /// Gives a repository to what is asked for one.
    fn fill(&self, rows: &[Row], columns: usize, made: &[Made]) {
        let asks = |at: usize| matches!(rows[at / columns].ask, Ask::Repository | Ask::Pipeline);
        let asked = made.iter().enumerate().filter(|(at, _)| asks(*at));
        let asked: BTreeSet<i64> = asked.map(|(_, made)| made.0).collect();
        self.forge.copy_repository(self.elsewhere, asked.iter().copied());
        let now = self.forge.forge.now();
        self.forge.in_one_go(|db| {
            for project in asked {
                store::releases::insert(db, project, "light", "d", now).expect("a release");
            }
        });
    }

    /// Puts something onto the desk of what is asked for it.
    fn furnish(&self, rows: &[Row], columns: usize, made: &[Made]) -> HashMap<i64, Desk> {
        let asks = |at: usize| matches!(rows[at / columns].ask, Ask::Desk | Ask::Hook);
        let asked = made.iter().enumerate().filter(|(at, _)| asks(*at));
        let asked: BTreeSet<i64> = asked.map(|(_, made)| made.0).collect();
        let now = self.forge.forge.now();
        self.forge.in_one_go(|db| {
            asked.into_iter().map(|project| (project, rows::desk(db, project, self.root.id, now))).collect()
        })
    }

    fn target(&self, id: i64, path: String, me: i64) -> Target {
        let (guest, newcomer, groups) = (self.guest.id, self.newcomer.id, self.groups);
        let (elsewhere, desk) = (self.elsewhere, Desk::default());
        Target {
            id,
            path,
            me,
            guest,
            newcomer,
            groups,
            elsewhere,
            key: 0,
            desk,
            hook: [0; 2],
            pipeline: 0,
            builds: Builds::default(),
            runner: 0,
        }
    }

    async fn table(&self, rows: &[Row], columns: &[Column<'_>]) -> String {
        let mut targets = self.make(rows, columns);
        self.hang_up(rows, &mut targets, columns.len()).await;
        self.build(rows, &mut targets, columns.len()).await;
        self.plant(rows, &mut targets, columns.len()).await;
        let downloads = self.send_ahead(rows, &targets, columns.len()).await;
        let mut cells = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            let row = &rows[index / columns.len()];
            cells.push(cell(row, columns[index % columns.len()].client, target, &downloads[index]).await);
        }
        let headings: Vec<(&str, &str)> = columns.iter().map(|tx| (tx.block, tx.heading.as_str())).collect();
        print(rows, &headings, &cells)
    }

    /// Gives a hook that was sent something to what is asked for one.
    async fn hang_up(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<i64, [i64; 2]> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].ask, Ask::Hook) {
                continue;
            }
            if let Entry::Vacant(place) = known.entry(target.id) {
                let hook = self.root.make(&format!("/projects/{}/hooks", target.id), json!({ "url": HOOK })).await;
                let now = self.forge.forge.now();
                let delivery = self.forge.in_one_go(|db| rows::delivery(db, hook, "{}", now));
                place.insert([hook, delivery]);
            }
            target.hook = known[&target.id];
        }
    }

    /// Gives a pipeline to what is asked for one.
    async fn build(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<i64, i64> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].ask, Ask::Pipeline) {
                continue;
            }
            if let Entry::Vacant(place) = known.entry(target.id) {
                place.insert(self.forge.plant_pipeline(target.id, None, "job: {script: make}").await.id);
            }
            target.pipeline = known[&target.id];
        }
    }

    /// Gives builds to what is asked for them.
    async fn plant(&self, rows: &[Row], targets: &mut [Target], columns: usize) {
        let mut known: HashMap<i64, Builds> = HashMap::new();
        for (index, target) in targets.iter_mut().enumerate() {
            if !matches!(rows[index / columns].ask, Ask::Builds) {
                continue;
            }
            if let Entry::Vacant(place) = known.entry(target.id) {
                place.insert(plant_builds(&self.forge, target.id).await);
            }
            target.builds = known[&target.id];
        }
    }

    /// Sends the files that will be asked for, and says where they are.
    async fn send_ahead(&self, rows: &[Row], targets: &[Target], columns: usize) -> Vec<String> {
        let mut pages = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            pages.push(match rows[index / columns].ask {
                Ask::Download => {
                    let sent = send_file(&self.root, &format!("/projects/{}/uploads", target.id)).await.json();
                    format!("/{}{}", target.path, sent["url"].as_str().expect("a URL"))
                }
                _ => String::new(),
            });
        }
        pages
    }
}

/// The same target with the number of its deploy key, if it is a project.
fn with_key(db: &mut Conn, target: Target) -> Target {
    let found = store::deploy_keys::by_fingerprint(db, target.name()).expect("asked");
    Target { key: found.map_or(0, |(key, _)| key.id), ..target }
}

async fn cell(row: &Row, client: &Client, target: &Target, page: &str) -> String {
    let user = if row.note == "oneself" { target.me } else { target.guest };
    let path = row.route.replace("{id}", &target.id.to_string()).replace("{user_id}", &user.to_string());
    let path = path.replace("{group_id}", &target.groups[0].to_string());
    let path = path.replace("{project_id}", &target.elsewhere.to_string());
    let path = path.replace("{key_id}", &target.key.to_string());
    let path = path.replace("{runner_id}", &target.runner.to_string());
    let answer = match row.ask {
        Ask::Body(body) => client.json(row.method.clone(), &path, body(target)).await,
        Ask::Field(_) => client.get(&path).await,
        Ask::Repository => {
            let path = repository_path(&row.method, &path);
            client.json(row.method.clone(), &path, repository_body(&row.method, row.route)).await
        }
        Ask::Desk => {
            let body = desk_body(&row.method, row.route, &target.desk, target.elsewhere);
            client.json(row.method.clone(), &desk_path(&path, &target.desk), body).await
        }
        Ask::Hook => {
            let [hook, delivery] = target.hook.map(|id| id.to_string());
            let path = path.replace("{hook_id}", &hook).replace("{delivery_id}", &delivery);
            client.json(row.method.clone(), &path.replace("{trigger}", TRIGGER), json!({ "url": HOOK })).await
        }
        Ask::Pipeline => {
            let path = path.replace("{pipeline_id}", &target.pipeline.to_string());
            client.json(row.method.clone(), &path, repository_body(&row.method, row.route)).await
        }
        Ask::Builds => {
            let body = builds_body(&row.method, row.route, target.id);
            client.json(row.method.clone(), &builds_path(&path, target.id, &target.builds), body).await
        }
        Ask::Upload => send_file(client, &path).await,
        Ask::Download => client.page(page).await,
    };
    match row.ask {
        Ask::Field(field) if answer.code() == 200 => (if answer.json()[field].is_null() { "-" } else { "yes" }).into(),
        _ => answer.code().to_string(),
    }
}

/// How wide the beginning of a line is.
const LABEL: usize = 74;

fn print(rows: &[Row], headings: &[(&str, &str)], cells: &[String]) -> String {
    let mut table = [format!("{:<LABEL$}", ""), format!("{:<LABEL$}", "")];
    for (index, (block, heading)) in headings.iter().enumerate() {
        let begins = index == 0 || headings[index - 1].0 != *block;
        let gap = if begins && !block.is_empty() { "  " } else { "" };
        let width = heading.len().max(3);
        let block = if begins { block } else { "" };
        // A block's name runs on over its columns.
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

/// A route that names a project or a group stands in the tables.
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

/// Everybody who can stand to a group, with what they are in it.
async fn people(scene: &Scene) -> Vec<(&'static str, Client, Option<Role>)> {
    let forge = &scene.forge;
    let mut people = vec![("ano", scene.anonymous.clone(), None)];
    let blocked = forge.user("blocked").await;
    assert_eq!(scene.root.put(&format!("/users/{}/block", blocked.id), json!({})).await.code(), 200);
    people.push(("blo", blocked, Some(Role::Owner)));
    people.push(("ext", forge.external("external").await, None));
    people.push(("str", forge.user("stranger").await, None));
    for (name, role) in ROLES {
        people.push((&name[..3], forge.user(name).await, Some(role)));
    }
    people.push(("adm", scene.root.clone(), None));
    people
}

/// Lesson 13: what everybody may do to a project in a group, by what they are in the group.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_13_access_to_a_project_in_a_group() {
    let scene = Scene::start().await;
    let people = people(&scene).await;
    let members: Vec<(i64, Role)> = people.iter().filter_map(|(_, tx, role)| role.map(|role| (tx.id, role))).collect();
    let scene = &scene;
    let homes: Vec<Made> = scene.forge.in_one_go(|db| {
        LEVELS.iter().map(|(path, level)| scene.add_group(db, &format!("g-{path}"), *level, &members)).collect()
    });
    let mut columns = Vec::new();
    for ((block, level), (home, path)) in LEVELS.into_iter().zip(&homes) {
        for (heading, client, _) in &people {
            let make = Box::new(move |db: &mut Conn, name: &str| scene.add_project(db, name, (*home, path), level));
            columns.push(Column { block, heading: (*heading).into(), client, make });
        }
    }
    assert_snapshot!("project_in_a_group", scene.table(&project_rows(), &columns).await);
}

/// Lesson 13: what everybody may do to a group.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_13_access_to_a_group() {
    let scene = Scene::start().await;
    let people = people(&scene).await;
    let mut members: Vec<(i64, Role)> =
        people.iter().filter_map(|(_, tx, role)| role.map(|role| (tx.id, role))).collect();
    // Who is blocked is no owner here, so that the owner is the last one.
    members[0].1 = Role::Master;
    members.push((scene.guest.id, Role::Guest));
    let (scene, members) = (&scene, &members);
    let mut columns = Vec::new();
    for (block, level) in LEVELS {
        for (heading, client, _) in &people {
            let make = Box::new(move |db: &mut Conn, name: &str| scene.add_group(db, name, level, members));
            columns.push(Column { block, heading: (*heading).into(), client, make });
        }
    }
    // A private group is no secret to those who see a project that is shared with it.
    for (heading, client, _) in people.iter().take(4) {
        let make = Box::new(move |db: &mut Conn, name: &str| {
            let made = scene.add_group(db, name, Private, members);
            let (project, _) = scene.add_project(db, &format!("in-{name}"), (scene.groups[1], "strangers"), Public);
            scene.share(db, project, made.0, Role::Guest, None);
            made
        });
        columns.push(Column {
            block: "private, and a public project is shared with it",
            heading: (*heading).into(),
            client,
            make,
        });
    }
    // Each transfer needs a project of its own.
    let mut rows = group_rows();
    let transfer = rows.pop().expect("the last line");
    let mut table = scene.table(&rows, &columns).await;
    table += &scene.transfers(&transfer, &columns).await;
    assert_snapshot!("group", table);
}

impl Scene {
    /// The line of the table in which a project moves.
    async fn transfers(&self, row: &Row, columns: &[Column<'_>]) -> String {
        let rows = std::slice::from_ref(row);
        let mut targets = self.make(rows, columns);
        let now = self.forge.forge.now();
        let spare: Vec<i64> = self.forge.in_one_go(|db| {
            let names = (0..targets.len()).map(|number| format!("spare-{number}"));
            names.map(|name| rows::project(db, &name, self.groups[0], self.root.id, Private, now)).collect()
        });
        let mut cells = Vec::new();
        for ((target, spare), column) in targets.iter_mut().zip(spare).zip(columns) {
            target.elsewhere = spare;
            cells.push(cell(row, column.client, target, "").await);
        }
        let headings: Vec<(&str, &str)> = columns.iter().map(|tx| (tx.block, tx.heading.as_str())).collect();
        let line = print(rows, &headings, &cells);
        format!("\n{}", line.lines().last().unwrap_or_default())
    }
}

/// Lesson 13: what members of the project itself may do to it, and the owner of the personal namespace in which it lives.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_13_access_to_a_personal_project() {
    let scene = Scene::start().await;
    let people = people(&scene).await;
    let external = scene.forge.external("outside").await;
    let scene = &scene;
    let home = scene.forge.in_one_go(|db| rows::personal_namespace(db, scene.ann.id));
    let mut callers: Vec<(&str, &Client, Option<Role>)> = people
        .iter()
        .filter(|(name, ..)| *name != "own")
        .map(|(name, client, role)| (*name, client, role.map(|role| role.min(Role::Master))))
        .collect();
    callers.insert(8, ("mas/ext", &external, Some(Role::Master)));
    callers.insert(9, ("ann", &scene.ann, None));
    let mut columns = Vec::new();
    for (block, level) in LEVELS {
        for (heading, client, role) in callers.clone() {
            let make = Box::new(move |db: &mut Conn, name: &str| {
                let made = scene.add_project(db, name, (home, "ann"), level);
                scene.join(db, Place::Project(made.0), &scene.ann, Role::Master, None);
                if let Some(role) = role {
                    scene.join(db, Place::Project(made.0), client, role, None);
                }
                made
            });
            columns.push(Column { block, heading: heading.into(), client, make });
        }
    }
    assert_snapshot!("personal_project", scene.table(&project_rows(), &columns).await);
}

/// Lesson 13: what members of a group may do to a private project that is shared with it. A column is called after the
/// most that the share gives and what the member is in the group.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_13_access_to_a_shared_project() {
    let scene = Scene::start().await;
    let external = scene.forge.external("outside").await;
    let scene = &scene;
    let (home, locked) = scene.forge.in_one_go(|db| {
        let locked = scene.add_group(db, "locked", Private, &[]);
        crate::policy::policy_world::lock(db, locked.0);
        (scene.add_group(db, "home", Private, &[]), locked)
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
        let client = if how == "external" { &external } else { &scene.ann };
        let (home, path) = if how == "locked" { &locked } else { &home };
        let make = Box::new(move |db: &mut Conn, name: &str| {
            let made = scene.add_project(db, name, (*home, path), Private);
            let (crew, _) =
                scene.add_group(db, &format!("crew-{name}-{}{how}", role.level()), Private, &[(client.id, role)]);
            scene.share(db, made.0, crew, share, (how == "ended").then_some(gone));
            made
        });
        let heading = format!("{}/{} {how}", share.level(), role.level()).trim_end().to_owned();
        columns.push(Column { block: "", heading, client, make });
    }
    assert_snapshot!("shared_project", scene.table(&project_rows(), &columns).await);
}

/// What can happen to somebody who could reach a project.
#[derive(Clone, Copy, PartialEq)]
enum Event {
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

/// How somebody reaches a project.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Membership,
    Group,
    Share,
    Sight,
}

const TOMORROW: Date = Date::constant(2026, 1, 3);

/// Makes a project for each line, lets something happen to each of them, and asks.
async fn after(way: Way, event: Event) -> Vec<String> {
    let scene = Scene::start().await;
    let scene = &scene;
    let until = |which: Event| (event == which).then_some(TOMORROW);
    let (home, crew) = scene.forge.in_one_go(|db| {
        let home = scene.add_group(db, "home", if way == Way::Sight { Public } else { Private }, &[]);
        let crew = scene.add_group(db, "crew", Private, &[(scene.ann.id, Role::Owner)]);
        let expires = until(Event::GroupMembershipExpires);
        if way == Way::Group {
            scene.join(db, Place::Group(home.0), &scene.ann, Role::Owner, expires);
        }
        (home, crew.0)
    });
    let visibility = if way == Way::Sight { Public } else { Private };
    let make = Box::new(|db: &mut Conn, name: &str| {
        let made = scene.add_project(db, name, (home.0, &home.1), visibility);
        match way {
            Way::Membership => {
                let expires = until(Event::MembershipExpires);
                scene.join(db, Place::Project(made.0), &scene.ann, Role::Master, expires);
            }
            Way::Share => scene.share(db, made.0, crew, Role::Master, until(Event::ShareExpires)),
            Way::Group | Way::Sight => {}
        }
        made
    });
    let columns = [Column { block: "", heading: String::new(), client: &scene.ann, make }];
    let rows = project_rows();
    let mut targets = scene.make(&rows, &columns);
    scene.hang_up(&rows, &mut targets, 1).await;
    scene.build(&rows, &mut targets, 1).await;
    scene.plant(&rows, &mut targets, 1).await;
    let downloads = scene.send_ahead(&rows, &targets, 1).await;
    scene.let_happen(event, &targets, home.0, crew).await;
    let mut cells = Vec::new();
    for ((row, target), page) in rows.iter().zip(&targets).zip(&downloads) {
        cells.push(cell(row, &scene.ann, target, page).await);
    }
    cells
}

impl Scene {
    async fn let_happen(&self, event: Event, targets: &[Target], home: i64, crew: i64) {
        let (root, ann) = (&self.root, self.ann.id);
        match event {
            Event::Nothing => {}
            Event::MembershipExpires | Event::GroupMembershipExpires | Event::ShareExpires => {
                // To the first moment of the day.
                let midnight = model::Time::from_microsecond(model::members::start_of(TOMORROW)).expect("a moment");
                self.forge.clock.set(midnight);
            }
            Event::UserIsBlocked => {
                assert_eq!(root.put(&format!("/users/{ann}/block"), json!({})).await.code(), 200);
            }
            Event::GroupMembershipEnds => {
                let owner = json!({ "user_id": root.id, "access_level": 50 });
                assert_eq!(root.post(&format!("/groups/{home}/members"), owner).await.code(), 201);
                assert_eq!(root.delete(&format!("/groups/{home}/members/{ann}")).await.code(), 200);
            }
            _ => {
                let mut seen = BTreeSet::new();
                for target in targets.iter().filter(|target| seen.insert(target.id)) {
                    let project = format!("/projects/{}", target.id);
                    let code = match event {
                        Event::MembershipEnds => root.delete(&format!("{project}/members/{ann}")).await,
                        Event::ShareEnds => root.delete(&format!("{project}/share/{crew}")).await,
                        Event::ProjectTurnsPrivate => {
                            root.put(&project, json!({ "name": target.name(), "visibility_level": 0 })).await
                        }
                        Event::ProjectIsArchived => root.post(&format!("{project}/archive"), json!({})).await,
                        _ => root.delete(&project).await,
                    };
                    assert!(code.status.is_success(), "{code}");
                }
            }
        }
    }
}

/// Lesson 19: whoever could reach a project cannot any more, from the moment on in which that ends.
#[tokio::test(flavor = "multi_thread")]
async fn lesson_19_access_to_a_project_after_it_ended() {
    let columns = [
        ("master of it", "before", Way::Membership, Event::Nothing),
        ("master of it", "revoked", Way::Membership, Event::MembershipEnds),
        ("master of it", "expired", Way::Membership, Event::MembershipExpires),
        ("master of it", "blocked", Way::Membership, Event::UserIsBlocked),
        ("master of it", "archived", Way::Membership, Event::ProjectIsArchived),
        ("master of it", "removed", Way::Membership, Event::ProjectIsRemoved),
        ("owner of its group", "before", Way::Group, Event::Nothing),
        ("owner of its group", "revoked", Way::Group, Event::GroupMembershipEnds),
        ("owner of its group", "expired", Way::Group, Event::GroupMembershipExpires),
        ("owner of its group", "archived", Way::Group, Event::ProjectIsArchived),
        ("master by a share", "before", Way::Share, Event::Nothing),
        ("master by a share", "unshared", Way::Share, Event::ShareEnds),
        ("master by a share", "expired", Way::Share, Event::ShareExpires),
        ("stranger", "public", Way::Sight, Event::Nothing),
        ("stranger", "private", Way::Sight, Event::ProjectTurnsPrivate),
    ];
    let rows = project_rows();
    let mut cells = vec![String::new(); rows.len() * columns.len()];
    for (at, (_, _, way, event)) in columns.iter().enumerate() {
        for (line, cell) in after(*way, *event).await.into_iter().enumerate() {
            cells[line * columns.len() + at] = cell;
        }
    }
    let headings: Vec<(&str, &str)> = columns.iter().map(|(block, heading, ..)| (*block, *heading)).collect();
    assert_snapshot!("project_afterwards", print(&rows, &headings, &cells));
}
