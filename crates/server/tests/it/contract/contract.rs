//! Checks the contract line by line: its sections on groups, projects, repositories, labels, boards, hooks and pipelines,
//! and their states.
//!
//! The tables are in `contract.txt`, `repository_contract.txt`, `labels_contract.txt`, `hooks_contract.txt` and
//! `pipelines_contract.txt`. A row is a request and what its line of the contract says about the response:
//! `user METHOD path {body} => status; check; check`. The checks are those of [`check_failure`]. A row that begins with `!` is a
//! statement that changes the database in a way that no request can.

use std::fmt::Write as _;

use api::Dialect;
use axum::http::Method;
use model::{LabelId, ProjectId, labels::NewLabel};
use serde_json::{Value, json};
use testkit::{TestForge, TestResponse};

/// The tested lines of the contract on groups and projects: section and beginning of the line.
const CONTRACT_LINES: &[&str] = &[
    "Group summary: `id` integer, `name` string, `path` string, `description` string.",
    "Group detail: `id`, `name`, `path`, `description`, `visibility_level`",
    "Project: | id | integer |",
    "Project: With `simple=true` on project lists",
    "Namespace: `id` integer, `name`, `path`, `description` strings",
    "Upload result: `alt` string, `url` string",
    "States: | Project not archived | POST /projects/:id/archive |",
    "States: | Project archived | POST /projects/:id/unarchive |",
    "States: | Project not starred by caller | POST /projects/:id/star |",
    "States: | Project starred by caller | POST /projects/:id/star |",
    "States: | Project starred by caller | DELETE /projects/:id/star |",
    "States: | Project not starred by caller | DELETE /projects/:id/star |",
    "Endpoints: Conventions: `:id` of a project endpoint",
    "Groups: | GET | /groups |",
    "Groups: | GET | /groups/owned |",
    "Groups: | GET | /groups/:id/projects |",
    "Groups: | GET | /groups/:id |",
    "Groups: | POST | /groups |",
    "Groups: | POST | /groups/:id/projects/:project_id |",
    "Groups: | PUT | /groups/:id |",
    "Groups: | DELETE | /groups/:id |",
    "Groups: Search: `GET /groups?search=<text>`",
    "Projects: List endpoints share these query parameters",
    "Projects: | GET | /projects |",
    "Projects: | GET | /projects/visible |",
    "Projects: | GET | /projects/owned |",
    "Projects: | GET | /projects/starred |",
    "Projects: | GET | /projects/all |",
    "Projects: | GET | /projects/:id |",
    "Projects: | GET | /projects/:id/events |",
    "Projects: | POST | /projects/:id/star |",
    "Projects: | DELETE | /projects/:id/star |",
    "Projects: | POST | /projects/:id/archive |",
    "Projects: | POST | /projects/:id/unarchive |",
    "Projects: | DELETE | /projects/:id |",
    "Projects: | POST | /projects/fork/:id |",
    "Projects: | POST | /projects/:id/uploads |",
    "Projects: | POST | /projects/:id/share |",
    "Projects: | user_id (path) | integer | - | required | - |",
    "Projects: | id (path) | integer or string | - | - | required |",
    "Projects: | name | string | required | required | required |",
    "Projects: | path | string | optional",
    "Projects: | namespace_id | integer | optional",
    "Projects: | description | string |",
    "Projects: | issues_enabled, merge_requests_enabled, builds_enabled",
    "Projects: | public | boolean (true equals visibility_level 20) |",
    "Projects: | visibility_level | integer 0/10/20 |",
    "Projects: | import_url | string",
    "Projects: | public_builds | boolean",
    "Projects: | only_allow_merge_if_build_succeeds | boolean |",
    "Projects: | only_allow_merge_if_all_discussions_are_resolved | boolean |",
    "Projects: | lfs_enabled | boolean |",
    "Projects: | request_access_enabled | boolean |",
    "Projects: POST /projects creates a project owned by the caller",
    "Authentication: 1. Requests are authenticated by the request header",
    "Authentication: 3. Administrator authorization is required for",
    "Authentication: 4. Group creation is limited to users who can create groups",
    "Authentication: 6. Visibility: a private project is invisible to non-members",
    "Limits: | Page size default for list results",
    "Limits: | Page size maximum |",
    "Limits: | Page selection |",
    "Limits: | Per-user project creation cap |",
];

