//! Comments on commits.

use crate::{CommitNoteId, Oid, ProjectId, Time, objects::FileDiff, users::UserSummary};

/// A comment on a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitNote {
    /// The id.
    pub id: CommitNoteId,
    /// The id of the project.
    pub project: ProjectId,
    /// The commit.
    pub commit: Oid,
    /// The text.
    pub body: String,
    /// The author; `None` if deleted.
    pub author: Option<UserSummary>,
    /// The commented line, if any.
    pub line: Option<CommitLine>,
    /// When it was created.
    pub created_at: Time,
}

/// A new comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCommitNote {
    /// The commit.
    pub commit: Oid,
    /// The text.
    pub body: String,
    /// The commented line, if any.
    pub line: Option<CommitLine>,
}

/// A line in the diff of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitLine {
    /// The path of the file.
    pub path: String,
    /// The line number, starting at 1.
    pub number: i64,
    /// Whether the number refers to the old version of the file.
    pub old: bool,
}

impl CommitLine {
    /// Returns whether the diffs add this line, or remove it if it is an old one.
    pub fn is_in(&self, diffs: &[FileDiff]) -> bool {
        let path = |diff: &FileDiff| if self.old { diff.old_path == self.path } else { diff.new_path == self.path };
        diffs.iter().filter(|diff| path(diff)).any(|diff| self.is_in_diff(&diff.diff))
    }

    fn is_in_diff(&self, text: &str) -> bool {
        // The next line numbers of the old and new version; unknown before the first hunk.
        let mut next = None;
        for line in text.split('\n') {
            if let Some(first) = parse_hunk_header(line) {
                next = Some(first);
                continue;
            }
            let Some((before, after)) = next.as_mut() else { continue };
            let sign = line.bytes().next();
            let here = match sign {
                Some(b'-') => self.old && *before == self.number,
                Some(b'+') => !self.old && *after == self.number,
                _ => false,
            };
            if here {
                return true;
            }
            *before += i64::from(matches!(sign, Some(b'-' | b' ')));
            *after += i64::from(matches!(sign, Some(b'+' | b' ')));
        }
        false
    }
}

/// Parses a hunk header into the first line numbers of the old and new version. Lines of a file cannot look like a header, because
/// each has its sign in front.
fn parse_hunk_header(line: &str) -> Option<(i64, i64)> {
    let (before, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (after, _) = rest.split_once(" @@")?;
    let first = |range: &str| range.split(',').next().and_then(|number| number.parse().ok());
    Some((first(before)?, first(after)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_that_was_added_or_removed() {
        let text = [
            "--- a/a.txt",
            "+++ b/b.txt",
            "@@ -1,3 +1,3 @@",
            " one",
            "-two",
            "+TWO",
            " three",
            "@@ -10 +10,2 @@ x",
            "-@@ -1 +1 @@",
            "+ten",
            "+eleven",
            "\\ No newline at end of file",
            "",
        ];
        let diff = FileDiff {
            old_path: "a.txt".into(),
            new_path: "b.txt".into(),
            old_mode: Some(0o100_644),
            new_mode: Some(0o100_644),
            diff: text.join("\n"),
            renamed: true,
            too_large: false,
        };
        let check = |path: &str, number: i64, old: bool, expected: bool| {
            let line = CommitLine { path: path.into(), number, old };
            assert_eq!(line.is_in(std::slice::from_ref(&diff)), expected, "{line:?}");
        };
        for (number, added, removed) in [
            (1, false, false),
            (2, true, true),
            (3, false, false),
            (10, true, true),
            (11, true, false),
            (12, false, false),
        ] {
            check("b.txt", number, false, added);
            check("a.txt", number, true, removed);
            check("a.txt", number, false, false);
            check("b.txt", number, true, false);
        }
        for odd in [0, -1, i64::MAX, i64::MIN] {
            check("b.txt", odd, false, false);
            check("a.txt", odd, true, false);
        }
    }
}
