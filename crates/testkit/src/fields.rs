//! Holds payloads of hooks against the tables of `fields.txt`, which were written by hand and not by the code that
//! writes the payloads.

use jiff::{Timestamp, civil::Date};
use serde_json::{Map, Value};

const TABLES: &str = include_str!("fields.txt");

/// Looks at a payload that came with this `X-Gitlab-Event`, and panics with a list of all that is wrong with it.
pub fn check(header: &str, payload: &Value) {
    let faults = faults(header, payload, Times::Original);
    assert!(faults.is_empty(), "{header}:\n{}\n{payload:#}", faults.join("\n"));
}

/// The same for a service that is set to write moments as ISO 8601.
pub fn check_iso8601(header: &str, payload: &Value) {
    let faults = faults(header, payload, Times::Iso8601);
    assert!(faults.is_empty(), "{header}:\n{}\n{payload:#}", faults.join("\n"));
}

/// How moments are written, where there is a choice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Original,
    Iso8601,
}

/// All that is wrong with a payload.
fn faults(header: &str, payload: &Value, times: Times) -> Vec<String> {
    let mut inspector = Inspector { times, faults: Vec::new() };
    match table_of(header, payload) {
        Some(table) => {
            inspector.table("", table, payload);
            inspector.relations(header, payload);
        }
        None => inspector.faults.push(format!(
            "there is no such payload: object_kind {}, event_name {}",
            payload["object_kind"], payload["event_name"]
        )),
    }
    inspector.faults
}

/// Which table holds for a payload.
fn table_of<'a>(header: &str, payload: &'a Value) -> Option<&'a str> {
    let kind = payload["object_kind"].as_str();
    let expected = match header {
        "Push Hook" => "push",
        "Tag Push Hook" => "tag_push",
        "Issue Hook" | "Confidential Issue Hook" => "issue",
        "Note Hook" => "note",
        "Merge Request Hook" => "merge_request",
        "Build Hook" => "build",
        "Pipeline Hook" => "pipeline",
        "Wiki Page Hook" => "wiki_page",
        "System Hook" => {
            return match (kind, payload["event_name"].as_str()) {
                (Some("push"), _) => Some("system_push"),
                (Some("tag_push"), _) => Some("system_tag_push"),
                (None, Some("project_create")) if payload["created_at"].is_null() => Some("test"),
                (None, Some(name)) => rows(name)?.iter().any(|row| row.starts_with("event_name ")).then_some(name),
                _ => None,
            };
        }
        _ => return None,
    };
    kind.filter(|kind| *kind == expected)
}

/// The rows of a table.
fn rows(name: &str) -> Option<Vec<&'static str>> {
    let mut lines = TABLES.lines();
    lines.find(|line| {
        let names = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        names.is_some_and(|names| names.split(' ').any(|one| one == name))
    })?;
    Some(lines.take_while(|line| !line.is_empty()).collect())
}

struct Inspector {
    times: Times,
    faults: Vec<String>,
}

impl Inspector {
    fn unless(&mut self, fine: bool, path: &str, fault: impl std::fmt::Display) {
        if !fine {
            self.faults.push(format!("{path} {fault}"));
        }
    }

    /// Holds an object against a table.
    fn table(&mut self, path: &str, name: &str, value: &Value) {
        let rows = rows(name).unwrap_or_else(|| panic!("there is no table {name}"));
        let Some(object) = value.as_object() else {
            self.faults.push(format!("{path} is no object: {value}"));
            return;
        };
        let mut known = Vec::new();
        for row in rows {
            let (field, kind) = row.split_once(' ').unwrap_or_else(|| panic!("{name}: {row}"));
            let (field, optional) = field.strip_suffix('?').map_or((field, false), |field| (field, true));
            known.push(field);
            let path = format!("{path}.{field}");
            match object.get(field) {
                Some(value) => self.field(&path, kind.trim(), value),
                None => self.unless(optional, &path, "is missing"),
            }
        }
        for field in object.keys().filter(|field| !known.contains(&field.as_str())) {
            self.faults.push(format!("{path}.{field} is unknown"));
        }
    }