/// The tested lines on repositories.
const REPOSITORY_LINES: &[&str] = &[
    "Commit (inside branches and tags): `id` string (SHA), `parent_ids`",
    "Branch: `name` string, `commit` (Commit), `protected` boolean",
    "Tag: `name` string, `message` (nullable string",
    "Tree entry: `id` string (object SHA)",
    "Compare result: `commit` and each element of `commits`",
    "Contributor: `name`, `email` strings",
    "States: | Branch unprotected | PUT .../branches/:branch/protect |",
    "States: | Branch protected | PUT .../branches/:branch/unprotect |",
    "States: | Tag without release | POST .../tags/:tag_name/release |",
    "Branches: | GET | /projects/:id/repository/branches |",
    "Branches: | GET | /projects/:id/repository/branches/:branch |",
    "Branches: | PUT | /projects/:id/repository/branches/:branch/protect |",
    "Branches: | PUT | /projects/:id/repository/branches/:branch/unprotect |",
    "Branches: | POST | /projects/:id/repository/branches |",
    "Branches: | DELETE | /projects/:id/repository/branches/:branch |",
    "Branches: | DELETE | /projects/:id/repository/merged_branches |",
    "Tags and releases: | GET | /projects/:id/repository/tags |",
    "Tags and releases: | GET | /projects/:id/repository/tags/:tag_name |",
    "Tags and releases: | POST | /projects/:id/repository/tags |",
    "Tags and releases: | DELETE | /projects/:id/repository/tags/:tag_name |",
    "Tags and releases: | POST | /projects/:id/repository/tags/:tag_name/release |",
    "Tags and releases: | PUT | /projects/:id/repository/tags/:tag_name/release |",
    "Repository content: | GET | /projects/:id/repository/tree |",
    "Repository content: | GET | /projects/:id/repository/blobs/:sha |",
    "Repository content: | GET | /projects/:id/repository/raw_blobs/:sha |",
    "Repository content: | GET | /projects/:id/repository/archive |",
    "Repository content: | GET | /projects/:id/repository/compare |",
    "Repository content: | GET | /projects/:id/repository/contributors |",
];

/// The tested lines on labels and boards.
const LABEL_LINES: &[&str] = &[
    "Label: `id` integer, `name` string, `color` string",
    "Board: `id` integer, `lists` array of Board list.",
    "Board list: `id` integer, `label`",
    "States: | Label not subscribed | POST .../labels/:label_id/subscription |",
    "States: | Label subscribed | POST .../labels/:label_id/subscription |",
    "States: | Label subscribed | DELETE .../labels/:label_id/subscription |",
    "States: | Label not subscribed | DELETE .../labels/:label_id/subscription |",
    "Labels: | GET | /projects/:id/labels |",
    "Labels: | POST | /projects/:id/labels |",
    "Labels: | PUT | /projects/:id/labels |",
    "Labels: | DELETE | /projects/:id/labels |",
    "Labels: | POST | /projects/:id/labels/:label_id/subscription |",
    "Labels: | DELETE | /projects/:id/labels/:label_id/subscription |",
    "Labels: Error responses of the label operations carry an additional error message.",
    "Issue boards: Every board call requires authentication.",
    "Issue boards: | GET | /projects/:id/boards |",
    "Issue boards: | GET | /projects/:id/boards/:board_id/lists |",
    "Issue boards: | GET | /projects/:id/boards/:board_id/lists/:list_id |",
    "Issue boards: | POST | /projects/:id/boards/:board_id/lists |",
    "Issue boards: | PUT | /projects/:id/boards/:board_id/lists/:list_id |",
    "Issue boards: | DELETE | /projects/:id/boards/:board_id/lists/:list_id |",
    "Authentication: 2. Every board call must be authenticated.",
    "Authentication: 4. Group creation is limited to users who can create groups",
    "Errors: | 304 | no change needed",
    "Errors: | 400 | invalid parameters",
    "Errors: | 404 | resource missing or hidden from the caller",
    "Errors: | 409 | label already exists",
    "Limits: | Page size default for list results",
];

/// The tested lines on hooks.
const HOOK_LINES: &[&str] = &[
    "Project hook: `id` integer, `url` string, `project_id` integer",
    "System hook: List and create responses",
    "Project hooks: | GET | /projects/:id/hooks |",
    "Project hooks: | GET | /projects/:id/hooks/:hook_id |",
    "Project hooks: | POST | /projects/:id/hooks |",
    "Project hooks: | PUT | /projects/:id/hooks/:hook_id |",
    "Project hooks: | DELETE | /projects/:id/hooks/:hook_id |",
    "System hooks: All system hook methods require administrator authorization.",
    "System hooks: | GET | /hooks |",
    "System hooks: | POST | /hooks |",
    "System hooks: | GET | /hooks/:id |",
    "System hooks: | DELETE | /hooks/:id |",
    "Hook event switches: Project hooks select the kinds of event that trigger them",
    "Authentication: 3. Administrator authorization is required for",
    "Errors: | 400 | invalid parameters",
    "Errors: | 404 | resource missing or hidden from the caller",
    "Limits: | Page size default for list results",
    "Limits: | Page size maximum |",
];

