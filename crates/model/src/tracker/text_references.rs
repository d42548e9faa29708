//! References in texts of users, with their positions: `#12`, `group/project#12`, `@user`, `~label`, `~"two words"`,
//! `%milestone` and ids of commits.

use std::ops::Range;

use crate::{
    IssueIid,
    references::{before, is_path_byte, reference, run_length},
};

/// The minimum length of the id of a commit.
const MIN_COMMIT_LENGTH: usize = 7;
/// The length of the full id of a commit.
const MAX_COMMIT_LENGTH: usize = 40;
/// The maximum length of the name of a user, a label or a milestone, in bytes.
const MAX_NAME_LENGTH: usize = 1024;

/// What a text refers to, if it exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextReference {
    /// An issue.
    Issue {
        /// The full path of the project; `None` for the project that the text belongs to.
        project: Option<String>,
        /// The number of the issue within the project.
        iid: IssueIid,
    },
    /// A user or a group, by username or path.
    User(String),
    /// A label, by title or id.
    Label(String),
    /// A milestone, by title or number.
    Milestone(String),
    /// A commit, by the beginning of its id.
    Commit(String),
}

/// Returns all references in a text, in order and with repetitions. The running time is linear in the length of the text.
pub fn find(text: &str) -> Vec<(Range<usize>, TextReference)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += run_length(bytes, start, is_path_byte);
        let next = bytes.get(at).copied();
        if bytes[at..].starts_with(b"://") {
            at += run_length(bytes, at, |byte| !byte.is_ascii_whitespace());
        } else if next == Some(b'#') {
            let end = at + 1 + run_length(bytes, at + 1, |byte| byte.is_ascii_digit());
            if let Some((project, iid)) = reference(text, start, at, end) {
                found.push((start..end, TextReference::Issue { project, iid }));
            }
            at = end;
        } else if at == start && matches!(next, Some(b'@' | b'~' | b'%')) {
            let reference = named(text, at);
            at = reference.as_ref().map_or(at + 1, |(range, _)| range.end);
            found.extend(reference);
        } else if at == start {
            at += 1;
        } else {
            found.extend(commit(text, start, at));
        }
    }
    found
}

/// Returns the reference to a user, a label or a milestone that starts at `start` with its sigil.
fn named(text: &str, start: usize) -> Option<(Range<usize>, TextReference)> {
    if !before(text, start).is_none_or(delimits) {
        return None;
    }
    let bytes = text.as_bytes();
    let (sigil, from) = (bytes[start], start + 1);
    let quoted = bytes.get(from) == Some(&b'"') && sigil != b'@';
    let (name, end) = if quoted {
        let length =
            run_length(&bytes[..bytes.len().min(from + MAX_NAME_LENGTH)], from + 1, |byte| !b"\"\r\n".contains(&byte));
        let end = from + 1 + length;
        (text.get(from + 1..end).filter(|_| bytes.get(end) == Some(&b'"'))?.trim(), end + 1)
    } else {
        let is_part = |byte: u8| match sigil {
            b'@' => byte.is_ascii_alphanumeric() || b"_.-".contains(&byte),
            _ => byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_.-?&".contains(&byte),
        };
        let end = from + run_length(bytes, from, is_part);
        let name = text.get(from..end)?.trim_end_matches(['.', '?', '-', '&']);
        (name, from + name.len())
    };
    let is_short = !name.is_empty() && name.len() <= MAX_NAME_LENGTH;
    // `@scope/package` names no user.
    let is_path = sigil == b'@' && bytes.get(end) == Some(&b'/');
    let name = Some(name).filter(|_| is_short && !is_path)?.to_owned();
    let reference = match sigil {
        b'@' => TextReference::User(name),
        b'~' => TextReference::Label(name),
        _ => TextReference::Milestone(name),
    };
    Some((start..end, reference))
}

/// Returns the reference to a commit in a word. Ids have both digits and letters, unlike most numbers and words.
fn commit(text: &str, start: usize, end: usize) -> Option<(Range<usize>, TextReference)> {
    let word = text.get(start..end)?.trim_end_matches(['.', '-']);
    let is_id = (MIN_COMMIT_LENGTH..=MAX_COMMIT_LENGTH).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_delimited = before(text, start).is_none_or(delimits)
        && text.get(end..)?.chars().next().is_none_or(|next| !next.is_alphanumeric() && !"=@".contains(next));
    (is_id && is_delimited).then(|| (start..start + word.len(), TextReference::Commit(word.to_owned())))
}

/// Returns whether a reference may begin after a character.
fn delimits(last: char) -> bool {
    last.is_whitespace() || "([{<>\"'`,;:*|".contains(last) || (!last.is_ascii() && !last.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the references in a text.
    fn summary(text: &str) -> String {
        let short = |(range, reference): (Range<usize>, TextReference)| {
            assert!(text.get(range.clone()).is_some(), "{text}: {range:?}");
            match reference {
                TextReference::Issue { project, iid } => format!("{}#{iid}", project.unwrap_or_default()),
                TextReference::User(name) => format!("@{name}"),
                TextReference::Label(name) => format!("~{name}"),
                TextReference::Milestone(name) => format!("%{name}"),
                TextReference::Commit(id) => id,
            }
        };
        find(text).into_iter().map(short).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn references_are_found_with_their_positions() {
        let check = |text: &str, expected: &str| assert_eq!(summary(text), expected, "{text:?}");
        check("See #1, a/b#2 and (#3).", "#1|a/b#2|#3");
        check("@ann: ask @bob-2. (@carl_x)", "@ann|@bob-2|@carl_x");
        check("~bug ~\"two words\" ~größe, ~7", "~bug|~two words|~größe|~7");
        check("%1.0 %\"the next one\" %12.", "%1.0|%the next one|%12");
        check("Fixed in 1a2b3c4d5e.", "1a2b3c4d5e");
        assert_eq!(find("x @ann")[0].0, 2..6);
        assert_eq!(find("~\"a b\" c")[0].0, 0..6);
    }

    #[test]
    fn lookalikes_are_no_references() {
        for text in [
            "ann@example.org",
            "@",
            "@@ann",
            "@types/node",
            "~~gone~~",
            "a~b",
            "100% of 5",
            "50%x",
            "~\"open",
            "~\"a\nb\"",
            "https://example.org/@ann~x%20#1",
            "1234567",
            "defaced",
            "1a2b3c",
            "x1a2b3c4",
            "1a2b3c4x",
            "a-1a2b3c4",
            "1A2B3C4",
            "#1a",
        ] {
            assert_eq!(summary(text), "", "{text:?}");
        }
    }

    /// Superlinear work would not finish here.
    #[test]
    fn long_texts_take_linear_time() {
        for fragment in ["@", "~", "%", "~\"", "@a", "~\"a", "a1", "é", "~é", "#", " @a", "a1b2c3d ", "%\"x\" "] {
            let text = fragment.repeat((1 << 20) / fragment.len());
            let _ = find(&text);
        }
    }
}
