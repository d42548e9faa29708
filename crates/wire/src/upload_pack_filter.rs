//! Filters what a client sends to upload-pack.
//!
//! With protocol version 2 upload-pack sends any object by its id, even if it is unreachable. So each `want` is checked here.
//! Packets are forwarded as they arrive, except for the one that ends a list of wants: upload-pack does nothing before it, and
//! receives it once all wants are known to be allowed.

use std::{fmt, sync::Arc};

use forge::transport::OpenRepository;
use model::Oid;

use crate::{
    log_context::LogContext,
    messages,
    pkt::{self, Packet},
};

/// The maximum number of objects wanted in one request. A partial clone requests all files of a commit at once.
const MAX_WANTS: usize = 1_000_000;
/// The maximum number of `shallow` lines, and of `have` lines after a `shallow` line was dropped: each is looked up separately.
const MAX_LOOKUPS: usize = 10_000;
/// The number of packets processed before yielding to other tasks.
const PACKETS_PER_YIELD: usize = 256;
/// The supported commands of protocol version 2.
const COMMANDS: &[&[u8]] = &[b"command=fetch", b"command=ls-refs"];

/// Checks the requests of one client to upload-pack.
pub(crate) struct UploadPackFilter {
    repository: Arc<OpenRepository>,
    log: LogContext,
    /// The received part of an incomplete packet.
    partial_packet: Vec<u8>,
    /// Wanted objects that are not checked yet.
    unchecked: Vec<Oid>,
    /// Whether a `shallow` line was dropped.
    dropped_shallow: bool,
    /// The number of lines looked up separately.
    lookups: usize,
}

/// Why a request is refused; the text is sent to the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestRefused(String);

impl UploadPackFilter {
    pub(crate) fn new(repository: Arc<OpenRepository>, log: LogContext) -> Self {
        Self { repository, log, partial_packet: Vec::new(), unchecked: Vec::new(), dropped_shallow: false, lookups: 0 }
    }

    /// Takes the next chunk from the client and returns the bytes to forward to upload-pack.
    pub(crate) async fn filter(&mut self, chunk: &[u8]) -> Result<Vec<u8>, RequestRefused> {
        let mut bytes = std::mem::take(&mut self.partial_packet);
        bytes.extend_from_slice(chunk);
        let (mut out, mut consumed, mut packets) = (Vec::with_capacity(bytes.len()), 0, 0_usize);
        while let Some((packet, length)) = pkt::first(&bytes[consumed..]).map_err(|_| RequestRefused::malformed())? {
            packets += 1;
            if packets.is_multiple_of(PACKETS_PER_YIELD) {
                tokio::task::yield_now().await;
            }
            let is_forwarded = match packet {
                Packet::Data(data) => self.record_want(data)? && self.is_allowed(data).await?,
                Packet::Flush | Packet::Delimiter | Packet::ResponseEnd => {
                    self.check_wants().await?;
                    true
                }
            };
            if is_forwarded {
                out.extend_from_slice(&bytes[consumed..consumed + length]);
            }
            consumed += length;
        }
        self.partial_packet = bytes.split_off(consumed);
        Ok(out)
    }

    /// Returns whether a line may be forwarded to upload-pack.
    ///
    /// To deepen a history, upload-pack sends the parents of every `shallow` commit, even if they are unreachable. So a `shallow`
    /// line with an unreachable commit is dropped, and from then on every `have` line with one: without the former, the latter
    /// would claim that the client has the parents, too.
    async fn is_allowed(&mut self, line: &[u8]) -> Result<bool, RequestRefused> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let is_shallow = line.starts_with(b"shallow ");
        let id = match line
            .strip_prefix(b"shallow ")
            .or_else(|| line.strip_prefix(b"have ").filter(|_| self.dropped_shallow))
        {
            Some(id) => {
                std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).ok_or_else(RequestRefused::malformed)?
            }
            None => return Ok(true),
        };
        self.lookups += 1;
        if self.lookups > MAX_LOOKUPS {
            return Err(RequestRefused("too many shallow commits".to_owned()));
        }
        let unreachable = self.repository.find_unreachable(vec![id]).await;
        let unreachable = unreachable.map_err(|error| RequestRefused(messages::describe_error(&error, &self.log)))?;
        self.dropped_shallow |= is_shallow && unreachable.is_some();
        Ok(unreachable.is_none())
    }

    /// Checks the remaining wants at the end of input; must be called before the input of upload-pack is closed.
    pub(crate) async fn finish(&mut self) -> Result<(), RequestRefused> {
        self.check_wants().await
    }

    /// Records the object that a line wants; returns whether the line may be forwarded.
    fn record_want(&mut self, line: &[u8]) -> Result<bool, RequestRefused> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"command=") && !COMMANDS.contains(&line) {
            return Err(RequestRefused("unknown command".to_owned()));
        }
        let Some(rest) = line.strip_prefix(b"want ") else { return Ok(true) };
        // In versions 0 and 1 the capabilities follow the first id.
        let id = rest.get(..Oid::ZERO.len()).and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| id.parse().ok());
        self.unchecked.push(id.ok_or_else(RequestRefused::malformed)?);
        if self.unchecked.len() > MAX_WANTS {
            return Err(RequestRefused("too many wanted objects".to_owned()));
        }
        Ok(true)
    }

    async fn check_wants(&mut self) -> Result<(), RequestRefused> {
        let wants = std::mem::take(&mut self.unchecked);
        match self.repository.find_unreachable(wants).await {
            Ok(None) => Ok(()),
            // The message of upload-pack for a missing object, so that a client cannot tell unreachable from missing.
            Ok(Some(id)) => Err(RequestRefused(format!("upload-pack: not our ref {id}"))),
            Err(error) => Err(RequestRefused(messages::describe_error(&error, &self.log))),
        }
    }
}

impl RequestRefused {
    /// The request contains malformed packets or ids.
    pub(crate) fn malformed() -> Self {
        Self("upload-pack: protocol error".to_owned())
    }

    /// Returns the error packet for the client.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut out = Vec::new();
        pkt::line(&mut out, format_args!("ERR {self}"));
        out
    }
}

impl fmt::Display for RequestRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