/// The tested lines on pipelines.
const PIPELINE_LINES: &[&str] = &[
    "Pipeline: `id` integer, `status` string",
    "States: | Pipeline (any failed builds) | POST /projects/:id/pipelines/:pipeline_id/retry |",
    "States: | Pipeline (running builds) | POST /projects/:id/pipelines/:pipeline_id/cancel |",
    "States: | Pipeline | POST /projects/:id/pipeline | ref given |",
    "Pipelines: | GET | /projects/:id/pipelines |",
    "Pipelines: | GET | /projects/:id/pipelines/:pipeline_id |",
    "Pipelines: | POST | /projects/:id/pipeline |",
    "Pipelines: | POST | /projects/:id/pipelines/:pipeline_id/retry |",
    "Pipelines: | POST | /projects/:id/pipelines/:pipeline_id/cancel |",
    "Errors: | 400 | invalid parameters",
    "Errors: | 404 | resource missing or hidden from the caller",
    "Limits: | Page size default for list results",
    "Limits: | Page size maximum |",
];

#[derive(Clone, Copy, Debug)]
enum FieldType {
    Integer,
    Text,
    NullOrText,
    NullOrInteger,
    Boolean,
    List,
    NullOrObject,
    Object,
    Timestamp,
    NullOrTimestamp,
    LocalTimestamp,
}

use FieldType::{
    Boolean, Integer, List, LocalTimestamp, NullOrInteger, NullOrObject, NullOrText, NullOrTimestamp, Object, Text,
    Timestamp,
};

const GROUP_SUMMARY: &[(&str, FieldType)] = &[("id", Integer), ("name", Text), ("path", Text), ("description", Text)];
const GROUP_DETAIL: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("name", Text),
    ("path", Text),
    ("description", Text),
    ("visibility_level", Integer),
    ("avatar_url", NullOrText),
    ("web_url", Text),
    ("request_access_enabled", Boolean),
    ("projects", List),
    ("shared_projects", List),
];
/// The fields of every representation of a project; `default_branch` is null while there is no branch.
const PROJECT: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("description", NullOrText),
    ("default_branch", NullOrText),
    ("tag_list", List),
    ("public", Boolean),
    ("archived", Boolean),
    ("visibility_level", Integer),
    ("ssh_url_to_repo", Text),
    ("http_url_to_repo", Text),
    ("web_url", Text),
    ("name", Text),
    ("name_with_namespace", Text),
    ("path", Text),
    ("path_with_namespace", Text),
    ("issues_enabled", Boolean),
    ("merge_requests_enabled", Boolean),
    ("wiki_enabled", Boolean),
    ("builds_enabled", Boolean),
    ("snippets_enabled", Boolean),
    ("container_registry_enabled", Boolean),
    ("created_at", Timestamp),
    ("last_activity_at", Timestamp),
    ("shared_runners_enabled", Boolean),
    ("public_builds", Boolean),
    ("creator_id", Integer),
    ("namespace", Object),
    ("avatar_url", NullOrText),
    ("star_count", Integer),
    ("forks_count", Integer),
    ("open_issues_count", Integer),
    ("shared_with_groups", List),
    ("only_allow_merge_if_build_succeeds", Boolean),
    ("only_allow_merge_if_all_discussions_are_resolved", Boolean),
    ("request_access_enabled", Boolean),
];
const OWNER: &[(&str, FieldType)] = &[("id", Integer), ("name", Text), ("created_at", Timestamp)];
const ACCESS: &[(&str, FieldType)] = &[("access_level", Integer), ("notification_level", Integer)];
const SHARED_GROUP: &[(&str, FieldType)] =
    &[("group_id", Integer), ("group_name", Text), ("group_access_level", Integer)];
const NAMESPACE: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("name", Text),
    ("path", Text),
    ("description", Text),
    ("owner_id", NullOrInteger),
    ("created_at", Timestamp),
    ("updated_at", Timestamp),
    ("share_with_group_lock", Boolean),
    ("visibility_level", Integer),
];
const SIMPLE: &[&str] =
    &["id", "http_url_to_repo", "web_url", "name", "name_with_namespace", "path", "path_with_namespace"];
const UPLOAD: &[(&str, FieldType)] = &[("alt", Text), ("url", Text), ("markdown", Text)];

