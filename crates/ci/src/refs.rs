//! `only` and `except`: for which refs and sources of a pipeline a job is made.

use crate::circumstances::{Circumstances, Source};
use crate::entries::{attribute, known_keys, text_or_texts};
use crate::expression::Expression;
use crate::invalid::{Invalid, Place};
use crate::patterns::{self, Pattern, Patterns};
use crate::value::{Map, Value};

/// What `only` or `except` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Refs and sources, one of which must fit; nothing said fits always.
    pub refs: Option<Vec<RefEntry>>,
    /// Expressions, one of which must hold.
    pub variables: Option<Vec<Expression>>,
    /// Paths, one of which must have changed.
    pub changes: Option<Vec<String>>,
}

/// One entry of a list of refs.
#[derive(Clone, Debug, PartialEq)]
pub struct RefEntry {
    kind: Kind,
    /// The full path of the only project where the entry counts.
    project: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Branches,
    Tags,
    Source(Source),
    /// A source that this forge knows by name, but that makes no pipelines.
    OtherSource,
    Exact(String),
    Pattern(Pattern),
}

impl RefEntry {
    /// Reads an entry; nothing if its regular expression is malformed.
    pub(crate) fn read(text: &str, patterns: &mut Patterns) -> Option<Self> {
        let (entry, project) = split_project(text);
        let kind = match entry {
            "branches" => Kind::Branches,
            "tags" => Kind::Tags,
            "triggers" => Kind::Source(Source::Trigger),
            "pushes" => Kind::Source(Source::Push),
            "web" => Kind::Source(Source::Web),
            "api" => Kind::Source(Source::Api),
            "schedules" => Kind::Source(Source::Schedule),
            "merge_requests" | "external_pull_requests" | "external" | "pipelines" | "chat" => Kind::OtherSource,
            _ if entry.len() > 1 && entry.starts_with('/') && patterns::split(entry).is_some() => {
                Kind::Pattern(patterns.compile(entry)?)
            }
            _ => Kind::Exact(entry.to_owned()),
        };
        Some(Self { kind, project: project.map(ToOwned::to_owned) })
    }

    /// Tells whether a pipeline is meant. Branches and tags of one name are told apart by the words alone.
    pub(crate) fn fits(&self, circumstances: &Circumstances<'_>) -> bool {
        if self.project.as_ref().is_some_and(|path| *path != circumstances.project_path) {
            return false;
        }
        match &self.kind {
            Kind::Branches => !circumstances.is_tag,
            Kind::Tags => circumstances.is_tag,
            Kind::Source(source) => circumstances.source == *source,
            Kind::OtherSource => false,
            Kind::Exact(name) => *name == circumstances.ref_name,
            Kind::Pattern(pattern) => pattern.is_found_in(&circumstances.ref_name),
        }
    }
}

/// Takes `entry@group/project` apart. An `@` inside of a regular expression belongs to it.
fn split_project(text: &str) -> (&str, Option<&str>) {
    let is_whole =
        |entry: &str| !text.starts_with('/') || (patterns::split(entry).is_some() && !entry.ends_with("\\/"));
    text.match_indices('@')
        .map(|(at, _)| (&text[..at], &text[at + 1..]))
        .find(|(entry, _)| is_whole(entry))
        .map_or((text, None), |(entry, project)| (entry, Some(project)))
}

/// Reads `only` or `except`: a list of refs, or a mapping of refs, variables and changes.
pub(crate) fn read(value: &Value, place: Place<'_>, patterns: &mut Patterns) -> Result<Policy, Invalid> {
    match value {
        Value::Map(map) => read_mapping(map, place, patterns),
        list => {
            let refs = read_refs(list, patterns)
                .ok_or_else(|| place.invalid("config should be an array of strings or regexps"))?;
            Ok(Policy { refs: Some(refs), ..Policy::default() })
        }
    }
}

fn read_refs(value: &Value, patterns: &mut Patterns) -> Option<Vec<RefEntry>> {
    value.lines()?.iter().map(|text| RefEntry::read(text, patterns)).collect()
}

fn read_mapping(map: &Map, place: Place<'_>, patterns: &mut Patterns) -> Result<Policy, Invalid> {
    known_keys(map, place, &["refs", "variables", "changes"])?;
    if map.is_empty() {
        return Err(place.invalid("config can't be blank"));
    }
    let refs =
        attribute(map, "refs", place, "should be an array of strings or regexps", |value| read_refs(value, patterns))?;
    let variables = attribute(map, "variables", place, "config should be an array of valid expressions", |value| {
        text_or_texts(value)?.iter().map(|text| Expression::parse(text, patterns)).collect()
    })?;
    let changes = attribute(map, "changes", place, "should be an array of strings", text_or_texts)?;
    Ok(Policy { refs, variables, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(entry: &str, ref_name: &str, is_tag: bool, source: Source) -> bool {
        let circumstances = Circumstances {
            ref_name: ref_name.to_owned(),
            is_tag,
            source,
            project_path: "group/project".to_owned(),
            ..Circumstances::default()
        };
        RefEntry::read(entry, &mut Patterns::default()).expect("an entry").fits(&circumstances)
    }

    #[test]
    fn words_mean_kinds_of_pipelines() {
        assert!(fits("branches", "main", false, Source::Push));
        assert!(!fits("branches", "v1", true, Source::Push));
        assert!(fits("tags", "v1", true, Source::Push));
        assert!(fits("triggers", "main", false, Source::Trigger));
        assert!(!fits("triggers", "main", false, Source::Push));
        assert!(fits("pushes", "main", false, Source::Push));
        assert!(fits("schedules", "main", false, Source::Schedule));
        assert!(!fits("merge_requests", "main", false, Source::Push));
    }

    #[test]
    fn a_branch_called_tags_is_no_tag() {
        assert!(!fits("tags", "tags", false, Source::Push));
        assert!(!fits("branches", "branches", true, Source::Push));
    }

    #[test]
    fn refs_are_matched_exactly_or_by_expression() {
        assert!(fits("main", "main", false, Source::Push));
        assert!(!fits("main", "maintenance", false, Source::Push));
        assert!(fits("/ain/", "maintenance", false, Source::Push));
        assert!(fits("/^MAIN$/i", "main", false, Source::Push));
        assert!(!fits("/^MAIN$/", "main", false, Source::Push));
    }

    #[test]
    fn an_entry_may_count_for_one_project_only() {
        assert!(fits("main@group/project", "main", false, Source::Push));
        assert!(!fits("main@other/project", "main", false, Source::Push));
        assert!(fits("branches@group/project", "x", false, Source::Push));
        assert!(fits("/a@b/@group/project", "a@b", false, Source::Push));
        assert!(fits("/a@b/", "a@b", false, Source::Push));
        assert!(fits(r"/^a\/@b$/", "a/@b", false, Source::Push));
        assert!(!fits("/a@b/@other/project", "a@b", false, Source::Push));
    }
}