    /// Holds a value against what a row says.
    fn field(&mut self, path: &str, kind: &str, value: &Value) {
        let kind = match kind.strip_suffix(" or null") {
            Some(_) if value.is_null() => return,
            Some(kind) => kind,
            None => kind,
        };
        if let Some(words) = kind.strip_prefix("word ") {
            let fine = value.as_str().is_some_and(|text| words.split(' ').any(|word| word == text));
            self.unless(fine, path, format_args!("is none of [{words}]: {value}"));
        } else if let Some(kind) = kind.strip_prefix("list ") {
            let Some(values) = value.as_array() else {
                self.faults.push(format!("{path} is no list: {value}"));
                return;
            };
            for (number, value) in values.iter().enumerate() {
                self.field(&format!("{path}[{number}]"), kind, value);
            }
        } else if rows(kind).is_some() {
            self.table(path, kind, value);
        } else {
            let fine = is_of(kind, value, self.times).unwrap_or_else(|| panic!("{path}: what is {kind}?"));
            self.unless(fine, path, format_args!("is no {kind}: {value}"));
        }
    }

    /// What one field says about another one.
    fn relations(&mut self, header: &str, payload: &Value) {
        for (path, project) in [
            ("project", &payload["project"]),
            ("object_attributes.source", &payload["object_attributes"]["source"]),
            ("object_attributes.target", &payload["object_attributes"]["target"]),
        ] {
            self.project(path, project);
        }
        let repository = &payload["repository"];
        if let (Some(repository), Some(project)) = (repository.as_object(), payload["project"].as_object()) {
            self.repository(repository, project);
        }
        match (header, payload["object_kind"].as_str().unwrap_or_default()) {
            (_, "push" | "tag_push") => self.push(header, payload),
            (_, "issue") => self.issue(header, payload),
            (_, "note") => self.note(payload),
            (_, "merge_request") => self.merge_request(payload),
            (_, "build") => self.build(payload),
            (_, "pipeline") => self.pipeline(payload),
            (_, "wiki_page") => self.wiki_page(payload),
            ("System Hook", _) => self.system(payload),
            _ => {}
        }
    }

    /// Old names say the same as new ones.
    fn project(&mut self, path: &str, project: &Value) {
        let Some(object) = project.as_object() else { return };
        let same = |this: &mut Self, old: &str, new: &str| {
            let fine = object.get(old).is_none_or(|value| Some(value) == object.get(new));
            this.unless(fine, path, format_args!("says in {old} something else than in {new}"));
        };
        same(self, "homepage", "web_url");
        same(self, "url", "git_ssh_url");
        same(self, "ssh_url", "git_ssh_url");
        same(self, "http_url", "git_http_url");
        let full_path = project["path_with_namespace"].as_str().unwrap_or_default();
        let ends = |field: &str, end: &str| {
            project[field].as_str().is_some_and(|url| url.ends_with(&format!("/{full_path}{end}")))
        };
        self.unless(ends("web_url", ""), path, "has a web_url that leads elsewhere");
        self.unless(ends("git_http_url", ".git"), path, "has a git_http_url that leads elsewhere");
        let ssh = project["git_ssh_url"].as_str().unwrap_or_default();
        let fine = ssh.strip_suffix(&format!("{full_path}.git")).is_some_and(|host| host.ends_with([':', '/']));
        self.unless(fine, path, "has a git_ssh_url that leads elsewhere");
    }

    fn repository(&mut self, repository: &Map<String, Value>, project: &Map<String, Value>) {
        for (field, other) in [
            ("name", "name"),
            ("url", "git_ssh_url"),
            ("description", "description"),
            ("homepage", "web_url"),
            ("git_http_url", "git_http_url"),
            ("git_ssh_url", "git_ssh_url"),
            ("visibility_level", "visibility_level"),
        ] {
            let fine = repository.get(field).is_none_or(|value| Some(value) == project.get(other));
            self.unless(fine, "repository", format_args!("says in {field} something else than project in {other}"));
        }
    }

    fn push(&mut self, header: &str, payload: &Value) {
        let (before, after) = (&payload["before"], &payload["after"]);
        let gone = is_zero(after);
        let commits = payload["commits"].as_array().map_or(&[][..], Vec::as_slice);
        let total = payload["total_commits_count"].as_u64().unwrap_or_default();
        let shown = u64::try_from(commits.len()).unwrap_or(u64::MAX);
        self.unless(!(is_zero(before) && gone), "before and after", "are both zero");
        let is_tag = payload["object_kind"] == "tag_push";
        let has_none = payload["checkout_sha"].is_null();
        // A tag may lead to something that is no commit; hooks of the instance are told of none in any case.
        let may_have_none = gone || is_tag && shown == 0;
        self.unless(
            has_none == gone || has_none && may_have_none,
            "checkout_sha",
            "is null if there is no commit, else not",
        );
        self.unless(shown <= 20, "commits", "are more than 20");
        self.unless(!gone || total == 0, "total_commits_count", "is not 0, but the ref is gone");
        self.unless(header != "System Hook" || total == 0, "total_commits_count", "is told to a hook of the instance");
        if let Some(newest) = commits.last() {
            let head = &payload["checkout_sha"];
            self.unless(newest["id"] == *head, "commits", "do not end with checkout_sha");
        }
        let fine = shown == total.min(20) || is_tag && shown == 0;
        self.unless(fine, "commits", "are not as many as total_commits_count says");
        self.unless(!is_tag || total <= 1, "total_commits_count", "is more than 1 for a tag");
        self.unless(is_tag || gone || payload["checkout_sha"] == *after, "checkout_sha", "is not after");
        for commit in commits {
            self.commit_url("commits", commit, &payload["project"]);
        }
    }

