//! Which words of changed lines differ.

use std::{collections::HashMap, ops::Range};

use gix_imara_diff::{Algorithm, Diff, InternedInput};

use crate::{Markup, plain::escape_into};

/// Longer lines are shown without marks, in words.
const MAX_WORDS: usize = 1000;
/// The maximum number of pairs of lines that are compared to find out which belong together.
const MAX_PAIRS: usize = 400;
/// The minimum percentage of words that two versions of a line have in common.
const MIN_SIMILARITY: usize = 40;

/// Marks the words of removed and added lines that differ, with `<del>` and `<ins>`. A line that has no similar counterpart
/// has no marks, because they would say nothing.
pub(crate) fn mark(removed: &[&str], added: &[&str]) -> (Vec<Markup>, Vec<Markup>) {
    let plain = |lines: &[&str]| -> Vec<Markup> { lines.iter().map(|line| plain(line)).collect() };
    let (mut old_html, mut new_html) = (plain(removed), plain(added));
    for (old, new) in pairs(removed, added) {
        if let Some((old_marked, new_marked)) = mark_pair(removed[old], added[new]) {
            old_html[old] = old_marked;
            new_html[new] = new_marked;
        }
    }
    (old_html, new_html)
}

/// Returns which removed line became which added line. Lines keep their order.
fn pairs(removed: &[&str], added: &[&str]) -> Vec<(usize, usize)> {
    if removed.is_empty() || added.is_empty() {
        return Vec::new();
    }
    if removed.len() * added.len() > MAX_PAIRS {
        let is_same_count = removed.len() == added.len();
        return if is_same_count { (0..removed.len()).map(|index| (index, index)).collect() } else { Vec::new() };
    }
    let (old_words, new_words) = (WordCounts::of(removed), WordCounts::of(added));
    // The best total similarity of the lines from these on, and the first pair that leads to it.
    let mut best = vec![vec![0_usize; added.len() + 1]; removed.len() + 1];
    let mut similarity = vec![vec![0_usize; added.len()]; removed.len()];
    for old in (0..removed.len()).rev() {
        for new in (0..added.len()).rev() {
            let similar = old_words[old].similarity(&new_words[new]);
            similarity[old][new] = if similar < MIN_SIMILARITY { 0 } else { similar };
            let together = best[old + 1][new + 1] + similarity[old][new];
            best[old][new] = together.max(best[old + 1][new]).max(best[old][new + 1]);
        }
    }
    let (mut old, mut new) = (0, 0);
    let mut pairs = Vec::new();
    while old < removed.len() && new < added.len() {
        if similarity[old][new] > 0 && best[old][new] == best[old + 1][new + 1] + similarity[old][new] {
            pairs.push((old, new));
            (old, new) = (old + 1, new + 1);
        } else if best[old][new] == best[old + 1][new] {
            old += 1;
        } else {
            new += 1;
        }
    }
    pairs
}

/// How often each word occurs in a line, without white space.
struct WordCounts<'a> {
    counts: HashMap<&'a str, usize>,
    total: usize,
}

impl<'a> WordCounts<'a> {
    fn of(lines: &[&'a str]) -> Vec<Self> {
        lines.iter().map(|line| Self::new(line)).collect()
    }

    fn new(line: &'a str) -> Self {
        let mut counts = HashMap::new();
        let mut total = 0;
        for word in words(line).into_iter().map(|range| &line[range]).filter(|word| !word.trim().is_empty()) {
            *counts.entry(word).or_default() += 1;
            total += 1;
        }
        Self { counts, total }
    }

    /// Returns the percentage of the words of the longer line that the other one has, too.
    fn similarity(&self, other: &Self) -> usize {
        let common = |(word, count): (&&str, &usize)| other.counts.get(word).map_or(0, |other| *count.min(other));
        let common: usize = self.counts.iter().map(common).sum();
        common * 100 / self.total.max(other.total).max(1)
    }
}

/// Splits a line into words, white space, and single other characters.
fn words(line: &str) -> Vec<Range<usize>> {
    #[derive(PartialEq)]
    enum Kind {
        Word,
        Space,
        Other,
    }
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => Kind::Word,
        c if c.is_whitespace() => Kind::Space,
        _ => Kind::Other,
    };
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut last = Kind::Other;
    for (at, c) in line.char_indices() {
        let (kind, end) = (kind(c), at + c.len_utf8());
        let count = words.len();
        match words.last_mut() {
            Some(word) if kind == last && kind != Kind::Other => word.end = end,
            _ if count > MAX_WORDS => break,
            _ => words.push(at..end),
        }
        last = kind;
    }
    words
}

