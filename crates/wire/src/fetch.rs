//! Answers one request of a fetch over HTTP: from memory, from the cache, or through upload-pack.

use std::{
    collections::HashSet,
    io::{self, Write as _},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use files::spool::{Follower, Producer, Seat};
use forge::transport::Hosted;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::ChildStdin,
    sync::mpsc,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    advertise,
    body::{self, Pieces},
    child::{PIECE, Pipes, Running, collect},
    origin::Origin,
    pkt,
    request::{self, Asked, CloneRequest},
    transfers::{Busy, Transfers, Turn},
    version::Version,
    wants::{Refused, Wants},
    words,
};

/// How much of a request is looked at; a longer one is upload-pack's business alone.
const LOOKED_AT: usize = 256 << 10;

/// Answers up to this length hold no pack; whoever ends after that was asked for something impossible.
const SHORT_ANSWER: u64 = 4096;

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// No turn came.
    Busy(Busy),
    /// The request could not be read.
    Request(io::Error),
    /// Nothing came of it; the log tells more.
    Failed,
}

impl From<Busy> for Unanswered {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

/// Answers a request from an address.
pub(crate) async fn answer(
    transfers: &Transfers,
    hosted: &Arc<Hosted>,
    version: Version,
    (address, origin): (IpAddr, &Origin),
    request: Pieces,
) -> Result<Pieces, Unanswered> {
    let request = body::at_most(request, transfers.limits().fetch_request);
    let reading = timeout(transfers.limits().quiet, body::beginning(request, LOOKED_AT));
    let read = reading.await.map_err(|_| Unanswered::Request(io::ErrorKind::TimedOut.into()))?;
    let (start, rest) = read.map_err(Unanswered::Request)?;
    if pkt::packets(&start).next().is_some_and(|first| first.is_err()) {
        return Err(Unanswered::Request(io::ErrorKind::InvalidData.into()));
    }
    let asked = if rest.is_none() { request::parse(version, &start) } else { Asked::Other };
    let pieces = match asked {
        Asked::Refs(query) => {
            return Ok(body::of(advertise::list(hosted.refs(), query)));
        }
        Asked::Clone(request) if wants_what_is_there(hosted, &request) => {
            return clone(transfers, hosted, version, (address, origin), &request).await;
        }
        Asked::Clone(_) | Asked::Other => {
            let turn = transfers.fetch_turn(hosted.project_id(), address).await?;
            let request = stream::iter([Ok(Bytes::from(start))]).chain(rest.unwrap_or_else(|| stream::empty().boxed()));
            relay(transfers, hosted, version, request.boxed(), (turn, origin.clone()))?
        }
    };
    begun(pieces).await
}

/// Whether all that is wanted is what visible refs point to: anything else is not for everybody to share.
fn wants_what_is_there(hosted: &Hosted, request: &CloneRequest) -> bool {
    let there: HashSet<_> =
        hosted.refs().iter().flat_map(|found| [Some(found.target), found.peeled]).flatten().collect();
    request.wants().all(|want| there.contains(want))
}

/// Waits for the first piece, so that a failure before it can still be told by a status.
async fn begun(mut pieces: Pieces) -> Result<Pieces, Unanswered> {
    match pieces.next().await {
        Some(Ok(first)) => Ok(stream::iter([Ok(first)]).chain(pieces).boxed()),
        Some(Err(error)) if is_of_the_request(&error) => Err(Unanswered::Request(error)),
        Some(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<NoAnswer>()) {
            Some(NoAnswer(reason)) => Ok(body::of(std::iter::once(refusal(reason)))),
            None => Err(Unanswered::Failed),
        },
        None => Ok(stream::empty().boxed()),
    }
}

/// Upload-pack has ended without an answer.
#[derive(Debug)]
struct NoAnswer(String);

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "upload-pack has refused a request: {}", self.0)
    }
}

impl std::error::Error for NoAnswer {}

/// Why upload-pack does not answer a request: what it complains about, if that can be told.
fn reason(log: &str) -> String {
    words::complaint(log).unwrap_or_else(|| "the request could not be answered".to_owned())
}

