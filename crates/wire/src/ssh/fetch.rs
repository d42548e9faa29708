//! Fetches over SSH with protocol version 2: each request on the channel gets the same response as over HTTP.

use std::{io, iter, sync::Arc};

use bytes::Bytes;
use forge::{
    ProjectRef,
    transport::{OpenRepository, Service},
};
use futures_util::StreamExt as _;
use russh::{ChannelWriteHalf, server::Msg};
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};

use super::{
    channel::{ChannelError, ChannelHandler, REFUSED_STATUS},
    request_reader::RequestReader,
};
use crate::{
    advertise,
    body::{self, ByteStream},
    fetch::{self, FetchError},
    log_context::LogContext,
    messages, pkt,
    protocol_version::ProtocolVersion,
    upload_pack_filter::RequestRefused,
};

impl ChannelHandler {
    /// Serves a client until it ends the connection; returns the exit status.
    pub(super) async fn serve_fetch(
        &self,
        repository: &OpenRepository,
        log: &LogContext,
        input: mpsc::Receiver<Bytes>,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, ChannelError> {
        let time = self.transfers.limits().transfer_timeout;
        tokio::select! {
            served = timeout(time, self.respond_to_requests(repository, log, input, channel)) => served.unwrap_or_else(|_| {
                log.warn("transfer failed", format_args!("timed out after {} seconds", time.as_secs()));
                Err("the transfer timed out".into())
            }),
            // The input is not read during a response, and a disconnect is not noticed behind unread input.
            () = self.cancel.cancelled() => Err(ChannelError::Disconnected(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    async fn respond_to_requests(
        &self,
        repository: &OpenRepository,
        log: &LogContext,
        input: mpsc::Receiver<Bytes>,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, ChannelError> {
        let version = ProtocolVersion::V2;
        let project = repository.project_id();
        self.send(body::from_chunks(advertise::for_fetch(repository.refs(), version)), channel).await?;
        let input = Arc::new(Mutex::new(RequestReader::new(input)));
        loop {
            let mut reader = Arc::clone(&input).lock_owned().await;
            let waiting = timeout(self.transfers.limits().read_timeout, reader.has_request());
            if !waiting.await.map_err(|_| "timed out waiting for the request")? {
                return Ok(0);
            }
            // As over HTTP, each request is authorized and sees the current refs.
            let repository = Arc::new(self.open(ProjectRef::Id(project), Service::Fetch, log).await?);
            let (from, request) = ((self.address, log), RequestReader::request(reader));
            let response = match fetch::respond(&self.transfers, &repository, version, from, request).await {
                Err(FetchError::Request(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    log.debug("fetch refused", &error);
                    body::from_chunks(iter::once(RequestRefused::malformed().packet()))
                }
                response => response?,
            };
            if !self.send(response, channel).await? {
                return Ok(REFUSED_STATUS);
            }
        }
    }

    /// Sends a response and returns whether the client may send another request. A response that is not empty ends with a flush
    /// packet, unless it is an error.
    async fn send(&self, mut response: ByteStream, channel: &ChannelWriteHalf<Msg>) -> Result<bool, ChannelError> {
        let mut end = Vec::new();
        while let Some(chunk) = response.next().await {
            // A failure is already in the log.
            let Ok(chunk) = chunk else { return Ok(false) };
            end.extend_from_slice(&chunk[chunk.len().saturating_sub(pkt::FLUSH.len())..]);
            end.drain(..end.len().saturating_sub(pkt::FLUSH.len()));
            let sending = timeout(self.transfers.limits().write_timeout, channel.data_bytes(chunk));
            sending.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(io::Error::other)?;
        }
        Ok(end.is_empty() || end == pkt::FLUSH)
    }
}

impl From<FetchError> for ChannelError {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Busy(busy) => messages::busy_message(busy).into(),
            FetchError::Request(error) => match error.kind() {
                io::ErrorKind::FileTooLarge => "the request is too large".into(),
                io::ErrorKind::TimedOut => "timed out waiting for the request".into(),
                _ => "the request is malformed".into(),
            },
            FetchError::Failed => messages::INTERNAL_ERROR.into(),
        }
    }
}
