//! Serves one SSH channel: a fetch, a push or an archive.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use forge::{
    Caller, ProjectRef, contents,
    transport::{self, OpenRepository},
};
use futures_util::stream;
use model::RefName;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, server::Msg};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::timeout,
};
use tokio_util::{io::StreamReader, sync::CancellationToken};
use tracing::debug;

use super::command::{self, GitProgram, SshCommand};
use crate::{
    advertise, archive_request,
    child::{CHUNK_SIZE, ChildProcess},
    log_context::LogContext,
    messages,
    protocol_version::ProtocolVersion,
    receive_pack::PushReceiver,
    transfers::{TransferPermit, Transfers},
    upload_pack_filter::{RequestRefused, UploadPackFilter},
};

/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The extended data type of standard error.
const STDERR: u32 = 1;
/// The exit status of upload-pack for a refused request.
pub(super) const REFUSED_STATUS: u32 = 128;

/// Serves a channel of an authenticated client.
pub(super) struct ChannelHandler {
    pub(super) transfers: Transfers,
    pub(super) caller: Caller,
    pub(super) name: Arc<str>,
    pub(super) address: IpAddr,
    /// Cancels the connection.
    pub(super) cancel: CancellationToken,
}

/// The request of a client on a channel.
enum ChannelRequest {
    Command(Vec<u8>),
    Shell,
}

/// Why a request failed.
pub(super) enum ChannelError {
    /// An error that is reported to the client.
    Reported(String),
    /// The client disconnected or stopped reading.
    Disconnected(io::Error),
}

/// Parses the protocol version from an environment variable; `None` for other variables, which are refused.
pub(super) fn version_from_env(name: &str, value: &str) -> Option<ProtocolVersion> {
    if name == "GIT_PROTOCOL" { ProtocolVersion::from_key(value) } else { None }
}

impl ChannelHandler {
    /// Serves a channel until either side closes it.
    pub(super) async fn run(self, channel: Channel<Msg>) {
        let (mut requests, channel) = channel.split();
        let Ok(Some((request, version))) = timeout(REQUEST_TIMEOUT, read_request(&mut requests)).await else {
            let _ = channel.close().await;
            return;
        };
        let (chunks, input) = mpsc::channel(1);
        let served = {
            let serving = async {
                match request {
                    ChannelRequest::Shell => Ok(self.greet(&channel).await),
                    ChannelRequest::Command(command) => self.serve(&command, version, input, &channel).await,
                }
            };
            tokio::select! {
                served = serving => served,
                // Dropping the other branch ends the process when the client disconnects.
                () = forward_input(&mut requests, chunks) => return,
            }
        };
        let status = match served {
            Ok(status) => status,
            Err(ChannelError::Reported(text)) => {
                let sending = channel.extended_data_bytes(STDERR, format!("Gable: {text}\n"));
                let _ = timeout(self.transfers.limits().write_timeout, sending).await;
                1
            }
            Err(ChannelError::Disconnected(error)) => {
                debug!("SSH channel aborted: {error}");
                return self.cancel.cancel();
            }
        };
        let _ = channel.eof().await;
        let _ = channel.exit_status(status).await;
        let _ = channel.close().await;
    }

    async fn greet(&self, channel: &ChannelWriteHalf<Msg>) -> u32 {
        let greeting =
            format!("Welcome to Gable, {}! Shell access is not available.\r\n", messages::one_line(&self.name));
        let _ = timeout(self.transfers.limits().write_timeout, channel.data_bytes(greeting)).await;
        0
    }

