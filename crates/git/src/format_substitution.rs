//! Expands the `$Format:…$` placeholders of files with the attribute `export-subst`.

use gix::prelude::ObjectIdExt as _;
use jiff::{
    Timestamp, Zoned,
    tz::{Offset, TimeZone},
};
use model::{Commit, Oid, RefKind, objects::Signature};

use crate::{
    Error, Ref, Repository, Result,
    repository::{gix_id, oid},
};

const OPENING: &[u8] = b"$Format:";
/// The number of bytes by which a file may grow before the remaining placeholders are left as they are.
const MAX_ADDED_BYTES: usize = 2 << 20;
/// The maximum number of refs in the list of refs that point to the commit.
const MAX_REFS: usize = 1000;

/// The values of the placeholders for one commit.
pub(crate) struct FormatSubstitution {
    commit: Commit,
    tree: String,
    short_tree: String,
    short_id: String,
    short_parents: Vec<String>,
    /// The refs that point to the commit, as `git log --decorate` lists them.
    refs: String,
}

impl FormatSubstitution {
    pub(crate) fn new(repository: &Repository, id: Oid) -> Result<Self> {
        let commit = repository.commit(id)?.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
        let tree = repository.tree_of(id)?.map(|tree| oid(&tree));
        let short = |id: Oid| gix_id(id).attach(&repository.gix).shorten_or_id().to_string();
        Ok(Self {
            tree: tree.map(|tree| tree.to_string()).unwrap_or_default(),
            short_tree: tree.map(short).unwrap_or_default(),
            short_id: short(id),
            short_parents: commit.parents.iter().map(|parent| short(*parent)).collect(),
            refs: decorations(repository, id),
            commit,
        })
    }

    /// Expands all placeholders of a file.
    pub(crate) fn apply(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len());
        let mut rest = data;
        // A placeholder is short and its value may be long; beyond a limit the others stay as they are.
        while out.len() <= data.len() + MAX_ADDED_BYTES
            && let Some(start) = find(rest, OPENING)
        {
            let inner = &rest[start + OPENING.len()..];
            let Some(end) = inner.iter().position(|byte| *byte == b'$') else { break };
            out.extend_from_slice(&rest[..start]);
            self.expand(&inner[..end], &mut out);
            rest = &inner[end + 1..];
        }
        out.extend_from_slice(rest);
        out
    }

    fn expand(&self, format: &[u8], out: &mut Vec<u8>) {
        let mut rest = format;
        let max_length = out.len() + MAX_ADDED_BYTES;
        while out.len() <= max_length
            && let Some(start) = rest.iter().position(|byte| *byte == b'%')
        {
            out.extend_from_slice(&rest[..start]);
            rest = &rest[start + 1..];
            let found = self.value(rest);
            let Some((length, value)) = found else {
                // Unknown placeholders stay as they are.
                out.push(b'%');
                continue;
            };
            out.extend_from_slice(value.as_bytes());
            rest = &rest[length..];
        }
        out.extend_from_slice(rest);
    }

    /// Returns the value of the placeholder at the start of a text, and the length of the placeholder.
    fn value(&self, text: &[u8]) -> Option<(usize, String)> {
        let commit = &self.commit;
        let value = match text.first()? {
            b'%' => "%".into(),
            b'n' => "\n".into(),
            b'H' => commit.id.to_string(),
            b'h' => self.short_id.clone(),
            b'T' => self.tree.clone(),
            b't' => self.short_tree.clone(),
            b'P' => commit.parents.iter().map(Oid::to_string).collect::<Vec<_>>().join(" "),
            b'p' => self.short_parents.join(" "),
            b's' => subject(&commit.message),
            b'b' => body(&commit.message),
            b'B' => commit.message.trim_start_matches('\n').to_owned(),
            b'd' if self.refs.is_empty() => String::new(),
            b'd' => format!(" ({})", self.refs),
            b'D' => self.refs.clone(),
            b'a' => return Some((2, signature_value(&commit.author, *text.get(1)?)?)),
            b'c' => return Some((2, signature_value(&commit.committer, *text.get(1)?)?)),
            _ => return None,
        };
        Some((1, value))
    }
}

fn signature_value(signature: &Signature, placeholder: u8) -> Option<String> {
    let format = match placeholder {
        b'n' => return Some(signature.name.clone()),
        b'e' => return Some(signature.email.clone()),
        b't' => return Some(signature.seconds.to_string()),
        b'd' => "%a %b %-d %H:%M:%S %Y %z",
        b'D' => "%a, %-d %b %Y %H:%M:%S %z",
        b'i' => "%Y-%m-%d %H:%M:%S %z",
        b'I' if signature.offset == 0 => "%Y-%m-%dT%H:%M:%SZ",
        b'I' => "%Y-%m-%dT%H:%M:%S%:z",
        b's' => "%Y-%m-%d",
        _ => return None,
    };
    Some(local_time(signature).map(|time| time.strftime(format).to_string()).unwrap_or_default())
}

fn local_time(signature: &Signature) -> Option<Zoned> {
    let offset = Offset::from_seconds(signature.offset).ok()?;
    Some(Timestamp::from_second(signature.seconds).ok()?.to_zoned(TimeZone::fixed(offset)))
}

/// The first paragraph as one line.
fn subject(message: &str) -> String {
    let lines = message.trim_start().lines().map(str::trim_end).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// The text after the first paragraph.
fn body(message: &str) -> String {
    let message = message.trim_start();
    message.split_once("\n\n").map(|(_, body)| body.trim_start_matches('\n').to_owned()).unwrap_or_default()
}

fn decorations(repository: &Repository, id: Oid) -> String {
    let refs = repository.refs();
    let refs_at_commit: Vec<&Ref> = refs.iter().filter(|reference| reference.peeled_target() == id).collect();
    let head = refs_at_commit.iter().find(|reference| refs.head.as_ref() == Some(&reference.name));
    let mut names: Vec<String> = head.iter().map(|head| format!("HEAD -> {}", head.name.short())).collect();
    let others = refs_at_commit.iter().rev().filter(|reference| refs.head.as_ref() != Some(&reference.name));
    names.extend(others.filter_map(|reference| match reference.name.kind() {
        RefKind::Tag => Some(format!("tag: {}", reference.name.short())),
        RefKind::Branch => Some(reference.name.short().to_owned()),
        RefKind::Other => None,
    }));
    names.truncate(MAX_REFS);
    names.join(", ")
}

fn find(data: &[u8], needle: &[u8]) -> Option<usize> {
    data.windows(needle.len()).position(|window| window == needle)
}
