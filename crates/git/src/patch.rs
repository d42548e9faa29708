//! Differences of texts, written down the way git does.

use std::ops::Range;

use gix::diff::blob::{Algorithm, InternedInput, diff_with_slider_heuristics};

/// How many lines around a change are shown.
const CONTEXT: u32 = 3;
/// How many bytes of a line are repeated at the head of a hunk.
const LONGEST_HEADING: usize = 80;
/// How far into a file a NUL makes it binary.
const BINARY_WITHIN: usize = 8000;
/// From how many bytes of lines on a difference is not shown.
pub(crate) const TOO_LARGE: usize = 102_400;

/// How two texts differ.
pub(crate) struct Patch {
    /// The hunks; `None` if they are too large to be shown.
    pub(crate) hunks: Option<Vec<u8>>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

/// Whether something is no text.
pub(crate) fn is_binary(data: &[u8]) -> bool {
    data[..data.len().min(BINARY_WITHIN)].contains(&0)
}

/// Compares two texts line by line.
pub(crate) fn compare(old: &[u8], new: &[u8]) -> Patch {
    let input = InternedInput::new(old, new);
    let diff = diff_with_slider_heuristics(Algorithm::Myers, &input);
    let changes: Vec<Lines> = diff.hunks().map(|hunk| Lines { old: hunk.before, new: hunk.after }).collect();
    let lines = Texts {
        old_len: u32::try_from(input.before.len()).unwrap_or(u32::MAX),
        old: input.before.iter().map(|token| input.interner[*token]).collect(),
        new: input.after.iter().map(|token| input.interner[*token]).collect(),
    };
    let added = changes.iter().map(|change| change.new.len()).sum();
    let removed = changes.iter().map(|change| change.old.len()).sum();
    Patch { hunks: lines.hunks(&changes), added, removed }
}

/// A path as it stands in the head of a patch: quoted if it would otherwise break the line or end early.
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

/// Lines of the one text that are replaced by lines of the other.
struct Lines {
    old: Range<u32>,
    new: Range<u32>,
}

/// Two texts as lines, each with its newline if it has one.
struct Texts<'a> {
    old_len: u32,
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
}

impl Texts<'_> {
    /// The hunks as text; `None` if there is too much of it.
    fn hunks(&self, changes: &[Lines]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut bytes = 0;
        let mut headings = Headings { at: 0, last: None };
        // Changes share a hunk if the context around them touches.
        for group in changes.chunk_by(|a, b| b.old.start - a.old.end <= 2 * CONTEXT) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let before = first.old.start.min(CONTEXT);
            let after = (self.old_len - last.old.end).min(CONTEXT);
            let old = first.old.start - before..last.old.end + after;
            let new = first.new.start - before..last.new.end + after;
            out.extend_from_slice(format!("@@ -{} +{} @@", span(&old), span(&new)).as_bytes());
            if let Some(heading) = headings.above(old.start as usize, &self.old) {
                out.push(b' ');
                out.extend_from_slice(heading);
            }
            out.push(b'\n');
            let mut at = old.start;
            for change in group {
                write(b' ', &self.old, at..change.old.start, &mut out, &mut bytes);
                write(b'-', &self.old, change.old.clone(), &mut out, &mut bytes);
                write(b'+', &self.new, change.new.clone(), &mut out, &mut bytes);
                at = change.old.end;
                if bytes >= TOO_LARGE {
                    return None;
                }
            }
            write(b' ', &self.old, at..old.end, &mut out, &mut bytes);
            if bytes >= TOO_LARGE {
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
        if *bytes >= TOO_LARGE {
            return;
        }
    }
}

/// The last line above a hunk that looks like the head of something: it begins with a letter.
struct Headings {
    at: usize,
    last: Option<usize>,
}

impl Headings {
    fn above<'a>(&mut self, line: usize, lines: &[&'a [u8]]) -> Option<&'a [u8]> {
        let is_heading = |place: &usize| {
            lines[*place].first().is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'))
        };
        // Each line is looked at once, however many hunks there are.
        self.last = (self.at..line).rev().find(is_heading).or(self.last);
        self.at = line;
        let heading = lines[self.last?];
        Some(heading[..heading.len().min(LONGEST_HEADING)].trim_ascii_end())
    }
}

fn span(range: &Range<u32>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        len => format!("{},{len}", range.start + 1),
    }
}