    async fn serve(
        &self,
        command: &[u8],
        version: ProtocolVersion,
        input: mpsc::Receiver<Bytes>,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, ChannelError> {
        let SshCommand { program, project } = command::parse(command).ok_or("Disallowed command")?;
        let path = project.ok_or(messages::PROJECT_NOT_FOUND)?;
        let log = LogContext::new("ssh", self.address, &path);
        let service = match program {
            GitProgram::ReceivePack => transport::Service::Push,
            GitProgram::UploadPack | GitProgram::UploadArchive => transport::Service::Fetch,
        };
        let repository = self.open(ProjectRef::Path(path), service, &log).await?;
        let log = log.with_repository(&repository);
        match program {
            GitProgram::ReceivePack => self.receive(repository, log, reader(input), channel).await,
            GitProgram::UploadPack if version == ProtocolVersion::V2 => {
                self.serve_fetch(&repository, &log, input, channel).await
            }
            // Versions 0 and 1 are stateful, so one process serves the whole connection.
            GitProgram::UploadPack => {
                let permit = self
                    .transfers
                    .acquire_fetch(repository.project_id(), self.address)
                    .await
                    .map_err(messages::busy_message)?;
                let repository = Arc::new(repository);
                let filter = UploadPackFilter::new(Arc::clone(&repository), log.clone());
                let command = repository.upload_pack(version.env_value(), false).await;
                let command =
                    command.map_err(|error| ChannelError::Reported(messages::describe_error(&error, &log)))?;
                let bounds = (self.transfers.limits().transfer_timeout, u64::MAX);
                self.run_git(command, Some(filter), bounds, (permit, &log), reader(input), channel).await
            }
            GitProgram::UploadArchive => {
                let archive_permit =
                    self.transfers.acquire_archive(self.address).await.map_err(messages::busy_message)?;
                let slot = contents::remote_archive_slot(self.transfers.forge()).await;
                let slot = slot.map_err(|error| ChannelError::Reported(messages::describe_error(&error, &log)))?;
                let permit = self
                    .transfers
                    .acquire_fetch(repository.project_id(), self.address)
                    .await
                    .map_err(messages::busy_message)?;
                let limits = self.transfers.limits();
                let bounds = (limits.archive_timeout, limits.max_archive_bytes);
                let mut input = reader(input);
                let is_branch =
                    |name: &str| RefName::branch(name).is_some_and(|name| repository.refs().find(&name).is_some());
                let request = timeout(REQUEST_TIMEOUT, archive_request::read(&mut input, is_branch)).await;
                let request = request.map_err(|_| "timed out waiting for the archive request")?;
                let request = request.map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidInput => ChannelError::Reported(error.to_string()),
                    _ => ChannelError::Disconnected(error),
                })?;
                let input = request.chain(input);
                let command = repository.upload_archive().await;
                let command =
                    command.map_err(|error| ChannelError::Reported(messages::describe_error(&error, &log)))?;
                let status = self.run_git(command, None, bounds, (permit, &log), input, channel).await;
                drop((archive_permit, slot));
                status
            }
        }
    }

    /// Opens the repository of a project, if the client may use the service.
    pub(super) async fn open(
        &self,
        project: ProjectRef,
        service: transport::Service,
        log: &LogContext,
    ) -> Result<OpenRepository, ChannelError> {
        let opened = transport::open(self.transfers.forge(), self.caller.clone(), project, service).await;
        opened.map_err(|error| ChannelError::Reported(messages::describe_error(&error, log)))
    }

    async fn receive(
        &self,
        repository: OpenRepository,
        log: LogContext,
        input: impl AsyncRead + Send + Unpin,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, ChannelError> {
        let permit =
            self.transfers.acquire_push(repository.project_id(), self.address).await.map_err(messages::busy_message)?;
        let mut output = pin!(channel.make_writer());
        for chunk in advertise::for_push(repository.refs()) {
            copy(&mut &chunk[..], &mut output, self.transfers.limits().write_timeout).await?;
        }
        let (transfers, caller) = (self.transfers.clone(), self.caller.clone());
        let repository = Arc::new(repository);
        let receiver = PushReceiver { transfers, caller, repository, log, input, output, drains_first: false };
        let well_formed = receiver.run(permit).await?;
        Ok(u32::from(!well_formed))
    }

    /// Runs a git process for the client and returns its exit status. The input passes the filter; the duration and the output are
    /// bounded.
    async fn run_git(
        &self,
        command: std::process::Command,
        filter: Option<UploadPackFilter>,
        (time, bytes): (Duration, u64),
        (permit, log): (TransferPermit, &LogContext),
        mut input: impl AsyncRead + Send + Unpin,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, ChannelError> {
        let limits = self.transfers.limits();
        let (mut process, mut pipes) = ChildProcess::start(command, limits).map_err(|error| {
            log.error("cannot start git", error);
            messages::INTERNAL_ERROR
        })?;
        let (mut output, mut errors) = (pin!(channel.make_writer()), pin!(channel.make_writer_ext(Some(STDERR))));
        let talking = async {
            let feeding = async {
                // An error means that the process stopped reading; its exit is awaited below.
                match filter {
                    Some(filter) => {
                        if let Ok(Some(refused)) =
                            feed(&mut input, filter, &mut pipes.stdin, limits.transfer_timeout).await
                        {
                            return refused;
                        }
                    }
                    None => drop(copy(&mut input, &mut pipes.stdin, limits.transfer_timeout).await),
                }
                drop(pipes.stdin);
                std::future::pending().await
            };
            let answering = async {
                tokio::try_join!(
                    copy_up_to(bytes, &mut pipes.stdout, &mut output, limits.write_timeout),
                    copy(&mut pipes.stderr, &mut errors, limits.write_timeout),
                )?;
                process.wait().await
            };
            tokio::select! {
                refused = feeding => Ok(Err(refused)),
                status = answering => status.map(Ok),
            }
        };
        let ended = timeout(time, talking).await.map_err(|_| {
            log.warn("transfer failed", format_args!("timed out after {} seconds", time.as_secs()));
            "the transfer timed out"
        })?;
        let ended = ended.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                log.warn("transfer failed", format_args!("the output exceeds {bytes} bytes"));
                ChannelError::Reported(format!("The archive is larger than {} MB.", bytes >> 20))
            }
            _ => ChannelError::Disconnected(error),
        })?;
        drop((process, permit));
        let status = match ended {
            Ok(status) => status,
            Err(refused) => {
                // Upload-pack does not respond to an incomplete request, so the output is at a packet boundary.
                copy(&mut &refused.packet()[..], &mut output, limits.write_timeout).await?;
                return Ok(REFUSED_STATUS);
            }
        };
        match status.code() {
            Some(0) => {}
            // The client has received standard error.
            Some(_) => log.debug("fetch failed", status),
            None => log.warn("fetch failed", status),
        }
        // A killed process has no exit status.
        Ok(status.code().and_then(|code| u32::try_from(code).ok()).unwrap_or(128))
    }
}

