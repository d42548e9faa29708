//! What the server says first: which refs there are and what it can do.

use std::sync::Arc;

use forge::transport::{Ref, Refs};
use model::Oid;

use crate::{pkt, request::RefQuery, version::Version};

const AGENT: &str = concat!("gable/", env!("CARGO_PKG_VERSION"));

/// What upload-pack can do; the options with which it is started must allow all of it.
const UPLOAD: &str = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
                      deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want \
                      allow-reachable-sha1-in-want no-done filter object-format=sha1";
/// What our own receiving can do.
const RECEIVE: &str =
    "report-status delete-refs side-band-64k quiet atomic ofs-delta no-thin push-options object-format=sha1";

/// How many refs one piece of a list names.
const REFS_IN_A_PIECE: usize = 512;

/// A list of refs, in pieces that are made as they are taken: there may be many refs, and many clients that ask for them.
pub(crate) struct Listing {
    refs: Arc<Refs>,
    /// How many refs were looked at.
    at: usize,
    /// What comes before the next piece.
    start: Vec<u8>,
    /// What the first line tells beside a ref.
    abilities: Option<String>,
    kind: Kind,
    ended: bool,
}

enum Kind {
    /// For those who fetch, with what tags lead to.
    Fetch,
    /// For those who push.
    Push,
    /// What was asked for in version 2.
    Query(RefQuery),
    /// No refs at all.
    Nothing,
}

impl Iterator for Listing {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.ended {
            return None;
        }
        let mut out = std::mem::take(&mut self.start);
        let refs = Arc::clone(&self.refs);
        let mut found = refs.iter().skip(self.at);
        let mut looked_at = 0;
        let most = if matches!(self.kind, Kind::Nothing) { 0 } else { REFS_IN_A_PIECE };
        while looked_at < most
            && let Some(one) = found.next()
        {
            looked_at += 1;
            self.write(&mut out, one);
        }
        self.at += looked_at;
        if looked_at < REFS_IN_A_PIECE {
            self.finish(&mut out);
        }
        Some(out)
    }
}

impl Listing {
    fn new(refs: &Arc<Refs>, kind: Kind, start: Vec<u8>, abilities: Option<String>) -> Self {
        Self { refs: Arc::clone(refs), at: 0, start, abilities, kind, ended: false }
    }

    /// The same after some other bytes.
    pub(crate) fn after(mut self, mut bytes: Vec<u8>) -> Self {
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
            Kind::Query(_) | Kind::Nothing => {}
        }
    }

    fn line(&mut self, out: &mut Vec<u8>, name: &str, id: Oid) {
        let abilities = self.abilities.take().unwrap_or_default();
        pkt::line(out, format_args!("{id} {name}{abilities}"));
    }

    /// Ends the list; where there is no ref, nothing stands in for the first so that the abilities can be told.
    fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(abilities) = self.abilities.take() {
            pkt::line(out, format_args!("{} capabilities^{{}}{abilities}", Oid::ZERO));
        }
        if !matches!(self.kind, Kind::Nothing) {
            pkt::flush(out);
        }
        self.ended = true;
    }
}

/// The branch that HEAD names, if it exists.
fn head(refs: &Refs) -> Option<&Ref> {
    refs.head.as_ref().and_then(|name| refs.find(name))
}

/// The greeting for somebody who wants to fetch.
pub(crate) fn for_fetch(refs: &Arc<Refs>, version: Version) -> Listing {
    let mut start = Vec::new();
    match version {
        Version::Two => return Listing::new(refs, Kind::Nothing, abilities(), None),
        Version::One => pkt::line(&mut start, format_args!("version 1")),
        Version::Zero => {}
    }
    let head = head(refs);
    let symref = head.map(|head| format!(" symref=HEAD:{}", head.name)).unwrap_or_default();
    let abilities = Some(format!("\0{UPLOAD}{symref} agent={AGENT}"));
    let mut listing = Listing::new(refs, Kind::Fetch, Vec::new(), abilities);
    if let Some(head) = head {
        listing.line(&mut start, "HEAD", head.target);
    }
    listing.after(start)
}

/// The greeting for somebody who wants to push.
pub(crate) fn for_push(refs: &Arc<Refs>) -> Listing {
    Listing::new(refs, Kind::Push, Vec::new(), Some(format!("\0{RECEIVE} agent={AGENT}")))
}

