//! References to issues in text: `#12` and `group/project#12`, and whether the text closes them.

use crate::{IssueIid, namespaces, projects};

/// The maximum length of a project path that is recognized, in bytes.
const MAX_PATH_LENGTH: usize = 1024;

/// Words that close the issues referenced right after them; the first letter may be a capital.
const CLOSING_WORDS: [&str; 12] = [
    "close",
    "closes",
    "closed",
    "closing",
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "resolve",
    "resolves",
    "resolved",
    "resolving",
];

/// A reference to an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The full path of the project; `None` for the project that the text belongs to.
    pub project: Option<String>,
    /// The number of the issue within the project.
    pub iid: IssueIid,
    /// Whether the text closes the issue.
    pub closes: bool,
}

/// Returns all references in a text, in order and with repetitions. The running time is linear in the length of the
/// text.
pub fn in_text(text: &str) -> Vec<Reference> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // The offset at which the next reference must begin to be closed.
    let mut closing = None;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += run_length(bytes, start, is_path_byte);
        // A possibly empty word of characters that occur in paths.
        let word = &bytes[start..at];
        if bytes[at..].starts_with(b"://") {
            at += run_length(bytes, at, |byte| !byte.is_ascii_whitespace());
        } else if bytes.get(at) == Some(&b'#') {
            let end = at + 1 + run_length(bytes, at + 1, |byte| byte.is_ascii_digit());
            if let Some((project, iid)) = reference(text, start, at, end) {
                let closes = closing == Some(start);
                found.push(Reference { project, iid, closes });
                closing = if closes { after_separator(bytes, end) } else { closing };
            }
            at = end;
        } else if word.is_empty() {
            at += 1;
        } else if is_word(text, start, word, &CLOSING_WORDS) {
            let colon = usize::from(bytes.get(at) == Some(&b':'));
            let blanks = run_length(bytes, at + colon, is_blank);
            closing = (colon + blanks > 0).then_some(at + colon + blanks);
        } else if closing == Some(start) && is_word(text, start, word, &["issue", "issues"]) {
            let blanks = run_length(bytes, at, is_blank);
            closing = (blanks > 0).then_some(at + blanks);
        }
    }
    found
}

/// Returns the number of consecutive bytes that match.
pub(crate) fn run_length(bytes: &[u8], from: usize, matches: impl Fn(u8) -> bool) -> usize {
    bytes.iter().skip(from).take_while(|byte| matches(**byte)).count()
}

pub(crate) fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Returns whether `word` is one of `words`, and not the end of a longer word.
fn is_word(text: &str, start: usize, word: &[u8], words: &[&str]) -> bool {
    let Some((first, rest)) = word.split_first() else { return false };
    let is = |known: &&str| known.as_bytes().split_first() == Some((&first.to_ascii_lowercase(), rest));
    words.iter().any(is) && !before(text, start).is_some_and(char::is_alphanumeric)
}

pub(crate) fn before(text: &str, at: usize) -> Option<char> {
    text.get(..at)?.chars().next_back()
}

/// Returns the project and the iid of `path#digits` if it is delimited on both sides; `hash` is the offset of `#`.
pub(crate) fn reference(text: &str, start: usize, hash: usize, end: usize) -> Option<(Option<String>, IssueIid)> {
    let (path, digits) = (text.get(start..hash)?, text.get(hash + 1..end)?);
    let iid = digits.parse().ok().filter(|iid| *iid > IssueIid::new(0))?;
    let after = text.get(end..)?.chars().next();
    if after.is_some_and(|next| next.is_alphanumeric() || next == '_') {
        return None;
    }
    let before = before(text, start);
    if path.is_empty() {
        // These precede parts of URLs, HTML entities and other notations.
        let delimits = |last: char| !last.is_alphanumeric() && !"&#=?@%\\!~+$*".contains(last);
        return before.is_none_or(delimits).then_some((None, iid));
    }
    let opens = |last: char| last.is_whitespace() || "([{<>\"'`,;".contains(last);
    let other = |last: char| !last.is_ascii() && !last.is_alphanumeric();
    let delimited = before.is_none_or(|last| opens(last) || other(last));
    (delimited && is_full_path(path)).then(|| (Some(path.to_owned()), iid))
}

fn is_full_path(path: &str) -> bool {
    path.len() <= MAX_PATH_LENGTH
        && path.rsplit_once('/').is_some_and(|(namespace, project)| {
            projects::is_path(project)
                && namespace.split('/').all(|part| !part.is_empty() && namespaces::is_well_formed(part))
        })
}

