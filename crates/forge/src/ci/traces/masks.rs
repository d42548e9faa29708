//! Secrets in what a job says: every byte of every one is replaced by `x`, wherever the text was cut on its way.

use aho_corasick::{AhoCorasick, MatchKind};

/// What stands for a byte that nobody may see.
const MASK: u8 = b'x';
/// Shorter values are no secrets: hiding them would make a trace unreadable and tell where they are.
const SHORTEST: usize = 8;

/// How many bytes all secrets of a job may have, and how many of them are looked for in one piece. A job beyond that says
/// nothing that anybody sees: to look for it all would cost more than the job.
const MOST_BYTES: usize = 1 << 20;
const MOST_FOUND: usize = 1 << 20;

/// The secrets of a job. They do not print.
pub(crate) struct Masks {
    finder: Option<AhoCorasick>,
    secrets: Vec<Secret>,
    /// Whether nothing is shown at all.
    hides_all: bool,
}

/// A secret with, for each of its beginnings, how much of that is a beginning again.
struct Secret {
    bytes: Vec<u8>,
    falls: Vec<usize>,
}

/// A text as it may be seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Masked {
    /// As long as the text, and nothing in it is a secret or may become one.
    pub(crate) shown: Vec<u8>,
    /// The end of the text as it was, from where a secret may have begun; to be put before what comes next.
    pub(crate) rest: Vec<u8>,
}

impl Masks {
    /// Hides these values, each line of them by itself.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut lines: Vec<Vec<u8>> = values
            .into_iter()
            .flat_map(|value| value.lines().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
            .filter(|line| line.len() >= SHORTEST)
            .collect();
        lines.sort_unstable();
        lines.dedup();
        Self::of(lines)
    }

    fn of(lines: Vec<Vec<u8>>) -> Self {
        let blind = Self { finder: None, secrets: Vec::new(), hides_all: true };
        if lines.iter().map(Vec::len).sum::<usize>() > MOST_BYTES {
            return blind;
        }
        let Ok(finder) = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&lines) else { return blind };
        let finder = Some(finder).filter(|_| !lines.is_empty());
        Self { finder, secrets: lines.into_iter().map(Secret::new).collect(), hides_all: false }
    }

    /// Hides secrets in what comes next, put after what was left of the text before.
    pub(crate) fn apply(&self, text: &[u8]) -> Masked {
        let unsure = text.len() - self.secrets.iter().map(|secret| secret.begun_in(text)).max().unwrap_or(0);
        let Some(found) = self.matches(text) else {
            return Masked { shown: vec![MASK; text.len()], rest: text[unsure..].to_vec() };
        };
        // What hides a part of the end has to be found again, so it is looked at again as a whole.
        let across = found.iter().filter(|(start, end)| *start < unsure && unsure < *end && unsure < text.len());
        let rest = across.map(|(start, _)| *start).min().unwrap_or(unsure);
        let mut shown = hide(text, &found);
        shown[rest..].fill(MASK);
        Masked { shown, rest: text[rest..].to_vec() }
    }

    /// Hides secrets in a text after which nothing comes.
    pub(crate) fn settle(&self, text: &[u8]) -> Vec<u8> {
        self.matches(text).map_or_else(|| vec![MASK; text.len()], |found| hide(text, &found))
    }

    /// Where all secrets are, also those that share bytes with others, in the order of their ends; nothing if there are too
    /// many to tell.
    fn matches(&self, text: &[u8]) -> Option<Vec<(usize, usize)>> {
        if self.hides_all {
            return None;
        }
        let found = self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(text));
        let found: Vec<(usize, usize)> = found.map(|found| (found.start(), found.end())).take(MOST_FOUND + 1).collect();
        (found.len() <= MOST_FOUND).then_some(found)
    }
}

/// Hides these parts of a text, which are given in the order of their ends.
fn hide(text: &[u8], found: &[(usize, usize)]) -> Vec<u8> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for &(mut start, end) in found {
        while let Some((before, _)) = spans.pop_if(|last| last.1 >= start) {
            start = start.min(before);
        }
        spans.push((start, end));
    }
    let mut shown = text.to_vec();
    for (start, end) in spans {
        shown[start..end].fill(MASK);
    }
    shown
}