/// The greeting of version 2, which names no refs.
fn abilities() -> Vec<u8> {
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

/// The refs that somebody asked for in version 2.
pub(crate) fn list(refs: &Arc<Refs>, query: RefQuery) -> Listing {
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
    Listing::new(refs, Kind::Query(query), out, None)
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

    /// No refs, but a HEAD that names a branch.
    fn empty() -> Arc<Refs> {
        let mut refs = Refs::default();
        refs.head = RefName::branch("main");
        Arc::new(refs)
    }

    fn text(bytes: &[u8]) -> String {
        let readable = String::from_utf8(bytes.to_vec()).expect("text").replace('\0', "|");
        readable.replace(env!("CARGO_PKG_VERSION"), "X")
    }

    fn lines(listing: Listing) -> Vec<String> {
        let bytes = listing.collect::<Vec<_>>().concat();
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
    fn a_fetch_is_greeted_with_head_first_and_peeled_tags() {
        let abilities = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not \
                         deepen-relative no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want \
                         allow-reachable-sha1-in-want no-done filter object-format=sha1";
        let expected = [
            format!("2* HEAD|{abilities} symref=HEAD:refs/heads/main agent=gable/X"),
            "1* refs/heads/dev".to_owned(),
            "2* refs/heads/main".to_owned(),
            "3* refs/tags/v1".to_owned(),
            "2* refs/tags/v1^{}".to_owned(),
            "--".to_owned(),
        ];
        assert_eq!(lines(for_fetch(&refs(), Version::Zero)), expected);
        let one = lines(for_fetch(&refs(), Version::One));
        assert_eq!((one[0].as_str(), &one[1..]), ("version 1", &expected[..]));
        let empty = lines(for_fetch(&empty(), Version::Zero));
        assert_eq!(empty, [format!("0* capabilities^{{}}|{abilities} agent=gable/X"), "--".to_owned()]);
    }

    #[test]
    fn version_two_is_greeted_with_what_can_be_done() {
        let expected = [
            "version 2",
            "agent=gable/X",
            "ls-refs=unborn",
            "fetch=shallow wait-for-done filter",
            "server-option",
            "object-format=sha1",
            "--",
        ];
        assert_eq!(lines(for_fetch(&refs(), Version::Two)), expected);
    }

    #[test]
    fn a_push_is_greeted_with_what_can_be_done() {
        let abilities = "report-status delete-refs side-band-64k quiet atomic ofs-delta no-thin push-options object-format=sha1 \
                         agent=gable/X";
        let expected = [&format!("1* refs/heads/dev|{abilities}"), "2* refs/heads/main", "3* refs/tags/v1", "--"];
        assert_eq!(lines(for_push(&refs())), expected);
        assert_eq!(lines(for_push(&Arc::default())), [&format!("0* capabilities^{{}}|{abilities}"), "--"]);
    }

    #[test]
    fn a_list_holds_what_was_asked_for() {
        let all = RefQuery { peel: true, symrefs: true, unborn: true, prefixes: Vec::new() };
        assert_eq!(
            lines(list(&refs(), all.clone())),
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
        assert_eq!(lines(list(&refs(), some)), ["1* refs/heads/dev", "3* refs/tags/v1", "--"]);
        assert_eq!(lines(list(&empty(), all)), ["unborn HEAD symref-target:refs/heads/main", "--"]);
        assert_eq!(lines(list(&empty(), RefQuery::default())), ["--"]);
    }

    #[test]
    fn a_long_list_comes_in_pieces() {
        for count in [0, 1, REFS_IN_A_PIECE - 1, REFS_IN_A_PIECE, REFS_IN_A_PIECE + 1, 3 * REFS_IN_A_PIECE] {
            let mut refs = Refs::default();
            let name = |number: usize| RefName::branch(&format!("b{number:06}")).expect("a name");
            refs.branches =
                (0..count).map(|number| Ref { name: name(number), target: Oid([0x11; 20]), peeled: None }).collect();
            let refs = Arc::new(refs);
            for listing in [for_fetch(&refs, Version::Zero), for_push(&refs), list(&refs, RefQuery::default())] {
                let pieces: Vec<_> = listing.collect();
                assert_eq!(pieces.len(), count / REFS_IN_A_PIECE + 1);
                let whole = pieces.concat();
                let found = pkt::packets(&whole).filter(|packet| {
                    packet.as_ref().expect("a packet").text().is_some_and(|line| line.contains("refs/heads/b"))
                });
                assert_eq!(found.count(), count);
                assert!(whole.ends_with(pkt::FLUSH));
            }
        }
    }
}
