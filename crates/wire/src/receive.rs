//! Takes a push in, over whatever it comes: the list of changes, then the pack, then the one gate, then the report.

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
    transport::{self, Hosted, Incoming, Push, RefOutcome},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, Interval, MissedTickBehavior, interval_at, timeout},
};

use crate::{
    child::{PIECE, Running, collect},
    commands::{self, Command, NotUnderstood, Wishes},
    origin::Origin,
    pkt,
    transfers::{Limits, Transfers, Turn},
    words,
};

/// How often a client hears that we are still at it.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How much of a push that was refused is read at least, so that its client gets to read why; else four times the limit.
const LEAST_DISCARDED: u64 = 4 << 30;
/// A sign of life that carries nothing.
const SIGN_OF_LIFE: &[u8] = b"0005\x01";
/// What a ref is told whose objects did not come in.
const NOT_UNPACKED: &str = "unpacker error";
/// What is said of a pack that is fine.
const FINE: &str = "ok";
/// How many reasons people are told.
const MOST_REASONS: usize = 20;
/// What a ref is told that would have been fine.
const OTHERS: &str = "Refused, because another ref of this push was refused.";

/// A client that pushes, and where.
pub(crate) struct Receiver<I, O> {
    pub(crate) transfers: Transfers,
    pub(crate) caller: Caller,
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) origin: Origin,
    pub(crate) input: I,
    pub(crate) output: O,
    /// Whether the input ends by itself, and is read to its end before a refusal is told. Where it does not, the client reads
    /// while it sends, and ends when it has read the report.
    pub(crate) drains_first: bool,
}

/// The name of a ref as the client wrote it, and why it did not change; `None` if it did.
type Told = (Vec<u8>, Option<String>);

/// What became of the pack.
enum Unpacked {
    /// It is in quarantine, if one came.
    Fine(Option<Incoming>),
    /// It was not taken in; tells why.
    Failed(String),
}

/// A program that takes a pack in, and the place into which it writes: the place must not go before the program has.
struct Unpacking(Option<(Running, Incoming)>);