const COMMIT: &[(&str, FieldType)] = &[
    ("id", Text),
    ("parent_ids", List),
    ("message", Text),
    ("author_name", Text),
    ("author_email", Text),
    ("committer_name", Text),
    ("committer_email", Text),
    ("authored_date", LocalTimestamp),
    ("committed_date", LocalTimestamp),
];
/// The contract has another name for the parents of a tag's commit; both are sent.
const TAGGED_COMMIT: &[(&str, FieldType)] = &[
    ("id", Text),
    ("parent_ids", List),
    ("parents_ids", List),
    ("message", Text),
    ("author_name", Text),
    ("author_email", Text),
    ("committer_name", Text),
    ("committer_email", Text),
    ("authored_date", LocalTimestamp),
    ("committed_date", LocalTimestamp),
];
const BRANCH: &[(&str, FieldType)] = &[
    ("name", Text),
    ("commit", Object),
    ("protected", Boolean),
    ("developers_can_push", Boolean),
    ("developers_can_merge", Boolean),
];
const TAG: &[(&str, FieldType)] =
    &[("name", Text), ("message", NullOrText), ("commit", Object), ("release", NullOrObject)];
const TREE_ENTRY: &[(&str, FieldType)] =
    &[("id", Text), ("name", Text), ("path", Text), ("type", Text), ("mode", Text)];
const COMPARISON: &[(&str, FieldType)] = &[
    ("commit", NullOrObject),
    ("commits", List),
    ("diffs", List),
    ("compare_timeout", Boolean),
    ("compare_same_ref", Boolean),
];
const COMPARED_COMMIT: &[(&str, FieldType)] = &[
    ("id", Text),
    ("short_id", Text),
    ("title", Text),
    ("author_name", Text),
    ("author_email", Text),
    ("created_at", LocalTimestamp),
];
const DIFF: &[(&str, FieldType)] = &[
    ("old_path", Text),
    ("new_path", Text),
    ("a_mode", NullOrText),
    ("b_mode", Text),
    ("diff", Text),
    ("new_file", Boolean),
    ("renamed_file", Boolean),
    ("deleted_file", Boolean),
];
const CONTRIBUTOR: &[(&str, FieldType)] =
    &[("name", Text), ("email", Text), ("commits", Integer), ("additions", Integer), ("deletions", Integer)];
const EVENT: &[(&str, FieldType)] = &[
    ("title", NullOrText),
    ("project_id", Integer),
    ("action_name", Text),
    ("target_id", NullOrInteger),
    ("target_type", NullOrText),
    ("target_title", NullOrText),
    ("author_id", Integer),
    ("author", Object),
    ("author_username", Text),
    ("created_at", Timestamp),
];
const PUSH: &[(&str, FieldType)] = &[
    ("before", Text),
    ("after", Text),
    ("ref", Text),
    ("user_id", Integer),
    ("user_name", Text),
    ("repository", Object),
    ("commits", List),
    ("total_commits_count", Integer),
];
const REPOSITORY: &[(&str, FieldType)] =
    &[("name", Text), ("url", Text), ("description", NullOrText), ("homepage", Text)];
const PUSHED_COMMIT: &[(&str, FieldType)] =
    &[("id", Text), ("message", Text), ("timestamp", Text), ("url", Text), ("author", Object)];

const LABEL: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("name", Text),
    ("color", Text),
    ("description", NullOrText),
    ("open_issues_count", Integer),
    ("closed_issues_count", Integer),
    ("open_merge_requests_count", Integer),
    ("subscribed", Boolean),
    ("priority", NullOrInteger),
];

const PROJECT_HOOK: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("url", Text),
    ("project_id", Integer),
    ("push_events", Boolean),
    ("issues_events", Boolean),
    ("merge_requests_events", Boolean),
    ("tag_push_events", Boolean),
    ("note_events", Boolean),
    ("build_events", Boolean),
    ("pipeline_events", Boolean),
    ("wiki_page_events", Boolean),
    ("enable_ssl_verification", Boolean),
    ("created_at", Timestamp),
];
const SYSTEM_HOOK: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("url", Text),
    ("created_at", Timestamp),
    ("push_events", Boolean),
    ("tag_push_events", Boolean),
    ("enable_ssl_verification", Boolean),
];
/// The additional fields of a deleted system hook.
const DELETED_SYSTEM_HOOK: &[(&str, FieldType)] = &[
    ("note_events", Boolean),
    ("project_id", NullOrInteger),
    ("updated_at", Timestamp),
    ("issues_events", Boolean),
    ("merge_requests_events", Boolean),
    ("service_id", NullOrInteger),
];
const TEST_PAYLOAD: &[(&str, FieldType)] = &[
    ("project_id", Integer),
    ("owner_email", Text),
    ("owner_name", Text),
    ("name", Text),
    ("path", Text),
    ("event_name", Text),
];

const PIPELINE: &[(&str, FieldType)] = &[
    ("id", Integer),
    ("status", Text),
    ("ref", Text),
    ("sha", Text),
    ("before_sha", Text),
    ("tag", Boolean),
    ("yaml_errors", NullOrText),
    ("user", Object),
    ("created_at", Timestamp),
    ("updated_at", Timestamp),
    ("started_at", NullOrTimestamp),
    ("finished_at", NullOrTimestamp),
    ("committed_at", NullOrTimestamp),
    ("duration", NullOrInteger),
];

