//! Our receive-pack, for all transports: reads the commands and the pack, applies the push, and sends the report.

use std::{
    collections::HashMap,
    future::pending,
    io,
    pin::pin,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use forge::{
    Caller,
    pushes::RefRejection,
    transport::{self, OpenRepository, Push, Quarantine, RefOutcome},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, Interval, MissedTickBehavior, interval_at, timeout},
};

use crate::{
    child::{CHUNK_SIZE, ChildProcess, collect_tail},
    log_context::LogContext,
    messages, pkt,
    push_request::{self, PushRequest, PushRequestError, RefCommand},
    transfers::{TransferLimits, TransferPermit, Transfers},
};

/// The interval of keep-alive packets while the client waits.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How many bytes of a refused push are read at least, so that the client gets to read the report; otherwise four times
/// the limit of a pack.
const MIN_DISCARD_LIMIT: u64 = 4 << 30;
/// An empty packet on side band 1.
const KEEP_ALIVE_PACKET: &[u8] = b"0005\x01";
/// The status of a ref whose objects were not stored.
const UNPACKER_ERROR: &str = "unpacker error";
/// The maximum number of reasons shown to the user.
const MAX_REASONS: usize = 20;

/// Receives one push.
pub(crate) struct PushReceiver<I, O> {
    pub(crate) transfers: Transfers,
    pub(crate) caller: Caller,
    pub(crate) repository: Arc<OpenRepository>,
    pub(crate) log: LogContext,
    pub(crate) input: I,
    pub(crate) output: O,
    /// Whether the input has an end and is read up to it before a refusal is sent. Otherwise the client reads while it sends, and
    /// closes its side after the report.
    pub(crate) drains_first: bool,
}

/// The name of a ref as sent by the client, and why it was rejected; `None` if it was updated.
type RefReport = (Vec<u8>, Option<String>);

/// The outcome of storing the pack.
enum UnpackOutcome {
    /// The pack, if there is one, is in quarantine.
    Stored(Option<Quarantine>),
    /// The pack was refused; holds the reason.
    Failed(String),
}

/// A running index-pack and the quarantine it writes to; the quarantine must outlive the process.
struct IndexPackProcess(Option<(ChildProcess, Quarantine)>);

impl IndexPackProcess {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Some((process, _)) => process.wait().await,
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn into_incoming(mut self) -> Option<Quarantine> {
        self.0.take().map(|(_, incoming)| incoming)
    }
}

impl Drop for IndexPackProcess {
    fn drop(&mut self) {
        let (Some((mut process, incoming)), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        process.kill();
        runtime.spawn(async move {
            let _ = process.wait().await;
            // Removing the quarantine folder may block.
            let _ = spawn_blocking(move || drop(incoming)).await;
        });
    }
}

impl<I: AsyncRead + Send + Unpin, O: AsyncWrite + Send + Unpin> PushReceiver<I, O> {
    /// Receives the push and returns whether the request was well-formed; fails if the client disconnects or times out.
    pub(crate) async fn run(self, permit: TransferPermit) -> io::Result<bool> {
        let time = self.transfers.limits().transfer_timeout;
        let done = timeout(time, self.receive()).await.map_err(|_| timed_out());
        drop(permit);
        done?
    }

    async fn receive(mut self) -> io::Result<bool> {
        let read_timeout = self.transfers.limits().read_timeout;
        let read = timeout(read_timeout, push_request::read(&mut self.input)).await.map_err(|_| timed_out())?;
        let (request, pack) = match read {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(true),
            Err(PushRequestError::Disconnected(error)) => return Err(error),
            Err(error) => {
                let mut out = Vec::new();
                pkt::line(&mut out, format_args!("ERR {error}"));
                return self.send(&out).await.map(|()| false);
            }
        };
        let PushRequest { commands, options, capabilities } = request;
        let side_band = capabilities.side_band;
        if commands.iter().any(|command| command.change.is_err()) {
            return self.refuse(&capabilities, None, invalid_reports(&commands), pack).await.map(|()| true);
        }
        let incoming = match if pack { self.unpack(side_band).await? } else { UnpackOutcome::Stored(None) } {
            UnpackOutcome::Stored(incoming) => incoming,
            UnpackOutcome::Failed(text) => {
                let report = |command: RefCommand| (command.name, Some(UNPACKER_ERROR.to_owned()));
                let refs = commands.into_iter().map(report).collect();
                return self.refuse(&capabilities, Some(&text), refs, true).await.map(|()| true);
            }
        };
        let names: Vec<Vec<u8>> = commands.iter().map(|command| command.name.clone()).collect();
        let changes = commands.into_iter().filter_map(|command| command.change.ok()).collect();
        let outcomes = self.apply(Push { changes, incoming, atomic: capabilities.atomic, options }, side_band).await?;
        let reports = match outcomes {
            Ok(outcomes) => {
                let mut reasons: HashMap<&[u8], Option<String>> = outcomes
                    .iter()
                    .map(|RefOutcome { name, rejection }| {
                        (name.as_str().as_bytes(), rejection.as_ref().map(ToString::to_string))
                    })
                    .collect();
                let mut reason =
                    |name: &[u8]| reasons.remove(name).unwrap_or_else(|| Some(messages::INTERNAL_ERROR.to_owned()));
                names.iter().map(|name| (name.clone(), reason(name))).collect()
            }
            Err(error) => {
                let message = messages::describe_error(&error, &self.log);
                names.into_iter().map(|name| (name, Some(message.clone()))).collect()
            }
        };
        self.report(&capabilities, None, reports).await.map(|()| true)
    }

