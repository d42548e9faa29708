//! Ref advertisements: the refs of a repository and the capabilities of the server.

use std::sync::Arc;

use forge::transport::{Ref, Refs};
use model::Oid;

use crate::{fetch_request::RefQuery, pkt, protocol_version::ProtocolVersion};

const AGENT: &str = concat!("gable/", env!("CARGO_PKG_VERSION"));

/// The capabilities of upload-pack; the options with which it is started must allow all of them.
const UPLOAD_PACK_CAPABILITIES: &str = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
                      deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want \
                      allow-reachable-sha1-in-want no-done filter object-format=sha1";
/// The capabilities of our own receive-pack.
const RECEIVE_PACK_CAPABILITIES: &str =
    "report-status delete-refs side-band-64k quiet atomic ofs-delta no-thin push-options object-format=sha1";

/// The number of refs in a chunk.
const REFS_PER_CHUNK: usize = 512;

/// An iterator over the chunks of an advertisement. Chunks are encoded on demand, since there may be many refs and clients.
pub(crate) struct RefAdvertisement {
    refs: Arc<Refs>,
    /// The index of the next ref.
    next_index: usize,
    /// Bytes to send before the next chunk.
    start: Vec<u8>,
    /// The capabilities, until they are sent with the first line.
    capabilities: Option<String>,
    kind: Kind,
    ended: bool,
}

enum Kind {
    /// For upload-pack, with peeled tags.
    Fetch,
    /// For receive-pack.
    Push,
    /// The response to `ls-refs` of version 2.
    Query(RefQuery),
    /// Capabilities only.
    NoRefs,
}

impl Iterator for RefAdvertisement {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut out = std::mem::take(&mut self.start);
        let refs = Arc::clone(&self.refs);
        let mut remaining = refs.iter().skip(self.next_index);
        let mut written = 0;
        let max = if matches!(self.kind, Kind::NoRefs) { 0 } else { REFS_PER_CHUNK };
        while written < max
            && let Some(next) = remaining.next()
        {
            written += 1;
            self.write(&mut out, next);
        }
        self.next_index += written;
        if written < REFS_PER_CHUNK {
            self.finish(&mut out);
        }
        Some(out)
    }
}

impl RefAdvertisement {
    fn new(refs: &Arc<Refs>, kind: Kind, start: Vec<u8>, capabilities: Option<String>) -> Self {
        Self { refs: Arc::clone(refs), next_index: 0, start, capabilities, kind, ended: false }
    }

    /// Prepends bytes to the advertisement.
    pub(crate) fn with_prefix(mut self, mut bytes: Vec<u8>) -> Self {
        bytes.append(&mut self.start);
        self.start = bytes;
        self
    }

    fn write(&mut self, out: &mut Vec<u8>, found: &Ref) {
        match &self.kind {
            Kind::Fetch => {
                self.line(out, found.name.as_str(), found.target);
                if let Some(peeled) = found.peeled {
                    self.line(out, &format!("{}^{{}}", found.name), peeled);
                }
            }
            Kind::Push => self.line(out, found.name.as_str(), found.target),
            Kind::Query(query) if query.matches(found.name.as_str()) => match found.peeled.filter(|_| query.peel) {
                Some(peeled) => pkt::line(out, format_args!("{} {} peeled:{peeled}", found.target, found.name)),
                None => pkt::line(out, format_args!("{} {}", found.target, found.name)),
            },
            Kind::Query(_) | Kind::NoRefs => {}
        }
    }

    fn line(&mut self, out: &mut Vec<u8>, name: &str, id: Oid) {
        let capabilities = self.capabilities.take().unwrap_or_default();
        pkt::line(out, format_args!("{id} {name}{capabilities}"));
    }

    /// Ends the list; without any ref, a placeholder line carries the capabilities.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(capabilities) = self.capabilities.take() {
            pkt::line(out, format_args!("{} capabilities^{{}}{capabilities}", Oid::ZERO));
        }
        if !matches!(self.kind, Kind::NoRefs) {
            pkt::flush(out);
        }
        self.ended = true;
    }
}

/// Returns the branch that HEAD points to, if it exists.
fn head(refs: &Refs) -> Option<&Ref> {
    refs.head.as_ref().and_then(|name| refs.find(name))
}

