//! Globs for paths: `*` and `?` within a name, `**` for any number of names, `[a-z]` and `{a,b}`.

use regex::bytes::{Regex, RegexBuilder};

use crate::budget::MAX_PATTERN_BYTES;

/// What a glob means, where the programs that GitLab uses differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GlobSemantics {
    /// `changes` and `exists`, as in `File.fnmatch` of Ruby: only a whole path matches, and `**` at the end is a plain
    /// `*`.
    Fnmatch,
    /// Files of artifacts and caches, as in GitLab Runner: everything in a matching folder matches too, and `**` at the
    /// end matches any number of names.
    Doublestar,
}

/// A compiled glob.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    semantics: GlobSemantics,
    kind: GlobKind,
}

#[derive(Clone, Debug)]
enum GlobKind {
    /// One path.
    Literal,
    /// `folder/**/*`: by far the most frequent glob, which needs no regular expression.
    Subtree,
    Pattern(Regex),
}

impl Glob {
    /// Compiles a glob; returns `None` if it is malformed or too large.
    pub fn compile(text: &str, semantics: GlobSemantics) -> Option<Self> {
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.len() > MAX_PATTERN_BYTES {
            return None;
        }
        let kind = match text.strip_suffix("/**/*") {
            _ if is_literal(text) => GlobKind::Literal,
            Some(folder) if is_literal(folder) => GlobKind::Subtree,
            _ => GlobKind::Pattern(build(text, semantics)?),
        };
        Some(Self { text: text.to_owned(), semantics, kind })
    }

    /// Returns whether a path, relative to the root of the repository, matches.
    pub fn matches(&self, path: &str) -> bool {
        match &self.kind {
            GlobKind::Literal => {
                path == self.text || (self.semantics == GlobSemantics::Doublestar && is_below(path, &self.text))
            }
            GlobKind::Subtree => is_below(path, self.folder()),
            GlobKind::Pattern(regex) => regex.is_match(path.as_bytes()),
        }
    }

    /// Returns `false` only if no path below this folder can match.
    pub fn may_match_below(&self, folder: &str) -> bool {
        let prefix = self.literal().unwrap_or_else(|| self.folder());
        let mut names = prefix.split('/').zip(folder.split('/'));
        prefix.is_empty() || folder.is_empty() || names.all(|(name, found)| name == found)
    }

    /// Returns the path itself if the glob has no wildcards; a single tree lookup is then enough.
    pub fn literal(&self) -> Option<&str> {
        matches!(self.kind, GlobKind::Literal).then_some(self.text.as_str())
    }

    /// Returns the folder that contains every matching path, without a trailing slash; empty for the root.
    pub fn folder(&self) -> &str {
        folder(&self.text)
    }
}

/// Returns the folder that contains every path matching an uncompiled glob. Compiling is expensive, and most globs of a
/// large repository name folders without changes.
pub(crate) fn folder(glob: &str) -> &str {
    let plain = glob.find(SPECIAL_CHARS).map_or(glob, |end| &glob[..end]);
    plain.rsplit_once('/').map_or("", |(folder, _)| folder)
}

const SPECIAL_CHARS: [char; 5] = ['*', '?', '[', '{', '\\'];

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

fn is_literal(glob: &str) -> bool {
    !glob.contains(SPECIAL_CHARS)
}

fn build(glob: &str, semantics: GlobSemantics) -> Option<Regex> {
    // Byte classes are much smaller than character classes and faster to compile.
    let any_char = if glob.is_ascii() { r"(?:[^/\x80-\xBF][\x80-\xBF]*)" } else { "[^/]" };
    RegexBuilder::new(&translate(glob, semantics, any_char)?)
        .unicode(!glob.is_ascii())
        .dot_matches_new_line(true)
        .size_limit(256 * 1024)
        .dfa_size_limit(256 * 1024)
        .nest_limit(50)
        .build()
        .ok()
}