/// The shapes of JSON objects by the names that rows use.
const SHAPES: &[(&str, &[(&str, FieldType)])] = &[
    ("group", GROUP_SUMMARY),
    ("group-detail", GROUP_DETAIL),
    ("project", PROJECT),
    ("owner", OWNER),
    ("access", ACCESS),
    ("shared-group", SHARED_GROUP),
    ("namespace", NAMESPACE),
    ("upload", UPLOAD),
    ("event", EVENT),
    ("push", PUSH),
    ("repository", REPOSITORY),
    ("pushed-commit", PUSHED_COMMIT),
    ("pushed-author", &[("name", Text), ("email", Text)]),
    ("runners-token", &[("runners_token", Text)]),
    ("commit", COMMIT),
    ("tagged-commit", TAGGED_COMMIT),
    ("branch", BRANCH),
    ("tag", TAG),
    ("release", &[("tag_name", Text), ("description", Text)]),
    ("tree-entry", TREE_ENTRY),
    ("comparison", COMPARISON),
    ("compared-commit", COMPARED_COMMIT),
    ("diff", DIFF),
    ("contributor", CONTRIBUTOR),
    ("label", LABEL),
    ("board", &[("id", Integer), ("lists", List)]),
    ("board-list", &[("id", Integer), ("label", Object), ("position", Integer)]),
    ("project-hook", PROJECT_HOOK),
    ("system-hook", SYSTEM_HOOK),
    ("pipeline", PIPELINE),
    ("gone-system-hook", DELETED_SYSTEM_HOOK),
    ("test-payload", TEST_PAYLOAD),
    ("list-label", &[("id", Integer), ("name", Text), ("color", Text), ("description", NullOrText)]),
];

/// The lists of projects with their lines of the contract.
const LISTS: &[(&str, &str)] = &[
    ("/projects", "Projects: | GET | /projects |"),
    ("/projects/visible", "Projects: | GET | /projects/visible |"),
    ("/projects/owned", "Projects: | GET | /projects/owned |"),
    ("/projects/starred", "Projects: | GET | /projects/starred |"),
    ("/projects/all", "Projects: | GET | /projects/all |"),
    ("/groups/acme/projects", "Groups: | GET | /groups/:id/projects |"),
];

/// The two requests that create a project for Ann, with a suffix for distinct names.
const PROJECT_ROUTES: [(&str, &str); 2] = [("ann POST /projects", "own"), ("root POST /projects/user/2", "other")];