/// Creates the advertisement of upload-pack.
pub(crate) fn for_fetch(refs: &Arc<Refs>, version: ProtocolVersion) -> RefAdvertisement {
    let mut start = Vec::new();
    match version {
        ProtocolVersion::V2 => return RefAdvertisement::new(refs, Kind::NoRefs, capability_advertisement(), None),
        ProtocolVersion::V1 => pkt::line(&mut start, format_args!("version 1")),
        ProtocolVersion::V0 => {}
    }
    let head = head(refs);
    let symref = head.map(|head| format!(" symref=HEAD:{}", head.name)).unwrap_or_default();
    let capabilities = Some(format!("\0{UPLOAD_PACK_CAPABILITIES}{symref} agent={AGENT}"));
    let mut advertisement = RefAdvertisement::new(refs, Kind::Fetch, Vec::new(), capabilities);
    if let Some(head) = head {
        advertisement.line(&mut start, "HEAD", head.target);
    }
    advertisement.with_prefix(start)
}

/// Creates the advertisement of receive-pack.
pub(crate) fn for_push(refs: &Arc<Refs>) -> RefAdvertisement {
    RefAdvertisement::new(refs, Kind::Push, Vec::new(), Some(format!("\0{RECEIVE_PACK_CAPABILITIES} agent={AGENT}")))
}

/// Encodes the capability advertisement of version 2.
fn capability_advertisement() -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, format_args!("version 2"));
    pkt::line(&mut out, format_args!("agent={AGENT}"));
    pkt::line(&mut out, format_args!("ls-refs=unborn"));
    pkt::line(&mut out, format_args!("fetch=shallow wait-for-done filter"));
    pkt::line(&mut out, format_args!("server-option"));
    pkt::line(&mut out, format_args!("object-format=sha1"));
    pkt::flush(&mut out);
    out
}

/// Creates the response to `ls-refs` of version 2.
pub(crate) fn ls_refs(refs: &Arc<Refs>, query: RefQuery) -> RefAdvertisement {
    let mut out = Vec::new();
    if query.matches("HEAD") {
        let symref = |symrefs: bool| match &refs.head {
            Some(name) if symrefs => format!(" symref-target:{name}"),
            _ => String::new(),
        };
        match head(refs) {
            Some(head) => pkt::line(&mut out, format_args!("{} HEAD{}", head.target, symref(query.symrefs))),
            None if query.unborn && refs.head.is_some() => {
                pkt::line(&mut out, format_args!("unborn HEAD{}", symref(query.symrefs)));
            }
            None => {}
        }
    }
    RefAdvertisement::new(refs, Kind::Query(query), out, None)
}

#[cfg(test)]
mod tests {
    use model::RefName;

    use super::*;

    fn refs() -> Arc<Refs> {
        let found = |name: &str, digit: u8, peeled: Option<u8>| Ref {
            name: RefName::new(name).expect("a name"),
            target: Oid([digit; 20]),
            peeled: peeled.map(|digit| Oid([digit; 20])),
        };
        let mut refs = Refs::default();
        refs.head = RefName::branch("main");
        refs.branches = vec![found("refs/heads/dev", 0x11, None), found("refs/heads/main", 0x22, None)];
        refs.tags = vec![found("refs/tags/v1", 0x33, Some(0x22))];
        Arc::new(refs)
    }

    /// An empty repository, whose HEAD names an unborn branch.
    fn empty() -> Arc<Refs> {
        let mut refs = Refs::default();
        refs.head = RefName::branch("main");
        Arc::new(refs)
    }

    fn text(bytes: &[u8]) -> String {
        let readable = String::from_utf8(bytes.to_vec()).expect("text").replace('\0', "|");
        readable.replace(env!("CARGO_PKG_VERSION"), "X")
    }

    fn lines(advertisement: RefAdvertisement) -> Vec<String> {
        let bytes = advertisement.collect::<Vec<_>>().concat();
        let digits = |digit: &str| (digit.repeat(40), format!("{}*", &digit[..1]));
        let replace = |line: &str| {
            ["0", "1", "2", "3"].iter().fold(text(line.as_bytes()), |line, digit| {
                let (long, short) = digits(digit);
                line.replace(&long, &short)
            })
        };
        pkt::packets(&bytes).map(|packet| packet.expect("a packet").text().map_or("--".to_owned(), replace)).collect()
    }

