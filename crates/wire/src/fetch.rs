//! Responds to one fetch request: from memory, from the clone cache, or through upload-pack.

use std::{
    io::{self, Write as _},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use files::spool::{Follower, Joined, Producer};
use forge::transport::{OpenRepository, WholePack};
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
    body::{self, ByteStream},
    child::{CHUNK_SIZE, ChildProcess, Pipes, collect_tail},
    fetch_request::{self, CloneRequest, FetchRequest},
    log_context::LogContext,
    messages,
    pkt::{self, SideBandWriter},
    protocol_version::ProtocolVersion,
    transfers::{Busy, TransferPermit, Transfers},
    upload_pack_filter::{RequestRefused, UploadPackFilter},
};

/// The maximum size of a request that is parsed; longer ones go to upload-pack.
const MAX_PARSED_REQUEST: usize = 256 << 10;

/// The maximum size of a response without a pack: upload-pack that fails after so little has refused the request.
const MAX_ERROR_RESPONSE: u64 = 4096;

/// The side band that carries packs.
const PACK_BAND: u8 = 1;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum FetchError {
    /// No permit was available.
    Busy(Busy),
    /// The request is malformed, too large or incomplete.
    Request(io::Error),
    /// Upload-pack failed; the log has the cause.
    Failed,
}

impl From<Busy> for FetchError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

/// Responds to a fetch request that does not depend on earlier ones; over SSH only version 2 has such requests.
pub(crate) async fn respond(
    transfers: &Transfers,
    repository: &Arc<OpenRepository>,
    version: ProtocolVersion,
    (address, log): (IpAddr, &LogContext),
    request: ByteStream,
) -> Result<ByteStream, FetchError> {
    let request = body::limit(request, transfers.limits().max_fetch_request_bytes);
    let reading = timeout(transfers.limits().read_timeout, body::read_prefix(request, MAX_PARSED_REQUEST));
    let read = reading.await.map_err(|_| FetchError::Request(io::ErrorKind::TimedOut.into()))?;
    let (start, rest) = read.map_err(FetchError::Request)?;
    if pkt::packets(&start).next().is_some_and(|first| first.is_err()) {
        return Err(FetchError::Request(io::ErrorKind::InvalidData.into()));
    }
    let request = if rest.is_none() { fetch_request::parse(version, &start) } else { FetchRequest::Other };
    let chunks = match request {
        FetchRequest::ListRefs(query) => {
            return Ok(body::from_chunks(advertise::ls_refs(repository.refs(), query)));
        }
        FetchRequest::Clone(request) if wants_only_advertised(repository, &request) => {
            return cached_clone(transfers, repository, version, (address, log), &request).await;
        }
        FetchRequest::Clone(_) | FetchRequest::Other => {
            let permit = transfers.acquire_fetch(repository.project_id(), address).await?;
            let request = stream::iter([Ok(Bytes::from(start))]).chain(rest.unwrap_or_else(|| stream::empty().boxed()));
            relay(transfers, repository, version, request.boxed(), (permit, log.clone())).await?
        }
    };
    with_first_chunk(chunks).await
}

/// Returns whether all wanted objects are targets of advertised refs. Responses to other requests are not shared.
fn wants_only_advertised(repository: &OpenRepository, request: &CloneRequest) -> bool {
    let mut advertised = repository.refs().targets().iter();
    // Both lists are sorted.
    request.wants().iter().all(|want| advertised.by_ref().find(|target| *target >= want) == Some(want))
}

/// Waits for the first chunk, so that an earlier failure is reported as an error and not as a truncated response.
async fn with_first_chunk(mut chunks: ByteStream) -> Result<ByteStream, FetchError> {
    match chunks.next().await {
        Some(Ok(first)) => Ok(stream::iter([Ok(first)]).chain(chunks).boxed()),
        Some(Err(error)) if is_client_error(&error) => Err(FetchError::Request(error)),
        Some(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<UploadPackRefused>()) {
            Some(UploadPackRefused(reason)) => Ok(body::from_chunks(std::iter::once(refusal(reason)))),
            None => Err(FetchError::Failed),
        },
        None => Ok(stream::empty().boxed()),
    }
}

/// Upload-pack exited without a response; holds the reason.
#[derive(Debug)]
struct UploadPackRefused(String);

impl std::fmt::Display for UploadPackRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "upload-pack has refused a request: {}", self.0)
    }
}

impl std::error::Error for UploadPackRefused {}

/// Returns the reason from the standard error of upload-pack, if it may be shown.
fn reason(stderr: &str) -> String {
    messages::last_git_error(stderr).unwrap_or_else(|| "the request failed".to_owned())
}

/// Returns whether upload-pack reports a problem of the repository rather than of the request, whose wants were checked before.
/// Only affects the log level.
fn reports_corruption(stderr: &str) -> bool {
    ["bad object", "corrupt", "missing", "not a git repository", "not our ref", "unable to read"]
        .iter()
        .any(|text| stderr.contains(text))
}

/// Encodes an error response.
fn refusal(reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    pkt::line(&mut out, format_args!("ERR upload-pack: {reason}"));
    out
}

