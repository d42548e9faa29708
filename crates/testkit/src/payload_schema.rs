//! Checks webhook payloads against the tables in `payload_schema.txt`, which are written by hand, independently of the
//! code that renders payloads.

use jiff::{Timestamp, civil::Date};
use serde_json::{Map, Value};

const TABLES: &str = include_str!("payload_schema.txt");

/// Checks a payload that was sent with this `X-Gitlab-Event` header; panics with a list of all violations.
pub fn check(header: &str, payload: &Value) {
    let violations = violations(header, payload, TimeStyle::Gitlab);
    assert!(violations.is_empty(), "{header}:\n{}\n{payload:#}", violations.join("\n"));
}

/// Like [`check`], for a server that is configured to write timestamps as ISO 8601.
pub fn check_iso8601(header: &str, payload: &Value) {
    let violations = violations(header, payload, TimeStyle::Iso8601);
    assert!(violations.is_empty(), "{header}:\n{}\n{payload:#}", violations.join("\n"));
}

/// The format of timestamps in the fields where it is configurable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeStyle {
    Gitlab,
    Iso8601,
}

/// Returns all violations of a payload.
fn violations(header: &str, payload: &Value, time_style: TimeStyle) -> Vec<String> {
    let mut checker = PayloadChecker { time_style, violations: Vec::new() };
    match table_name(header, payload) {
        Some(table) => {
            checker.table("", table, payload);
            checker.relations(header, payload);
        }
        None => checker.violations.push(format!(
            "unknown payload: object_kind {}, event_name {}",
            payload["object_kind"], payload["event_name"]
        )),
    }
    checker.violations
}

/// Returns the table that applies to a payload.
fn table_name<'a>(header: &str, payload: &'a Value) -> Option<&'a str> {
    let kind = payload["object_kind"].as_str();
    let expected = match header {
        "Push Hook" => "push",
        "Tag Push Hook" => "tag_push",
        "Issue Hook" | "Confidential Issue Hook" => "issue",
        "Note Hook" => "note",
        "Build Hook" => "build",
        "Pipeline Hook" => "pipeline",
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

/// Returns the rows of a table.
fn rows(name: &str) -> Option<Vec<&'static str>> {
    let mut lines = TABLES.lines();
    lines.find(|line| {
        let names = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        names.is_some_and(|names| names.split(' ').any(|one| one == name))
    })?;
    Some(lines.take_while(|line| !line.is_empty()).collect())
}

struct PayloadChecker {
    time_style: TimeStyle,
    violations: Vec<String>,
}

impl PayloadChecker {
    fn require(&mut self, valid: bool, path: &str, violation: impl std::fmt::Display) {
        if !valid {
            self.violations.push(format!("{path} {violation}"));
        }
    }