    /// Stores the pack in quarantine.
    async fn unpack(&mut self, side_band: bool) -> io::Result<UnpackOutcome> {
        let repository = Arc::clone(&self.repository);
        let limits = self.transfers.limits().clone();
        let max_size = limits.max_pack_bytes;
        let receive = move || repository.receive(max_size);
        let (incoming, command) = match spawn_blocking(receive).await.map_err(io::Error::other)? {
            Ok(started) => started,
            Err(error) => return Ok(UnpackOutcome::Failed(messages::describe_error(&error, &self.log))),
        };
        let (process, pipes) = match ChildProcess::start(command, &limits) {
            Ok(started) => started,
            Err(error) => {
                self.log.error("cannot start git index-pack", error);
                return Ok(UnpackOutcome::Failed(messages::INTERNAL_ERROR.to_owned()));
            }
        };
        let mut index_pack = IndexPackProcess(Some((process, incoming)));
        let stderr = collect_tail(pipes.stderr);
        let stdout = collect_tail(pipes.stdout);
        let mut keep_alive = keep_alive_timer();
        let status = {
            let received = AtomicBool::new(false);
            let mut feeding = pin!(feed(&mut self.input, pipes.stdin, limits.read_timeout, &received));
            let mut fed = false;
            loop {
                tokio::select! {
                    status = index_pack.wait() => break status?,
                    result = &mut feeding, if !fed => {
                        result?;
                        fed = true;
                    }
                    () = keep_alive_due(&mut keep_alive, side_band) => {
                        // Not while the client is sending: a proxy could take it for the complete response.
                        if !received.swap(false, Ordering::Relaxed) {
                            send(&mut self.output, KEEP_ALIVE_PACKET, &limits).await?;
                        }
                    }
                }
            }
        };
        if status.success() {
            return Ok(UnpackOutcome::Stored(index_pack.into_incoming()));
        }
        let (stderr, _) = (stderr.await.unwrap_or_default(), stdout.await);
        self.log.debug("pack refused", format_args!("{status}: {stderr}"));
        if messages::reports_full_disk(&stderr) {
            self.transfers.forge().record_disk_full();
            return Ok(UnpackOutcome::Failed(messages::DISK_FULL_MESSAGE.to_owned()));
        }
        Ok(UnpackOutcome::Failed(messages::last_git_error(&stderr).unwrap_or_else(|| "malformed pack".to_owned())))
    }

    /// Applies the push; it completes even if the client disconnects.
    async fn apply(&mut self, push: Push, side_band: bool) -> io::Result<forge::Result<Vec<RefOutcome>>> {
        let (forge, caller, project) =
            (self.transfers.forge().clone(), self.caller.clone(), self.repository.project_id());
        let limits = self.transfers.limits().clone();
        let mut applying = tokio::spawn(async move { transport::push(&forge, caller, project, push).await });
        let mut keep_alive = keep_alive_timer();
        loop {
            tokio::select! {
                applied = &mut applying => return applied.map_err(io::Error::other),
                () = keep_alive_due(&mut keep_alive, side_band) => send(&mut self.output, KEEP_ALIVE_PACKET, &limits).await?,
            }
        }
    }

    /// Reports a refused push and discards the rest of the input: closing the connection while the client sends would make it
    /// lose the report.
    async fn refuse(
        &mut self,
        capabilities: &push_request::Capabilities,
        unpack_error: Option<&str>,
        refs: Vec<RefReport>,
        pack: bool,
    ) -> io::Result<()> {
        if !pack {
            return self.report(capabilities, unpack_error, refs).await;
        }
        if self.drains_first {
            self.discard().await;
            return self.report(capabilities, unpack_error, refs).await;
        }
        self.report(capabilities, unpack_error, refs).await?;
        self.discard().await;
        Ok(())
    }

