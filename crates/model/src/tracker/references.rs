//! What a text says about issues: `#12`, `group/project#12`, and whether it closes them.

use crate::{namespaces, projects};

/// No full path that is looked up is longer.
const LONGEST_PATH: usize = 1024;

/// What closes the issues that are named right after it; the first letter may be a capital.
const CLOSING: [&str; 12] = [
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

/// An issue that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The full path of its project; `None` is the project that the text belongs to.
    pub project: Option<String>,
    /// Its number there.
    pub iid: i64,
    /// Whether the text closes it.
    pub closes: bool,
}

/// All issues that a text names, in its order and as often as it does. Takes time in proportion to the text.
pub fn in_text(text: &str) -> Vec<Reference> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // Where the next reference has to begin to be closed.
    let mut closing = None;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += count(bytes, start, is_of_path);
        // From here to there it is one word, of letters that paths have; perhaps an empty one.
        let word = &bytes[start..at];
        if bytes[at..].starts_with(b"://") {
            at += count(bytes, at, |byte| !byte.is_ascii_whitespace());
        } else if bytes.get(at) == Some(&b'#') {
            let end = at + 1 + count(bytes, at + 1, |byte| byte.is_ascii_digit());
            if let Some((project, iid)) = reference(text, start, at, end) {
                let closes = closing == Some(start);
                found.push(Reference { project, iid, closes });
                closing = if closes { after_separator(bytes, end) } else { closing };
            }
            at = end;
        } else if word.is_empty() {
            at += 1;
        } else if is_word(text, start, word, &CLOSING) {
            let colon = usize::from(bytes.get(at) == Some(&b':'));
            let blanks = count(bytes, at + colon, is_blank);
            closing = (colon + blanks > 0).then_some(at + colon + blanks);
        } else if closing == Some(start) && is_word(text, start, word, &["issue", "issues"]) {
            let blanks = count(bytes, at, is_blank);
            closing = (blanks > 0).then_some(at + blanks);
        }
    }
    found
}

/// How many bytes in a row are of a kind.
fn count(bytes: &[u8], from: usize, kind: impl Fn(u8) -> bool) -> usize {
    bytes.iter().skip(from).take_while(|byte| kind(**byte)).count()
}

fn is_of_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte)
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Whether a word is one of these, and not the end of a longer one.
fn is_word(text: &str, start: usize, word: &[u8], words: &[&str]) -> bool {
    let Some((first, rest)) = word.split_first() else { return false };
    let is = |known: &&str| known.as_bytes().split_first() == Some((&first.to_ascii_lowercase(), rest));
    words.iter().any(is) && !before(text, start).is_some_and(char::is_alphanumeric)
}

fn before(text: &str, at: usize) -> Option<char> {
    text.get(..at)?.chars().next_back()
}

/// What `path#digits` names, if it stands by itself: from `start` to `hash` the path, up to `end` the digits.
fn reference(text: &str, start: usize, hash: usize, end: usize) -> Option<(Option<String>, i64)> {
    let (path, digits) = (text.get(start..hash)?, text.get(hash + 1..end)?);
    let iid = digits.parse().ok().filter(|iid| *iid > 0)?;
    let after = text.get(end..)?.chars().next();
    if after.is_some_and(|next| next.is_alphanumeric() || next == '_') {
        return None;
    }
    let before = before(text, start);
    if path.is_empty() {
        // Parts of addresses, of what pages write for letters, and of other people's notations.
        let stands = |last: char| !last.is_alphanumeric() && !"&#=?@%\\!~+$*".contains(last);
        return before.is_none_or(stands).then_some((None, iid));
    }
    let opens = |last: char| last.is_whitespace() || "([{<>\"'`,;".contains(last);
    let other = |last: char| !last.is_ascii() && !last.is_alphanumeric();
    let stands = before.is_none_or(|last| opens(last) || other(last));
    (stands && is_full_path(path)).then(|| (Some(path.to_owned()), iid))
}

fn is_full_path(path: &str) -> bool {
    path.len() <= LONGEST_PATH
        && path.rsplit_once('/').is_some_and(|(namespace, project)| {
            projects::is_path(project)
                && namespace.split('/').all(|part| !part.is_empty() && namespaces::is_well_formed(part))
        })
}

/// Where the next of several references begins: after a comma, an `and` or blanks; `None` if none can follow.
fn after_separator(bytes: &[u8], from: usize) -> Option<usize> {
    let blanks = count(bytes, from, is_blank);
    let comma = usize::from(bytes.get(from + blanks) == Some(&b','));
    let mut at = from + blanks + comma;
    at += count(bytes, at, is_blank);
    if at == from {
        return None;
    }
    if bytes[at..].starts_with(b"and") {
        let more = count(bytes, at + 3, is_blank);
        at += if more > 0 { 3 + more } else { 0 };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found, in short: a number that is closed has an exclamation mark.
    fn told(text: &str) -> String {
        let short = |one: Reference| {
            format!("{}{}{}", one.project.unwrap_or_default(), one.iid, if one.closes { "!" } else { "" })
        };
        in_text(text).into_iter().map(short).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(told(text), expected, "{text:?}");
    }

    #[test]
    fn issues_are_named_by_their_numbers() {
        check("#12", "12");
        check("See #12.", "12");
        check("(#1), [#2]: #3; „#4“", "1 2 3 4");
        check("group/project#12", "group/project12");
        check("a/b/c.d_e-f#7 and (x/y#8)", "a/b/c.d_e-f7 x/y8");
        check("#1\n#2\r\n\t#3", "1 2 3");
    }

    #[test]
    fn what_only_looks_like_a_number_is_none() {
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
    fn a_phrase_closes_what_follows_it() {
        for word in CLOSING {
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

    /// Numbers that look random and are the same each time.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).expect("31 bits") % sides
        }
    }

    #[test]
    fn whatever_stands_around_it_what_was_planted_is_found() {
        let pieces = [
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
        let mut dice = Dice(7);
        for _ in 0..20_000 {
            let mut noise = || (0..dice.roll(12)).map(|_| pieces[dice.roll(pieces.len())]).collect::<String>();
            let text = format!("{}\nResolves #4711 and q/r#4712\n{}", noise(), noise());
            let found = in_text(&text);
            for project in [None, Some("q/r".to_owned())] {
                let iid = if project.is_some() { 4712 } else { 4711 };
                assert!(found.contains(&Reference { project, iid, closes: true }), "{text:?}");
            }
        }
    }

    /// More than linear work would not come to an end here.
    #[test]
    fn lesson_26_long_messages_are_read_once() {
        for piece in ["a", "/", "a/", "#", "#1", "close ", "closes #1, ", "1", " ", "http://", "é", ", and "] {
            let times = (1 << 20) / piece.len();
            let expected = match piece {
                "closes #1, " => times,
                "#1" => 1,
                _ => 0,
            };
            assert_eq!(in_text(&piece.repeat(times)).len(), expected, "{piece:?}");
        }
    }
}
