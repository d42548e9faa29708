//! Differences as rows of a table, with the changed words of changed lines marked.

use model::objects::FileDiff;

use crate::{Markup, links::ProjectLinks, words};

/// The maximum number of files whose differences are shown.
const MAX_FILES: usize = 300;
/// The maximum number of files that are listed.
const MAX_LISTED_FILES: usize = 1000;
/// The maximum number of lines that are shown.
const MAX_LINES: usize = 5000;
/// The maximum size of the differences that are shown, in bytes.
const MAX_BYTES: usize = 512 << 10;

/// The differences of a commit or a comparison.
#[derive(Debug, Default)]
pub struct Diff {
    /// The files that are listed.
    pub files: Vec<DiffFile>,
    /// The number of added lines.
    pub additions: usize,
    /// The number of removed lines.
    pub deletions: usize,
    /// The number of files that are not listed.
    pub unlisted: usize,
}

/// The differences of a file.
#[derive(Debug)]
pub struct DiffFile {
    /// The path before the change.
    pub old_path: String,
    /// The path after the change.
    pub new_path: String,
    /// What happened to the file, such as `renamed`.
    pub change: &'static str,
    /// Whether the file exists after the change.
    pub exists: bool,
    /// The lines that are shown.
    pub rows: Vec<Row>,
    /// The number of added lines.
    pub additions: usize,
    /// The number of removed lines.
    pub deletions: usize,
    /// Why no lines are shown.
    pub omitted: Option<&'static str>,
    /// The modes before and after the change, if they differ.
    pub modes: Option<(String, String)>,
    /// Whether lines were compared, so that the numbers say something.
    pub is_counted: bool,
    /// Whether the page has a section for the file.
    pub has_section: bool,
    /// The URLs of the image before and after the change.
    pub old_image: Option<String>,
    /// The URL of the new version of an image.
    pub new_image: Option<String>,
}

impl DiffFile {
    /// Returns whether the path changed.
    pub fn is_renamed(&self) -> bool {
        self.old_path != self.new_path
    }
}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The class of the row: `hunk`, `same`, `add` or `del`.
    pub kind: &'static str,
    /// The number of the line before the change.
    pub old: Option<usize>,
    /// The number of the line after the change.
    pub new: Option<usize>,
    /// The text of the line.
    pub html: Markup,
}