    fn commit_url(&mut self, path: &str, commit: &Value, project: &Value) {
        let (id, root) = (commit["id"].as_str().unwrap_or_default(), project["web_url"].as_str().unwrap_or_default());
        self.unless(commit["url"] == format!("{root}/commit/{id}"), path, "has a url that leads elsewhere");
    }

    fn issue(&mut self, header: &str, payload: &Value) {
        let issue = &payload["object_attributes"];
        let secret = issue["confidential"] == true;
        self.unless(secret == (header == "Confidential Issue Hook"), "confidential", "does not fit the header");
        self.assignee("assignee", issue, payload);
        self.page("issues", issue, payload);
    }

    /// Somebody who is named by number is shown, too.
    fn assignee(&mut self, path: &str, named: &Value, shown: &Value) {
        let fine = named["assignee_id"].is_null() == shown.get("assignee").is_none();
        self.unless(fine, path, "is there if and only if there is an assignee_id");
    }

    /// The URL of what a payload is about.
    fn page(&mut self, folder: &str, thing: &Value, payload: &Value) {
        let root = payload["project"]["web_url"].as_str().unwrap_or_default();
        let expected = format!("{root}/{folder}/{}", thing["iid"]);
        self.unless(thing["url"] == expected, "object_attributes.url", format_args!("is not {expected}"));
    }

    fn note(&mut self, payload: &Value) {
        let note = &payload["object_attributes"];
        let root = payload["project"]["web_url"].as_str().unwrap_or_default();
        let (key, page) = match note["noteable_type"].as_str().unwrap_or_default() {
            "Commit" => ("commit", format!("commit/{}", payload["commit"]["id"].as_str().unwrap_or_default())),
            "MergeRequest" => ("merge_request", format!("merge_requests/{}", payload["merge_request"]["iid"])),
            "Issue" => ("issue", format!("issues/{}", payload["issue"]["iid"])),
            _ => ("snippet", format!("snippets/{}", payload["snippet"]["id"])),
        };
        for other in ["commit", "merge_request", "issue", "snippet"] {
            let fine = payload.get(other).is_some() == (other == key);
            self.unless(fine, other, "is there if and only if the note is about it");
        }
        let expected = format!("{root}/{page}#note_{}", note["id"]);
        self.unless(note["url"] == expected, "object_attributes.url", format_args!("is not {expected}"));
        let (commit, number) = if key == "commit" {
            (&payload["commit"]["id"], &Value::Null)
        } else {
            (&Value::Null, &payload[key]["id"])
        };
        self.unless(note["commit_id"] == *commit, "object_attributes.commit_id", "is not that of the commit");
        self.unless(note["noteable_id"] == *number, "object_attributes.noteable_id", "is not that of the target");
        self.unless(note["system"] == false, "object_attributes.system", "is not false");
        self.unless(note["project_id"] == payload["project_id"], "project_id", "is not the same everywhere");
        let fine = note["line_code"].is_null() == note["type"].is_null();
        self.unless(fine, "object_attributes.type", "is there if and only if there is a line_code");
        if key == "commit" {
            self.commit_url("commit", &payload["commit"], &payload["project"]);
        }
        if key == "merge_request" {
            self.assignee("merge_request.assignee", &payload[key], &payload[key]);
        }
    }

    fn merge_request(&mut self, payload: &Value) {
        let asked = &payload["object_attributes"];
        self.assignee("assignee", asked, payload);
        self.assignee("object_attributes.assignee", asked, asked);
        self.unless(asked.get("assignee") == payload.get("assignee"), "assignee", "is not the same in both places");
        self.unless(asked["target"] == payload["project"], "object_attributes.target", "is not the project");
        let update = asked["action"] == "update";
        self.unless(update || asked.get("oldrev").is_none(), "object_attributes.oldrev", "is told without a push");
        self.page("merge_requests", asked, payload);
    }