impl Unpacking {
    async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.0 {
            Some((running, _)) => running.wait().await,
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn into_incoming(mut self) -> Option<Incoming> {
        self.0.take().map(|(_, incoming)| incoming)
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        let (Some((mut running, incoming)), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        running.kill();
        runtime.spawn(async move {
            let _ = running.wait().await;
            // A folder of files is not removed on a thread that others wait for.
            let _ = spawn_blocking(move || drop(incoming)).await;
        });
    }
}

impl<I: AsyncRead + Send + Unpin, O: AsyncWrite + Send + Unpin> Receiver<I, O> {
    /// Takes the push in, and tells whether the client was understood; an error means that it has gone, or may as well.
    pub(crate) async fn run(self, turn: Turn) -> io::Result<bool> {
        let time = self.transfers.limits().time;
        let done = timeout(time, self.receive()).await.map_err(|_| too_slow());
        drop(turn);
        done?
    }

    async fn receive(mut self) -> io::Result<bool> {
        let quiet = self.transfers.limits().quiet;
        let read = timeout(quiet, commands::read(&mut self.input)).await.map_err(|_| too_slow())?;
        let (wishes, pack) = match read {
            Ok(Some(understood)) => understood,
            Ok(None) => return Ok(true),
            Err(NotUnderstood::Gone(error)) => return Err(error),
            Err(NotUnderstood::Wrong(text)) => {
                let mut out = Vec::new();
                pkt::line(&mut out, format_args!("ERR {text}"));
                return self.say(&out).await.map(|()| false);
            }
        };
        let Wishes { commands, options, abilities } = wishes;
        let bands = abilities.bands;
        if commands.iter().any(|command| command.change.is_err()) {
            return self.refuse(&abilities, FINE, refused_by_form(&commands), pack).await.map(|()| true);
        }
        let incoming = match if pack { self.unpack(bands).await? } else { Unpacked::Fine(None) } {
            Unpacked::Fine(incoming) => incoming,
            Unpacked::Failed(text) => {
                let told = |command: Command| (command.name, Some(NOT_UNPACKED.to_owned()));
                let refs = commands.into_iter().map(told).collect();
                return self.refuse(&abilities, &text, refs, true).await.map(|()| true);
            }
        };
        let names: Vec<Vec<u8>> = commands.iter().map(|command| command.name.clone()).collect();
        let changes = commands.into_iter().filter_map(|command| command.change.ok()).collect();
        let outcomes = self.pass(Push { changes, incoming, atomic: abilities.atomic, options }, bands).await?;
        let told = match outcomes {
            Ok(outcomes) => {
                let mut refusals: HashMap<&[u8], Option<String>> = outcomes
                    .iter()
                    .map(|outcome| (outcome.name.as_str().as_bytes(), outcome.refusal.clone()))
                    .collect();
                let mut refusal = |name: &[u8]| refusals.remove(name).unwrap_or_else(|| Some(words::FAILED.to_owned()));
                names.iter().map(|name| (name.clone(), refusal(name))).collect()
            }
            Err(refusal) => {
                let sentence = words::sentence(&refusal, &self.origin);
                names.into_iter().map(|name| (name, Some(sentence.clone()))).collect()
            }
        };
        self.report(&abilities, FINE, told).await.map(|()| true)
    }

    /// Takes a pack into quarantine.
    async fn unpack(&mut self, bands: bool) -> io::Result<Unpacked> {
        let hosted = Arc::clone(&self.hosted);
        let incoming = match spawn_blocking(move || hosted.receive()).await.map_err(io::Error::other)? {
            Ok(incoming) => incoming,
            Err(refusal) => return Ok(Unpacked::Failed(words::sentence(&refusal, &self.origin))),
        };
        let limits = self.transfers.limits().clone();
        let command = incoming.index_pack(limits.pack);
        let (running, pipes) = match Running::start(command, &limits) {
            Ok(started) => started,
            Err(error) => {
                self.origin.error("cannot start git index-pack", error);
                return Ok(Unpacked::Failed(words::FAILED.to_owned()));
            }
        };
        let mut unpacking = Unpacking(Some((running, incoming)));
        let log = collect(pipes.log);
        let said = collect(pipes.output);
        let mut signs = signs_of_life();
        let status = {
            let heard = AtomicBool::new(false);
            let mut feeding = pin!(feed(&mut self.input, pipes.input, limits.quiet, &heard));
            let mut fed = false;
            loop {
                tokio::select! {
                    status = unpacking.wait() => break status?,
                    result = &mut feeding, if !fed => {
                        result?;
                        fed = true;
                    }
                    () = sign(&mut signs, bands) => {
                        // A client that is sending wants no answer yet, and what stands between us might take it for all.
                        if !heard.swap(false, Ordering::Relaxed) {
                            say(&mut self.output, SIGN_OF_LIFE, &limits).await?;
                        }
                    }
                }
            }
        };
        if status.success() {
            return Ok(Unpacked::Fine(unpacking.into_incoming()));
        }
        let (log, _) = (log.await.unwrap_or_default(), said.await);
        self.origin.debug("a pack was not taken in", format_args!("{status}: {log}"));
        if words::tells_of_no_room(&log) {
            self.transfers.forge().note_no_room();
            return Ok(Unpacked::Failed(words::NO_ROOM.to_owned()));
        }
        Ok(Unpacked::Failed(words::complaint(&log).unwrap_or_else(|| "the pack could not be read".to_owned())))
    }

    /// Passes the gate; what has been begun there is not ended by a client that goes away.
    async fn pass(&mut self, push: Push, bands: bool) -> io::Result<forge::Result<Vec<RefOutcome>>> {
        let (forge, caller, project) = (self.transfers.forge().clone(), self.caller.clone(), self.hosted.project_id());
        let limits = self.transfers.limits().clone();
        let mut passing = tokio::spawn(async move { transport::push(&forge, caller, project, push).await });
        let mut signs = signs_of_life();
        loop {
            tokio::select! {
                passed = &mut passing => return passed.map_err(io::Error::other),
                () = sign(&mut signs, bands) => say(&mut self.output, SIGN_OF_LIFE, &limits).await?,
            }
        }
    }

    /// Tells the client why nothing came of its push, and takes what it still sends: who closes while a client is sending
    /// makes it lose the answer.
    async fn refuse(
        &mut self,
        abilities: &commands::Abilities,
        unpack: &str,
        refs: Vec<(Vec<u8>, Option<String>)>,
        pack: bool,
    ) -> io::Result<()> {
        if !pack {
            return self.report(abilities, unpack, refs).await;
        }
        if self.drains_first {
            self.discard().await;
            return self.report(abilities, unpack, refs).await;
        }
        self.report(abilities, unpack, refs).await?;
        self.discard().await;
        Ok(())
    }

    /// Takes what still comes until its end and forgets it, within bounds.
    async fn discard(&mut self) {
        let limits = self.transfers.limits();
        let (quiet, mut left) = (limits.quiet, limits.pack.unwrap_or_default().saturating_mul(4).max(LEAST_DISCARDED));
        let mut piece = vec![0; PIECE];
        while left > 0
            && let Ok(Ok(count @ 1..)) = timeout(quiet, self.input.read(&mut piece)).await
        {
            left = left.saturating_sub(count as u64);
        }
    }

    /// Tells the client what became of each ref, and people why.
    async fn report(&mut self, abilities: &commands::Abilities, unpack: &str, refs: Vec<Told>) -> io::Result<()> {
        let mut out = Vec::new();
        if abilities.bands {
            for reason in reasons(unpack, &refs) {
                pkt::band(&mut out, 2, format!("Gable: {}\n", words::one_line(reason)).as_bytes());
            }
        }
        if abilities.report {
            let mut report = Vec::new();
            pkt::line(&mut report, format_args!("unpack {unpack}"));
            for (name, refusal) in &refs {
                // The name byte by byte as the client wrote it, or the client would not know which ref is meant.
                let line = match refusal {
                    None => [b"ok ", &name[..], b"\n"].concat(),
                    Some(reason) => [b"ng ", &name[..], format!(" {}\n", words::one_line(reason)).as_bytes()].concat(),
                };
                pkt::data(&mut report, &line);
            }
            pkt::flush(&mut report);
            if abilities.bands { pkt::band(&mut out, 1, &report) } else { out.extend(report) }
        }
        if abilities.bands {
            pkt::flush(&mut out);
        }
        self.say(&out).await
    }

    async fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        let limits = self.transfers.limits().clone();
        say(&mut self.output, bytes, &limits).await
    }
}

/// What people are told: each reason once, and not too many.
fn reasons<'a>(unpack: &'a str, refs: &'a [Told]) -> Vec<&'a str> {
    if unpack != FINE {
        return vec![unpack];
    }
    let mut reasons = Vec::new();
    for reason in refs.iter().filter_map(|(_, refusal)| refusal.as_deref()) {
        if reasons.len() < MOST_REASONS && !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

/// The outcome of a push in which something is no change at all: nothing of it happens.
fn refused_by_form(commands: &[Command]) -> Vec<Told> {
    let refusal = |command: &Command| command.change.as_ref().err().map_or(OTHERS, |text| *text).to_owned();
    commands.iter().map(|command| (command.name.clone(), Some(refusal(command)))).collect()
}

/// Hands a program what a client sends; done when the client has ended, or the program has read enough.
async fn feed(
    from: &mut (impl AsyncRead + Unpin),
    mut to: impl AsyncWrite + Unpin,
    quiet: Duration,
    heard: &AtomicBool,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = timeout(quiet, from.read(&mut piece)).await.map_err(|_| too_slow())??;
        heard.store(count > 0, Ordering::Relaxed);
        if count == 0 || to.write_all(&piece[..count]).await.is_err() {
            return Ok(());
        }
    }
}

async fn say(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], limits: &Limits) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        timeout(limits.stall, to.write_all(piece)).await.map_err(|_| too_slow())??;
    }
    timeout(limits.stall, to.flush()).await.map_err(|_| too_slow())?
}

fn signs_of_life() -> Interval {
    let mut signs = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    signs
}

/// Waits until a sign of life is due; a client that cannot hear one needs none.
async fn sign(signs: &mut Interval, heard: bool) {
    if heard {
        signs.tick().await;
    } else {
        pending::<()>().await;
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client took too long")
}
