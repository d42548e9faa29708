//! One channel: what is asked for on it, and the program or the push that serves it.

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use forge::{
    Caller, ProjectRef, contents,
    transport::{self, Hosted},
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

use super::command::{self, Order, Service};
use crate::{
    advertise, archive_request,
    child::{PIECE, Running},
    origin::Origin,
    receive::Receiver,
    transfers::{Transfers, Turn},
    version::Version,
    wants::{Refused, Wants},
    words,
};

/// How long somebody may take to say what they want.
const OPENING: Duration = Duration::from_secs(30);
/// The stream of a channel on which errors are told.
const STDERR: u32 = 1;
/// The status with which upload-pack ends when it refuses something.
const REFUSED: u32 = 128;

/// Somebody who has proved who they are.
pub(super) struct Visitor {
    pub(super) transfers: Transfers,
    pub(super) caller: Caller,
    pub(super) name: Arc<str>,
    pub(super) address: IpAddr,
    /// Cuts the connection.
    pub(super) leash: CancellationToken,
}

/// What somebody wants on a channel.
enum Wanted {
    Command(Vec<u8>),
    Shell,
}

/// Why somebody was not served.
enum Failure {
    /// For a reason that a person can be told.
    Told(String),
    /// The client has gone, or takes nothing any more.
    Gone(io::Error),
}

/// What an environment variable says about the protocol; `None` if it is one that we do not take.
pub(super) fn version_of(name: &str, value: &str) -> Option<Version> {
    if name == "GIT_PROTOCOL" { Version::of_key(value) } else { None }
}

impl Visitor {
    /// Attends to a channel until one of us closes it.
    pub(super) async fn attend(self, channel: Channel<Msg>) {
        let (mut requests, channel) = channel.split();
        let Ok(Some((wanted, version))) = timeout(OPENING, wanted(&mut requests)).await else {
            let _ = channel.close().await;
            return;
        };
        let (pieces, input) = mpsc::channel(1);
        let served = {
            let serving = async {
                match wanted {
                    Wanted::Shell => Ok(self.greet(&channel).await),
                    Wanted::Command(command) => self.serve(&command, version, input, &channel).await,
                }
            };
            tokio::select! {
                served = serving => served,
                // Whatever was started goes with the client.
                () = pump(&mut requests, pieces) => return,
            }
        };
        let status = match served {
            Ok(status) => status,
            Err(Failure::Told(text)) => {
                let told = channel.extended_data_bytes(STDERR, format!("Gable: {text}\n"));
                let _ = timeout(self.transfers.limits().stall, told).await;
                1
            }
            Err(Failure::Gone(error)) => {
                debug!("an SSH client was given up: {error}");
                return self.leash.cancel();
            }
        };
        let _ = channel.eof().await;
        let _ = channel.exit_status(status).await;
        let _ = channel.close().await;
    }

    async fn greet(&self, channel: &ChannelWriteHalf<Msg>) -> u32 {
        let greeting = format!("Welcome to Gable, {}! There is no shell here.\r\n", words::one_line(&self.name));
        let _ = timeout(self.transfers.limits().stall, channel.data_bytes(greeting)).await;
        0
    }

    async fn serve(
        &self,
        command: &[u8],
        version: Version,
        input: mpsc::Receiver<Bytes>,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, Failure> {
        let Order { service, project } = command::parse(command).ok_or("Disallowed command")?;
        let path = project.ok_or(words::MISSING)?;
        let origin = Origin::new("ssh", self.address, &path);
        let project = ProjectRef::Path(path);
        let purpose = match service {
            Service::ReceivePack => transport::Service::Push,
            Service::UploadPack | Service::UploadArchive => transport::Service::Fetch,
        };
        let opened = transport::open(self.transfers.forge(), self.caller.clone(), project, purpose).await;
        let hosted = opened.map_err(|error| words::sentence(&error, &origin)).map_err(Failure::Told)?;
        let origin = origin.of(&hosted);
        let input = reader(input);
        match service {
            Service::ReceivePack => self.receive(hosted, origin, input, channel).await,
            Service::UploadPack => {
                let turn = self.transfers.fetch_turn(hosted.project_id(), self.address).await.map_err(words::busy)?;
                let hosted = Arc::new(hosted);
                let wants = Wants::new(Arc::clone(&hosted), origin.clone());
                let command = hosted.upload_pack(version.for_git(), false);
                let most = (self.transfers.limits().time, u64::MAX);
                self.run(command, Some(wants), most, (turn, &origin), input, channel).await
            }
            Service::UploadArchive => {
                let own = self.transfers.archive_turn(self.address).await.map_err(words::busy)?;
                let slot = contents::remote_archive_slot(self.transfers.forge()).await;
                let slot = slot.map_err(|error| Failure::Told(words::sentence(&error, &origin)))?;
                let turn = self.transfers.fetch_turn(hosted.project_id(), self.address).await.map_err(words::busy)?;
                let most = self.transfers.limits().archive;
                let mut input = input;
                let is_branch =
                    |name: &str| RefName::branch(name).is_some_and(|name| hosted.refs().find(&name).is_some());
                let request = timeout(OPENING, archive_request::read(&mut input, is_branch)).await;
                let request = request.map_err(|_| "The request did not arrive in time.")?;
                let request = request.map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidInput => Failure::Told(error.to_string()),
                    _ => Failure::Gone(error),
                })?;
                let input = request.chain(input);
                let ran = self.run(hosted.upload_archive(), None, most, (turn, &origin), input, channel).await;
                drop((own, slot));
                ran
            }
        }
    }

    async fn receive(
        &self,
        hosted: Hosted,
        origin: Origin,
        input: impl AsyncRead + Send + Unpin,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, Failure> {
        let turn = self.transfers.push_turn(hosted.project_id(), self.address).await.map_err(words::busy)?;
        let mut output = pin!(channel.make_writer());
        for piece in advertise::for_push(hosted.refs()) {
            copy(&mut &piece[..], &mut output, self.transfers.limits().stall).await?;
        }
        let (transfers, caller) = (self.transfers.clone(), self.caller.clone());
        let hosted = Arc::new(hosted);
        let receiver = Receiver { transfers, caller, hosted, origin, input, output, drains_first: false };
        let understood = receiver.run(turn).await?;
        Ok(u32::from(!understood))
    }

    /// Lets a program of git talk to the client, whose wants are checked if it is upload-pack, for at most some time and with an
    /// answer of at most some bytes.
    async fn run(
        &self,
        command: std::process::Command,
        wants: Option<Wants>,
        (time, bytes): (Duration, u64),
        (turn, origin): (Turn, &Origin),
        mut input: impl AsyncRead + Send + Unpin,
        channel: &ChannelWriteHalf<Msg>,
    ) -> Result<u32, Failure> {
        let limits = self.transfers.limits();
        let (mut running, mut pipes) = Running::start(command, limits).map_err(|error| {
            origin.error("cannot start git", error);
            words::FAILED
        })?;
        let (mut output, mut errors) = (pin!(channel.make_writer()), pin!(channel.make_writer_ext(Some(STDERR))));
        let talking = async {
            let feeding = async {
                // When the program has heard enough it ends, and that is seen below.
                match wants {
                    Some(wants) => {
                        if let Ok(Some(refused)) = feed(&mut input, wants, &mut pipes.input, limits.time).await {
                            return refused;
                        }
                    }
                    None => drop(copy(&mut input, &mut pipes.input, limits.time).await),
                }
                drop(pipes.input);
                std::future::pending().await
            };
            let answering = async {
                tokio::try_join!(
                    copy_up_to(bytes, &mut pipes.output, &mut output, limits.stall),
                    copy(&mut pipes.log, &mut errors, limits.stall),
                )?;
                running.wait().await
            };
            tokio::select! {
                refused = feeding => Ok(Err(refused)),
                status = answering => status.map(Ok),
            }
        };
        let ended = timeout(time, talking).await.map_err(|_| {
            origin.warn("a transfer failed", format_args!("it took longer than {} seconds", time.as_secs()));
            "The transfer took too long."
        })?;
        let ended = ended.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                origin.warn("a transfer failed", format_args!("the answer has more than {bytes} bytes"));
                Failure::Told(format!("The archive is larger than {} MB.", bytes >> 20))
            }
            _ => Failure::Gone(error),
        })?;
        drop((running, turn));
        let status = match ended {
            Ok(status) => status,
            Err(refused) => {
                // Upload-pack has answered nothing to what it has not heard to its end, so this begins a packet.
                copy(&mut &refused.packet()[..], &mut output, limits.stall).await?;
                return Ok(REFUSED);
            }
        };
        match status.code() {
            Some(0) => {}
            // What it complains of, the client has read.
            Some(_) => origin.debug("a fetch failed", status),
            None => origin.warn("a fetch failed", status),
        }
        // A program that was killed has no status of its own.
        Ok(status.code().and_then(|code| u32::try_from(code).ok()).unwrap_or(128))
    }
}

