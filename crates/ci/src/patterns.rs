//! Regular expressions of a CI file: written as `/…/` with flags, matched in linear time.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use crate::budget::{MAX_PATTERN_BYTES, MAX_PATTERNS, MAX_SCANNED_BYTES};

/// A compiled regular expression; clones share it.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Returns whether the expression matches anywhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the last match in a text, or its first group if there are groups.
    pub(crate) fn last_match<'a>(&self, text: &'a str) -> Option<&'a str> {
        let captures = self.regex.captures_iter(text).last()?;
        let matched = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
        matched.map(|matched| matched.as_str())
    }

    /// Returns the expression as written, with slashes and flags.
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// The compiled expressions of one file or one plan. Each distinct expression is compiled once and their number is
/// limited, because compiling is expensive. Also counts the bytes that rules scan or compare.
#[derive(Debug, Default)]
pub(crate) struct PatternCache {
    compiled: HashMap<String, Option<Pattern>>,
    scanned_bytes: usize,
    limit_error: Option<String>,
}

impl PatternCache {
    /// Compiles `/…/flags`; returns `None` if the text has another form, does not compile or exceeds the limit.
    pub(crate) fn compile(&mut self, text: &str) -> Option<Pattern> {
        if let Some(compiled) = self.compiled.get(text) {
            return compiled.clone();
        }
        let (body, flags) = split(text)?;
        if text.len() > MAX_PATTERN_BYTES {
            return None;
        }
        if self.compiled.len() >= MAX_PATTERNS {
            self.limit_error =
                Some(format!("There are too many different regular expressions (maximum is {MAX_PATTERNS})"));
            return None;
        }
        let pattern = build(body, flags).map(|regex| Pattern { source: text.to_owned(), regex });
        self.compiled.insert(text.to_owned(), pattern.clone());
        pattern
    }

    /// Counts bytes about to be scanned; returns whether that is still allowed.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> bool {
        self.scanned_bytes = self.scanned_bytes.saturating_add(bytes);
        if self.scanned_bytes > MAX_SCANNED_BYTES {
            self.limit_error = Some("The rules of the file compare or match too much text: simplify them".to_owned());
            return false;
        }
        true
    }

    /// Returns which limit was exceeded, if any; previous results are then meaningless.
    pub(crate) fn limit_error(&self) -> Option<&str> {
        self.limit_error.as_deref()
    }
}

/// Splits `/body/flags`; returns `None` for other texts.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('/')?;
    let (body, flags) = rest.rsplit_once('/')?;
    let known = flags.chars().all(|flag| matches!(flag, 'i' | 'm' | 's' | 'x' | 'u'));
    (known && !body.is_empty()).then_some((body, flags))
}

fn build(body: &str, flags: &str) -> Option<Regex> {
    // A slash may be escaped between slashes; `\Z` is an end anchor of Ruby.
    let body = body.replace("\\/", "/").replace("\\Z", "\\z");
    // Bounds the memory of one expression.
    RegexBuilder::new(&body)
        .size_limit(256 * 1024)
        .dfa_size_limit(256 * 1024)
        .nest_limit(50)
        .multi_line(true)
        .case_insensitive(flags.contains('i'))
        .dot_matches_new_line(flags.contains('m') || flags.contains('s'))
        .ignore_whitespace(flags.contains('x'))
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, text: &str, expected: Option<bool>) {
        let found = PatternCache::default().compile(pattern).map(|pattern| pattern.is_match(text));
        assert_eq!(found, expected, "{pattern} in {text}");
    }

    #[test]
    fn expressions_match_anywhere_unless_anchored() {
        check("/issue-.*/", "my-issue-7", Some(true));
        check("/^issue-.*$/", "my-issue-7", Some(false));
        check("/^Master$/i", "master", Some(true));
        check("/^Master$/", "master", Some(false));
        check(r"/^feature\/.+/", "feature/x", Some(true));
        check(r"/\Av\d+\z/", "v12", Some(true));
    }

    #[test]
    fn other_texts_are_rejected() {
        check("master", "master", None);
        check("//", "master", None);
        check("/(/", "master", None);
        check("/a(?=b)/", "ab", None);
        check("/a/q", "a", None);
        check("/(((a{1000}){1000}){1000})/", "a", None);
        check(&format!("/{}/", "a".repeat(2000)), "a", None);
    }

    #[test]
    fn the_number_of_compiled_expressions_is_limited() {
        let mut patterns = PatternCache::default();
        let compiled = (0..1000).filter(|number| patterns.compile(&format!("/a{number}/")).is_some()).count();
        assert_eq!(compiled, MAX_PATTERNS);
        assert!(patterns.compile("/a1/").is_some(), "known ones stay");
        assert_eq!(patterns.limit_error(), Some("There are too many different regular expressions (maximum is 300)"),);
    }
}