/// A run of the contract tables in one dialect, with its results.
struct ContractRun {
    dialect: Dialect,
    forge: TestForge,
    clients: [(&'static str, testkit::TestClient); 4],
    table: String,
    errors: String,
    covered: Vec<&'static str>,
}

impl ContractRun {
    async fn start(dialect: Dialect) -> Self {
        let forge = TestForge::builder().dialect(dialect).start().await;
        let clients = [
            ("root", forge.admin().await),
            ("ann", forge.user("ann").await),
            ("bob", forge.user("bob").await),
            ("anonymous", forge.anonymous()),
        ];
        Self { dialect, forge, clients, table: String::new(), errors: String::new(), covered: Vec::new() }
    }

    /// Runs rows; each group of rows follows a heading with its line of the contract.
    async fn run_rows(&mut self, rows: &str) {
        let mut line = "";
        for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
            if let Some(heading) = row.strip_prefix("# ") {
                let known = CONTRACT_LINES
                    .iter()
                    .chain(REPOSITORY_LINES)
                    .chain(LABEL_LINES)
                    .chain(HOOK_LINES)
                    .chain(PIPELINE_LINES)
                    .find(|line| **line == heading);
                line = known.unwrap_or_else(|| panic!("no such line: {heading}"));
                self.covered.push(line);
                continue;
            }
            // A change that no request can make.
            if let Some(statement) = row.strip_prefix("! ") {
                self.forge.execute_sql(statement);
                continue;
            }
            // A row may apply to one dialect only.
            let row = match row.split_once(": ") {
                Some((dialect, row)) if dialect.parse() == Ok(self.dialect) => row,
                Some((dialect, _)) if dialect.parse::<Dialect>().is_ok() => continue,
                _ => row,
            };
            let failures = self.run_row(row).await;
            let verdict = if failures.is_empty() { "ok" } else { "WRONG" };
            let dialect = self.dialect.to_string();
            let _ = writeln!(self.table, "{dialect:<7}{verdict:<6}{line:<60.60}  {row}");
            if !failures.is_empty() {
                let failures = failures.join("\n    ");
                let _ = writeln!(self.errors, "{dialect} {line}\n  {row}\n    {failures}");
            }
        }
    }

    /// Sends the request of a row and returns the failed checks.
    async fn run_row(&self, row: &str) -> Vec<String> {
        // Every request has a distinct timestamp.
        self.forge.clock.advance(jiff::SignedDuration::from_mins(1));
        let (request, expected) = row.split_once(" => ").expect("a request and its response");
        let mut words = request.splitn(4, ' ');
        let (user_name, method, path, body) = (words.next(), words.next(), words.next(), words.next());
        let (_, client) = self.clients.iter().find(|(name, _)| Some(*name) == user_name).expect("a known user");
        let method: Method = method.and_then(|method| method.parse().ok()).expect("a method");
        let path = path.expect("a path");
        let file = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\nx\r\n--b--\r\n";
        let answer = match body {
            Some("FILE") => client.body(method, path, "multipart/form-data; boundary=b", file).await,
            Some(json) => client.body(method, path, "application/json", json.to_owned()).await,
            None => client.body(method, path, "", "").await,
        };
        let mut expected = expected.split("; ");
        let status: u16 = expected.next().and_then(|status| status.parse().ok()).expect("a status");
        let mut failures: Vec<String> = expected.filter_map(|check| check_failure(check, &answer)).collect();
        if answer.code() != status {
            failures.insert(0, format!("{} is not {status}", answer.code()));
        }
        if !failures.is_empty() {
            failures.push(answer.to_string().chars().take(600).collect());
        }
        failures
    }

    /// Inserts a label whose color is not normalized, which the API would do.
    fn insert_label(&self, project: ProjectId, title: &str, color: &str, description: Option<&str>) -> LabelId {
        let new = NewLabel {
            title: title.to_owned(),
            color: color.to_owned(),
            description: description.map(str::to_owned),
            priority: None,
        };
        let now = self.forge.forge.now();
        self.forge.in_transaction(|db| store::labels::insert(db, project, &new, now).expect("a label").id)
    }
}

/// Returns why a check fails, if it does.
///
/// | Check | Holds if |
/// |---|---|
/// | `/pointer value` | the JSON value is at this pointer |
/// | `no /pointer` | nothing is at this pointer |
/// | `is shape /pointer` | every field of the shape is there and has its type |
/// | `only shape /pointer` | the fields there are exactly those of the simple shape |
/// | `join_field field values` | the items of the list have these values, in this order |
/// | `items number` | the list has this number of items |
/// | `header name value` | the header has this value |
/// | `text value` | the whole body is this text |
fn check_failure(check: &str, answer: &TestResponse) -> Option<String> {
    let body: Value = serde_json::from_str(&answer.text).unwrap_or(Value::Null);
    let (word, rest) = check.split_once(' ').unwrap_or((check, ""));
    let (first, last) = rest.split_once(' ').unwrap_or((rest, ""));
    let failure = match word {
        "no" => body.pointer(rest).map(ToString::to_string),
        "is" => {
            let (_, fields) = SHAPES.iter().find(|(name, _)| *name == first).expect("a known shape");
            let object = body.pointer(last).unwrap_or(&Value::Null);
            let is_wrong = |(name, field_type): &&(&str, FieldType)| {
                !object.get(*name).is_some_and(|value| has_type(value, *field_type))
            };
            let errors =
                fields.iter().filter(is_wrong).map(|(name, field_type)| format!("{name} is no {field_type:?}"));
            Some(errors.collect::<Vec<_>>().join(", ")).filter(|errors| !errors.is_empty())
        }
        "only" => {
            let fields = body.pointer(last).and_then(Value::as_object);
            let found: Vec<&str> = fields.into_iter().flat_map(|fields| fields.keys().map(String::as_str)).collect();
            (found != SIMPLE).then(|| found.join(" "))
        }
        "each" if !body.is_array() => Some("not a list".into()),
        "each" => Some(answer.join_field(first)).filter(|found| found != last),
        "items" => {
            let found = body.as_array().map_or(0, Vec::len).to_string();
            Some(found).filter(|found| found != rest)
        }
        "header" => Some(answer.header(first).to_owned()).filter(|found| found != last),
        "text" => Some(answer.text.clone()).filter(|found| found != rest),
        _ => {
            let expected_value: Value = serde_json::from_str(rest).unwrap_or_else(|error| panic!("{check}: {error}"));
            let found = body.pointer(word);
            (found != Some(&expected_value)).then(|| found.map_or_else(|| "nothing".into(), ToString::to_string))
        }
    };
    failure.map(|found| format!("{check}: {found}"))
}

fn has_type(value: &Value, field_type: FieldType) -> bool {
    match field_type {
        Integer => value.is_i64(),
        Text => value.is_string(),
        NullOrText => value.is_null() || value.is_string(),
        NullOrInteger => value.is_null() || value.is_i64(),
        Boolean => value.is_boolean(),
        List => value.is_array(),
        NullOrObject => value.is_null() || value.is_object(),
        Object => value.is_object(),
        // 2015-02-01T21:56:31.000+01:00
        LocalTimestamp => {
            value.as_str().is_some_and(|text| text.len() == 29 && text.parse::<jiff::Timestamp>().is_ok())
        }
        // 2026-01-02T03:04:05.678Z
        Timestamp => value.as_str().is_some_and(|text| text.len() == 24 && text.parse::<jiff::Timestamp>().is_ok()),
        NullOrTimestamp => value.is_null() || has_type(value, Timestamp),
    }
}

/// Checks everything the contract says about groups and projects, in both dialects.
#[tokio::test]
async fn the_contract_holds_line_by_line() {
    let (mut table, mut errors, mut covered) = (String::new(), String::new(), Vec::new());
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let mut run = ContractRun::start(dialect).await;
        for part in include_str!("contract.txt").split("== ").skip(1) {
            let (title, rows) = part.split_once(" ==\n").expect("a title and its rows");
            match title {
                "every list, while all three projects are in it" => run_for_every_list(&mut run, rows).await,
                "both ways to make a project" => {
                    for (make, suffix) in PROJECT_ROUTES {
                        run.run_rows(&rows.replace("MAKE", make).replace("WAY", suffix)).await;
                    }
                }
                "limits, with 101 more groups of Ann" => {
                    add_groups(&run).await;
                    run.run_rows(rows).await;
                }
                _ => run.run_rows(rows).await,
            }
        }
        table += &run.table;
        errors += &run.errors;
        covered.extend(run.covered);
    }
    eprintln!("{table}");
    for line in CONTRACT_LINES.iter().filter(|line| !covered.contains(line)) {
        let _ = writeln!(errors, "no row for: {line}");
    }
    assert!(errors.is_empty(), "\n{errors}");
}

