//! Looks at what a client sends to upload-pack before upload-pack sees it.
//!
//! In the second version of the protocol upload-pack sends every object of the repository that is asked for by its id,
//! also what no ref leads to any more. So each `want` is checked here. The packets pass on as they come, but for the one
//! that ends a list of wants: upload-pack does nothing before it, and gets it once all wants are known to be allowed.

use std::{fmt, sync::Arc};

use forge::transport::Hosted;
use model::Oid;

use crate::{
    origin::Origin,
    pkt::{self, Packet},
    words,
};

/// How many objects may be wanted at once. A partial clone asks for all files of a commit in one request.
const MOST_WANTS: usize = 1_000_000;
/// How many commits a client may call shallow, and how many of its own commits it may name after it named one that it may
/// not know: each is looked up by itself.
const MOST_LOOKUPS: usize = 10_000;
/// After how many packets other requests get their turn.
const PACKETS_AT_ONCE: usize = 256;
/// The commands of the second version of the protocol that are served.
const COMMANDS: &[&[u8]] = &[b"command=fetch", b"command=ls-refs"];

/// A client's side of a conversation with upload-pack.
pub(crate) struct Wants {
    hosted: Arc<Hosted>,
    origin: Origin,
    /// The beginning of a packet that has not come to its end.
    cut: Vec<u8>,
    /// What is wanted and not checked yet.
    unchecked: Vec<Oid>,
    /// Whether a `shallow` line was left out.
    hides_shallow: bool,
    /// How many lines were looked up one by one.
    lookups: usize,
}

/// Why a client is not listened to any longer; the text is told to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(String);

impl Wants {
    pub(crate) fn new(hosted: Arc<Hosted>, origin: Origin) -> Self {
        Self { hosted, origin, cut: Vec::new(), unchecked: Vec::new(), hides_shallow: false, lookups: 0 }
    }

    /// Takes in what comes next, and answers what upload-pack may see now.
    pub(crate) async fn pass(&mut self, piece: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(piece);
        let (mut out, mut passed, mut packets) = (Vec::with_capacity(bytes.len()), 0, 0_usize);
        while let Some((packet, length)) = pkt::first(&bytes[passed..]).map_err(|_| Refused::malformed())? {
            packets += 1;
            if packets.is_multiple_of(PACKETS_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let keeps = match packet {
                Packet::Data(data) => self.note(data)? && self.may_know(data).await?,
                Packet::Flush | Packet::Delimiter | Packet::ResponseEnd => {
                    self.check().await?;
                    true
                }
            };
            if keeps {
                out.extend_from_slice(&bytes[passed..passed + length]);
            }
            passed += length;
        }
        self.cut = bytes.split_off(passed);
        Ok(out)
    }

    /// Whether upload-pack may see a line.
    ///
    /// To deepen a history, upload-pack sends the parents of every commit that the client calls shallow, whether or not a ref
    /// leads there. So a `shallow` line with an unreachable commit is left out, and from then on every `have` line with
    /// one: without the first, the second would say that the client has the parents, too.
    async fn may_know(&mut self, line: &[u8]) -> Result<bool, Refused> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let is_shallow = line.starts_with(b"shallow ");
        let id = match line
            .strip_prefix(b"shallow ")
            .or_else(|| line.strip_prefix(b"have ").filter(|_| self.hides_shallow))
        {
            Some(id) => std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).ok_or_else(Refused::malformed)?,
            None => return Ok(true),
        };
        self.lookups += 1;
        if self.lookups > MOST_LOOKUPS {
            return Err(Refused("too many shallow commits".to_owned()));
        }
        let unreachable = self.hosted.find_unreachable(vec![id]).await;
        let unreachable = unreachable.map_err(|error| Refused(words::sentence(&error, &self.origin)))?;
        self.hides_shallow |= is_shallow && unreachable.is_some();
        Ok(unreachable.is_none())
    }

    /// To be called at the end, before upload-pack is told of it.
    pub(crate) async fn end(&mut self) -> Result<(), Refused> {
        self.check().await
    }

    /// Takes down what a line wants; answers whether upload-pack may see it.
    fn note(&mut self, line: &[u8]) -> Result<bool, Refused> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"command=") && !COMMANDS.contains(&line) {
            return Err(Refused("unknown command".to_owned()));
        }
        let Some(rest) = line.strip_prefix(b"want ") else { return Ok(true) };
        // In the older versions, what the client can do follows the first id.
        let id = rest.get(..Oid::ZERO.len()).and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| id.parse().ok());
        self.unchecked.push(id.ok_or_else(Refused::malformed)?);
        if self.unchecked.len() > MOST_WANTS {
            return Err(Refused("too many objects are wanted at once".to_owned()));
        }
        Ok(true)
    }

    async fn check(&mut self) -> Result<(), Refused> {
        let wants = std::mem::take(&mut self.unchecked);
        match self.hosted.find_unreachable(wants).await {
            Ok(None) => Ok(()),
            // The words of upload-pack for an object that does not exist: nobody learns which of the two it is.
            Ok(Some(id)) => Err(Refused(format!("upload-pack: not our ref {id}"))),
            Err(error) => Err(Refused(words::sentence(&error, &self.origin))),
        }
    }
}

impl Refused {
    fn malformed() -> Self {
        Self("upload-pack: protocol error".to_owned())
    }

    /// The packet that tells the client.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut out = Vec::new();
        pkt::line(&mut out, format_args!("ERR {self}"));
        out
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
