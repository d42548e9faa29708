//! Parses the requests to upload-pack that are answered without it or from the clone cache.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use forge::transport::{Ref, Refs};
use model::{Oid, ProjectId};
use sha2::{Digest as _, Sha256};

use crate::{
    pkt::{self, Packet},
    protocol_version::ProtocolVersion,
};

/// A request to upload-pack.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchRequest {
    /// `ls-refs`.
    ListRefs(RefQuery),
    /// A fetch by a client that has no objects yet.
    Clone(CloneRequest),
    /// Any other request, malformed ones included; handled by upload-pack.
    Other,
}

/// The maximum number of `ref-prefix` arguments; with more, all refs are listed.
const MAX_PREFIXES: usize = 64;

/// The arguments of `ls-refs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefQuery {
    pub(crate) peel: bool,
    pub(crate) symrefs: bool,
    pub(crate) unborn: bool,
    pub(crate) prefixes: Vec<String>,
}

/// A request whose response depends only on the refs, so that it can be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloneRequest {
    version: ProtocolVersion,
    /// Sorted, without duplicates.
    wants: Vec<Oid>,
    /// The depth and filter arguments.
    limits: BTreeSet<String>,
    /// The capabilities that affect the response.
    capabilities: BTreeSet<String>,
}

impl RefQuery {
    /// Returns whether a ref is to be listed.
    pub(crate) fn matches(&self, name: &str) -> bool {
        // The protocol allows listing more refs than requested; real clients send few prefixes.
        let ignored = self.prefixes.is_empty() || self.prefixes.len() > MAX_PREFIXES;
        ignored || self.prefixes.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// Parses a complete request.
pub(crate) fn parse(version: ProtocolVersion, body: &[u8]) -> FetchRequest {
    let Ok(packets) = pkt::packets(body).collect::<Result<Vec<_>, _>>() else { return FetchRequest::Other };
    let request = match version {
        ProtocolVersion::V2 => parse_command(&packets),
        ProtocolVersion::V0 | ProtocolVersion::V1 => parse_clone(version, &packets).map(FetchRequest::Clone),
    };
    request.unwrap_or(FetchRequest::Other)
}

/// Parses a command of version 2: its name and capabilities, then its arguments.
fn parse_command(packets: &[Packet<'_>]) -> Option<FetchRequest> {
    let (last, packets) = packets.split_last()?;
    let mut parts = packets.splitn(2, |packet| *packet == Packet::Delimiter);
    let head = texts(parts.next()?)?;
    let arguments = texts(parts.next().unwrap_or_default())?;
    let (command, capabilities) = head.split_first()?;
    let harmless =
        |text: &&str| text.starts_with("agent=") || text.starts_with("session-id=") || *text == "object-format=sha1";
    if *last != Packet::Flush || !capabilities.iter().all(harmless) {
        return None;
    }
    match *command {
        "command=ls-refs" => parse_query(&arguments).map(FetchRequest::ListRefs),
        "command=fetch" => parse_fetch(&arguments).map(FetchRequest::Clone),
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
    let mut request = CloneRequest::new(ProtocolVersion::V2);
    let mut done = false;
    for argument in arguments {
        match *argument {
            "done" => done = true,
            "thin-pack" | "no-progress" | "include-tag" | "ofs-delta" => {
                request.capabilities.insert((*argument).to_owned());
            }
            _ => request.add(argument)?,
        }
    }
    (done && !request.wants.is_empty()).then(|| request.with_sorted_wants())
}

/// Parses a request of version 0 or 1: wants, the first with capabilities, a flush, and `done`.
fn parse_clone(version: ProtocolVersion, packets: &[Packet<'_>]) -> Option<CloneRequest> {
    let [needs @ .., Packet::Flush, done] = packets else { return None };
    let needs = texts(needs)?;
    let (first, needs) = needs.split_first()?;
    let mut request = CloneRequest::new(version);
    let (want, capabilities) = first.split_at_checked("want ".len() + Oid::ZERO.len())?;
    request.add(want)?;
    for capability in capabilities.split(' ').filter(|capability| !capability.is_empty()) {
        if !capability.starts_with("agent=") && !capability.starts_with("session-id=") {
            request.capabilities.insert(capability.to_owned());
        }
    }
    needs.iter().try_for_each(|need| request.add(need))?;
    (done.text() == Some("done")).then(|| request.with_sorted_wants())
}

impl CloneRequest {
    fn new(version: ProtocolVersion) -> Self {
        Self { version, wants: Vec::new(), limits: BTreeSet::new(), capabilities: BTreeSet::new() }
    }

    /// Adds an argument; `None` if the response cannot be cached with it.
    fn add(&mut self, line: &str) -> Option<()> {
        let (word, value) = line.split_once(' ')?;
        match word {
            "want" => self.wants.push(value.parse().ok()?),
            "deepen" | "deepen-since" if value.parse::<u32>().is_ok() => _ = self.limits.insert(line.to_owned()),
            "deepen-not" | "filter" if !value.contains(|c: char| c.is_control()) => {
                self.limits.insert(line.to_owned());
            }
            _ => return None,
        }
        Some(())
    }

    fn with_sorted_wants(mut self) -> Self {
        self.wants.sort_unstable();
        self.wants.dedup();
        self
    }

    /// Returns the wanted objects.
    pub(crate) fn wants(&self) -> &[Oid] {
        &self.wants
    }

    /// Returns whether the response may consist of all objects that are reachable from these refs, as they are in packs.
    pub(crate) fn is_for_everything(&self, refs: &Refs) -> bool {
        let wants = |found: &Ref| self.wants.binary_search(&found.target).is_ok();
        self.version == ProtocolVersion::V2
            && self.limits.is_empty()
            && self.capabilities.contains("ofs-delta")
            && refs.iter().all(wants)
    }

    /// Returns the request for upload-pack, normalized so that equivalent requests are equal.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.version == ProtocolVersion::V2 {
            pkt::line(&mut out, format_args!("command=fetch"));
            pkt::line(&mut out, format_args!("object-format=sha1"));
            pkt::delimiter(&mut out);
            for argument in self.capabilities.iter().chain(&self.limits) {
                pkt::line(&mut out, format_args!("{argument}"));
            }
            for want in &self.wants {
                pkt::line(&mut out, format_args!("want {want}"));
            }
            pkt::line(&mut out, format_args!("done"));
            pkt::flush(&mut out);
        } else {
            let mut capabilities =
                self.capabilities.iter().fold(String::new(), |all, capability| all + " " + capability);
            for want in &self.wants {
                pkt::line(&mut out, format_args!("want {want}{}", std::mem::take(&mut capabilities)));
            }
            for limit in &self.limits {
                pkt::line(&mut out, format_args!("{limit}"));
            }
            pkt::flush(&mut out);
            pkt::line(&mut out, format_args!("done"));
        }
        out
    }

    /// Returns the cache key of the response.
    pub(crate) fn key(&self, project: ProjectId, refs: [u8; 32]) -> String {
        let mut digest = Sha256::new();
        digest.update(project.get().to_be_bytes());
        digest.update(refs);
        digest.update([self.version as u8]);
        digest.update((self.wants.len() as u64).to_be_bytes());
        for want in &self.wants {
            digest.update(want.0);
        }
        for arguments in [&self.capabilities, &self.limits] {
            digest.update((arguments.len() as u64).to_be_bytes());
            for argument in arguments {
                digest.update(argument);
                // No argument contains a line feed.
                digest.update(b"\n");
            }
        }
        STANDARD.encode(digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROJECT: ProjectId = ProjectId::new(1);
    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    /// Encodes lines as packets; `--` is a flush packet and `-` a delimiter packet.
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

    fn clone_of(version: ProtocolVersion, lines: &[&str]) -> CloneRequest {
        match parse(version, &body(lines)) {
            FetchRequest::Clone(request) => request,
            other => panic!("{lines:?} is {other:?}"),
        }
    }

    #[test]
    fn ls_refs_is_parsed() {
        let request = parse(
            ProtocolVersion::V2,
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
        assert_eq!(request, FetchRequest::ListRefs(RefQuery { peel: true, symrefs: true, unborn: true, prefixes }));
        assert_eq!(
            parse(ProtocolVersion::V2, &body(&["command=ls-refs", "--"])),
            FetchRequest::ListRefs(RefQuery::default())
        );
    }

    #[test]
    fn equivalent_clones_share_a_key() {
        let (a, b) = (format!("want {A}"), format!("want {B}"));
        let one = clone_of(
            ProtocolVersion::V2,
            &["command=fetch", "agent=git/1", "-", "thin-pack", "ofs-delta", &a, &b, "done", "--"],
        );
        let two = clone_of(
            ProtocolVersion::V2,
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
        assert_eq!(one.key(PROJECT, [0; 32]), two.key(PROJECT, [0; 32]));
        assert_ne!(one.key(PROJECT, [0; 32]), one.key(ProjectId::new(2), [0; 32]));
        assert_ne!(one.key(PROJECT, [0; 32]), one.key(PROJECT, [1; 32]));
        let shallow = clone_of(
            ProtocolVersion::V2,
            &["command=fetch", "-", "thin-pack", "ofs-delta", "deepen 1", &a, &b, "done", "--"],
        );
        assert_ne!(one.key(PROJECT, [0; 32]), shallow.key(PROJECT, [0; 32]));
        let older = clone_of(
            ProtocolVersion::V0,
            &[&format!("{a} side-band-64k agent=x ofs-delta"), &b, "deepen 1", "--", "done"],
        );
        let same = clone_of(
            ProtocolVersion::V0,
            &[&format!("{b} ofs-delta side-band-64k agent=y"), &a, "deepen 1", "--", "done"],
        );
        assert_eq!(older.key(PROJECT, [0; 32]), same.key(PROJECT, [0; 32]));
        assert_ne!(
            older.key(PROJECT, [0; 32]),
            CloneRequest { version: ProtocolVersion::V1, ..same }.key(PROJECT, [0; 32])
        );
    }

    #[test]
    fn requests_that_depend_on_the_client_are_not_cached() {
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
            assert_eq!(parse(ProtocolVersion::V2, &body(lines)), FetchRequest::Other, "{lines:?}");
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
            assert_eq!(parse(ProtocolVersion::V0, &body(lines)), FetchRequest::Other, "{lines:?}");
        }
    }

    fn oids() -> impl Strategy<Value = Vec<Oid>> {
        proptest::collection::btree_set(any::<[u8; 20]>().prop_map(Oid), 1..20)
            .prop_map(|ids| ids.into_iter().collect())
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(bytes: Vec<u8>, lines in proptest::collection::vec(".{0,30}", 0..8), two: bool) {
            let version = if two { ProtocolVersion::V2 } else { ProtocolVersion::V0 };
            parse(version, &bytes);
            parse(version, &body(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
        }

        #[test]
        fn a_written_request_is_parsed_back(
            wants in oids(),
            limits in proptest::collection::btree_set("(deepen [1-9][0-9]{0,5}|filter [a-z:=0-9]{1,9}|deepen-not [a-z/]{1,9})", 0..3),
            two: bool,
            old_capabilities in proptest::collection::btree_set("[a-z][a-z0-9-]{1,12}", 0..6),
            new_capabilities in proptest::collection::btree_set("(thin-pack|no-progress|include-tag|ofs-delta)", 0..4),
        ) {
            let (version, capabilities) =
                if two { (ProtocolVersion::V2, new_capabilities) } else { (ProtocolVersion::V0, old_capabilities) };
            let request = CloneRequest { version, wants, limits, capabilities };
            prop_assert_eq!(parse(version, &request.write()), FetchRequest::Clone(request));
        }
    }
}