/// Returns whether a file is an image that browsers show, by its name.
pub fn is_image(path: &str) -> bool {
    const EXTENSIONS: [&str; 8] = ["png", "jpg", "jpeg", "gif", "webp", "avif", "ico", "svg"];
    let extension = path.rsplit('.').next().unwrap_or_default();
    EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Limits the size of all files on a page together.
#[derive(Default)]
struct Budget {
    lines: usize,
    bytes: usize,
}

impl Diff {
    /// Adds the URLs of changed images, whose old and new versions are in these revisions.
    pub fn with_images(mut self, links: &ProjectLinks, old_revision: Option<&str>, new_revision: &str) -> Self {
        for file in &mut self.files {
            if !is_image(&file.new_path) || file.change == "renamed" || file.change == "mode changed" {
                continue;
            }
            let old = old_revision.filter(|_| file.change != "added");
            file.old_image = old.map(|revision| links.raw(revision, &file.old_path));
            file.new_image = file.exists.then(|| links.raw(new_revision, &file.new_path));
            if file.rows.is_empty() {
                file.omitted = None;
            }
        }
        self
    }

    /// Renders differences, as many as a page can show.
    pub fn new(files: Vec<FileDiff>) -> Self {
        let mut budget = Budget::default();
        let mut diff = Self::default();
        for (number, file) in files.into_iter().enumerate() {
            let file = render_file(file, &mut budget, number < MAX_FILES);
            diff.additions += file.additions;
            diff.deletions += file.deletions;
            if number < MAX_LISTED_FILES {
                diff.files.push(file);
            } else {
                diff.unlisted += 1;
            }
        }
        diff
    }
}

fn render_file(file: FileDiff, budget: &mut Budget, is_shown: bool) -> DiffFile {
    let has_content = !file.diff.is_empty() || file.too_large;
    let change = match (file.old_mode, file.new_mode) {
        (None, _) => "added",
        (_, None) => "deleted",
        _ if file.renamed && has_content => "renamed and changed",
        _ if file.renamed => "renamed",
        (old, new) if old != new && has_content => "changed, with another mode",
        (old, new) if old != new => "mode changed",
        _ => "changed",
    };
    let is_binary = file.diff.starts_with("Binary files ");
    let mut changed = DiffFile {
        exists: file.new_mode.is_some(),
        old_path: file.old_path,
        new_path: file.new_path,
        change,
        rows: Vec::new(),
        additions: 0,
        deletions: 0,
        omitted: None,
        modes: file
            .old_mode
            .zip(file.new_mode)
            .filter(|(old, new)| old != new)
            .map(|(old, new)| (format!("{old:06o}"), format!("{new:06o}"))),
        is_counted: true,
        has_section: is_shown,
        old_image: None,
        new_image: None,
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
    } else if is_binary {
        Some("A binary file.")
    } else if file.diff.is_empty() && matches!(change, "added" | "deleted") {
        Some("An empty file.")
    } else if file.diff.is_empty() && change == "changed" {
        Some("Only white space was changed.")
    } else if !is_shown || budget.lines > MAX_LINES || budget.bytes > MAX_BYTES {
        Some("Not shown, because the page would be too large.")
    } else {
        None
    };
    changed.is_counted = !file.too_large && !is_binary;
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
                rows.push(Row { kind: "hunk", old: None, new: None, html: words::plain(line) });
                at += 1;
            }
            Some(b'-' | b'+') => {
                let run =
                    |from: usize, sign: char| lines[from..].iter().take_while(|line| line.starts_with(sign)).count();
                let deleted = run(at, '-');
                let added = run(at + deleted, '+');
                let texts = |from: usize, count: usize| -> Vec<&str> {
                    lines[from..from + count].iter().map(|line| &line[1..]).collect()
                };
                let (removed_html, added_html) = words::mark(&texts(at, deleted), &texts(at + deleted, added));
                for html in removed_html {
                    rows.push(Row { kind: "del", old: Some(old), new: None, html });
                    old += 1;
                }
                for html in added_html {
                    rows.push(Row { kind: "add", old: None, new: Some(new), html });
                    new += 1;
                }
                at += deleted + added;
            }
            // "\ No newline at end of file"
            Some(b'\\') => {
                rows.push(Row { kind: "hunk", old: None, new: None, html: words::plain(text.trim()) });
                at += 1;
            }
            _ => {
                rows.push(Row { kind: "same", old: Some(old), new: Some(new), html: words::plain(text) });
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
                "del Some(4) None let a = <del>1</del>;",
                "add None Some(4) let a = <ins>2</ins>;",
                "add None Some(5) &lt;new&gt;",
                "hunk None None No newline",
            ]
        );
        assert_eq!((diff.additions, diff.deletions), (2, 1));
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

    #[test]
    fn changes_are_named() {
        let check = |file: FileDiff, expected: (&str, Option<&str>)| {
            let diff = Diff::new(vec![file]);
            assert_eq!((diff.files[0].change, diff.files[0].omitted), expected);
        };
        let binary = "Binary files a/a and b/a differ\n";
        check(file(binary), ("changed", Some("A binary file.")));
        check(file(""), ("changed", Some("Only white space was changed.")));
        check(FileDiff { old_mode: None, ..file("") }, ("added", Some("An empty file.")));
        check(FileDiff { renamed: true, old_path: "b".into(), ..file("") }, ("renamed", None));
        check(FileDiff { new_mode: Some(0o100_755), ..file("") }, ("mode changed", None));
        let image = FileDiff { new_path: "a.png".into(), old_path: "a.png".into(), ..file(binary) };
        let links = ProjectLinks::new("ann/rocket");
        let diff = Diff::new(vec![image]).with_images(&links, Some("1"), "2");
        assert_eq!(diff.files[0].old_image.as_deref(), Some("/ann/rocket/-/raw/1/a.png"));
        assert_eq!(diff.files[0].new_image.as_deref(), Some("/ann/rocket/-/raw/2/a.png"));
    }
}