/// Marks two versions of a line; `None` if the marks would say nothing.
fn mark_pair(old: &str, new: &str) -> Option<(Markup, Markup)> {
    let (old_words, new_words) = (words(old), words(new));
    if old_words.len().max(new_words.len()) > MAX_WORDS {
        return None;
    }
    let mut input = InternedInput::default();
    input.update_before(old_words.iter().map(|range| &old[range.clone()]));
    input.update_after(new_words.iter().map(|range| &new[range.clone()]));
    let diff = Diff::compute(Algorithm::Myers, &input);
    let removed = changed(old, &old_words, |at| diff.is_removed(at))?;
    let added = changed(new, &new_words, |at| diff.is_added(at))?;
    Some((with_marks(old, &removed, "del"), with_marks(new, &added, "ins")))
}

/// Returns the changed parts of a line; white space between two of them belongs to them. `None` if it is most of the line.
fn changed(line: &str, words: &[Range<usize>], is_changed: impl Fn(u32) -> bool) -> Option<Vec<Range<usize>>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, word) in (0..).zip(words) {
        if is_changed(at) {
            match ranges.last_mut() {
                Some(last) if line[last.end..word.start].trim().is_empty() => last.end = word.end,
                _ => ranges.push(word.clone()),
            }
        }
    }
    let visible = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
    let count: usize = ranges.iter().map(|range| visible(&line[range.clone()])).sum();
    (4 * count <= 3 * visible(line)).then_some(ranges)
}

fn with_marks(line: &str, ranges: &[Range<usize>], element: &str) -> Markup {
    let mut html = String::with_capacity(line.len() + 16 * ranges.len());
    let mut at = 0;
    for range in ranges {
        escape_into(&mut html, &line[at..range.start]);
        html.push_str(&format!("<{element}>"));
        escape_into(&mut html, &line[range.clone()]);
        html.push_str(&format!("</{element}>"));
        at = range.end;
    }
    escape_into(&mut html, &line[at..]);
    Markup(html)
}

/// Returns a line without marks.
pub(crate) fn plain(text: &str) -> Markup {
    let mut html = String::with_capacity(text.len());
    escape_into(&mut html, text);
    Markup(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_changed_words_of_a_line_are_marked() {
        let check = |old: &str, new: &str, expected: &str| {
            let (removed, added) = mark(&[old], &[new]);
            assert_eq!(format!("{} | {}", removed[0], added[0]), expected, "{old} {new}");
        };
        check("let a = 1;", "let a = 2;", "let a = <del>1</del>; | let a = <ins>2</ins>;");
        check(
            "let (a, b) = x;",
            "let (c, b) = y;",
            "let (<del>a</del>, b) = <del>x</del>; | let (<ins>c</ins>, b) = <ins>y</ins>;",
        );
        check("<a>", "<b>", "&lt;<del>a</del>&gt; | &lt;<ins>b</ins>&gt;");
        check("same", "same", "same | same");
        check("other", "", "other | ");
        check("ä x y", "ö x y", "<del>ä</del> x y | <ins>ö</ins> x y");
        check("call(one two)", "call(three four)", "call(<del>one two</del>) | call(<ins>three four</ins>)");
        check("aaaa bbbb c", "dddd eeee c", "aaaa bbbb c | dddd eeee c");
        check("if a {", "  if a {", "if a { | <ins>  </ins>if a {");
    }

    #[test]
    fn similar_lines_of_a_block_belong_together() {
        let (removed, added) = mark(&["let a = 1;"], &["let new = 0;", "let a = 2;"]);
        assert_eq!(removed[0].to_string(), "let a = <del>1</del>;");
        assert_eq!(added[0].to_string(), "let new = 0;");
        assert_eq!(added[1].to_string(), "let a = <ins>2</ins>;");
        let (removed, added) = mark(&["call(one, two);"], &["call(one, 2, three);", "    more();"]);
        assert_eq!(removed[0].to_string(), "call(one, <del>two</del>);");
        assert_eq!(added[0].to_string(), "call(one, <ins>2, three</ins>);");
        let long = "x ".repeat(MAX_WORDS);
        let (removed, _) = mark(&[&long], &["x y"]);
        assert!(!removed[0].to_string().contains("<del>"));
    }
}
