//! The `only` and `except` keywords: the refs and sources of pipelines that include a job.

use crate::config_error::{ConfigError, KeyPath};
use crate::expression::Expression;
use crate::fields::{read_attribute, reject_unknown_keys, text_or_texts};
use crate::patterns::{self, Pattern, PatternCache};
use crate::pipeline_context::{PipelineContext, PipelineSource};
use crate::value::{Map, Value};

/// The conditions of `only` or `except`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPolicy {
    /// Refs and sources, one of which must match; `None` matches always.
    pub refs: Option<Vec<RefEntry>>,
    /// Expressions, one of which must be true.
    pub variables: Option<Vec<Expression>>,
    /// Paths, one of which must have changed.
    pub changes: Option<Vec<String>>,
}

/// One entry of a list of refs.
#[derive(Clone, Debug, PartialEq)]
pub struct RefEntry {
    matcher: RefMatcher,
    /// The full path of the only project where the entry applies.
    project: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum RefMatcher {
    Branches,
    Tags,
    PipelineSource(PipelineSource),
    /// A source that GitLab knows but that never triggers a pipeline here.
    OtherSource,
    Exact(String),
    Pattern(Pattern),
}

impl RefEntry {
    /// Reads an entry; returns `None` if its regular expression is malformed.
    pub(crate) fn read(text: &str, patterns: &mut PatternCache) -> Option<Self> {
        let (entry, project) = split_project(text);
        let matcher = match entry {
            "branches" => RefMatcher::Branches,
            "tags" => RefMatcher::Tags,
            "triggers" => RefMatcher::PipelineSource(PipelineSource::Trigger),
            "pushes" => RefMatcher::PipelineSource(PipelineSource::Push),
            "web" => RefMatcher::PipelineSource(PipelineSource::Web),
            "api" => RefMatcher::PipelineSource(PipelineSource::Api),
            "schedules" => RefMatcher::PipelineSource(PipelineSource::Schedule),
            "merge_requests" | "external_pull_requests" | "external" | "pipelines" | "chat" => RefMatcher::OtherSource,
            _ if entry.len() > 1 && entry.starts_with('/') && patterns::split(entry).is_some() => {
                RefMatcher::Pattern(patterns.compile(entry)?)
            }
            _ => RefMatcher::Exact(entry.to_owned()),
        };
        Some(Self { matcher, project: project.map(ToOwned::to_owned) })
    }

    /// Returns whether a pipeline matches. Only the keywords distinguish branches from tags of the same name.
    pub(crate) fn matches(&self, context: &PipelineContext<'_>) -> bool {
        if self.project.as_ref().is_some_and(|path| *path != context.project_path) {
            return false;
        }
        match &self.matcher {
            RefMatcher::Branches => !context.is_tag,
            RefMatcher::Tags => context.is_tag,
            RefMatcher::PipelineSource(source) => context.source == *source,
            RefMatcher::OtherSource => false,
            RefMatcher::Exact(name) => *name == context.ref_name,
            RefMatcher::Pattern(pattern) => pattern.is_match(&context.ref_name),
        }
    }
}

/// Splits `entry@group/project`. An `@` inside a regular expression belongs to it.
fn split_project(text: &str) -> (&str, Option<&str>) {
    let is_whole =
        |entry: &str| !text.starts_with('/') || (patterns::split(entry).is_some() && !entry.ends_with("\\/"));
    text.match_indices('@')
        .map(|(index, _)| (&text[..index], &text[index + 1..]))
        .find(|(entry, _)| is_whole(entry))
        .map_or((text, None), |(entry, project)| (entry, Some(project)))
}

/// Reads `only` or `except`: a list of refs, or a mapping of refs, variables and changes.
pub(crate) fn read(
    value: &Value,
    key_path: KeyPath<'_>,
    patterns: &mut PatternCache,
) -> Result<JobPolicy, ConfigError> {
    match value {
        Value::Map(map) => read_mapping(map, key_path, patterns),
        list => {
            let refs = read_refs(list, patterns)
                .ok_or_else(|| key_path.error("config should be an array of strings or regexps"))?;
            Ok(JobPolicy { refs: Some(refs), ..JobPolicy::default() })
        }
    }
}

fn read_refs(value: &Value, patterns: &mut PatternCache) -> Option<Vec<RefEntry>> {
    value.flattened_texts()?.iter().map(|text| RefEntry::read(text, patterns)).collect()
}

fn read_mapping(map: &Map, key_path: KeyPath<'_>, patterns: &mut PatternCache) -> Result<JobPolicy, ConfigError> {
    reject_unknown_keys(map, key_path, &["refs", "variables", "changes"])?;
    if map.is_empty() {
        return Err(key_path.error("config can't be blank"));
    }
    let refs = read_attribute(map, "refs", key_path, "should be an array of strings or regexps", |value| {
        read_refs(value, patterns)
    })?;
    let variables =
        read_attribute(map, "variables", key_path, "config should be an array of valid expressions", |value| {
            text_or_texts(value)?.iter().map(|text| Expression::parse(text, patterns)).collect()
        })?;
    let changes = read_attribute(map, "changes", key_path, "should be an array of strings", text_or_texts)?;
    Ok(JobPolicy { refs, variables, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(entry: &str, ref_name: &str, is_tag: bool, source: PipelineSource) -> bool {
        let context = PipelineContext {
            ref_name: ref_name.to_owned(),
            is_tag,
            source,
            project_path: "group/project".to_owned(),
            ..PipelineContext::default()
        };
        RefEntry::read(entry, &mut PatternCache::default()).expect("an entry").matches(&context)
    }

    #[test]
    fn keywords_match_kinds_of_pipelines() {
        assert!(matches("branches", "main", false, PipelineSource::Push));
        assert!(!matches("branches", "v1", true, PipelineSource::Push));
        assert!(matches("tags", "v1", true, PipelineSource::Push));
        assert!(matches("triggers", "main", false, PipelineSource::Trigger));
        assert!(!matches("triggers", "main", false, PipelineSource::Push));
        assert!(matches("pushes", "main", false, PipelineSource::Push));
        assert!(matches("schedules", "main", false, PipelineSource::Schedule));
        assert!(!matches("merge_requests", "main", false, PipelineSource::Push));
    }

    #[test]
    fn a_branch_called_tags_is_not_a_tag() {
        assert!(!matches("tags", "tags", false, PipelineSource::Push));
        assert!(!matches("branches", "branches", true, PipelineSource::Push));
    }

    #[test]
    fn refs_are_matched_exactly_or_by_expression() {
        assert!(matches("main", "main", false, PipelineSource::Push));
        assert!(!matches("main", "maintenance", false, PipelineSource::Push));
        assert!(matches("/ain/", "maintenance", false, PipelineSource::Push));
        assert!(matches("/^MAIN$/i", "main", false, PipelineSource::Push));
        assert!(!matches("/^MAIN$/", "main", false, PipelineSource::Push));
    }

    #[test]
    fn an_entry_may_apply_to_one_project_only() {
        assert!(matches("main@group/project", "main", false, PipelineSource::Push));
        assert!(!matches("main@other/project", "main", false, PipelineSource::Push));
        assert!(matches("branches@group/project", "x", false, PipelineSource::Push));
        assert!(matches("/a@b/@group/project", "a@b", false, PipelineSource::Push));
        assert!(matches("/a@b/", "a@b", false, PipelineSource::Push));
        assert!(matches(r"/^a\/@b$/", "a/@b", false, PipelineSource::Push));
        assert!(!matches("/a@b/@other/project", "a@b", false, PipelineSource::Push));
    }
}