/// Whether upload-pack complains about the repository and not about the request: what is wanted was checked before. This
/// decides only how loud the log is.
fn is_damage(log: &str) -> bool {
    ["bad object", "corrupt", "missing", "not a git repository", "not our ref", "unable to read"]
        .iter()
        .any(|text| log.contains(text))
}

/// An answer that tells a client of git why there is no other.
fn refusal(reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, format_args!("ERR upload-pack: {reason}"));
    out
}

/// Whether the client is to blame: what it sends is too much, or cannot be unpacked.
fn is_of_the_request(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

fn start(
    transfers: &Transfers,
    hosted: &Hosted,
    version: Version,
    origin: &Origin,
) -> Result<(Running, Pipes), Unanswered> {
    Running::start(hosted.upload_pack(version.for_git(), true), transfers.limits()).map_err(|error| {
        origin.error("cannot start git upload-pack", error);
        Unanswered::Failed
    })
}

/// Answers from the cache. Whoever has followed somebody else's failure in vain tries again, and may then be the first.
async fn clone(
    transfers: &Transfers,
    hosted: &Arc<Hosted>,
    version: Version,
    from: (IpAddr, &Origin),
    request: &CloneRequest,
) -> Result<Pieces, Unanswered> {
    let (follower, first) = follow(transfers, hosted, version, from, request).await?;
    match begun(follower.boxed()).await {
        Err(Unanswered::Failed) if !first => {
            let (follower, _) = follow(transfers, hosted, version, from, request).await?;
            begun(follower.boxed()).await
        }
        begun => begun,
    }
}

/// Follows an answer in the cache; whoever asks first fills it. Tells also whether that was so.
async fn follow(
    transfers: &Transfers,
    hosted: &Arc<Hosted>,
    version: Version,
    (address, origin): (IpAddr, &Origin),
    request: &CloneRequest,
) -> Result<(Follower, bool), Unanswered> {
    let key = request.key(hosted.project_id(), hosted.refs().fingerprint());
    let seat = transfers.spools().join(Some(key)).map_err(|error| {
        origin.error("cannot cache a clone", error);
        Unanswered::Failed
    })?;
    match seat {
        Seat::Another(follower) => {
            metrics::counter!("gable_git_clone_cache_hits_total").increment(1);
            Ok((follower, false))
        }
        Seat::First(producer, follower) => {
            metrics::counter!("gable_git_clone_cache_misses_total").increment(1);
            let turn = transfers.fetch_turn(hosted.project_id(), address).await?;
            let (running, pipes) = start(transfers, hosted, version, origin)?;
            let origin = origin.clone();
            let (request, time) = (request.write(), transfers.limits().time);
            tokio::spawn(async move {
                let deserted = producer.deserted();
                tokio::select! {
                    () = deserted => origin.debug("a clone was given up", "no client waits for it any more"),
                    made = timeout(time, fill(running, pipes, request, (producer, &origin))) => match made {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => tell(&origin, &error),
                        Err(_) => origin.warn("a clone failed", format_args!("it took longer than {} seconds", time.as_secs())),
                    }
                }
                drop(turn);
            });
            Ok((follower, true))
        }
    }
}

/// Writes what upload-pack answers to the cache.
async fn fill(
    mut running: Running,
    pipes: Pipes,
    request: Vec<u8>,
    (mut producer, origin): (Producer, &Origin),
) -> io::Result<()> {
    let Pipes { mut input, mut output, log } = pipes;
    let log = collect(log);
    let feeding = async move {
        // Who does not read all of it will say why in its answer.
        let _ = input.write_all(&request).await;
    };
    let moving = async {
        let mut piece = vec![0; PIECE];
        loop {
            let count = output.read(&mut piece).await?;
            if count == 0 {
                return io::Result::Ok(producer);
            }
            let written = spawn_blocking(move || {
                producer.write_all(&piece[..count])?;
                io::Result::Ok((producer, piece))
            });
            (producer, piece) = written.await.map_err(io::Error::other)??;
        }
    };
    let ((), producer) = tokio::join!(feeding, moving);
    let (mut producer, status) = (producer?, running.wait().await?);
    if status.success() {
        return producer.finish();
    }
    let log = log.await.unwrap_or_default();
    // A program that was killed in the middle has said nothing about it.
    if producer.written() == 0 || status.code().is_some() {
        if producer.written() <= SHORT_ANSWER && !is_damage(&log) {
            origin.debug("a clone was refused", format_args!("{status}: {log}"));
        } else {
            origin.warn("a fetch failed", format_args!("upload-pack ended with {status}: {log}"));
        }
        let answering = spawn_blocking(move || {
            producer.write_all(&refusal(&reason(&log)))?;
            // Whoever comes later asks anew.
            producer.finish_unkept();
            io::Result::Ok(())
        });
        return answering.await.map_err(io::Error::other)?;
    }
    Err(io::Error::other(format!("upload-pack ended with {status}: {log}")))
}

/// Lets upload-pack talk to the client, piece by piece, until one of them ends.
fn relay(
    transfers: &Transfers,
    hosted: &Arc<Hosted>,
    version: Version,
    request: Pieces,
    (turn, origin): (Turn, Origin),
) -> Result<Pieces, Unanswered> {
    let (mut running, pipes) = start(transfers, hosted, version, &origin)?;
    let limits = transfers.limits().clone();
    let wants = Wants::new(Arc::clone(hosted), origin.clone());
    let (pieces, mut taken) = mpsc::channel::<io::Result<Bytes>>(1);
    tokio::spawn(async move {
        let Pipes { input, mut output, log } = pipes;
        let log = collect(log);
        let talking = async {
            let mut silent = true;
            let moving = async {
                let mut piece = vec![0; PIECE];
                loop {
                    let count = output.read(&mut piece).await?;
                    if count == 0 {
                        return io::Result::Ok(());
                    }
                    silent = false;
                    let sending = pieces.send_timeout(Ok(Bytes::copy_from_slice(&piece[..count])), limits.stall);
                    sending.await.map_err(|_| io::ErrorKind::TimedOut)?;
                }
            };
            let quiet = limits.quiet;
            let (fed, moved) = tokio::join!(feed(request, wants, input, quiet), moving);
            if let Ok(Some(refused)) = &fed {
                // Upload-pack has not heard all of the request, so it has not begun to answer.
                origin.debug("a fetch was refused", refused);
                let _ = pieces.send_timeout(Ok(refused.packet().into()), limits.stall).await;
                return Ok(());
            }
            moved.and(fed.map(drop))?;
            let status = running.wait().await?;
            // A refusal is told in the answer itself, or to the log.
            if status.success() || (!silent && status.code().is_some()) {
                return Ok(());
            }
            let log = log.await.unwrap_or_default();
            if silent {
                if is_damage(&log) {
                    origin.warn("a fetch failed", format_args!("upload-pack ended with {status}: {log}"));
                }
                return Err(io::Error::other(NoAnswer(reason(&log))));
            }
            Err(io::Error::other(format!("upload-pack ended with {status}: {log}")))
        };
        let ended = tokio::select! {
            () = pieces.closed() => Ok(()),
            ended = timeout(limits.time, talking) => ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        drop((running, turn));
        if let Err(error) = ended {
            tell(&origin, &error);
            // An answer that just stopped would look whole.
            let _ = pieces.send_timeout(Err(error), limits.stall).await;
        }
    });
    Ok(stream::poll_fn(move |context| taken.poll_recv(context)).boxed())
}

/// Writes down why a fetch failed: loudly only if it was not the client's doing.
fn tell(origin: &Origin, error: &io::Error) {
    let is_refused = error.get_ref().is_some_and(|inner| inner.is::<NoAnswer>());
    if error.kind() == io::ErrorKind::Other && !is_refused {
        origin.warn("a fetch failed", error);
    } else {
        origin.debug("a fetch failed", error);
    }
}

/// Hands upload-pack what the client sends, as far as it may have it; answers why it may not.
async fn feed(mut from: Pieces, mut wants: Wants, mut to: ChildStdin, quiet: Duration) -> io::Result<Option<Refused>> {
    while let Some(piece) = timeout(quiet, from.try_next()).await.map_err(|_| io::ErrorKind::TimedOut)?? {
        let piece = match wants.pass(&piece).await {
            Ok(piece) => piece,
            Err(refused) => return Ok(Some(refused)),
        };
        if to.write_all(&piece).await.is_err() {
            return Ok(None);
        }
    }
    Ok(wants.end().await.err())
}