    fn build(&mut self, payload: &Value) {
        let user = &payload["user"];
        let known = ["id", "name", "email"].map(|field| !user[field].is_null());
        self.unless(known[0] == known[1] && known[1] == known[2], "user", "is only half there");
        self.unless(payload["commit"]["sha"] == payload["sha"], "commit.sha", "is not sha");
        let fine = payload["project_name"].as_str().is_some_and(|name| name.contains(" / "));
        self.unless(fine, "project_name", "does not name the namespace");
    }

    fn pipeline(&mut self, payload: &Value) {
        for build in payload["builds"].as_array().into_iter().flatten() {
            let manual = build["when"] == "manual";
            self.unless(build["manual"] == manual, "builds.manual", "does not fit when");
            let left = &build["artifacts_file"];
            let fine = left["filename"].is_null() == left["size"].is_null();
            self.unless(fine, "builds.artifacts_file", "is only half there");
        }
        if let Some(commit) = payload.get("commit").filter(|commit| !commit.is_null()) {
            self.unless(commit["id"] == payload["object_attributes"]["sha"], "commit.id", "is not sha");
            self.commit_url("commit", commit, &payload["project"]);
        }
    }

    fn wiki_page(&mut self, payload: &Value) {
        let page = &payload["object_attributes"];
        let told = page["action"] == "create" || page.get("message").is_none();
        self.unless(told, "object_attributes.message", "is told of a page that is not new");
        let (root, path) = (&payload["project"]["web_url"], &payload["project"]["path_with_namespace"]);
        let (root, path) = (root.as_str().unwrap_or_default(), path.as_str().unwrap_or_default());
        let slug = page["slug"].as_str().unwrap_or_default();
        self.unless(page["url"] == format!("{root}/wikis/{slug}"), "object_attributes.url", "leads elsewhere");
        let wiki = &payload["wiki"];
        self.unless(wiki["web_url"] == format!("{root}/wikis/home"), "wiki.web_url", "leads elsewhere");
        self.unless(wiki["git_http_url"] == format!("{root}.wiki.git"), "wiki.git_http_url", "leads elsewhere");
        let fine = wiki["git_ssh_url"].as_str().is_some_and(|url| url.ends_with(&format!("{path}.wiki.git")));
        self.unless(fine, "wiki.git_ssh_url", "leads elsewhere");
        let fine = wiki["path_with_namespace"] == format!("{path}.wiki");
        self.unless(fine, "wiki.path_with_namespace", "leads elsewhere");
    }