/// Waits for the request of the client; also returns the protocol version.
async fn read_request(requests: &mut ChannelReadHalf) -> Option<(ChannelRequest, ProtocolVersion)> {
    let mut version = ProtocolVersion::default();
    loop {
        match requests.wait().await? {
            ChannelMsg::SetEnv { variable_name, variable_value, .. } => {
                version = version_from_env(&variable_name, &variable_value).unwrap_or(version);
            }
            ChannelMsg::Exec { command, .. } => return Some((ChannelRequest::Command(command), version)),
            ChannelMsg::RequestShell { .. } => return Some((ChannelRequest::Shell, version)),
            ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

/// Forwards the input of the client; ends when the channel is closed or the client disconnects.
async fn forward_input(requests: &mut ChannelReadHalf, chunks: mpsc::Sender<Bytes>) {
    let mut chunks = Some(chunks);
    while let Some(message) = requests.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if let Some(open) = &chunks
                    && open.send(data).await.is_err()
                {
                    chunks = None;
                }
            }
            ChannelMsg::Eof => chunks = None,
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    debug!("SSH channel closed by the client");
}

/// Returns a reader of the client's input.
fn reader(mut chunks: mpsc::Receiver<Bytes>) -> impl AsyncRead + Send + Unpin {
    StreamReader::new(stream::poll_fn(move |context| chunks.poll_recv(context).map(|chunk| chunk.map(io::Result::Ok))))
}

/// Forwards the input to upload-pack through the filter; returns the error if the filter refuses it.
async fn feed(
    from: &mut (impl AsyncRead + Unpin),
    mut filter: UploadPackFilter,
    to: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> io::Result<Option<RequestRefused>> {
    let mut chunk = vec![0; CHUNK_SIZE];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(filter.finish().await.err());
        }
        match filter.filter(&chunk[..count]).await {
            Ok(passed) => {
                timeout(write_timeout, to.write_all(&passed)).await.map_err(|_| io::ErrorKind::TimedOut)??;
            }
            Err(refused) => return Ok(Some(refused)),
        }
    }
}

/// Copies all bytes; each chunk must be written within `write_timeout`.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> io::Result<()> {
    copy_up_to(u64::MAX, from, to, write_timeout).await
}

/// Copies at most `max_bytes`; fails with [`io::ErrorKind::FileTooLarge`] if there are more.
async fn copy_up_to(
    max_bytes: u64,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    write_timeout: Duration,
) -> io::Result<()> {
    let (mut chunk, mut left) = (vec![0; CHUNK_SIZE], max_bytes);
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        left = left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        timeout(write_timeout, to.write_all(&chunk[..count])).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

impl From<&str> for ChannelError {
    fn from(text: &str) -> Self {
        Self::Reported(text.to_owned())
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        Self::Disconnected(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_beyond_the_limit_is_an_error() {
        let write_timeout = Duration::from_secs(10);
        let mut output = Vec::new();
        copy_up_to(5, &mut &b"hello"[..], &mut output, write_timeout).await.expect("it fits");
        assert_eq!(output, b"hello");
        let error = copy_up_to(4, &mut &b"hello"[..], &mut output, write_timeout).await.expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(output, b"hello", "nothing of the chunk that exceeds the limit");
    }
}