    /// Checks an object against a table.
    fn table(&mut self, path: &str, name: &str, value: &Value) {
        let rows = rows(name).unwrap_or_else(|| panic!("there is no table {name}"));
        let Some(object) = value.as_object() else {
            self.violations.push(format!("{path} is no object: {value}"));
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
                None => self.require(optional, &path, "is missing"),
            }
        }
        for field in object.keys().filter(|field| !known.contains(&field.as_str())) {
            self.violations.push(format!("{path}.{field} is unknown"));
        }
    }

    /// Checks a value against the kind in a row.
    fn field(&mut self, path: &str, kind: &str, value: &Value) {
        let kind = match kind.strip_suffix(" or null") {
            Some(_) if value.is_null() => return,
            Some(kind) => kind,
            None => kind,
        };
        if let Some(words) = kind.strip_prefix("word ") {
            let valid = value.as_str().is_some_and(|text| words.split(' ').any(|word| word == text));
            self.require(valid, path, format_args!("is none of [{words}]: {value}"));
        } else if let Some(kind) = kind.strip_prefix("list ") {
            let Some(values) = value.as_array() else {
                self.violations.push(format!("{path} is no list: {value}"));
                return;
            };
            for (number, value) in values.iter().enumerate() {
                self.field(&format!("{path}[{number}]"), kind, value);
            }
        } else if rows(kind).is_some() {
            self.table(path, kind, value);
        } else {
            let valid =
                matches_kind(kind, value, self.time_style).unwrap_or_else(|| panic!("{path}: unknown kind {kind}"));
            self.require(valid, path, format_args!("is no {kind}: {value}"));
        }
    }

    /// Checks fields that depend on each other.
    fn relations(&mut self, header: &str, payload: &Value) {
        self.project(&payload["project"]);
        let repository = &payload["repository"];
        if let (Some(repository), Some(project)) = (repository.as_object(), payload["project"].as_object()) {
            self.repository(repository, project);
        }
        match (header, payload["object_kind"].as_str().unwrap_or_default()) {
            (_, "push" | "tag_push") => self.push(header, payload),
            (_, "issue") => self.issue(header, payload),
            (_, "note") => self.note(payload),
            (_, "build") => self.build(payload),
            (_, "pipeline") => self.pipeline(payload),
            ("System Hook", _) => self.system(payload),
            _ => {}
        }
    }

    /// Checks that deprecated fields equal their replacements.
    fn project(&mut self, project: &Value) {
        let Some(object) = project.as_object() else { return };
        let same = |this: &mut Self, old: &str, new: &str| {
            let valid = object.get(old).is_none_or(|value| Some(value) == object.get(new));
            this.require(valid, "project", format_args!("has different values in {old} and {new}"));
        };
        same(self, "homepage", "web_url");
        same(self, "url", "git_ssh_url");
        same(self, "ssh_url", "git_ssh_url");
        same(self, "http_url", "git_http_url");
        let full_path = project["path_with_namespace"].as_str().unwrap_or_default();
        let ends = |field: &str, end: &str| {
            project[field].as_str().is_some_and(|url| url.ends_with(&format!("/{full_path}{end}")))
        };
        self.require(ends("web_url", ""), "project", "has a web_url that does not match");
        self.require(ends("git_http_url", ".git"), "project", "has a git_http_url that does not match");
        let ssh = project["git_ssh_url"].as_str().unwrap_or_default();
        let valid = ssh.strip_suffix(&format!("{full_path}.git")).is_some_and(|host| host.ends_with([':', '/']));
        self.require(valid, "project", "has a git_ssh_url that does not match");
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
            let valid = repository.get(field).is_none_or(|value| Some(value) == project.get(other));
            self.require(valid, "repository", format_args!("has another {field} than project has in {other}"));
        }
    }

    fn push(&mut self, header: &str, payload: &Value) {
        let (before, after) = (&payload["before"], &payload["after"]);
        let gone = is_zero(after);
        let commits = payload["commits"].as_array().map_or(&[][..], Vec::as_slice);
        let total = payload["total_commits_count"].as_u64().unwrap_or_default();
        let shown = u64::try_from(commits.len()).unwrap_or(u64::MAX);
        self.require(!(is_zero(before) && gone), "before and after", "are both zero");
        let is_tag = payload["object_kind"] == "tag_push";
        let has_none = payload["checkout_sha"].is_null();
        // A tag may point to something other than a commit; system hooks never receive commits.
        let may_have_none = gone || is_tag && shown == 0;
        self.require(
            has_none == gone || has_none && may_have_none,
            "checkout_sha",
            "is not null exactly if there is no commit",
        );
        self.require(shown <= 20, "commits", "are more than 20");
        self.require(!gone || total == 0, "total_commits_count", "is not 0, but the ref is gone");
        self.require(header != "System Hook" || total == 0, "total_commits_count", "is not 0 for a system hook");
        if let Some(newest) = commits.last() {
            let head = &payload["checkout_sha"];
            self.require(newest["id"] == *head, "commits", "do not end with checkout_sha");
        }
        let valid = shown == total.min(20) || is_tag && shown == 0;
        self.require(valid, "commits", "are not as many as total_commits_count says");
        self.require(!is_tag || total <= 1, "total_commits_count", "is more than 1 for a tag");
        self.require(is_tag || gone || payload["checkout_sha"] == *after, "checkout_sha", "is not after");
        for commit in commits {
            self.commit_url("commits", commit, &payload["project"]);
        }
    }

    fn commit_url(&mut self, path: &str, commit: &Value, project: &Value) {
        let (id, root) = (commit["id"].as_str().unwrap_or_default(), project["web_url"].as_str().unwrap_or_default());
        self.require(commit["url"] == format!("{root}/commit/{id}"), path, "has a url that does not match");
    }

    fn issue(&mut self, header: &str, payload: &Value) {
        let issue = &payload["object_attributes"];
        let secret = issue["confidential"] == true;
        self.require(secret == (header == "Confidential Issue Hook"), "confidential", "does not fit the header");
        let valid = issue["assignee_id"].is_null() == payload.get("assignee").is_none();
        self.require(valid, "assignee", "is not present exactly if there is an assignee_id");
        let root = payload["project"]["web_url"].as_str().unwrap_or_default();
        let expected = format!("{root}/issues/{}", issue["iid"]);
        self.require(issue["url"] == expected, "object_attributes.url", format_args!("is not {expected}"));
    }

    fn note(&mut self, payload: &Value) {
        let note = &payload["object_attributes"];
        let root = payload["project"]["web_url"].as_str().unwrap_or_default();
        let about_commit = note["noteable_type"] == "Commit";
        let page = if about_commit {
            format!("commit/{}", payload["commit"]["id"].as_str().unwrap_or_default())
        } else {
            format!("issues/{}", payload["issue"]["iid"])
        };
        for (target, expected) in [("commit", about_commit), ("issue", !about_commit)] {
            let valid = payload.get(target).is_some() == expected;
            self.require(valid, target, "is not present exactly if the note is about it");
        }
        let expected = format!("{root}/{page}#note_{}", note["id"]);
        self.require(note["url"] == expected, "object_attributes.url", format_args!("is not {expected}"));
        // A missing target is `Null`.
        let (commit, number) = (&payload["commit"]["id"], &payload["issue"]["id"]);
        self.require(note["commit_id"] == *commit, "object_attributes.commit_id", "is not that of the commit");
        self.require(note["noteable_id"] == *number, "object_attributes.noteable_id", "is not that of the target");
        self.require(note["system"] == false, "object_attributes.system", "is not false");
        self.require(note["project_id"] == payload["project_id"], "project_id", "is not the same everywhere");
        let valid = note["line_code"].is_null() == note["type"].is_null();
        self.require(valid, "object_attributes.type", "is not present exactly if there is a line_code");
        if about_commit {
            self.commit_url("commit", &payload["commit"], &payload["project"]);
        }
    }

    fn build(&mut self, payload: &Value) {
        let user = &payload["user"];
        let known = ["id", "name", "email"].map(|field| !user[field].is_null());
        self.require(known[0] == known[1] && known[1] == known[2], "user", "is incomplete");
        self.require(payload["commit"]["sha"] == payload["sha"], "commit.sha", "is not sha");
        let valid = payload["project_name"].as_str().is_some_and(|name| name.contains(" / "));
        self.require(valid, "project_name", "does not name the namespace");
    }

    fn pipeline(&mut self, payload: &Value) {
        for build in payload["builds"].as_array().into_iter().flatten() {
            let manual = build["when"] == "manual";
            self.require(build["manual"] == manual, "builds.manual", "does not fit when");
            let artifacts = &build["artifacts_file"];
            let valid = artifacts["filename"].is_null() == artifacts["size"].is_null();
            self.require(valid, "builds.artifacts_file", "is incomplete");
        }
        if let Some(commit) = payload.get("commit").filter(|commit| !commit.is_null()) {
            self.require(commit["id"] == payload["object_attributes"]["sha"], "commit.id", "is not sha");
            self.commit_url("commit", commit, &payload["project"]);
        }
    }

    fn system(&mut self, payload: &Value) {
        let valid = payload.get("project_access") == payload.get("access_level");
        self.require(valid, "project_access", "is not access_level");
        for (name, full) in [("path", "path_with_namespace"), ("project_path", "project_path_with_namespace")] {
            if let Some(full) = payload.get(full).and_then(Value::as_str) {
                let path = payload[name].as_str().unwrap_or_default();
                self.require(full.ends_with(&format!("/{path}")), name, "is not the end of the full path");
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

/// Returns whether a value is of a scalar kind; `None` if the kind is unknown.
fn matches_kind(kind: &str, value: &Value, time_style: TimeStyle) -> Option<bool> {
    let text = value.as_str();
    let holds = |valid: fn(&str) -> bool| text.is_some_and(valid);
    Some(match kind {
        "text" => text.is_some(),
        "empty" => text == Some(""),
        "number" => value.is_i64(),
        "float" => value.is_number(),
        "flag" => value.is_boolean(),
        "null" => value.is_null(),
        "level" => value.as_i64().is_some_and(|level| [0, 10, 20].contains(&level)),
        "sha" => holds(is_oid) && !is_zero(value),
        "rev" => holds(is_oid),
        "url" => holds(|text| text.starts_with("http://") || text.starts_with("https://")),
        "ssh" => holds(|text| (text.starts_with("git@") || text.starts_with("ssh://git@")) && text.ends_with(".git")),
        "branch" => holds(|text| text.strip_prefix("refs/heads/").is_some_and(|name| !name.is_empty())),
        "tag" => holds(|text| text.strip_prefix("refs/tags/").is_some_and(|name| !name.is_empty())),
        "time" if time_style == TimeStyle::Gitlab => holds(is_gitlab_time),
        "time" | "stamp" => holds(is_stamp),
        "offset" => holds(is_offset),
        "day" => holds(is_day),
        "code" => holds(is_line_code),
        _ => return None,
    })
}

/// Returns whether a text matches a pattern in which 9 stands for any digit and every other character for itself.
fn matches_pattern(text: &str, example: &str) -> bool {
    text.len() == example.len()
        && text.bytes().zip(example.bytes()).all(|(byte, like)| match like {
            b'9' => byte.is_ascii_digit(),
            like => byte == like,
        })
}

fn is_gitlab_time(text: &str) -> bool {
    matches_pattern(text, "9999-99-99 99:99:99 UTC") && text.replace(" UTC", "Z").parse::<Timestamp>().is_ok()
}

fn is_stamp(text: &str) -> bool {
    matches_pattern(text, "9999-99-99T99:99:99Z") && text.parse::<Timestamp>().is_ok()
}

fn is_offset(text: &str) -> bool {
    let signed = ["9999-99-99T99:99:99+99:99", "9999-99-99T99:99:99-99:99"];
    signed.iter().any(|example| matches_pattern(text, example)) && text.parse::<Timestamp>().is_ok()
}

fn is_day(text: &str) -> bool {
    matches_pattern(text, "9999-99-99") && text.parse::<Date>().is_ok()
}

fn is_line_code(text: &str) -> bool {
    let parts: Vec<&str> = text.split('_').collect();
    let is_line = |text: &str| text.parse::<u64>().is_ok();
    matches!(parts[..], [path, before, after] if is_oid(path) && is_line(before) && is_line(after))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_violations_are_listed() {
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
            violations("System Hook", &payload, TimeStyle::Gitlab),
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
            violations("System Hook", &payload, TimeStyle::Gitlab),
            ["project_access is not access_level", "project_path is not the end of the full path"]
        );
    }

    #[test]
    fn a_payload_must_match_its_header() {
        let check = |header: &str, payload: Value| {
            assert_eq!(violations(header, &payload, TimeStyle::Gitlab).len(), 1, "{header} {payload}");
        };
        check("Push Hook", json!({ "object_kind": "issue" }));
        check("Push Hook", json!({ "event_name": "push" }));
        check("System Hook", json!({ "object_kind": "issue" }));
        check("System Hook", json!({ "event_name": "issue_attributes" }));
        check("System Hook", json!({ "event_name": "user" }));
        check("system hook", json!({ "event_name": "user_create" }));
        check("Push Hook", json!(null));
    }

    #[test]
    fn every_row_has_a_known_kind() {
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
                || matches_kind(kind, &Value::Null, TimeStyle::Gitlab).is_some();
            assert!(known, "{table} {field}: {kind}");
        }
    }

    #[test]
    fn timestamps_have_the_configured_format() {
        let check = |kind: &str, text: &str, time_style, expected| {
            assert_eq!(matches_kind(kind, &json!(text), time_style), Some(expected), "{kind} {text}");
        };
        check("time", "2016-11-22 10:15:30 UTC", TimeStyle::Gitlab, true);
        check("time", "2016-11-22T10:15:30Z", TimeStyle::Gitlab, false);
        check("time", "2016-11-22T10:15:30Z", TimeStyle::Iso8601, true);
        check("time", "2016-11-22 10:15:30 UTC", TimeStyle::Iso8601, false);
        check("stamp", "2016-11-22T10:15:30.000Z", TimeStyle::Gitlab, false);
        check("stamp", "2016-11-22T25:15:30Z", TimeStyle::Gitlab, false);
        check("offset", "2016-11-22T12:15:30+02:00", TimeStyle::Gitlab, true);
        check("offset", "2016-11-22T12:15:30-03:30", TimeStyle::Gitlab, true);
        check("offset", "2016-11-22T12:15:30Z", TimeStyle::Gitlab, false);
        check("day", "2016-02-30", TimeStyle::Gitlab, false);
        check("day", "2016-02-29", TimeStyle::Gitlab, true);
    }
}
