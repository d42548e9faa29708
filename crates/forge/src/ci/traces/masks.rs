//! Masks secrets in traces: every byte of each occurrence is replaced by `x`, however the trace is split into chunks.

use aho_corasick::{AhoCorasick, MatchKind};

/// Replaces each byte of a secret.
const MASK: u8 = b'x';
/// Shorter values are not masked: that would make a trace unreadable and reveal where they occur.
const MIN_SECRET_LENGTH: usize = 8;

/// The maximum number of bytes of all secrets of a job, and of matches in one chunk. Beyond that, the whole trace is masked,
/// because the search would cost more than the job.
const MAX_SECRET_BYTES: usize = 1 << 20;
const MAX_MATCHES: usize = 1 << 20;

/// The secrets of a job. Not `Debug`, so that they are never printed.
pub(crate) struct Masks {
    finder: Option<AhoCorasick>,
    secrets: Vec<SecretPattern>,
    /// Whether the whole trace is masked.
    hides_all: bool,
}

/// A secret with its failure function (Knuth-Morris-Pratt).
struct SecretPattern {
    bytes: Vec<u8>,
    failure: Vec<usize>,
}

/// A masked chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Masked {
    /// The masked text, as long as the input. Contains neither a secret nor a part that may become one.
    pub(crate) text: Vec<u8>,
    /// The unmasked end of the input, from where a secret may have started; the next chunk is appended to it.
    pub(crate) pending: Vec<u8>,
}

impl Masks {
    /// Creates masks for these values; each line is a secret of its own.
    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut lines: Vec<Vec<u8>> = values
            .into_iter()
            .flat_map(|value| value.lines().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
            .filter(|line| line.len() >= MIN_SECRET_LENGTH)
            .collect();
        lines.sort_unstable();
        lines.dedup();
        Self::of(lines)
    }

    fn of(lines: Vec<Vec<u8>>) -> Self {
        let hide_all = Self { finder: None, secrets: Vec::new(), hides_all: true };
        if lines.iter().map(Vec::len).sum::<usize>() > MAX_SECRET_BYTES {
            return hide_all;
        }
        let Ok(finder) = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&lines) else { return hide_all };
        let finder = Some(finder).filter(|_| !lines.is_empty());
        Self { finder, secrets: lines.into_iter().map(SecretPattern::new).collect(), hides_all: false }
    }

    /// Masks a chunk, which starts with the pending end of the previous one.
    pub(crate) fn mask(&self, text: &[u8]) -> Masked {
        let safe_end = text.len() - self.secrets.iter().map(|secret| secret.prefix_at_end(text)).max().unwrap_or(0);
        let Some(found) = self.matches(text) else {
            return Masked { text: vec![MASK; text.len()], pending: text[safe_end..].to_vec() };
        };
        // A match that crosses the safe end must be found again, so all of it stays pending.
        let crossing =
            found.iter().filter(|(start, end)| *start < safe_end && safe_end < *end && safe_end < text.len());
        let pending = crossing.map(|(start, _)| *start).min().unwrap_or(safe_end);
        let mut masked = mask_spans(text, &found);
        masked[pending..].fill(MASK);
        Masked { text: masked, pending: text[pending..].to_vec() }
    }

    /// Masks a text that is not continued.
    pub(crate) fn mask_final(&self, text: &[u8]) -> Vec<u8> {
        self.matches(text).map_or_else(|| vec![MASK; text.len()], |found| mask_spans(text, &found))
    }

    /// Returns all matches, including overlapping ones, ordered by their ends; `None` if there are too many.
    fn matches(&self, text: &[u8]) -> Option<Vec<(usize, usize)>> {
        if self.hides_all {
            return None;
        }
        let found = self.finder.iter().flat_map(|finder| finder.find_overlapping_iter(text));
        let found: Vec<(usize, usize)> =
            found.map(|found| (found.start(), found.end())).take(MAX_MATCHES + 1).collect();
        (found.len() <= MAX_MATCHES).then_some(found)
    }
}

/// Masks these spans, which are ordered by their ends.
fn mask_spans(text: &[u8], found: &[(usize, usize)]) -> Vec<u8> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for &(mut start, end) in found {
        while let Some((before, _)) = spans.pop_if(|last| last.1 >= start) {
            start = start.min(before);
        }
        spans.push((start, end));
    }
    let mut masked = text.to_vec();
    for (start, end) in spans {
        masked[start..end].fill(MASK);
    }
    masked
}