/// Checks everything the contract says about repositories, in both dialects.
#[tokio::test]
async fn the_contract_of_repositories_holds_line_by_line() {
    let (mut table, mut errors, mut covered) = (String::new(), String::new(), Vec::new());
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let mut run = ContractRun::start(dialect).await;
        let (_, ann) = run.clients[1].clone();
        assert_eq!(ann.make("/projects", json!({ "name": "x" })).await, 1);
        run.forge.fast_import(&ann, ProjectId::new(1), &crate::policy::access_to_projects::repository_script()).await;
        for part in include_str!("repository_contract.txt").split("== ").skip(1) {
            let (title, rows) = part.split_once(" ==\n").expect("a title and its rows");
            if title.starts_with("lists") {
                let more = |number: i32| {
                    format!("reset refs/heads/b{number:02}\nfrom :4\n\nreset refs/tags/a{number:02}\nfrom :4\n\n")
                };
                let script: String = (0..25).map(more).collect();
                run.forge
                    .fast_import(
                        &ann,
                        ProjectId::new(1),
                        &format!("{}{script}", crate::policy::access_to_projects::repository_script()),
                    )
                    .await;
            }
            run.run_rows(rows).await;
        }
        table += &run.table;
        errors += &run.errors;
        covered.extend(run.covered);
    }
    eprintln!("{table}");
    for line in REPOSITORY_LINES.iter().filter(|line| !covered.contains(line)) {
        let _ = writeln!(errors, "no row for: {line}");
    }
    assert!(errors.is_empty(), "\n{errors}");
}

/// Checks everything the contract says about labels and boards, in both dialects.
#[tokio::test]
async fn the_contract_of_labels_and_boards_holds_line_by_line() {
    let (mut table, mut errors, mut covered) = (String::new(), String::new(), Vec::new());
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let mut run = ContractRun::start(dialect).await;
        let (_, ann) = run.clients[1].clone();
        for (id, name) in [(1, "x"), (2, "y")] {
            assert_eq!(ann.make("/projects", json!({ "name": name })).await, id);
        }
        for part in include_str!("labels_contract.txt").split("== ").skip(1) {
            let (title, rows) = part.split_once(" ==\n").expect("a title and its rows");
            if title.starts_with("the board of project 2") {
                let labels = [("A", "#aaa", None), ("B", "#bbb", Some("Second")), ("C", "#ccc", None)];
                let ids = labels
                    .map(|(title, color, description)| run.insert_label(ProjectId::new(2), title, color, description));
                assert_eq!(ids, [6, 7, 8].map(LabelId::new));
            }
            if title.starts_with("lists") {
                for number in 0..25 {
                    let label = run.insert_label(ProjectId::new(2), &format!("n{number:02}"), "#fff", None);
                    ann.post("/projects/2/boards/2/lists", json!({ "label_id": label.get() })).await;
                }
            }
            run.run_rows(rows).await;
        }
        table += &run.table;
        errors += &run.errors;
        covered.extend(run.covered);
    }
    eprintln!("{table}");
    for line in LABEL_LINES.iter().filter(|line| !covered.contains(line)) {
        let _ = writeln!(errors, "no row for: {line}");
    }
    assert!(errors.is_empty(), "\n{errors}");
}

