//! Fills in the `$Format:…$` of files that are marked `export-subst`.

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
/// How much longer than it was a file may become before nothing more is filled in, in bytes.
const MOST_ADDED: usize = 2 << 20;
/// How many refs are named that lead to the commit.
const MOST_REFS: usize = 1000;

/// What is known about the commit of an archive.
pub(crate) struct Substitutes {
    commit: Commit,
    tree: String,
    short_tree: String,
    short_id: String,
    short_parents: Vec<String>,
    /// The refs that lead to the commit, as git lists them.
    refs: String,
}

impl Substitutes {
    pub(crate) fn of(repository: &Repository, id: Oid) -> Result<Self> {
        let commit = repository.commit(id)?.ok_or_else(|| Error::Broken(format!("the commit {id} is missing")))?;
        let tree = repository.tree_of(id)?.map(|tree| oid(&tree));
        let short = |id: Oid| gix_id(id).attach(&repository.gix).shorten_or_id().to_string();
        Ok(Self {
            tree: tree.map(|tree| tree.to_string()).unwrap_or_default(),
            short_tree: tree.map(short).unwrap_or_default(),
            short_id: short(id),
            short_parents: commit.parents.iter().map(|parent| short(*parent)).collect(),
            refs: decorations(repository, id)?,
            commit,
        })
    }

    /// A file with everything filled in.
    pub(crate) fn fill_in(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len());
        let mut rest = data;
        // A placeholder is short and its value may be long; beyond some size the others stay as they are.
        while out.len() <= data.len() + MOST_ADDED
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
        let most = out.len() + MOST_ADDED;
        while out.len() <= most
            && let Some(start) = rest.iter().position(|byte| *byte == b'%')
        {
            out.extend_from_slice(&rest[..start]);
            rest = &rest[start + 1..];
            let found = self.value(rest);
            let Some((length, value)) = found else {
                // What is not known stays as it is.
                out.push(b'%');
                continue;
            };
            out.extend_from_slice(value.as_bytes());
            rest = &rest[length..];
        }
        out.extend_from_slice(rest);
    }

    /// The value of the placeholder that a text begins with, and how long the placeholder is.
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
            b'a' => return Some((2, of_signature(&commit.author, *text.get(1)?)?)),
            b'c' => return Some((2, of_signature(&commit.committer, *text.get(1)?)?)),
            _ => return None,
        };
        Some((1, value))
    }
}

fn of_signature(who: &Signature, letter: u8) -> Option<String> {
    let format = match letter {
        b'n' => return Some(who.name.clone()),
        b'e' => return Some(who.email.clone()),
        b't' => return Some(who.seconds.to_string()),
        b'd' => "%a %b %-d %H:%M:%S %Y %z",
        b'D' => "%a, %-d %b %Y %H:%M:%S %z",
        b'i' => "%Y-%m-%d %H:%M:%S %z",
        b'I' if who.offset == 0 => "%Y-%m-%dT%H:%M:%SZ",
        b'I' => "%Y-%m-%dT%H:%M:%S%:z",
        b's' => "%Y-%m-%d",
        _ => return None,
    };
    Some(local_time(who).map(|time| time.strftime(format).to_string()).unwrap_or_default())
}

fn local_time(who: &Signature) -> Option<Zoned> {
    let offset = Offset::from_seconds(who.offset).ok()?;
    Some(Timestamp::from_second(who.seconds).ok()?.to_zoned(TimeZone::fixed(offset)))
}

/// The first paragraph as one line.
fn subject(message: &str) -> String {
    let lines = message.trim_start().lines().map(str::trim_end).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// What follows upon the first paragraph.
fn body(message: &str) -> String {
    let message = message.trim_start();
    message.split_once("\n\n").map(|(_, body)| body.trim_start_matches('\n').to_owned()).unwrap_or_default()
}

fn decorations(repository: &Repository, id: Oid) -> Result<String> {
    let refs = repository.refs()?;
    let here: Vec<&Ref> = refs.iter().filter(|it| it.leads_to() == id).collect();
    let head = here.iter().find(|it| refs.head.as_ref() == Some(&it.name));
    let mut names: Vec<String> = head.iter().map(|head| format!("HEAD -> {}", head.name.short())).collect();
    let others = here.iter().rev().filter(|it| refs.head.as_ref() != Some(&it.name));
    names.extend(others.filter_map(|it| match it.name.kind() {
        RefKind::Tag => Some(format!("tag: {}", it.name.short())),
        RefKind::Branch => Some(it.name.short().to_owned()),
        RefKind::Other => None,
    }));
    names.truncate(MOST_REFS);
    Ok(names.join(", "))
}

fn find(data: &[u8], what: &[u8]) -> Option<usize> {
    data.windows(what.len()).position(|window| window == what)
}
