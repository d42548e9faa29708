//! Looks at what a client sends to upload-pack before upload-pack sees it.
//!
//! In the second version of the protocol upload-pack sends every object of the repository that is asked for by its id,
//! also what no ref leads to any more. So each `want` is checked here. The packets pass on as they come, but for the one
//! that ends a list of wants: upload-pack does nothing before it, and gets it once all wants are known to be allowed.

use std::{fmt, sync::Arc};

use forge::transport::Hosted;
use model::Oid;

use crate::{
    pkt::{self, Packet},
    words,
};

/// How many objects may be wanted at once. A partial clone asks for all files of a commit in one request.
const MOST_WANTS: usize = 1_000_000;
/// The commands of the second version of the protocol that are served.
const COMMANDS: &[&[u8]] = &[b"command=fetch", b"command=ls-refs"];

/// A client's side of a conversation with upload-pack.
pub(crate) struct Wants {
    hosted: Arc<Hosted>,
    /// The beginning of a packet that has not come to its end.
    cut: Vec<u8>,
    /// What is wanted and not checked yet.
    unchecked: Vec<Oid>,
}

/// Why a client is not listened to any longer; the text is told to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(String);

impl Wants {
    pub(crate) fn new(hosted: Arc<Hosted>) -> Self {
        Self { hosted, cut: Vec::new(), unchecked: Vec::new() }
    }

    /// Takes in what comes next, and answers what upload-pack may see now.
    pub(crate) async fn pass(&mut self, piece: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(piece);
        let mut passed = 0;
        while let Some((packet, length)) = pkt::first(&bytes[passed..]).map_err(|_| Refused::malformed())? {
            match packet {
                Packet::Data(data) => self.note(data)?,
                Packet::Flush | Packet::Delimiter | Packet::ResponseEnd => self.check().await?,
            }
            passed += length;
        }
        self.cut = bytes.split_off(passed);
        Ok(bytes)
    }

    /// To be called at the end, before upload-pack is told of it.
    pub(crate) async fn end(&mut self) -> Result<(), Refused> {
        self.check().await
    }

    fn note(&mut self, line: &[u8]) -> Result<(), Refused> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"command=") && !COMMANDS.contains(&line) {
            return Err(Refused("unknown command".to_owned()));
        }
        let Some(rest) = line.strip_prefix(b"want ") else { return Ok(()) };
        // In the older versions, what the client can do follows the first id.
        let id = rest.get(..Oid::ZERO.len()).and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| id.parse().ok());
        self.unchecked.push(id.ok_or_else(Refused::malformed)?);
        if self.unchecked.len() > MOST_WANTS {
            return Err(Refused("too many objects are wanted at once".to_owned()));
        }
        Ok(())
    }

    async fn check(&mut self) -> Result<(), Refused> {
        let wants = std::mem::take(&mut self.unchecked);
        match self.hosted.find_unreachable(wants).await {
            Ok(None) => Ok(()),
            // The words of upload-pack for an object that does not exist: nobody learns which of the two it is.
            Ok(Some(id)) => Err(Refused(format!("upload-pack: not our ref {id}"))),
            Err(error) => Err(Refused(words::sentence(&error))),
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
