//! Differences as rows of a table, with the changed part of changed lines marked.

use model::objects::FileDiff;

use super::{Markup, plain::escape_into};

/// The maximum number of files whose differences are shown.
const MAX_FILES: usize = 300;
/// The maximum number of lines that are shown.
const MAX_LINES: usize = 5000;
/// The maximum size of the differences that are shown, in bytes.
const MAX_BYTES: usize = 512 << 10;

/// The differences of a commit or a comparison.
#[derive(Debug, Default)]
pub(crate) struct Diff {
    pub(crate) files: Vec<DiffFile>,
    pub(crate) additions: usize,
    pub(crate) deletions: usize,
}

/// The differences of a file.
#[derive(Debug)]
pub(crate) struct DiffFile {
    pub(crate) old_path: String,
    pub(crate) new_path: String,
    pub(crate) change: &'static str,
    /// Whether the file exists after the change.
    pub(crate) exists: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) additions: usize,
    pub(crate) deletions: usize,
    /// Why no lines are shown.
    pub(crate) omitted: Option<&'static str>,
}

impl DiffFile {
    pub(crate) fn is_renamed(&self) -> bool {
        self.old_path != self.new_path
    }
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The class of the row: `hunk`, `same`, `add` or `del`.
    pub(crate) kind: &'static str,
    pub(crate) old: Option<usize>,
    pub(crate) new: Option<usize>,
    pub(crate) html: Markup,
}

/// Limits the size of all files on a page together.
#[derive(Default)]
struct Budget {
    lines: usize,
    bytes: usize,
}

impl Diff {
    pub(crate) fn new(files: Vec<FileDiff>) -> Self {
        let mut budget = Budget::default();
        let mut diff = Self::default();
        for (number, file) in files.into_iter().enumerate() {
            let file = render_file(file, &mut budget, number < MAX_FILES);
            diff.additions += file.additions;
            diff.deletions += file.deletions;
            diff.files.push(file);
        }
        diff
    }
}

fn render_file(file: FileDiff, budget: &mut Budget, is_shown: bool) -> DiffFile {
    let change = match (file.old_mode, file.new_mode) {
        (None, _) => "added",
        (_, None) => "deleted",
        _ if file.renamed => "renamed",
        (old, new) if old != new && file.diff.is_empty() => "mode changed",
        _ => "changed",
    };
    let mut changed = DiffFile {
        exists: file.new_mode.is_some(),
        old_path: file.old_path,
        new_path: file.new_path,
        change,
        rows: Vec::new(),
        additions: 0,
        deletions: 0,
        omitted: None,
    };
    let mut hunk_lines = Vec::new();
    // The lines before the first hunk repeat the names of the file.
    for line in file.diff.lines().skip_while(|line| !line.starts_with("@@")) {
        match line.as_bytes().first() {
            Some(b'+') => changed.additions += 1,
            Some(b'-') => changed.deletions += 1,
            _ => {}
        }
        hunk_lines.push(line);
    }
    budget.lines += hunk_lines.len();
    budget.bytes += file.diff.len();
    changed.omitted = if file.too_large {
        Some("The differences are too large to be shown.")
    } else if file.diff.is_empty() && change != "renamed" && change != "mode changed" {
        Some("A binary or empty file.")
    } else if !is_shown || budget.lines > MAX_LINES || budget.bytes > MAX_BYTES {
        Some("Not shown, because the page would be too large.")
    } else {
        None
    };
    if changed.omitted.is_none() {
        changed.rows = rows(&hunk_lines);
    }
    changed
}

fn rows(lines: &[&str]) -> Vec<Row> {
    let (mut old, mut new) = (0, 0);
    let mut rows = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let text = line.get(1..).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'@') => {
                (old, new) = hunk_start(line).unwrap_or((old, new));
                rows.push(Row { kind: "hunk", old: None, new: None, html: plain(line) });
                at += 1;
            }
            Some(b'-' | b'+') => {
                let run =
                    |from: usize, sign: char| lines[from..].iter().take_while(|line| line.starts_with(sign)).count();
                let deleted = run(at, '-');
                let added = run(at + deleted, '+');
                let is_pair = deleted == added;
                for number in 0..deleted {
                    let text = &lines[at + number][1..];
                    let other = is_pair.then(|| &lines[at + deleted + number][1..]);
                    rows.push(Row { kind: "del", old: Some(old), new: None, html: marked(text, other, "del") });
                    old += 1;
                }
                for number in 0..added {
                    let text = &lines[at + deleted + number][1..];
                    let other = is_pair.then(|| &lines[at + number][1..]);
                    rows.push(Row { kind: "add", old: None, new: Some(new), html: marked(text, other, "ins") });
                    new += 1;
                }
                at += deleted + added;
            }
            // "\ No newline at end of file"
            Some(b'\\') => {
                rows.push(Row { kind: "hunk", old: None, new: None, html: plain(text.trim()) });
                at += 1;
            }
            _ => {
                rows.push(Row { kind: "same", old: Some(old), new: Some(new), html: plain(text) });
                (old, new) = (old + 1, new + 1);
                at += 1;
            }
        }
    }
    rows
}

