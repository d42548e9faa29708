//! Bringing the post: what is told to whom next, and what follows from how it went.
//!
//! Each hook is a lane: its messages go one after the other, in the order in which they were written down. Whoever brings
//! them (`webhooks`) takes a turn at the desk again and again: it reports how attempts went and gets what is to be done next.

mod desk;
mod rules;

use std::{collections::HashMap, sync::Arc};

use jiff::SignedDuration;
use model::{
    EventKind, Time,
    hooks::{Attempt, Outcome},
    tokens::Secret,
};
use rules::Verdict;
use store::deliveries::Standing;
use tracing::warn;

use crate::{Ability, Caller, Forge, ReadTx, Result, WriteTx, bridge::Shared};

/// How long whoever takes a lane has it to themselves.
pub const LEASE: SignedDuration = SignedDuration::from_mins(1);
/// For how long a message may wait, and for how long is known how it went.
const KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
const TOO_OLD: &str = "was not delivered within 7 days";
/// How many rows are swept in one transaction.
const SWEPT_AT_ONCE: i64 = 1000;

/// Where messages of a hook go.
#[derive(Clone)]
pub struct Address {
    /// The URL, with all that is secret in it.
    pub url: Secret,
    /// What the receiver knows the sender by.
    pub token: Option<Secret>,
    /// Whether the receiver has to prove who it is.
    pub verify: bool,
    /// Whether it may be in the network of the service itself.
    pub may_be_local: bool,
}

/// A message that is to be sent.
#[derive(Clone)]
pub struct Letter {
    /// Number of the delivery; 0 for one that is not in the log.
    pub delivery: i64,
    /// What the receiver knows it by.
    pub uuid: String,
    /// On which occasion.
    pub occasion: EventKind,
    /// How many hooks have led to it, one by the other.
    pub depth: i32,
    /// What it says.
    pub body: Arc<str>,
}

/// What waits for one hook: to be sent in this order, until one fails.
pub struct Lane {
    /// The hook.
    pub hook: i64,
    /// The project whose hook it is; `None` for one of the instance.
    pub project: Option<i64>,
    /// Host and port of the receiver.
    pub receiver: String,
    /// Whether the last attempt failed.
    pub failing: bool,
    /// Where to.
    pub address: Address,
    /// What.
    pub letters: Vec<Letter>,
    /// Until when it is the taker's.
    pub lease: Time,
}

/// How an attempt went.
pub struct Report {
    /// The hook.
    pub hook: i64,
    /// The delivery.
    pub delivery: i64,
    /// How it went.
    pub attempt: Attempt,
}

/// That a lane has ended: nobody is at it any more.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The hook.
    pub hook: i64,
    /// Until when it was the taker's; if it is somebody else's by now, it stays theirs.
    pub lease: Time,
}

/// What is told at the desk.
#[derive(Default)]
pub struct Notes {
    /// How attempts went; those of a lane in their order.
    pub reports: Vec<Report>,
    /// Which lanes have ended.
    pub ended: Vec<Ended>,
}

impl Notes {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.ended.is_empty()
    }
}

/// What there is room for.
pub struct Room {
    /// How many more lanes can be taken.
    pub lanes: usize,
    /// How many of those may be lanes whose last attempt failed.
    pub failing: usize,
    /// How many bytes of messages can be taken.
    pub bytes: usize,
    /// How many lanes lead to a receiver already, by host and port.
    pub busy: HashMap<String, usize>,
    /// How many lanes may lead to one receiver at a time.
    pub per_receiver: usize,
    /// How many lanes are under way already for a project.
    pub busy_projects: HashMap<i64, usize>,
    /// How many lanes may be under way for one project at a time.
    pub per_project: usize,
}

impl Room {
    /// None at all: for whoever only has something to tell.
    pub fn none() -> Self {
        Self {
            lanes: 0,
            failing: 0,
            bytes: 0,
            busy: HashMap::new(),
            per_receiver: 0,
            busy_projects: HashMap::new(),
            per_project: 0,
        }
    }
}

