//! Regular expressions of a CI file: written as `/…/` with flags, matched in linear time.

use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use crate::budget::{MAX_EFFORT, MAX_PATTERN_BYTES, MAX_PATTERNS};

/// A compiled regular expression; copies share it.
#[derive(Clone, Debug)]
pub struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Tells whether the expression is found anywhere in the text.
    pub fn is_found_in(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The last place in a text where the expression is found, or the first group of it if there are groups.
    pub(crate) fn last_in<'a>(&self, text: &'a str) -> Option<&'a str> {
        let captures = self.regex.captures_iter(text).last()?;
        let place = if captures.len() > 1 { captures.get(1) } else { captures.get(0) };
        place.map(|place| place.as_str())
    }

    /// The expression as it was written, slashes and flags included.
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

/// Whatever has been compiled for one file or one plan. The same expression is compiled once, and there is a limit to
/// different ones, because compiling costs most. What is looked at with them, or compared otherwise, is counted too.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    known: HashMap<String, Option<Pattern>>,
    effort: usize,
    excess: Option<String>,
}

impl Patterns {
    /// Compiles `/…/flags`; nothing if the text is not written so, cannot be compiled or is one too many.
    pub(crate) fn compile(&mut self, text: &str) -> Option<Pattern> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let (body, flags) = split(text)?;
        if text.len() > MAX_PATTERN_BYTES {
            return None;
        }
        if self.known.len() >= MAX_PATTERNS {
            self.excess = Some(format!("There are too many different regular expressions (maximum is {MAX_PATTERNS})"));
            return None;
        }
        let pattern = build(body, flags).map(|regex| Pattern { source: text.to_owned(), regex });
        self.known.insert(text.to_owned(), pattern.clone());
        pattern
    }

    /// Counts bytes that are about to be looked at, and tells whether that is still allowed.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        self.effort = self.effort.saturating_add(bytes);
        if self.effort > MAX_EFFORT {
            self.excess = Some("The rules of the file have to look at too much: simplify them".to_owned());
            return false;
        }
        true
    }

    /// Tells what there was too much of, if anything. Answers given since then do not count.
    pub(crate) fn excess(&self) -> Option<&str> {
        self.excess.as_deref()
    }
}

/// Takes `/body/flags` apart; other texts are no regular expressions.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix('/')?;
    let (body, flags) = rest.rsplit_once('/')?;
    let known = flags.chars().all(|flag| matches!(flag, 'i' | 'm' | 's' | 'x' | 'u'));
    (known && !body.is_empty()).then_some((body, flags))
}

fn build(body: &str, flags: &str) -> Option<Regex> {
    // A slash may be escaped between slashes; `\A`, `\z` and `\Z` are the original's anchors.
    let body = body.replace("\\/", "/").replace("\\Z", "\\z");
    // Memory for one expression stays small, whatever it says.
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
        let found = Patterns::default().compile(pattern).map(|pattern| pattern.is_found_in(text));
        assert_eq!(found, expected, "{pattern} in {text}");
    }

    #[test]
    fn expressions_are_found_anywhere_unless_anchored() {
        check("/issue-.*/", "my-issue-7", Some(true));
        check("/^issue-.*$/", "my-issue-7", Some(false));
        check("/^Master$/i", "master", Some(true));
        check("/^Master$/", "master", Some(false));
        check(r"/^feature\/.+/", "feature/x", Some(true));
        check(r"/\Av\d+\z/", "v12", Some(true));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        check("master", "master", None);
        check("//", "master", None);
        check("/(/", "master", None);
        check("/a(?=b)/", "ab", None);
        check("/a/q", "a", None);
        check("/(((a{1000}){1000}){1000})/", "a", None);
        check(&format!("/{}/", "a".repeat(2000)), "a", None);
    }

    #[test]
    fn only_so_many_expressions_are_compiled() {
        let mut patterns = Patterns::default();
        let compiled = (0..1000).filter(|number| patterns.compile(&format!("/a{number}/")).is_some()).count();
        assert_eq!(compiled, MAX_PATTERNS);
        assert!(patterns.compile("/a1/").is_some(), "known ones stay");
        assert_eq!(patterns.excess(), Some("There are too many different regular expressions (maximum is 300)"),);
    }
}
