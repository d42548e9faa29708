//! Patterns for paths, as `changes` and `exists` use them: `*`, `**/`, `?`, `[…]` and `{a,b}`.

use regex::bytes::{Regex, RegexBuilder};

use crate::budget::MAX_PATTERN_BYTES;

/// A compiled pattern for paths.
#[derive(Clone, Debug)]
pub struct Glob {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// One path.
    Literal,
    /// `folder/**/*`, everything below a folder: by far the most frequent one, and it needs no regular expression.
    Below,
    Pattern(Regex),
}

impl Glob {
    /// Compiles a glob; nothing if it is malformed or too large.
    pub fn compile(text: &str) -> Option<Self> {
        let text = text.strip_prefix('/').unwrap_or(text);
        if text.len() > MAX_PATTERN_BYTES {
            return None;
        }
        let kind = match text.strip_suffix("/**/*") {
            _ if is_literal(text) => Kind::Literal,
            Some(folder) if is_literal(folder) => Kind::Below,
            _ => Kind::Pattern(build(text)?),
        };
        Some(Self { text: text.to_owned(), kind })
    }

    /// Tells whether a path, relative to the root of the repository, fits.
    pub fn matches(&self, path: &str) -> bool {
        match &self.kind {
            Kind::Literal => self.text == path,
            Kind::Below => path.strip_prefix(self.folder()).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/')),
            Kind::Pattern(regex) => regex.is_match(path.as_bytes()),
        }
    }

    /// The path itself if there is nothing to match, so that one look into a tree suffices.
    pub fn literal(&self) -> Option<&str> {
        matches!(self.kind, Kind::Literal).then_some(self.text.as_str())
    }

    /// The folder that every fitting path lies in, without a trailing slash; empty for the root.
    pub fn folder(&self) -> &str {
        folder(&self.text)
    }
}

/// The folder that every path lies in that fits to a glob which is not compiled yet. Compiling is what costs, and most
/// globs of a large repository speak of folders where nothing happened.
pub(crate) fn folder(glob: &str) -> &str {
    let plain = glob.find(SPECIAL).map_or(glob, |end| &glob[..end]);
    plain.rsplit_once('/').map_or("", |(folder, _)| folder)
}

const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

fn is_literal(glob: &str) -> bool {
    !glob.contains(SPECIAL)
}

fn build(glob: &str) -> Option<Regex> {
    // Classes of bytes are far smaller than those of characters, and compiling them is what costs.
    let any_sign = if glob.is_ascii() { r"(?:[^/\x80-\xBF][\x80-\xBF]*)" } else { "[^/]" };
    RegexBuilder::new(&translate(glob, any_sign)?)
        .unicode(!glob.is_ascii())
        .dot_matches_new_line(true)
        .size_limit(256 * 1024)
        .dfa_size_limit(256 * 1024)
        .nest_limit(50)
        .build()
        .ok()
}

/// Turns a glob into a regular expression for the whole path. Files that begin with a dot are found too.
fn translate(glob: &str, any_sign: &str) -> Option<String> {
    let mut out = String::from("^");
    let mut signs = glob.chars().peekable();
    let mut at_segment_start = true;
    let mut braces = 0_usize;
    while let Some(sign) = signs.next() {
        let was_start = at_segment_start;
        at_segment_start = sign == '/';
        match sign {
            '*' if signs.peek() == Some(&'*') => {
                while signs.next_if_eq(&'*').is_some() {}
                if was_start && signs.next_if_eq(&'/').is_some() {
                    out.push_str("(?:[^/]+/)*");
                    at_segment_start = true;
                } else {
                    // Without a slash after it, also at the end, it is a plain `*`, as in the original.
                    out.push_str("[^/]*");
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str(any_sign),
            '[' => translate_class(&mut signs, &mut out)?,
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
            '\\' => push_literal(signs.next()?, &mut out),
            other => push_literal(other, &mut out),
        }
    }
    if braces > 0 {
        return None;
    }
    out.push('$');
    Some(out)
}

fn translate_class(signs: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Option<()> {
    // A class never matches the slash, which separates folders.
    out.push('[');
    if signs.next_if(|sign| matches!(sign, '!' | '^')).is_some() {
        out.push_str("^/");
    }
    let mut any = false;
    loop {
        match signs.next()? {
            ']' if any => break,
            '-' if any && signs.peek() != Some(&']') => out.push('-'),
            sign => {
                any = true;
                push_literal(sign, out);
            }
        }
    }
    out.push(']');
    Some(())
}

fn push_literal(sign: char, out: &mut String) {
    if !sign.is_alphanumeric() && sign.is_ascii() && !matches!(sign, '/' | '_' | ' ') {
        out.push('\\');
    }
    out.push(sign);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(glob: &str, fits: &[&str], does_not_fit: &[&str]) {
        let glob = Glob::compile(glob).expect("a glob");
        for path in fits {
            assert!(glob.matches(path), "{path}");
        }
        for path in does_not_fit {
            assert!(!glob.matches(path), "{path}");
        }
    }

    #[test]
    fn globs_match_paths_as_the_original_does() {
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
    }

    #[test]
    fn a_broken_glob_is_refused() {
        for glob in ["[", "[]", "{a", "x\\", "[a-"] {
            assert!(Glob::compile(glob).is_none(), "{glob}");
        }
    }

    #[test]
    fn a_glob_tells_where_to_look() {
        let compile = |text| Glob::compile(text).expect("a glob");
        assert_eq!(compile("docs/a.md").literal(), Some("docs/a.md"));
        assert_eq!(compile("docs/*.md").literal(), None);
        assert_eq!(compile("docs/api/*.md").folder(), "docs/api");
        assert_eq!(compile("**/*.md").folder(), "");
    }
}