/// Returns whether an error is caused by the request: too large, or not decompressible.
fn is_client_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

async fn start(
    transfers: &Transfers,
    repository: &OpenRepository,
    version: ProtocolVersion,
    log: &LogContext,
) -> Result<(ChildProcess, Pipes), FetchError> {
    let command = repository.upload_pack(version.env_value(), true).await.map_err(|error| {
        log.error("cannot prepare git upload-pack", error);
        FetchError::Failed
    })?;
    ChildProcess::start(command, transfers.limits()).map_err(|error| {
        log.error("cannot start git upload-pack", error);
        FetchError::Failed
    })
}

/// Responds from the clone cache. If another client's response fails before it starts, it is retried once.
async fn cached_clone(
    transfers: &Transfers,
    repository: &Arc<OpenRepository>,
    version: ProtocolVersion,
    from: (IpAddr, &LogContext),
    request: &CloneRequest,
) -> Result<ByteStream, FetchError> {
    let (follower, first) = follow(transfers, repository, version, from, request).await?;
    match with_first_chunk(follower.boxed()).await {
        Err(FetchError::Failed) if !first => {
            let (follower, _) = follow(transfers, repository, version, from, request).await?;
            with_first_chunk(follower.boxed()).await
        }
        result => result,
    }
}

/// Joins the response in the clone cache; the first client starts upload-pack to fill it. Also returns whether this is the first.
async fn follow(
    transfers: &Transfers,
    repository: &Arc<OpenRepository>,
    version: ProtocolVersion,
    (address, log): (IpAddr, &LogContext),
    request: &CloneRequest,
) -> Result<(Follower, bool), FetchError> {
    let key = request.key(repository.project_id(), repository.refs().fingerprint());
    let joined = transfers.spools().join(Some(key)).map_err(|error| {
        log.error("cannot cache a clone", error);
        FetchError::Failed
    })?;
    match joined {
        Joined::Existing(follower) => {
            metrics::counter!("gable_git_clone_cache_hits_total").increment(1);
            Ok((follower, false))
        }
        Joined::New(producer, follower) => {
            metrics::counter!("gable_git_clone_cache_misses_total").increment(1);
            let permit = transfers.acquire_fetch(repository.project_id(), address).await?;
            if request.is_for_everything(repository.refs())
                && let Some(pack) = whole_pack(repository, log).await
            {
                let log = log.clone();
                spawn_blocking(move || {
                    if let Err(error) = send_whole_pack(&pack, producer) {
                        log_failure(&log, &error);
                    }
                    drop(permit);
                });
                return Ok((follower, true));
            }
            let (process, pipes) = start(transfers, repository, version, log).await?;
            let log = log.clone();
            // Keeps the folder while upload-pack reads it.
            let repository = Arc::clone(repository);
            let (request, time) = (request.write(), transfers.limits().transfer_timeout);
            tokio::spawn(async move {
                let abandoned = producer.abandoned();
                tokio::select! {
                    () = abandoned => log.debug("clone abandoned", "all clients disconnected"),
                    result = timeout(time, fill_cache(process, pipes, request, (producer, &log))) => match result {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => log_failure(&log, &error),
                        Err(_) => log.warn("clone failed", format_args!("timed out after {} seconds", time.as_secs())),
                    }
                }
                drop((permit, repository));
            });
            Ok((follower, true))
        }
    }
}

/// Returns all objects as one pack; `None` if upload-pack has to create it.
async fn whole_pack(repository: &OpenRepository, log: &LogContext) -> Option<WholePack> {
    repository.whole_pack().await.unwrap_or_else(|error| {
        log.warn("cannot send the packs as they are", error);
        None
    })
}

/// Writes a response of version 2 with a pack to the cache.
fn send_whole_pack(pack: &WholePack, mut producer: Producer) -> io::Result<()> {
    let mut start = Vec::new();
    pkt::line(&mut start, format_args!("packfile"));
    producer.write_all(&start)?;
    let mut packets = SideBandWriter::new(producer, PACK_BAND);
    pack.write_to(&mut packets)?;
    let mut producer = packets.finish()?;
    producer.write_all(pkt::FLUSH)?;
    producer.finish()
}