/// Translates a glob into a regular expression for the whole path. Files that begin with a dot match too.
fn translate(glob: &str, semantics: GlobSemantics, any_char: &str) -> Option<String> {
    let mut out = String::from("^");
    let mut chars = glob.chars().peekable();
    let mut at_segment_start = true;
    let mut braces = 0_usize;
    while let Some(ch) = chars.next() {
        let was_start = at_segment_start;
        at_segment_start = ch == '/';
        match ch {
            '*' if chars.peek() == Some(&'*') => {
                while chars.next_if_eq(&'*').is_some() {}
                if was_start && chars.next_if_eq(&'/').is_some() {
                    out.push_str("(?:[^/]+/)*");
                    at_segment_start = true;
                } else if was_start && semantics == GlobSemantics::Doublestar && ends_name(chars.peek(), braces) {
                    // `a/**` matches `a` as well.
                    let rest = if out.ends_with('/') { "(?:/.*)?" } else { ".*" };
                    out.truncate(out.trim_end_matches('/').len());
                    out.push_str(rest);
                } else {
                    // Without a following slash, and for `File.fnmatch` even at the end, `**` is a plain `*`.
                    out.push_str("[^/]*");
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str(any_char),
            '[' => translate_class(&mut chars, &mut out)?,
            '{' => {
                braces += 1;
                at_segment_start = was_start;
                out.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if braces > 0 => {
                at_segment_start = true;
                out.push('|');
            }
            '\\' => push_literal(chars.next()?, &mut out),
            other => push_literal(other, &mut out),
        }
    }
    if braces > 0 {
        return None;
    }
    out.push_str(match semantics {
        GlobSemantics::Fnmatch => "$",
        GlobSemantics::Doublestar => "(?:/.*)?$",
    });
    Some(out)
}

fn ends_name(next: Option<&char>, braces: usize) -> bool {
    next.is_none_or(|next| braces > 0 && matches!(next, ',' | '}'))
}

fn translate_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Option<()> {
    // A class never matches a slash.
    out.push('[');
    if chars.next_if(|ch| matches!(ch, '!' | '^')).is_some() {
        out.push_str("^/");
    }
    let mut any = false;
    loop {
        match chars.next()? {
            ']' if any => break,
            '-' if any && chars.peek() != Some(&']') => out.push('-'),
            ch => {
                any = true;
                push_literal(ch, out);
            }
        }
    }
    out.push(']');
    Some(())
}

fn push_literal(ch: char, out: &mut String) {
    // `\<` and `\>` are boundaries of words.
    if ch.is_ascii_punctuation() && !matches!(ch, '/' | '_' | '<' | '>') {
        out.push('\\');
    }
    out.push(ch);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(semantics: GlobSemantics, glob: &str, matching: &[&str], other_paths: &[&str]) {
        let compiled = Glob::compile(glob, semantics).expect("a glob");
        for path in matching {
            assert!(compiled.matches(path), "{glob} and {path}");
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            assert!(compiled.may_match_below(folder), "{glob} and what is below {folder}");
        }
        for path in other_paths {
            assert!(!compiled.matches(path), "{glob} and {path}");
        }
    }

    #[test]
    fn globs_of_rules_match_whole_paths() {
        let check = |glob, matching: &[&str], other_paths: &[&str]| {
            check(GlobSemantics::Fnmatch, glob, matching, other_paths);
        };
        check("Dockerfile", &["Dockerfile"], &["a/Dockerfile", "Dockerfile.old"]);
        check("*.md", &["README.md", ".md"], &["docs/a.md", "a.mdx"]);
        check("docs/*", &["docs/a", "docs/.b"], &["docs/a/b", "docs"]);
        check("**/*.rs", &["a.rs", "src/a.rs", "src/b/.a.rs"], &["a.rsx"]);
        check("src/**/*", &["src/a", "src/.a", "src/a/b"], &["lib/a", "src", "src/", "srcs/a"]);
        check("s?c/**/*", &["src/a", "src/.a", "src/a/b"], &["lib/a", "src", "srcs/a"]);
        check("src/**", &["src/a"], &["src/a/b", "srcs/a"]);
        check("a**b", &["ab", "axb"], &["a/b"]);
        check("*.{js,ts}", &["a.js", "a.ts"], &["a.jsx"]);
        check("{a,b/**/c}/x", &["a/x", "b/c/x", "b/1/2/c/x"], &["b/x"]);
        check("file[0-9].txt", &["file1.txt"], &["filea.txt", "file.txt"]);
        check("file[!0-9].txt", &["filea.txt"], &["file1.txt", "file/.txt"]);
        check("a+b(c).d", &["a+b(c).d"], &["aab(c).d"]);
        check("/package.json", &["package.json"], &[]);
        check("?.txt", &["ä.txt"], &["/.txt", ".txt", "ab.txt"]);
        check("ä?", &["äö"], &["ä/"]);
        check("w[&&]x", &["w&x"], &["wx"]);
        check("[]a-]x", &["]x", "ax", "-x"], &["bx"]);
        check("\\{a,b\\}\\*", &["{a,b}*"], &["a*", "{a,b}c"]);
        check("a,b}", &["a,b}"], &["a"]);
        check("*<a>", &["<a>", "b<a>"], &["a"]);
    }

    #[test]
    fn globs_of_artifacts_match_whole_folders() {
        let check = |glob, matching: &[&str], other_paths: &[&str]| {
            check(GlobSemantics::Doublestar, glob, matching, other_paths);
        };
        check("out", &["out", "out/a/b"], &["outer", "a/out"]);
        check("out/*", &["out/a", "out/a/b"], &["out"]);
        check("out/**", &["out", "out/a", "out/a/b"], &["other/x", "outer"]);
        check("out/**/*", &["out/a", "out/a/b"], &["out"]);
        check("**/out", &["out", "a/out", "a/out/b"], &["a/outer"]);
        check("**", &["a", "a/b"], &[]);
        check("{a,b/**}", &["a", "a/x", "b", "b/x/y"], &["c"]);
        check("{a,b/**}/c?", &["a/cä", "b/c1", "b/x/c1/y"], &["a/x/c1", "b/c"]);
    }

    #[test]
    fn only_folders_that_may_contain_a_match_are_searched() {
        let check = |glob, folder, expected| {
            let compiled = Glob::compile(glob, GlobSemantics::Doublestar).expect("a glob");
            assert_eq!(compiled.may_match_below(folder), expected, "{glob} and {folder}");
        };
        check("a/b", "a", true);
        check("a/b", "a/b/c", true);
        check("a/b", "a/c", false);
        check("a/*.txt", "", true);
        check("a/*.txt", "a", true);
        check("a/*.txt", "ab", false);
        check("a/**/x", "a/b/c", true);
        check("*/x", "a/b", true);
    }

    #[test]
    fn a_malformed_glob_is_rejected() {
        for glob in ["[", "[]", "{a", "x\\", "[a-", "[z-a]"] {
            assert!(Glob::compile(glob, GlobSemantics::Fnmatch).is_none(), "{glob}");
        }
    }

    #[test]
    fn a_glob_knows_its_literal_path_and_folder() {
        let compile = |text| Glob::compile(text, GlobSemantics::Fnmatch).expect("a glob");
        assert_eq!(compile("docs/a.md").literal(), Some("docs/a.md"));
        assert_eq!(compile("docs/*.md").literal(), None);
        assert_eq!(compile("docs/api/*.md").folder(), "docs/api");
        assert_eq!(compile("**/*.md").folder(), "");
    }
}