    #[test]
    fn upload_pack_advertises_head_first_and_peeled_tags() {
        let capabilities = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
                         deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want \
                         allow-reachable-sha1-in-want no-done filter object-format=sha1";
        let expected = [
            format!("2* HEAD|{capabilities} symref=HEAD:refs/heads/main agent=gable/X"),
            "1* refs/heads/dev".to_owned(),
            "2* refs/heads/main".to_owned(),
            "3* refs/tags/v1".to_owned(),
            "2* refs/tags/v1^{}".to_owned(),
            "--".to_owned(),
        ];
        assert_eq!(lines(for_fetch(&refs(), ProtocolVersion::V0)), expected);
        let one = lines(for_fetch(&refs(), ProtocolVersion::V1));
        assert_eq!((one[0].as_str(), &one[1..]), ("version 1", &expected[..]));
        let empty = lines(for_fetch(&empty(), ProtocolVersion::V0));
        assert_eq!(empty, [format!("0* capabilities^{{}}|{capabilities} agent=gable/X"), "--".to_owned()]);
    }

    #[test]
    fn version_2_advertises_capabilities_only() {
        let expected = [
            "version 2",
            "agent=gable/X",
            "ls-refs=unborn",
            "fetch=shallow wait-for-done filter",
            "server-option",
            "object-format=sha1",
            "--",
        ];
        assert_eq!(lines(for_fetch(&refs(), ProtocolVersion::V2)), expected);
    }

    #[test]
    fn receive_pack_advertises_refs_and_capabilities() {
        let capabilities = "report-status delete-refs side-band-64k quiet atomic ofs-delta no-thin push-options object-format=sha1 \
                         agent=gable/X";
        let expected = [&format!("1* refs/heads/dev|{capabilities}"), "2* refs/heads/main", "3* refs/tags/v1", "--"];
        assert_eq!(lines(for_push(&refs())), expected);
        assert_eq!(lines(for_push(&Arc::default())), [&format!("0* capabilities^{{}}|{capabilities}"), "--"]);
    }

    #[test]
    fn ls_refs_lists_the_requested_refs() {
        let all = RefQuery { peel: true, symrefs: true, unborn: true, prefixes: Vec::new() };
        assert_eq!(
            lines(ls_refs(&refs(), all.clone())),
            [
                "2* HEAD symref-target:refs/heads/main",
                "1* refs/heads/dev",
                "2* refs/heads/main",
                "3* refs/tags/v1 peeled:2*",
                "--"
            ]
        );
        let some =
            RefQuery { prefixes: vec!["refs/tags/".to_owned(), "refs/heads/d".to_owned()], ..RefQuery::default() };
        assert_eq!(lines(ls_refs(&refs(), some)), ["1* refs/heads/dev", "3* refs/tags/v1", "--"]);
        assert_eq!(lines(ls_refs(&empty(), all)), ["unborn HEAD symref-target:refs/heads/main", "--"]);
        assert_eq!(lines(ls_refs(&empty(), RefQuery::default())), ["--"]);
    }

    #[test]
    fn a_long_list_is_sent_in_chunks() {
        for count in [0, 1, REFS_PER_CHUNK - 1, REFS_PER_CHUNK, REFS_PER_CHUNK + 1, 3 * REFS_PER_CHUNK] {
            let mut refs = Refs::default();
            let name = |number: usize| RefName::branch(&format!("b{number:06}")).expect("a name");
            refs.branches =
                (0..count).map(|number| Ref { name: name(number), target: Oid([0x11; 20]), peeled: None }).collect();
            let refs = Arc::new(refs);
            for advertisement in
                [for_fetch(&refs, ProtocolVersion::V0), for_push(&refs), ls_refs(&refs, RefQuery::default())]
            {
                let chunks: Vec<_> = advertisement.collect();
                assert_eq!(chunks.len(), count / REFS_PER_CHUNK + 1);
                let whole = chunks.concat();
                let found = pkt::packets(&whole).filter(|packet| {
                    packet.as_ref().expect("a packet").text().is_some_and(|line| line.contains("refs/heads/b"))
                });
                assert_eq!(found.count(), count);
                assert!(whole.ends_with(pkt::FLUSH));
            }
        }
    }
}