/// What is to be done next.
pub struct Work {
    /// What is to be sent; it is the taker's until they report that the lane has ended.
    pub lanes: Vec<Lane>,
    /// When something more is due, if nothing happens before.
    pub next: Option<Time>,
}

/// Takes a turn at the desk: notes how attempts went, gives lanes back that have ended, spreads what is new to the hooks,
/// and takes what is due. If it fails, nothing of it has happened.
pub async fn turn(forge: &Forge, notes: Arc<Notes>, room: Room) -> Result<Work> {
    if notes.is_empty() {
        // An idle server should not write.
        let glance = forge
            .read_inline(Caller::system(), |tx| {
                let now = tx.now();
                Ok(store::deliveries::glance(tx.db(), now)?)
            })
            .await?;
        let takes = glance.due && room.lanes > 0;
        if !glance.news && !takes {
            return Ok(Work { lanes: Vec::new(), next: glance.next });
        }
    }
    let (work, record) = forge.write(Caller::system(), move |tx| desk::take_turn(tx, &notes, &room)).await?;
    record.tell();
    Ok(work)
}

/// Waits until there may be something new.
pub async fn rung(forge: &Forge) {
    forge.shared().post.notified().await;
}

/// Whether the next message of a lane may be sent after one that went like this.
pub fn goes_on(outcome: &Outcome) -> bool {
    rules::judge(outcome) != Verdict::Again
}

/// Takes up what a server before this one was in the middle of, at the start of one that has its data to itself: whoever
/// holds a lease on a lane is no more.
pub async fn take_up(forge: &Forge) -> Result<()> {
    if !forge.shared().database.is_embedded() {
        return Ok(());
    }
    forge.write(Caller::system(), |tx| Ok(store::deliveries::release_all(tx.db())?)).await
}

/// How the post is doing.
pub fn standing(tx: &mut ReadTx<'_>) -> Result<Standing> {
    tx.may(Ability::Operate)?;
    Ok(store::deliveries::standing(tx.db())?)
}

/// Gives up what has waited for too long, and forgets what happened long ago; in small steps because others want to
/// write, too.
pub(crate) async fn sweep(forge: &Forge) -> Result<()> {
    let finished = |tx: &mut WriteTx<'_>| {
        let before = tx.now() - KEPT;
        Ok(store::deliveries::delete_finished(tx.db(), before, SWEPT_AT_ONCE)?)
    };
    while forge.write(Caller::system(), finished).await? > 0 {}
    let (mut after, mut given_up) = (Some(0), 0);
    while let Some(last) = after {
        let old = move |tx: &mut WriteTx<'_>| {
            let now = tx.now();
            Ok(store::deliveries::fail_old(tx.db(), last, now - KEPT, TOO_OLD, now, SWEPT_AT_ONCE)?)
        };
        let (next, some) = forge.write(Caller::system(), old).await?;
        (after, given_up) = (next, given_up + some);
    }
    if given_up > 0 {
        warn!(given_up, reason = TOO_OLD, "messages to hooks were given up");
    }
    let mut after = Some(0);
    while let Some(last) = after {
        let forget = move |tx: &mut WriteTx<'_>| {
            let before = tx.now() - KEPT;
            Ok(store::deliveries::delete_told(tx.db(), last, before, SWEPT_AT_ONCE)?)
        };
        after = forge.write(Caller::system(), forget).await?;
    }
    Ok(())
}

/// Where messages of a hook go; `None` if it was sealed with another key.
pub(crate) fn address(
    shared: &Shared,
    project: Option<i64>,
    url: &[u8],
    token: Option<&[u8]>,
    verify: bool,
) -> Option<Address> {
    let open = |sealed: &[u8]| {
        let plain = shared.instance_key.open(project.unwrap_or(0), sealed)?;
        String::from_utf8(plain).ok().map(Secret::new)
    };
    let token = match token {
        Some(token) => Some(open(token)?),
        None => None,
    };
    let may_be_local = project.is_none() || shared.allow_local_network;
    Some(Address { url: open(url)?, token, verify, may_be_local })
}