impl SecretPattern {
    fn new(bytes: Vec<u8>) -> Self {
        let mut failure = vec![0; bytes.len()];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[at] != bytes[length] {
                length = failure[length - 1];
            }
            length += usize::from(bytes[at] == bytes[length]);
            failure[at] = length;
        }
        Self { bytes, failure }
    }

    /// Returns how many bytes at the end of a text are a proper prefix of the secret.
    fn prefix_at_end(&self, text: &[u8]) -> usize {
        let max_prefix = self.bytes.len() - 1;
        let mut length = 0;
        for byte in &text[text.len().saturating_sub(max_prefix)..] {
            while length > 0 && self.bytes[length] != *byte {
                length = self.failure[length - 1];
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

    /// Masks all occurrences in the simplest way.
    fn mask_naively(secrets: &[Vec<u8>], text: &[u8]) -> Vec<u8> {
        let mut masked = text.to_vec();
        for secret in secrets {
            for (at, window) in text.windows(secret.len()).enumerate() {
                if window == secret.as_slice() {
                    masked[at..at + secret.len()].fill(MASK);
                }
            }
        }
        masked
    }

    #[test]
    fn everything_is_masked_beyond_the_limits() {
        let too_large = Masks::new([format!("{}\n{}", "a".repeat(MAX_SECRET_BYTES), "b".repeat(9))]);
        let masked = too_large.mask(b"hello");
        assert_eq!((masked.text.as_slice(), masked.pending.as_slice()), (&b"xxxxx"[..], &b""[..]));
        // Each of these matches nearly everywhere.
        let nested = Masks::new((8..100).map(|length| "a".repeat(length)));
        let text = vec![b'a'; 20_000];
        assert_eq!(nested.mask(&text).text, vec![MASK; 20_000]);
        assert_eq!(nested.mask_final(b"aaaaaaa-"), b"aaaaaaa-");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_result_does_not_depend_on_how_a_text_is_split(
            secrets in vec(vec(b'a'..=b'c', 1..7), 0..4),
            chunks in vec(vec(b'a'..=b'c', 0..9), 0..9),
        ) {
            let masks = Masks::of(secrets.clone());
            let whole = chunks.concat();
            let expected = mask_naively(&secrets, &whole);
            let (mut stored, mut pending) = (Vec::new(), Vec::new());
            let mut sent = 0;
            for chunk in &chunks {
                sent += chunk.len();
                let Masked { text, pending: left } = masks.mask(&[&pending[..], chunk].concat());
                stored.truncate(stored.len() - pending.len());
                stored.extend_from_slice(&text);
                pending = left;
                prop_assert_eq!(stored.len(), sent);
                // What is visible now stays the same whatever follows, and the rest is masked.
                let visible = sent - pending.len();
                prop_assert_eq!(&stored[..visible], &expected[..visible]);
                prop_assert!(stored[visible..].iter().all(|byte| *byte == MASK));
                let longest = secrets.iter().map(Vec::len).max().unwrap_or(0);
                prop_assert!(pending.len() <= 2 * longest);
            }
            stored.truncate(stored.len() - pending.len());
            stored.extend(masks.mask_final(&pending));
            prop_assert_eq!(stored, expected);
        }
    }

    #[test]
    fn each_line_is_a_secret_and_short_lines_are_not_masked() {
        let masks = Masks::new(["hunter2".to_owned(), "first line\r\n\nshort\nsecond line\n".to_owned()]);
        let check = |text: &str, expected: &str| {
            assert_eq!(String::from_utf8(masks.mask_final(text.as_bytes())).expect("text"), expected);
        };
        check("hunter2 short", "hunter2 short");
        check("a first line, a second line", "a xxxxxxxxxx, a xxxxxxxxxxx");
        check("first lin", "first lin");
    }

    #[test]
    fn overlapping_secrets_are_both_masked() {
        let masks = Masks::new(["password-one".to_owned(), "one-more-password".to_owned()]);
        assert_eq!(masks.mask_final(b"<password-one-more-password>"), b"<xxxxxxxxxxxxxxxxxxxxxxxxxx>");
    }

    #[test]
    fn the_start_of_a_secret_is_withheld() {
        let masks = Masks::new(["correct horse".to_owned()]);
        let masked = masks.mask(b"say correct ho");
        assert_eq!((masked.text.as_slice(), masked.pending.as_slice()), (&b"say xxxxxxxxxx"[..], &b"correct ho"[..]));
        let masked = masks.mask(b"correct hope\n");
        assert_eq!((masked.text.as_slice(), masked.pending.as_slice()), (&b"correct hope\n"[..], &b""[..]));
    }

    #[test]
    fn repetitive_texts_are_masked_quickly() {
        let masks = Masks::new(["a".repeat(5000), "a".repeat(8)]);
        let masked = masks.mask(&b"a".repeat(200_000));
        assert!(masked.text.iter().all(|byte| *byte == MASK));
        assert_eq!(masked.text.len(), 200_000);
    }
}