/// Waits for what somebody wants, and in which version.
async fn wanted(requests: &mut ChannelReadHalf) -> Option<(Wanted, Version)> {
    let mut version = Version::default();
    loop {
        match requests.wait().await? {
            ChannelMsg::SetEnv { variable_name, variable_value, .. } => {
                version = version_of(&variable_name, &variable_value).unwrap_or(version);
            }
            ChannelMsg::Exec { command, .. } => return Some((Wanted::Command(command), version)),
            ChannelMsg::RequestShell { .. } => return Some((Wanted::Shell, version)),
            ChannelMsg::Close => return None,
            _ => {}
        }
    }
}

/// Hands on what the client sends; ends when it has closed the channel or gone away.
async fn pump(requests: &mut ChannelReadHalf, pieces: mpsc::Sender<Bytes>) {
    let mut pieces = Some(pieces);
    while let Some(message) = requests.wait().await {
        match message {
            ChannelMsg::Data { data } => {
                if let Some(open) = &pieces
                    && open.send(data).await.is_err()
                {
                    pieces = None;
                }
            }
            ChannelMsg::Eof => pieces = None,
            ChannelMsg::Close => break,
            _ => {}
        }
    }
    debug!("a channel was closed by its client");
}

/// What the client sends, to be read.
fn reader(mut pieces: mpsc::Receiver<Bytes>) -> impl AsyncRead + Send + Unpin {
    StreamReader::new(stream::poll_fn(move |context| pieces.poll_recv(context).map(|piece| piece.map(io::Result::Ok))))
}

