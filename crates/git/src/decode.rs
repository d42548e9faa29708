//! Parses commits and tags.
//!
//! Histories contain malformed commits by old tools: dates without a number, authors without an address, texts in other
//! encodings. They have to be shown nevertheless, so nothing in here fails.

use gix::{ObjectId, actor::SignatureRef};
use model::{Commit, objects::Signature};

use crate::{objects::BoundedObject, repository::oid};

/// The maximum offset of a time zone from UTC, in seconds; larger ones are treated as errors.
const MAX_UTC_OFFSET: i32 = 24 * 60 * 60;

/// The maximum length of a name or an address, in bytes.
const MAX_NAME_BYTES: usize = 1024;
/// The length to which the message of a commit or a tag that is too large is truncated, in bytes.
const TRUNCATED_MESSAGE_BYTES: usize = 4096;
/// The last line of a truncated message.
pub(crate) const TRUNCATION_NOTICE: &str = "[the rest of this message is too long to be shown]";

/// The parts of a commit as they are stored.
#[derive(Default)]
pub(crate) struct CommitParts<'a> {
    /// The root tree.
    pub(crate) tree: Option<ObjectId>,
    /// The parents.
    pub(crate) parents: Vec<ObjectId>,
    author: &'a [u8],
    committer: &'a [u8],
    message: &'a [u8],
}

impl<'a> CommitParts<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Self {
        let mut parts = Self::default();
        let mut rest = data;
        while let Some((line, below)) = next_line(rest) {
            rest = below;
            if line.is_empty() {
                parts.message = rest;
                break;
            }
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let (key, value) = (&line[..space], &line[space + 1..]);
            match key {
                b"tree" if parts.tree.is_none() => parts.tree = ObjectId::from_hex(value).ok(),
                b"parent" => parts.parents.extend(ObjectId::from_hex(value)),
                b"author" if parts.author.is_empty() => parts.author = value,
                b"committer" if parts.committer.is_empty() => parts.committer = value,
                _ => {}
            }
        }
        parts
    }

    /// Returns the commit time in seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        SignatureRef::from_bytes(self.committer).map_or(0, |signature| signature.seconds())
    }

    pub(crate) fn author(&self) -> Signature {
        signature(self.author)
    }

    pub(crate) fn committer(&self) -> Signature {
        signature(self.committer)
    }

    pub(crate) fn message(&self) -> String {
        text(self.message)
    }
}

/// Parses a commit object.
pub(crate) fn commit(id: &gix::oid, commit: BoundedObject<'_>) -> Commit {
    let parts = CommitParts::parse(commit.data);
    Commit {
        id: oid(id),
        parents: parts.parents.iter().map(|id| oid(id)).collect(),
        author: parts.author(),
        committer: parts.committer(),
        message: if commit.is_truncated {
            truncate_message(&parts.message(), TRUNCATED_MESSAGE_BYTES)
        } else {
            parts.message()
        },
    }
}

/// Returns the annotation of a tag object without its final newline.
pub(crate) fn annotation(tag: BoundedObject<'_>) -> String {
    let data = tag.data;
    let start = data.windows(2).position(|pair| pair == b"\n\n").map_or(data.len(), |end| end + 2);
    let message = &data[start..];
    let message = text(message.strip_suffix(b"\n").unwrap_or(message));
    if tag.is_truncated { truncate_message(&message, TRUNCATED_MESSAGE_BYTES) } else { message }
}

/// Truncates a message and adds [`TRUNCATION_NOTICE`].
pub(crate) fn truncate_message(message: &str, max_bytes: usize) -> String {
    let prefix = prefix(message, max_bytes);
    format!("{prefix}{}{TRUNCATION_NOTICE}", if prefix.is_empty() || prefix.ends_with('\n') { "" } else { "\n" })
}

/// Returns the longest prefix that fits and ends at a character boundary.
fn prefix(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// Converts a name or an address, truncated to [`MAX_NAME_BYTES`].
fn short_text(bytes: &[u8]) -> String {
    text(&bytes[..bytes.len().min(MAX_NAME_BYTES)])
}

/// Converts bytes to text; invalid UTF-8 is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn signature(bytes: &[u8]) -> Signature {
    let Ok(parsed) = SignatureRef::from_bytes(bytes) else {
        return Signature { name: short_text(bytes), email: String::new(), seconds: 0, offset: 0 };
    };
    let offset = parsed.time().map_or(0, |time| time.offset);
    Signature {
        name: short_text(parsed.name.trim_ascii()),
        email: short_text(parsed.email),
        seconds: parsed.seconds(),
        offset: if offset.abs() < MAX_UTC_OFFSET { offset } else { 0 },
    }
}

