//! Diffs of texts in the unified format of git.

use std::ops::Range;

use gix::diff::blob::{Algorithm, InternedInput, diff_with_slider_heuristics};

/// The number of context lines around a change.
const CONTEXT_LINES: u32 = 3;
/// The maximum length of the heading of a hunk.
const MAX_HEADING_LENGTH: usize = 80;
/// A file with a NUL within this many bytes is binary.
const BINARY_CHECK_BYTES: usize = 8000;
/// Diffs whose lines have this many bytes or more are too large.
pub(crate) const MAX_PATCH_BYTES: usize = 102_400;

/// Whether white space makes a difference between two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whitespace {
    /// Every change is shown.
    #[default]
    Significant,
    /// Changes of white space alone are not shown.
    Ignored,
}

/// The diff of two texts.
pub(crate) struct Patch {
    /// The hunks; `None` if they are too large.
    pub(crate) hunks: Option<Vec<u8>>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

/// Returns whether a file is binary.
pub(crate) fn is_binary(data: &[u8]) -> bool {
    data[..data.len().min(BINARY_CHECK_BYTES)].contains(&0)
}

/// Compares two texts line by line.
pub(crate) fn compare(old: &[u8], new: &[u8], whitespace: Whitespace) -> Patch {
    let changes = match whitespace {
        Whitespace::Significant => changed_lines(old, new),
        Whitespace::Ignored => changed_lines(&without_whitespace(old), &without_whitespace(new)),
    };
    let (old, new) = (lines_of(old), lines_of(new));
    let lines = TextPair { old_len: u32::try_from(old.len()).unwrap_or(u32::MAX), old, new };
    let added = changes.iter().map(|change| change.new.len()).sum();
    let removed = changes.iter().map(|change| change.old.len()).sum();
    Patch { hunks: lines.hunks(&changes), added, removed }
}

fn changed_lines(old: &[u8], new: &[u8]) -> Vec<ChangedLines> {
    let input = InternedInput::new(old, new);
    let diff = diff_with_slider_heuristics(Algorithm::Myers, &input);
    diff.hunks().map(|hunk| ChangedLines { old: hunk.before, new: hunk.after }).collect()
}

fn lines_of(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Removes white space, but no line. The end of the last line makes no difference.
fn without_whitespace(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len() + 1);
    kept.extend(text.iter().filter(|byte| **byte == b'\n' || !byte.is_ascii_whitespace()));
    if !text.is_empty() && !text.ends_with(b"\n") {
        kept.push(b'\n');
    }
    kept
}

/// Formats a path for the header of a patch: quoted if it contains special characters.
pub(crate) fn quote(prefix: &str, path: &str) -> String {
    if !path.contains(|c: char| c.is_ascii_control() || c == '"' || c == '\\') {
        return format!("{prefix}{path}");
    }
    let mut quoted = format!("\"{prefix}");
    for c in path.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\{:03o}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Lines of the old text that are replaced by lines of the new one.
struct ChangedLines {
    old: Range<u32>,
    new: Range<u32>,
}

/// Two texts as lines, each with its newline if it has one.
struct TextPair<'a> {
    old_len: u32,
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
}

impl TextPair<'_> {
    /// Formats the hunks; `None` if they are too large.
    fn hunks(&self, changes: &[ChangedLines]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut bytes = 0;
        let mut headings = Headings { at: 0, last: None };
        // Changes share a hunk if their contexts touch.
        for group in changes.chunk_by(|a, b| b.old.start - a.old.end <= 2 * CONTEXT_LINES) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let before = first.old.start.min(CONTEXT_LINES);
            let after = (self.old_len - last.old.end).min(CONTEXT_LINES);
            let old = first.old.start - before..last.old.end + after;
            let new = first.new.start - before..last.new.end + after;
            out.extend_from_slice(format!("@@ -{} +{} @@", span(&old), span(&new)).as_bytes());
            if let Some(heading) = headings.above(old.start as usize, &self.old) {
                out.push(b' ');
                out.extend_from_slice(heading);
            }
            out.push(b'\n');
            // Unchanged lines are those of the new text, as in git, if white space is ignored.
            let mut at = new.start;
            for change in group {
                write(b' ', &self.new, at..change.new.start, &mut out, &mut bytes);
                write(b'-', &self.old, change.old.clone(), &mut out, &mut bytes);
                write(b'+', &self.new, change.new.clone(), &mut out, &mut bytes);
                at = change.new.end;
                if bytes >= MAX_PATCH_BYTES {
                    return None;
                }
            }
            write(b' ', &self.new, at..new.end, &mut out, &mut bytes);
            if bytes >= MAX_PATCH_BYTES {
                return None;
            }
        }
        Some(out)
    }
}

fn write(sign: u8, lines: &[&[u8]], range: Range<u32>, out: &mut Vec<u8>, bytes: &mut usize) {
    for line in &lines[range.start as usize..range.end as usize] {
        out.push(sign);
        out.extend_from_slice(line);
        *bytes += line.len();
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
        if *bytes >= MAX_PATCH_BYTES {
            return;
        }
    }
}

/// Finds the last line above a hunk that looks like a heading: it starts with a letter.
struct Headings {
    at: usize,
    last: Option<usize>,
}

impl Headings {
    fn above<'a>(&mut self, line: usize, lines: &[&'a [u8]]) -> Option<&'a [u8]> {
        let is_heading = |line_number: &usize| {
            lines[*line_number].first().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'))
        };
        // Each line is inspected once, however many hunks there are.
        self.last = (self.at..line).rev().find(is_heading).or(self.last);
        self.at = line;
        let heading = lines[self.last?];
        Some(heading[..heading.len().min(MAX_HEADING_LENGTH)].trim_ascii_end())
    }
}

fn span(range: &Range<u32>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        len => format!("{},{len}", range.start + 1),
    }
}
