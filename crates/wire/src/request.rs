//! What a client asks of upload-pack in one request, as far as we answer it ourselves or remember the answer.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::Oid;
use sha2::{Digest as _, Sha256};

use crate::{
    pkt::{self, Packet},
    version::Version,
};

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Which refs there are.
    Refs(RefQuery),
    /// Everything that some refs need, by somebody who has nothing yet.
    Clone(CloneRequest),
    /// Something for upload-pack itself, faulty requests included.
    Other,
}

/// With more prefixes than this, all refs are shown.
const MOST_PREFIXES: usize = 64;

/// Which refs, and what of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefQuery {
    pub(crate) peel: bool,
    pub(crate) symrefs: bool,
    pub(crate) unborn: bool,
    pub(crate) prefixes: Vec<String>,
}

/// A request that is answered with the same bytes as long as the refs are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloneRequest {
    version: Version,
    wants: BTreeSet<Oid>,
    /// Depth and filter.
    limits: BTreeSet<String>,
    /// What the client can do, without what makes no difference.
    abilities: BTreeSet<String>,
}

impl RefQuery {
    /// Whether a ref of this name was asked for.
    pub(crate) fn matches(&self, name: &str) -> bool {
        // More prefixes than any client sends are not worth the comparing; the protocol leaves it to us to show more.
        let ignored = self.prefixes.is_empty() || self.prefixes.len() > MOST_PREFIXES;
        ignored || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Finds out what a whole request asks for.
pub(crate) fn parse(version: Version, body: &[u8]) -> Asked {
    let Ok(packets) = pkt::packets(body).collect::<Result<Vec<_>, _>>() else { return Asked::Other };
    let asked = match version {
        Version::Two => parse_command(&packets),
        Version::Zero | Version::One => parse_clone(version, &packets).map(Asked::Clone),
    };
    asked.unwrap_or(Asked::Other)
}

/// A command of version 2: its name and what the client can do, then its arguments.
fn parse_command(packets: &[Packet<'_>]) -> Option<Asked> {
    let (last, packets) = packets.split_last()?;
    let mut parts = packets.splitn(2, |packet| *packet == Packet::Delimiter);
    let head = texts(parts.next()?)?;
    let arguments = texts(parts.next().unwrap_or_default())?;
    let (command, abilities) = head.split_first()?;
    let harmless =
        |text: &&str| text.starts_with("agent=") || text.starts_with("session-id=") || *text == "object-format=sha1";
    if *last != Packet::Flush || !abilities.iter().all(harmless) {
        return None;
    }
    match *command {
        "command=ls-refs" => parse_query(&arguments).map(Asked::Refs),
        "command=fetch" => parse_fetch(&arguments).map(Asked::Clone),
        _ => None,
    }
}

fn texts<'a>(packets: &'a [Packet<'_>]) -> Option<Vec<&'a str>> {
    packets.iter().map(Packet::text).collect()
}

fn parse_query(arguments: &[&str]) -> Option<RefQuery> {
    let mut query = RefQuery::default();
    for argument in arguments {
        match *argument {
            "peel" => query.peel = true,
            "symrefs" => query.symrefs = true,
            "unborn" => query.unborn = true,
            _ => query.prefixes.push(argument.strip_prefix("ref-prefix ")?.to_owned()),
        }
    }
    Some(query)
}

fn parse_fetch(arguments: &[&str]) -> Option<CloneRequest> {
    let mut request = CloneRequest::new(Version::Two);
    let mut done = false;
    for argument in arguments {
        match *argument {
            "done" => done = true,
            "thin-pack" | "no-progress" | "include-tag" | "ofs-delta" => {
                request.abilities.insert((*argument).to_owned());
            }
            _ => request.take(argument)?,
        }
    }
    (done && !request.wants.is_empty()).then_some(request)
}

/// A request of the older versions: wants, the first with what the client can do, an end, and `done`.
fn parse_clone(version: Version, packets: &[Packet<'_>]) -> Option<CloneRequest> {
    let [needs @ .., Packet::Flush, done] = packets else { return None };
    let needs = texts(needs)?;
    let (first, needs) = needs.split_first()?;
    let mut request = CloneRequest::new(version);
    let (want, abilities) = first.split_at_checked("want ".len() + Oid::ZERO.len())?;
    request.take(want)?;
    for ability in abilities.split(' ').filter(|ability| !ability.is_empty()) {
        if !ability.starts_with("agent=") && !ability.starts_with("session-id=") {
            request.abilities.insert(ability.to_owned());
        }
    }
    needs.iter().try_for_each(|need| request.take(need))?;
    (done.text() == Some("done")).then_some(request)
}

impl CloneRequest {
    fn new(version: Version) -> Self {
        Self { version, wants: BTreeSet::new(), limits: BTreeSet::new(), abilities: BTreeSet::new() }
    }

    /// Takes one line in; `None` if the answer could not be remembered with it.
    fn take(&mut self, line: &str) -> Option<()> {
        let (word, value) = line.split_once(' ')?;
        match word {
            "want" => self.wants.insert(value.parse().ok()?),
            "deepen" | "deepen-since" if value.parse::<u32>().is_ok() => self.limits.insert(line.to_owned()),
            "deepen-not" | "filter" if !value.contains(|c: char| c.is_control()) => self.limits.insert(line.to_owned()),
            _ => return None,
        };
        Some(())
    }

    /// What is wanted.
    pub(crate) fn wants(&self) -> impl Iterator<Item = &Oid> {
        self.wants.iter()
    }

    /// The request as it is handed to upload-pack: the same bytes for everybody who shares the answer.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.version == Version::Two {
            pkt::line(&mut out, format_args!("command=fetch"));
            pkt::line(&mut out, format_args!("object-format=sha1"));
            pkt::delimiter(&mut out);
            for argument in self.abilities.iter().chain(&self.limits) {
                pkt::line(&mut out, format_args!("{argument}"));
            }
            for want in &self.wants {
                pkt::line(&mut out, format_args!("want {want}"));
            }
            pkt::line(&mut out, format_args!("done"));
            pkt::flush(&mut out);
        } else {
            let mut abilities = self.abilities.iter().fold(String::new(), |all, ability| all + " " + ability);
            for want in &self.wants {
                pkt::line(&mut out, format_args!("want {want}{}", std::mem::take(&mut abilities)));
            }
            for limit in &self.limits {
                pkt::line(&mut out, format_args!("{limit}"));
            }
            pkt::flush(&mut out);
            pkt::line(&mut out, format_args!("done"));
        }
        out
    }

    /// Under what the answer is remembered.
    pub(crate) fn key(&self, project: i64, refs: [u8; 32]) -> String {
        let mut digest = Sha256::new();
        digest.update(project.to_be_bytes());
        digest.update(refs);
        digest.update([self.version as u8]);
        digest.update(self.write());
        STANDARD.encode(digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    /// A body out of lines, in which `--` ends a section and `-` is a seam.
    fn body(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in lines {
            match *line {
                "--" => pkt::flush(&mut out),
                "-" => pkt::delimiter(&mut out),
                line => pkt::line(&mut out, format_args!("{line}")),
            }
        }
        out
    }

    fn clone_of(version: Version, lines: &[&str]) -> CloneRequest {
        match parse(version, &body(lines)) {
            Asked::Clone(request) => request,
            other => panic!("{lines:?} is {other:?}"),
        }
    }

    #[test]
    fn a_question_for_refs_is_understood() {
        let asked = parse(
            Version::Two,
            &body(&[
                "command=ls-refs",
                "agent=git/2",
                "object-format=sha1",
                "-",
                "peel",
                "symrefs",
                "unborn",
                "ref-prefix refs/heads/",
                "--",
            ]),
        );
        let prefixes = vec!["refs/heads/".to_owned()];
        assert_eq!(asked, Asked::Refs(RefQuery { peel: true, symrefs: true, unborn: true, prefixes }));
        assert_eq!(parse(Version::Two, &body(&["command=ls-refs", "--"])), Asked::Refs(RefQuery::default()));
    }

    #[test]
    fn clones_that_differ_in_nothing_that_matters_share_a_key() {
        let (a, b) = (format!("want {A}"), format!("want {B}"));
        let one = clone_of(
            Version::Two,
            &["command=fetch", "agent=git/1", "-", "thin-pack", "ofs-delta", &a, &b, "done", "--"],
        );
        let two = clone_of(
            Version::Two,
            &[
                "command=fetch",
                "agent=git/2",
                "object-format=sha1",
                "-",
                &b,
                "ofs-delta",
                "thin-pack",
                &a,
                &b,
                "done",
                "--",
            ],
        );
        assert_eq!(one.key(1, [0; 32]), two.key(1, [0; 32]));
        assert_ne!(one.key(1, [0; 32]), one.key(2, [0; 32]));
        assert_ne!(one.key(1, [0; 32]), one.key(1, [1; 32]));
        let shallow =
            clone_of(Version::Two, &["command=fetch", "-", "thin-pack", "ofs-delta", "deepen 1", &a, &b, "done", "--"]);
        assert_ne!(one.key(1, [0; 32]), shallow.key(1, [0; 32]));
        let older =
            clone_of(Version::Zero, &[&format!("{a} side-band-64k agent=x ofs-delta"), &b, "deepen 1", "--", "done"]);
        let same =
            clone_of(Version::Zero, &[&format!("{b} ofs-delta side-band-64k agent=y"), &a, "deepen 1", "--", "done"]);
        assert_eq!(older.key(1, [0; 32]), same.key(1, [0; 32]));
        assert_ne!(older.key(1, [0; 32]), CloneRequest { version: Version::One, ..same }.key(1, [0; 32]));
    }

    #[test]
    fn what_depends_on_the_client_is_no_clone() {
        let (want, have) = (format!("want {A}"), format!("have {B}"));
        let shallow = format!("shallow {B}");
        let others: [&[&str]; 12] = [
            &["command=fetch", "-", &want, &have, "done", "--"],
            &["command=fetch", "-", &want, "--"],
            &["command=fetch", "-", "done", "--"],
            &["command=fetch", "-", &want, &shallow, "done", "--"],
            &["command=fetch", "-", &want, "sideband-all", "done", "--"],
            &["command=fetch", "-", &want, "deepen-relative", "done", "--"],
            &["command=fetch", "-", &want, "want-ref refs/heads/main", "done", "--"],
            &["command=fetch", "server-option=x", "-", &want, "done", "--"],
            &["command=fetch", "-", &want, "deepen x", "done", "--"],
            &["command=fetch", "-", &want, "done"],
            &["command=object-info", "-", "size", "--"],
            &["command=fetch", "-", "want main", "done", "--"],
        ];
        for lines in others {
            assert_eq!(parse(Version::Two, &body(lines)), Asked::Other, "{lines:?}");
        }
        let others: [&[&str]; 6] = [
            &[&want, "--", &have, "done"],
            &[&want, "--"],
            &[&want, &shallow, "--", "done"],
            &["--", "done"],
            &["done"],
            &[&want, "--", "done", "--"],
        ];
        for lines in others {
            assert_eq!(parse(Version::Zero, &body(lines)), Asked::Other, "{lines:?}");
        }
    }

    fn oids() -> impl Strategy<Value = BTreeSet<Oid>> {
        proptest::collection::btree_set(any::<[u8; 20]>().prop_map(Oid), 1..20)
    }

    proptest! {
        #[test]
        fn whatever_comes_is_understood_without_a_panic(bytes: Vec<u8>, lines in proptest::collection::vec(".{0,30}", 0..8), two: bool) {
            let version = if two { Version::Two } else { Version::Zero };
            parse(version, &bytes);
            parse(version, &body(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
        }

        #[test]
        fn what_is_written_is_understood_again(
            wants in oids(),
            limits in proptest::collection::btree_set("(deepen [1-9][0-9]{0,5}|filter [a-z:=0-9]{1,9}|deepen-not [a-z/]{1,9})", 0..3),
            two: bool,
            old_abilities in proptest::collection::btree_set("[a-z][a-z0-9-]{1,12}", 0..6),
            new_abilities in proptest::collection::btree_set("(thin-pack|no-progress|include-tag|ofs-delta)", 0..4),
        ) {
            let (version, abilities) =
                if two { (Version::Two, new_abilities) } else { (Version::Zero, old_abilities) };
            let request = CloneRequest { version, wants, limits, abilities };
            prop_assert_eq!(parse(version, &request.write()), Asked::Clone(request));
        }
    }
}