/// Parses the first line numbers of `@@ -1,2 +3,4 @@`.
fn hunk_start(line: &str) -> Option<(usize, usize)> {
    let mut parts = line.split(' ').skip(1);
    let mut number = |sign: char| parts.next()?.strip_prefix(sign)?.split(',').next()?.parse().ok();
    Some((number('-')?, number('+')?))
}

fn plain(text: &str) -> Markup {
    let mut html = String::with_capacity(text.len());
    escape_into(&mut html, text);
    Markup(html)
}

/// Marks the part of a line that differs from the other version of the line, unless that is most of the line.
fn marked(text: &str, other: Option<&str>, element: &str) -> Markup {
    let Some(other) = other else { return plain(text) };
    let is_boundary = |at: usize| text.is_char_boundary(at);
    let mut start = text.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    while !is_boundary(start) {
        start -= 1;
    }
    let (rest, other_rest) = (&text[start..], other.get(start..).unwrap_or_default());
    let mut end = rest.bytes().rev().zip(other_rest.bytes().rev()).take_while(|(one, other)| one == other).count();
    while !is_boundary(text.len() - end) {
        end -= 1;
    }
    let changed = &text[start..text.len() - end];
    // A mark on most of the line would say nothing.
    let is_most = 4 * changed.len() > 3 * text.trim().len();
    if changed.is_empty() || is_most {
        return plain(text);
    }
    let mut html = String::with_capacity(text.len() + 16);
    escape_into(&mut html, &text[..start]);
    html.push_str(&format!("<{element}>"));
    escape_into(&mut html, changed);
    html.push_str(&format!("</{element}>"));
    escape_into(&mut html, &text[text.len() - end..]);
    Markup(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(diff: &str) -> FileDiff {
        FileDiff {
            old_path: "a".into(),
            new_path: "a".into(),
            old_mode: Some(0o100_644),
            new_mode: Some(0o100_644),
            diff: diff.into(),
            renamed: false,
            too_large: false,
        }
    }

    #[test]
    fn lines_are_numbered_and_changes_are_marked() {
        let diff = Diff::new(vec![file(
            "--- a/a\n+++ b/a\n@@ -3,3 +3,4 @@ fn x\n same\n-let a = 1;\n+let a = 2;\n+<new>\n\\ No newline\n",
        )]);
        let rows: Vec<String> = diff.files[0]
            .rows
            .iter()
            .map(|row| format!("{} {:?} {:?} {}", row.kind, row.old, row.new, row.html))
            .collect();
        assert_eq!(
            rows,
            [
                "hunk None None @@ -3,3 +3,4 @@ fn x",
                "same Some(3) Some(3) same",
                "del Some(4) None let a = 1;",
                "add None Some(4) let a = 2;",
                "add None Some(5) &lt;new&gt;",
                "hunk None None No newline",
            ]
        );
        assert_eq!((diff.additions, diff.deletions), (2, 1));
    }

    #[test]
    fn only_the_changed_part_of_a_line_is_marked() {
        let check = |text: &str, other: &str, expected: &str| {
            assert_eq!(marked(text, Some(other), "ins").to_string(), expected, "{text} {other}");
        };
        check("let a = 2;", "let a = 1;", "let a = <ins>2</ins>;");
        check("<a>", "<b>", "&lt;<ins>a</ins>&gt;");
        check("äx", "öx", "<ins>ä</ins>x");
        check("same", "same", "same");
        check("other", "", "other");
        check("  x", "  y", "  x");
        check("aa", "a", "a<ins>a</ins>");
    }

    #[test]
    fn a_page_has_limits() {
        let line = format!("@@ -0,0 +1,3000 @@\n{}", "+x\n".repeat(3000));
        let diff = Diff::new(vec![file(&line), file(&line), FileDiff { too_large: true, ..file("") }, file("")]);
        let omitted: Vec<bool> = diff.files.iter().map(|file| file.omitted.is_some()).collect();
        assert_eq!(omitted, [false, true, true, true]);
        assert_eq!(diff.additions, 6000);
        let many: Vec<FileDiff> = (0..=MAX_FILES).map(|_| file("@@ -0,0 +1 @@\n+x\n")).collect();
        assert!(Diff::new(many).files[MAX_FILES].omitted.is_some());
    }
}