fn next_line(data: &[u8]) -> Option<(&[u8], &[u8])> {
    if data.is_empty() {
        return None;
    }
    let end = data.iter().position(|byte| *byte == b'\n');
    Some(end.map_or((data, &[]), |end| (&data[..end], &data[end + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n";

    #[track_caller]
    fn check(rest: &[u8], author: (&str, &str, i64, i32), message: &str) {
        let data = [TREE.as_bytes(), rest].concat();
        let commit = commit(&ObjectId::null(gix::hash::Kind::Sha1), BoundedObject { data: &data, is_truncated: false });
        let found = &commit.author;
        assert_eq!((&*found.name, &*found.email, found.seconds, found.offset), author);
        assert_eq!(commit.message, message);
    }

    #[test]
    fn a_commit_keeps_its_message_and_the_offset_of_its_clock() {
        check(
            b"author A B <a@b> 12 +0530\ncommitter C <c@d> 13 +0000\n\none\n\ntwo\n",
            ("A B", "a@b", 12, 19800),
            "one\n\ntwo\n",
        );
        check(b"author A <a@b> 12 -0100\ngpgsig x\n y\n \n\nsigned", ("A", "a@b", 12, -3600), "signed");
    }

    #[test]
    fn what_is_broken_is_shown_as_well_as_can_be() {
        check(b"author A <a@b> never\n\nm", ("A", "a@b", 0, 0), "m");
        check(b"author A <a@b>\n\n", ("A", "a@b", 0, 0), "");
        check(b"author A <a@b> 99999999999999999999 +0000\n\nm", ("A", "a@b", 0, 0), "m");
        check(b"author A <a@b> 5 +9999\n\nm", ("A", "a@b", 5, 0), "m");
        check(b"author nobody\n\nm", ("nobody", "", 0, 0), "m");
        check(b"author <> 7 +0000\n\nm", ("", "", 7, 0), "m");
        check(b"author  A  < a@b > 7 +0000\n\nm", ("A", " a@b ", 7, 0), "m");
        check(b"author \xe4 <a@b> 5 +0000\n\nm\xff", ("\u{fffd}", "a@b", 5, 0), "m\u{fffd}");
        check(b"no-space\n\nm", ("", "", 0, 0), "m");
        check(b"", ("", "", 0, 0), "");
    }

    #[test]
    fn an_annotation_loses_one_newline() {
        let annotation = |data: &[u8]| annotation(BoundedObject { data, is_truncated: false });
        assert_eq!(annotation(b"object 1\ntype commit\n\none\n\ntwo\n\n"), "one\n\ntwo\n");
        assert_eq!(annotation(b"object 1\ntype commit\n"), "");
        assert_eq!(annotation(b"tagger x\n\n\xff"), "\u{fffd}");
    }

    #[test]
    fn a_message_that_is_cut_says_so() {
        let truncate_message = |data: &[u8]| annotation(BoundedObject { data, is_truncated: true });
        assert_eq!(truncate_message(b"tagger x\n\none\n"), format!("one\n{TRUNCATION_NOTICE}"));
        assert_eq!(truncate_message(b""), TRUNCATION_NOTICE);
        let long = "ä".repeat(TRUNCATED_MESSAGE_BYTES);
        let data = [TREE.as_bytes(), b"author A <a@b> 1 +0000\n\n", long.as_bytes()].concat();
        let commit = commit(&ObjectId::null(gix::hash::Kind::Sha1), BoundedObject { data: &data, is_truncated: true });
        assert_eq!(commit.message, format!("{}\n{TRUNCATION_NOTICE}", "ä".repeat(TRUNCATED_MESSAGE_BYTES / 2)));
        let name = [TREE, "author ", &"n".repeat(5000), " <", &"e".repeat(5000), "> 1 +0000\n\nm"].concat();
        let commit = super::commit(&commit_id(), BoundedObject { data: name.as_bytes(), is_truncated: false });
        assert_eq!((commit.author.name.len(), commit.author.email.len()), (MAX_NAME_BYTES, MAX_NAME_BYTES));
    }

    fn commit_id() -> ObjectId {
        ObjectId::null(gix::hash::Kind::Sha1)
    }
}