    /// Reads and discards the rest of the input, up to a limit.
    async fn discard(&mut self) {
        let limits = self.transfers.limits();
        let (read_timeout, mut left) =
            (limits.read_timeout, limits.max_pack_bytes.unwrap_or_default().saturating_mul(4).max(MIN_DISCARD_LIMIT));
        let mut chunk = vec![0; CHUNK_SIZE];
        while left > 0
            && let Ok(Ok(count @ 1..)) = timeout(read_timeout, self.input.read(&mut chunk)).await
        {
            left = left.saturating_sub(count as u64);
        }
    }

    /// Sends the status of each ref, and the reasons as messages for the user.
    async fn report(
        &mut self,
        capabilities: &push_request::Capabilities,
        unpack_error: Option<&str>,
        refs: Vec<RefReport>,
    ) -> io::Result<()> {
        let mut out = Vec::new();
        if capabilities.side_band {
            for reason in reasons(unpack_error, &refs) {
                pkt::side_band(&mut out, 2, format!("Gable: {}\n", messages::one_line(reason)).as_bytes());
            }
        }
        if capabilities.report_status {
            let mut report = Vec::new();
            pkt::line(&mut report, format_args!("unpack {}", unpack_error.unwrap_or("ok")));
            for (name, reason) in &refs {
                // The exact bytes of the name, or the client could not match the ref.
                let line = match reason {
                    None => [b"ok ", &name[..], b"\n"].concat(),
                    Some(reason) => {
                        [b"ng ", &name[..], format!(" {}\n", messages::one_line(reason)).as_bytes()].concat()
                    }
                };
                pkt::data(&mut report, &line);
            }
            pkt::flush(&mut report);
            if capabilities.side_band { pkt::side_band(&mut out, 1, &report) } else { out.extend(report) }
        }
        if capabilities.side_band {
            pkt::flush(&mut out);
        }
        self.send(&out).await
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let limits = self.transfers.limits().clone();
        send(&mut self.output, bytes, &limits).await
    }
}

/// Returns why the push failed, without repetitions and at most `MAX_REASONS`.
fn reasons<'a>(unpack_error: Option<&'a str>, refs: &'a [RefReport]) -> Vec<&'a str> {
    if let Some(error) = unpack_error {
        return vec![error];
    }
    let mut reasons = Vec::new();
    for reason in refs.iter().filter_map(|(_, reason)| reason.as_deref()) {
        if reasons.len() < MAX_REASONS && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// Returns the reports of a push with invalid commands, which is rejected as a whole.
fn invalid_reports(commands: &[RefCommand]) -> Vec<RefReport> {
    let reason = |command: &RefCommand| match &command.change {
        Ok(_) => RefRejection::OtherRef.to_string(),
        Err(invalid) => invalid.to_string(),
    };
    commands.iter().map(|command| (command.name.clone(), Some(reason(command)))).collect()
}

/// Copies the input to a process; ends at the end of input, or when the process stops reading.
async fn feed(
    from: &mut (impl AsyncRead + Unpin),
    mut to: impl AsyncWrite + Unpin,
    read_timeout: Duration,
    received: &AtomicBool,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_SIZE];
    loop {
        let count = timeout(read_timeout, from.read(&mut chunk)).await.map_err(|_| timed_out())??;
        received.store(count > 0, Ordering::Relaxed);
        if count == 0 || to.write_all(&chunk[..count]).await.is_err() {
            return Ok(());
        }
    }
}

async fn send(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], limits: &TransferLimits) -> io::Result<()> {
    for chunk in bytes.chunks(CHUNK_SIZE) {
        timeout(limits.write_timeout, to.write_all(chunk)).await.map_err(|_| timed_out())??;
    }
    timeout(limits.write_timeout, to.flush()).await.map_err(|_| timed_out())?
}

fn keep_alive_timer() -> Interval {
    let mut keep_alive = interval_at(Instant::now() + KEEP_ALIVE_INTERVAL, KEEP_ALIVE_INTERVAL);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    keep_alive
}

/// Waits until a keep-alive packet is due; forever without a side band to send it on.
async fn keep_alive_due(keep_alive: &mut Interval, side_band: bool) {
    if side_band {
        keep_alive.tick().await;
    } else {
        pending::<()>().await;
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client timed out")
}