impl Secret {
    fn new(bytes: Vec<u8>) -> Self {
        let mut falls = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = falls[length - 1];
            }
            length += usize::from(bytes[at] == bytes[length]);
            falls[at] = length;
        }
        Self { bytes, falls }
    }

    /// How many bytes at the end of a text are the beginning of the secret, and not all of it.
    fn begun_in(&self, text: &[u8]) -> usize {
        let most = self.bytes.len() - 1;
        let mut length = 0;
        for byte in &text[text.len().saturating_sub(most)..] {
            while length > 0 && self.bytes[length] != *byte {
                length = self.falls[length - 1];
            }
            length += usize::from(self.bytes[length] == *byte);
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Every byte that belongs to an occurrence of a secret, found in the simplest way.
    fn masked_whole(secrets: &[Vec<u8>], text: &[u8]) -> Vec<u8> {
        let mut shown = text.to_vec();
        for secret in secrets {
            for (at, window) in text.windows(secret.len()).enumerate() {
                if window == secret.as_slice() {
                    shown[at..at + secret.len()].fill(MASK);
                }
            }
        }
        shown
    }

    #[test]
    fn more_than_can_be_looked_for_hides_everything() {
        let too_large = Masks::new([format!("{}\n{}", "a".repeat(MOST_BYTES), "b".repeat(9))]);
        let masked = too_large.apply(b"hello");
        assert_eq!((masked.shown.as_slice(), masked.rest.as_slice()), (&b"xxxxx"[..], &b""[..]));
        // Each of these is found at nearly every place.
        let nested = Masks::new((8..100).map(|length| "a".repeat(length)));
        let text = vec![b'a'; 20_000];
        assert_eq!(nested.apply(&text).shown, vec![MASK; 20_000]);
        assert_eq!(nested.settle(b"aaaaaaa-"), b"aaaaaaa-");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn wherever_a_text_is_cut_what_is_shown_is_the_same(
            secrets in vec(vec(b'a'..=b'c', 1..7), 0..4),
            pieces in vec(vec(b'a'..=b'c', 0..9), 0..9),
        ) {
            let masks = Masks::of(secrets.clone());
            let whole = pieces.concat();
            let expected = masked_whole(&secrets, &whole);
            let (mut stored, mut rest) = (Vec::new(), Vec::new());
            let mut sent = 0;
            for piece in &pieces {
                sent += piece.len();
                let Masked { shown, rest: left } = masks.apply(&[&rest[..], piece].concat());
                stored.truncate(stored.len() - rest.len());
                stored.extend_from_slice(&shown);
                rest = left;
                prop_assert_eq!(stored.len(), sent);
                // Whatever will come, what is shown by now is what will be shown then, and what is not is hidden.
                let visible = sent - rest.len();
                prop_assert_eq!(&stored[..visible], &expected[..visible]);
                prop_assert!(stored[visible..].iter().all(|byte| *byte == MASK));
                let longest = secrets.iter().map(Vec::len).max().unwrap_or(0);
                prop_assert!(rest.len() <= 2 * longest);
            }
            stored.truncate(stored.len() - rest.len());
            stored.extend(masks.settle(&rest));
            prop_assert_eq!(stored, expected);
        }
    }

    #[test]
    fn secrets_are_hidden_line_by_line_and_short_ones_are_none() {
        let masks = Masks::new(["hunter2".to_owned(), "first line\r\n\nshort\nsecond line\n".to_owned()]);
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8(masks.settle(text.as_bytes())).expect("text"), expected);
        };
        check("hunter2 short", "hunter2 short");
        check("a first line, a second line", "a xxxxxxxxxx, a xxxxxxxxxxx");
        check("first lin", "first lin");
    }

    #[test]
    fn secrets_that_share_bytes_are_hidden_both() {
        let masks = Masks::new(["password-one".to_owned(), "one-more-password".to_owned()]);
        assert_eq!(masks.settle(b"<password-one-more-password>"), b"<xxxxxxxxxxxxxxxxxxxxxxxxxx>");
    }

    #[test]
    fn a_secret_that_has_begun_is_held_back() {
        let masks = Masks::new(["correct horse".to_owned()]);
        let masked = masks.apply(b"say correct ho");
        assert_eq!((masked.shown.as_slice(), masked.rest.as_slice()), (&b"say xxxxxxxxxx"[..], &b"correct ho"[..]));
        let masked = masks.apply(b"correct hope\n");
        assert_eq!((masked.shown.as_slice(), masked.rest.as_slice()), (&b"correct hope\n"[..], &b""[..]));
    }

    #[test]
    fn a_text_of_one_letter_is_no_trouble() {
        let masks = Masks::new(["a".repeat(5000), "a".repeat(8)]);
        let masked = masks.apply(&b"a".repeat(200_000));
        assert!(masked.shown.iter().all(|byte| *byte == MASK));
        assert_eq!(masked.shown.len(), 200_000);
    }
}