/// Writes the output of upload-pack to the cache.
async fn fill_cache(
    mut process: ChildProcess,
    pipes: Pipes,
    request: Vec<u8>,
    (mut producer, log): (Producer, &LogContext),
) -> io::Result<()> {
    let Pipes { mut stdin, mut stdout, stderr } = pipes;
    let stderr = collect_tail(stderr);
    let feeding = async move {
        // If upload-pack does not read everything, its response says why.
        let _ = stdin.write_all(&request).await;
    };
    let reading = async {
        let mut chunk = vec![0; CHUNK_SIZE];
        loop {
            let count = stdout.read(&mut chunk).await?;
            if count == 0 {
                return io::Result::Ok(producer);
            }
            let written = spawn_blocking(move || {
                producer.write_all(&chunk[..count])?;
                io::Result::Ok((producer, chunk))
            });
            (producer, chunk) = written.await.map_err(io::Error::other)??;
        }
    };
    let ((), producer) = tokio::join!(feeding, reading);
    let (mut producer, status) = (producer?, process.wait().await?);
    if status.success() {
        return producer.finish();
    }
    let stderr = stderr.await.unwrap_or_default();
    // A process that was killed halfway has not reported an error.
    if producer.written() == 0 || status.code().is_some() {
        if producer.written() <= MAX_ERROR_RESPONSE && !reports_corruption(&stderr) {
            log.debug("clone refused", format_args!("{status}: {stderr}"));
        } else {
            log.warn("fetch failed", format_args!("upload-pack: {status}: {stderr}"));
        }
        let answering = spawn_blocking(move || {
            producer.write_all(&refusal(&reason(&stderr)))?;
            // Later requests try again.
            producer.finish_uncached();
            io::Result::Ok(())
        });
        return answering.await.map_err(io::Error::other)?;
    }
    Err(io::Error::other(format!("upload-pack: {status}: {stderr}")))
}

/// Relays chunks between upload-pack and the client until one of them ends.
async fn relay(
    transfers: &Transfers,
    repository: &Arc<OpenRepository>,
    version: ProtocolVersion,
    request: ByteStream,
    (permit, log): (TransferPermit, LogContext),
) -> Result<ByteStream, FetchError> {
    let (mut process, pipes) = start(transfers, repository, version, &log).await?;
    let limits = transfers.limits().clone();
    let filter = UploadPackFilter::new(Arc::clone(repository), log.clone());
    // Keeps the folder while upload-pack reads it.
    let repository = Arc::clone(repository);
    let (chunks, mut receiver) = mpsc::channel::<io::Result<Bytes>>(1);
    tokio::spawn(async move {
        let Pipes { stdin, mut stdout, stderr } = pipes;
        let stderr = collect_tail(stderr);
        let talking = async {
            let mut is_silent = true;
            let reading = async {
                let mut chunk = vec![0; CHUNK_SIZE];
                loop {
                    let count = stdout.read(&mut chunk).await?;
                    if count == 0 {
                        return io::Result::Ok(());
                    }
                    is_silent = false;
                    let sending =
                        chunks.send_timeout(Ok(Bytes::copy_from_slice(&chunk[..count])), limits.write_timeout);
                    sending.await.map_err(|_| io::ErrorKind::TimedOut)?;
                }
            };
            let read_timeout = limits.read_timeout;
            let (fed, read) = tokio::join!(feed(request, filter, stdin, read_timeout), reading);
            if let Ok(Some(refused)) = &fed {
                // Upload-pack has not received the whole request, so it has not started to respond.
                log.debug("fetch refused", refused);
                let _ = chunks.send_timeout(Ok(refused.packet().into()), limits.write_timeout).await;
                return Ok(());
            }
            read.and(fed.map(drop))?;
            let status = process.wait().await?;
            // Upload-pack reports a refusal in its response or on standard error.
            if status.success() || (!is_silent && status.code().is_some()) {
                return Ok(());
            }
            let stderr = stderr.await.unwrap_or_default();
            if is_silent {
                if reports_corruption(&stderr) {
                    log.warn("fetch failed", format_args!("upload-pack: {status}: {stderr}"));
                }
                return Err(io::Error::other(UploadPackRefused(reason(&stderr))));
            }
            Err(io::Error::other(format!("upload-pack: {status}: {stderr}")))
        };
        let ended = tokio::select! {
            () = chunks.closed() => Ok(()),
            ended = timeout(limits.transfer_timeout, talking) => ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        drop((process, permit, repository));
        if let Err(error) = ended {
            log_failure(&log, &error);
            // Without an error the truncated response would look complete.
            let _ = chunks.send_timeout(Err(error), limits.write_timeout).await;
        }
    });
    Ok(stream::poll_fn(move |context| receiver.poll_recv(context)).boxed())
}

/// Logs the failure of a fetch, as a warning unless the client caused it.
fn log_failure(log: &LogContext, error: &io::Error) {
    let is_refused = error.get_ref().is_some_and(|inner| inner.is::<UploadPackRefused>());
    if error.kind() == io::ErrorKind::Other && !is_refused {
        log.warn("fetch failed", error);
    } else {
        log.debug("fetch failed", error);
    }
}

/// Forwards the request to upload-pack through the filter; returns the error if the filter refuses it.
async fn feed(
    mut from: ByteStream,
    mut filter: UploadPackFilter,
    mut to: ChildStdin,
    read_timeout: Duration,
) -> io::Result<Option<RequestRefused>> {
    while let Some(chunk) = timeout(read_timeout, from.try_next()).await.map_err(|_| io::ErrorKind::TimedOut)?? {
        let chunk = match filter.filter(&chunk).await {
            Ok(chunk) => chunk,
            Err(refused) => return Ok(Some(refused)),
        };
        if to.write_all(&chunk).await.is_err() {
            return Ok(None);
        }
    }
    Ok(filter.finish().await.err())
}