/// Returns the offset after a comma, an `and` or blanks, where the next reference may begin; `None` if there is no
/// separator.
fn after_separator(bytes: &[u8], from: usize) -> Option<usize> {
    let blanks = run_length(bytes, from, is_blank);
    let comma = usize::from(bytes.get(from + blanks) == Some(&b','));
    let mut at = from + blanks + comma;
    at += run_length(bytes, at, is_blank);
    if at == from {
        return None;
    }
    if bytes[at..].starts_with(b"and") {
        let more = run_length(bytes, at + 3, is_blank);
        at += if more > 0 { 3 + more } else { 0 };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the references in a text; an exclamation mark follows a closed issue.
    fn summary(text: &str) -> String {
        let short = |one: Reference| {
            format!("{}{}{}", one.project.unwrap_or_default(), one.iid, if one.closes { "!" } else { "" })
        };
        in_text(text).into_iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(summary(text), expected, "{text:?}");
    }

    #[test]
    fn references_are_found_by_number() {
        check("#12", "12");
        check("See #12.", "12");
        check("(#1), [#2]: #3; „#4“", "1 2 3 4");
        check("group/project#12", "group/project12");
        check("a/b/c.d_e-f#7 and (x/y#8)", "a/b/c.d_e-f7 x/y8");
        check("#1\n#2\r\n\t#3", "1 2 3");
    }

    #[test]
    fn lookalikes_are_no_references() {
        for text in [
            "",
            "#",
            "# 1",
            "#0",
            "#x",
            "#12bar",
            "foo#12bar",
            "#1_",
            "#1é",
            "é#1",
            "a#1",
            "a.#1",
            "&#12;",
            "##1",
            "#99999999999999999999",
            "http://example.com/a/b#1",
            "https://example.com/(x)#1",
            "https://example.com/?a=b&c=/d#1",
            "git@example.com:a/b#1",
            "ann@a/b#1",
            "/a/b#1",
            "a//b#1",
            "a/#1",
            "-a/b#1",
            "a/b.git#1",
            "a/..#1",
            "?q=#1",
        ] {
            check(text, "");
        }
        check(&format!("{}/b#1", "a/".repeat(1000)), "");
    }

    #[test]
    fn closing_words_close_the_references_after_them() {
        for word in CLOSING_WORDS {
            let capital = word[..1].to_uppercase() + &word[1..];
            check(&format!("{word} #4"), "4!");
            check(&format!("{capital}  issue #4"), "4!");
            check(&format!("So it {word}: #4."), "4!");
        }
        check("Closes #1, #2 and #3", "1! 2! 3!");
        check("Closes #1,#2, and #3 #4 and issue #5; #6", "1! 2! 3! 4! 5! 6");
        check("Fixes issues #1 and a/b#2", "1! a/b2!");
        check("See #1, closes #2 and mentions #3", "1 2! 3");
        check("Fixes #1 and fixes #2", "1! 2!");
        check("Fixes:#4", "4!");
    }

    #[test]
    fn other_words_close_nothing() {
        for text in ["CLOSES #1", "Discloses #1", "éfix #1", "auto-close #1", "fix/close #1", "close\n#1"] {
            check(text, "1");
        }
        check("Fix the bug in #1", "1");
        check("Fixes#1", "");
        check("Closes #1 android #2", "1! 2");
        check("Closes #1\n#2", "1! 2");
        check("issue #1", "1");
    }

    /// A deterministic pseudo-random number generator.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).expect("31 bits") % end
        }
    }

    #[test]
    fn random_surrounding_text_does_not_hide_references() {
        let fragments = [
            "#",
            "&",
            "1",
            "42",
            "a",
            "/",
            "group/project",
            "Closes",
            "fix",
            " ",
            "  ",
            "\n",
            ",",
            " and ",
            ":",
            "://",
            "issue",
            "é",
            "日本",
            "\u{301}",
            "-",
            ".",
            "..",
            "(",
            "`",
            "\0",
            "🚀",
        ];
        let mut rng = Rng(7);
        for _ in 0..20_000 {
            let mut noise = || (0..rng.below(12)).map(|_| fragments[rng.below(fragments.len())]).collect::<String>();
            let text = format!("{}\nResolves #4711 and q/r#4712\n{}", noise(), noise());
            let found = in_text(&text);
            for project in [None, Some("q/r".to_owned())] {
                let iid = IssueIid::new(if project.is_some() { 4712 } else { 4711 });
                assert!(found.contains(&Reference { project, iid, closes: true }), "{text:?}");
            }
        }
    }

    /// Superlinear work would not finish here.
    #[test]
    fn long_messages_take_linear_time() {
        for fragment in ["a", "/", "a/", "#", "#1", "close ", "closes #1, ", "1", " ", "http://", "é", ", and "] {
            let times = (1 << 20) / fragment.len();
            let expected = match fragment {
                "closes #1, " => times,
                "#1" => 1,
                _ => 0,
            };
            assert_eq!(in_text(&fragment.repeat(times)).len(), expected, "{fragment:?}");
        }
    }
}