    fn system(&mut self, payload: &Value) {
        let fine = payload.get("project_access") == payload.get("access_level");
        self.unless(fine, "project_access", "is not access_level");
        for (name, full) in [("path", "path_with_namespace"), ("project_path", "project_path_with_namespace")] {
            if let Some(full) = payload.get(full).and_then(Value::as_str) {
                let path = payload[name].as_str().unwrap_or_default();
                self.unless(full.ends_with(&format!("/{path}")), name, "is not the end of the full path");
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.bytes().all(|byte| byte == b'0'))
}

fn is_oid(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a value is of a plain kind; `None` if there is no such kind.
fn is_of(kind: &str, value: &Value, times: Times) -> Option<bool> {
    let text = value.as_str();
    let holds = |fine: fn(&str) -> bool| text.is_some_and(fine);
    Some(match kind {
        "text" => text.is_some(),
        "empty" => text == Some(""),
        "number" => value.is_i64(),
        "float" => value.is_number(),
        "flag" => value.is_boolean(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "level" => value.as_i64().is_some_and(|level| [0, 10, 20].contains(&level)),
        "sha" => holds(is_oid) && !is_zero(value),
        "rev" => holds(is_oid),
        "url" => holds(|text| text.starts_with("http://") || text.starts_with("https://")),
        "ssh" => holds(|text| (text.starts_with("git@") || text.starts_with("ssh://git@")) && text.ends_with(".git")),
        "branch" => holds(|text| text.strip_prefix("refs/heads/").is_some_and(|name| !name.is_empty())),
        "tag" => holds(|text| text.strip_prefix("refs/tags/").is_some_and(|name| !name.is_empty())),
        "time" if times == Times::Original => holds(is_original_time),
        "time" | "stamp" => holds(is_stamp),
        "offset" => holds(is_offset),
        "day" => holds(is_day),
        "code" => holds(is_code),
        _ => return None,
    })
}

/// Whether a text is made like an example, in which every 9 stands for some digit and all else for itself.
fn is_like(text: &str, example: &str) -> bool {
    text.len() == example.len()
        && text.bytes().zip(example.bytes()).all(|(byte, like)| match like {
            b'9' => byte.is_ascii_digit(),
            like => byte == like,
        })
}

fn is_original_time(text: &str) -> bool {
    is_like(text, "9999-99-99 99:99:99 UTC") && text.replace(" UTC", "Z").parse::<Timestamp>().is_ok()
}

fn is_stamp(text: &str) -> bool {
    is_like(text, "9999-99-99T99:99:99Z") && text.parse::<Timestamp>().is_ok()
}

fn is_offset(text: &str) -> bool {
    let signed = ["9999-99-99T99:99:99+99:99", "9999-99-99T99:99:99-99:99"];
    signed.iter().any(|example| is_like(text, example)) && text.parse::<Timestamp>().is_ok()
}

fn is_day(text: &str) -> bool {
    is_like(text, "9999-99-99") && text.parse::<Date>().is_ok()
}

fn is_code(text: &str) -> bool {
    let parts: Vec<&str> = text.split('_').collect();
    let is_line = |text: &str| text.parse::<u64>().is_ok();
    matches!(parts[..], [path, before, after] if is_oid(path) && is_line(before) && is_line(after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_is_wrong_is_listed() {
        let payload = json!({
            "event_name": "user_create",
            "created_at": "2016-11-22 10:15:30 UTC",
            "updated_at": "2016-13-22T10:15:30Z",
            "name": 7,
            "email": null,
            "user_id": "9",
            "extra": 1,
        });
        assert_eq!(
            faults("System Hook", &payload, Times::Original),
            [
                r#".created_at is no stamp: "2016-11-22 10:15:30 UTC""#,
                r#".updated_at is no stamp: "2016-13-22T10:15:30Z""#,
                ".name is no text: 7",
                ".email is no text: null",
                r#".user_id is no number: "9""#,
                ".username is missing",
                ".extra is unknown",
            ]
        );
    }

    #[test]
    fn fields_that_contradict_each_other_are_listed() {
        let payload = json!({
            "event_name": "user_add_to_team",
            "created_at": "2016-11-22T10:15:30Z",
            "updated_at": "2016-11-22T10:15:30Z",
            "project_name": "Kiln",
            "project_path": "kiln",
            "project_path_with_namespace": "pots/oven",
            "project_id": 3,
            "user_username": "bo",
            "user_name": "Bo Lin",
            "user_email": "bo@example.com",
            "user_id": 9,
            "access_level": "Developer",
            "project_access": "Master",
            "project_visibility": "private",
        });
        assert_eq!(
            faults("System Hook", &payload, Times::Original),
            ["project_access is not access_level", "project_path is not the end of the full path"]
        );
    }

    #[test]
    fn a_payload_fits_its_header() {
        let check = |header: &str, payload: Value| {
            assert_eq!(faults(header, &payload, Times::Original).len(), 1, "{header} {payload}");
        };
        check("Push Hook", json!({ "object_kind": "issue" }));
        check("Push Hook", json!({ "event_name": "push" }));
        check("System Hook", json!({ "object_kind": "issue" }));
        check("System Hook", json!({ "event_name": "wiki_page_attributes" }));
        check("System Hook", json!({ "event_name": "user" }));
        check("system hook", json!({ "event_name": "user_create" }));
        check("Push Hook", json!(null));
    }

    #[test]
    fn every_row_says_something_known() {
        let mut table = "";
        for line in TABLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with('[') {
                table = line;
                continue;
            }
            let (field, kind) = line.split_once(' ').expect("a name and a kind");
            let kind = kind.trim().trim_end_matches(" or null").trim_start_matches("list ");
            let known = kind.starts_with("word ")
                || rows(kind).is_some()
                || is_of(kind, &Value::Null, Times::Original).is_some();
            assert!(known, "{table} {field}: {kind}");
        }
    }

    #[test]
    fn moments_have_their_forms() {
        let check = |kind: &str, text: &str, times, expected| {
            assert_eq!(is_of(kind, &json!(text), times), Some(expected), "{kind} {text}");
        };
        check("time", "2016-11-22 10:15:30 UTC", Times::Original, true);
        check("time", "2016-11-22T10:15:30Z", Times::Original, false);
        check("time", "2016-11-22T10:15:30Z", Times::Iso8601, true);
        check("time", "2016-11-22 10:15:30 UTC", Times::Iso8601, false);
        check("stamp", "2016-11-22T10:15:30.000Z", Times::Original, false);
        check("stamp", "2016-11-22T25:15:30Z", Times::Original, false);
        check("offset", "2016-11-22T12:15:30+02:00", Times::Original, true);
        check("offset", "2016-11-22T12:15:30-03:30", Times::Original, true);
        check("offset", "2016-11-22T12:15:30Z", Times::Original, false);
        check("day", "2016-02-30", Times::Original, false);
        check("day", "2016-02-29", Times::Original, true);
    }
}