/// Checks everything the contract says about hooks, in both dialects.
#[tokio::test]
async fn the_contract_of_hooks_holds_line_by_line() {
    let (mut table, mut errors, mut covered) = (String::new(), String::new(), Vec::new());
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let mut run = ContractRun::start(dialect).await;
        let (_, ann) = run.clients[1].clone();
        for (id, name) in [(1, "x"), (2, "y")] {
            assert_eq!(ann.make("/projects", json!({ "name": name })).await, id);
        }
        for part in include_str!("hooks_contract.txt").split("== ").skip(1) {
            let (title, rows) = part.split_once(" ==\n").expect("a title and its rows");
            if title.starts_with("lists") {
                let (_, root) = run.clients[0].clone();
                for number in 0..25 {
                    let hook = json!({ "url": format!("https://example.org/{number}") });
                    ann.make("/projects/2/hooks", hook.clone()).await;
                    root.make("/hooks", hook).await;
                }
            }
            run.run_rows(rows).await;
        }
        table += &run.table;
        errors += &run.errors;
        covered.extend(run.covered);
    }
    eprintln!("{table}");
    for line in HOOK_LINES.iter().filter(|line| !covered.contains(line)) {
        let _ = writeln!(errors, "no row for: {line}");
    }
    assert!(errors.is_empty(), "\n{errors}");
}

/// Checks everything the contract says about pipelines, in both dialects.
#[tokio::test]
async fn the_contract_of_pipelines_holds_line_by_line() {
    use crate::ci::pipelines::{commit, commit_with_ci_file};
    let (mut table, mut errors, mut covered) = (String::new(), String::new(), Vec::new());
    for dialect in [Dialect::Spec, Dialect::Gitlab] {
        let mut run = ContractRun::start(dialect).await;
        let (_, ann) = run.clients[1].clone();
        for (id, name) in [(1, "x"), (2, "y")] {
            assert_eq!(ann.make("/projects", json!({ "name": name })).await, id);
        }
        let stages = "stages: [a, b]\none: {stage: a, script: make}\ntwo: {stage: b, script: make}\n";
        let script = commit("refs/heads/master", "First", &[("a", "b")])
            + &commit_with_ci_file("refs/heads/good", stages)
            + &commit_with_ci_file("refs/heads/wrong", "job: {}")
            + &commit_with_ci_file("refs/heads/tagged", "job: {script: make, only: [tags]}")
            + "blob\nmark :9\ndata 1\nx\ntag blob\nfrom :9\ntagger A <a@example.com> 1 +0000\ndata 1\nx\n";
        run.forge.fast_import(&ann, ProjectId::new(1), &script).await;
        for part in include_str!("pipelines_contract.txt").split("== ").skip(1) {
            let (title, rows) = part.split_once(" ==\n").expect("a title and its rows");
            if title.starts_with("lists") {
                for _ in 0..110 {
                    run.forge.start_pipeline(ProjectId::new(2), Some(ann.id), "job: {script: make}").await;
                }
            }
            run.run_rows(rows).await;
        }
        table += &run.table;
        errors += &run.errors;
        covered.extend(run.covered);
    }
    eprintln!("{table}");
    for line in PIPELINE_LINES.iter().filter(|line| !covered.contains(line)) {
        let _ = writeln!(errors, "no row for: {line}");
    }
    assert!(errors.is_empty(), "\n{errors}");
}

/// Runs the same rows for every list of projects. One list requires an administrator, so Ann is one temporarily.
async fn run_for_every_list(run: &mut ContractRun, rows: &str) {
    let (_, ann) = run.clients[1].clone();
    run.forge.set_admin(&ann, true);
    // Six orders of three projects, all different.
    let times = [("created_at", [3, 1, 2]), ("updated_at", [3, 2, 1]), ("last_activity_at", [1, 3, 2])];
    for (column, hours) in times {
        for (id, hour) in (1..).zip(hours) {
            let timestamp = 1_770_000_000_000_000_i64 + hour * 3_600_000_000;
            run.forge.execute_sql(&format!("UPDATE projects SET {column} = {timestamp} WHERE id = {id}"));
        }
    }
    for (list, line) in LISTS {
        run.run_rows(&rows.replace("LINE", line).replace("LIST", list)).await;
    }
    run.forge.set_admin(&ann, false);
}

async fn add_groups(run: &ContractRun) {
    let (_, ann) = &run.clients[1];
    for number in 0..101 {
        ann.make("/groups", json!({ "name": format!("g{number:03}"), "path": format!("g{number:03}") })).await;
    }
}