/// Hands upload-pack what the client sends, as far as it may have it; answers why it may not.
async fn feed(
    from: &mut (impl AsyncRead + Unpin),
    mut wants: Wants,
    to: &mut (impl AsyncWrite + Unpin),
    stall: Duration,
) -> io::Result<Option<Refused>> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(wants.end().await.err());
        }
        match wants.pass(&piece[..count]).await {
            Ok(passed) => timeout(stall, to.write_all(&passed)).await.map_err(|_| io::ErrorKind::TimedOut)??,
            Err(refused) => return Ok(Some(refused)),
        }
    }
}

/// Moves bytes until there are no more; each piece has to be taken within some time.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    stall: Duration,
) -> io::Result<()> {
    copy_up_to(u64::MAX, from, to, stall).await
}

/// The same for at most so many bytes; fails with [`io::ErrorKind::FileTooLarge`] if there are more.
async fn copy_up_to(
    most: u64,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    stall: Duration,
) -> io::Result<()> {
    let (mut piece, mut left) = (vec![0; PIECE], most);
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return Ok(());
        }
        left = left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        timeout(stall, to.write_all(&piece[..count])).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Told(text.to_owned())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_cut_off_where_it_is_too_long() {
        let stall = Duration::from_secs(10);
        let mut taken = Vec::new();
        copy_up_to(5, &mut &b"hello"[..], &mut taken, stall).await.expect("it fits");
        assert_eq!(taken, b"hello");
        let error = copy_up_to(4, &mut &b"hello"[..], &mut taken, stall).await.expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(taken, b"hello", "nothing of the piece that is too long");
    }
}
