//! The desk: one turn, inside its transaction.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use jiff::SignedDuration;
use model::{
    EventKind, Time,
    hooks::{DeliveryState, Outcome, delivery_uuid},
};
use store::deliveries::{Envelope, LaneState, News, TakenLane, Tried, Wanted};
use tracing::{error, info, warn};

use super::{
    Address, LEASE, Lane, Letter, Notes, Report, Room, Work, address,
    rules::{self, Before},
};
use crate::{Result, WriteTx, bridge::Shared};

/// How many messages of a lane are taken at once.
const BATCH: i64 = 32;
/// How many events are spread in one turn.
const NEWS_AT_ONCE: usize = 256;
/// How many messages these make at most, if it is more than one event: others want to write, too.
const MESSAGES_AT_ONCE: usize = 5000;
/// How much of an answer is kept.
const BODY_KEPT: usize = 64 << 10;
/// How much, if it is content.
const GLAD_BODY_KEPT: usize = 4 << 10;
const HEADERS_KEPT: usize = 16 << 10;
/// How many letters of an error are kept.
const ERROR_KEPT: usize = 1000;
/// What is said of messages whose hook cannot be read.
const UNREADABLE: &str = "the hook was sealed with another instance key; set its URL and token anew";

/// What is told once a turn is durable.
#[derive(Default)]
pub(super) struct Record {
    tried: Vec<(DeliveryState, i64)>,
    given_up: Vec<(i64, i64, String)>,
    paused: Vec<(i64, String)>,
    recovered: Vec<i64>,
    unreadable: Vec<i64>,
}

impl Record {
    pub(super) fn tell(self) {
        for (state, micros) in self.tried {
            let outcome = match state {
                DeliveryState::Delivered => "delivered",
                DeliveryState::Waiting => "retried",
                DeliveryState::Failed => "failed",
            };
            metrics::counter!("gable_hook_attempts_total", "outcome" => outcome).increment(1);
            let duration = SignedDuration::from_micros(micros);
            metrics::histogram!("gable_hook_attempt_seconds").record(duration.as_secs_f64());
        }
        for (hook, delivery, reason) in self.given_up {
            warn!(hook.id = hook, delivery.id = delivery, reason, "a message to a hook was given up");
        }
        for (hook, reason) in self.paused {
            warn!(hook.id = hook, reason, "a hook is paused; its receiver is tried now and then");
        }
        for hook in self.recovered {
            info!(hook.id = hook, "a hook is no longer paused");
        }
        for hook in self.unreadable {
            error!(hook.id = hook, "messages to a hook were given up: {UNREADABLE}");
        }
    }
}

/// Does everything that a turn is for, in one transaction.
pub(super) fn take_turn(tx: &mut WriteTx<'_>, notes: &Notes, room: &Room) -> Result<(Work, Record)> {
    let now = tx.now();
    let most = i64::try_from(NEWS_AT_ONCE).unwrap_or(i64::MAX);
    let mut news = store::deliveries::news(tx.db(), most)?;
    let mut audiences = audiences(tx, &news)?;
    let whole = news.len() < NEWS_AT_ONCE;
    let fitting = fitting(&audiences);
    news.truncate(fitting);
    let whole = whole && fitting == audiences.len();
    audiences.truncate(fitting);
    // All lanes that are changed are held from the start and in one order. Whoever ends one sees what was spread before,
    // and whoever spreads sees that it has ended: no message is left without somebody to bring it.
    let told = notes.reports.iter().map(|report| report.hook);
    let mut touched: BTreeSet<i64> = told.chain(notes.ended.iter().map(|ended| ended.hook)).collect();
    touched.extend(audiences.iter().flatten());
    let touched: Vec<i64> = touched.into_iter().collect();
    let held = if touched.is_empty() { Vec::new() } else { store::deliveries::hold(tx.db(), &touched)? };
    let mut record = Record::default();
    let lanes = held.into_iter().map(|lane| (lane.hook, lane)).collect();
    let lanes = note(tx, notes, lanes, &mut record)?;
    spread(tx, &news, &audiences, lanes)?;
    let lanes = take(tx, room, &mut record)?;
    let more = !whole || !record.unreadable.is_empty();
    let next = if more { Some(now) } else { store::deliveries::next_after(tx.db(), now)? };
    Ok((Work { lanes, next }, record))
}

/// How many events are spread in this turn, at least one.
fn fitting(audiences: &[Vec<i64>]) -> usize {
    let mut messages = 0;
    let beyond = |told: &Vec<i64>| {
        messages += told.len();
        messages > MESSAGES_AT_ONCE
    };
    audiences.iter().position(beyond).map_or(audiences.len(), |at| at.max(1))
}

/// The hooks that are told each of the news.
fn audiences(tx: &mut WriteTx<'_>, news: &[News]) -> Result<Vec<Vec<i64>>> {
    let mut known: HashMap<(i32, Option<i64>), Vec<i64>> = HashMap::new();
    let mut audiences = Vec::with_capacity(news.len());
    for event in news {
        let Some(occasion) = event.occasion else {
            audiences.push(Vec::new());
            continue;
        };
        let key = (occasion.code(), event.project);
        let told = match known.entry(key) {
            Entry::Occupied(told) => told.into_mut(),
            Entry::Vacant(place) => place.insert(store::deliveries::told(tx.db(), occasion, event.project)?),
        };
        audiences.push(told.clone());
    }
    Ok(audiences)
}

/// Lets what is new wait for the hooks that are told of it.
fn spread(
    tx: &mut WriteTx<'_>,
    news: &[News],
    audiences: &[Vec<i64>],
    mut lanes: BTreeMap<i64, LaneState>,
) -> Result<()> {
    if news.is_empty() {
        return Ok(());
    }
    let now = tx.now();
    for (event, told) in news.iter().zip(audiences) {
        if !told.is_empty() {
            store::deliveries::spread(tx.db(), event, told, now)?;
        }
    }
    let told: BTreeSet<i64> = audiences.iter().flatten().copied().collect();
    let mut woken = Vec::new();
    for lane in told.iter().filter_map(|hook| lanes.remove(hook)) {
        let due_at = rules::woken(lane.due_at, lane.failures, now);
        if due_at == now {
            woken.push(lane.hook);
        } else if lane.due_at != Some(due_at) {
            store::deliveries::put_lane(tx.db(), &LaneState { due_at: Some(due_at), ..lane })?;
        }
    }
    if !woken.is_empty() {
        store::deliveries::wake(tx.db(), &woken, now)?;
    }
    let events: Vec<i64> = news.iter().map(|event| event.id).collect();
    Ok(store::deliveries::mark_spread(tx.db(), &events)?)
}

/// Notes how attempts went, and gives lanes back that have ended. What has gone meanwhile is left alone. Answers how the
/// lanes stand then.
fn note(
    tx: &mut WriteTx<'_>,
    notes: &Notes,
    mut lanes: BTreeMap<i64, LaneState>,
    record: &mut Record,
) -> Result<BTreeMap<i64, LaneState>> {
    let (before, now) = (lanes.clone(), tx.now());
    let ids: Vec<i64> = notes.reports.iter().map(|report| report.delivery).collect();
    let courses = if ids.is_empty() { Vec::new() } else { store::deliveries::courses(tx.db(), &ids)? };
    let mut courses: HashMap<i64, _> = courses.into_iter().map(|course| (course.id, course)).collect();
    for report in &notes.reports {
        let course = courses.remove(&report.delivery).filter(|course| course.hook == report.hook);
        let (Some(course), Some(lane)) = (course, lanes.get_mut(&report.hook)) else { continue };
        let so_far =
            Before { attempts: course.attempts, first_tried_at: course.first_tried_at, failures: lane.failures };
        note_one(tx, report, so_far, lane, record)?;
    }
    for ended in &notes.ended {
        let Some(lane) = lanes.get_mut(&ended.hook).filter(|lane| lane.leased_until == Some(ended.lease)) else {
            continue;
        };
        let first = store::deliveries::next_of(tx.db(), lane.hook, rules::order(lane.failures))?;
        lane.due_at = rules::lane_due(first, lane.failures, lane.due_at, now);
        lane.leased_until = None;
    }
    for (hook, lane) in &lanes {
        if before.get(hook) != Some(lane) {
            store::deliveries::put_lane(tx.db(), lane)?;
        }
    }
    Ok(lanes)
}

fn note_one(
    tx: &mut WriteTx<'_>,
    report: &Report,
    before: Before,
    lane: &mut LaneState,
    record: &mut Record,
) -> Result<()> {
    let (now, attempt) = (tx.now(), &report.attempt);
    let mut after = rules::follow(before, &attempt.outcome, now, chance(tx.shared()));
    after.error = after.error.map(|error| error.replace('\0', "\u{fffd}").chars().take(ERROR_KEPT).collect());
    let answer = match &attempt.outcome {
        Outcome::Answered(answer) => Some(answer),
        Outcome::Unreachable(_) | Outcome::Refused(_) => None,
    };
    let headers = answer.map(|answer| cut(&answer.headers, HEADERS_KEPT));
    // Of those who are content little is worth knowing.
    let most = if after.state == DeliveryState::Delivered { GLAD_BODY_KEPT } else { BODY_KEPT };
    let body = answer.map(|answer| cut(&answer.body, most));
    let sealed = {
        let shared = tx.shared();
        shared.instance_key.seal(lane.project.unwrap_or(0), attempt.url.as_bytes(), &*shared.secrets)
    };
    let tried = Tried {
        delivery: report.delivery,
        state: after.state,
        attempts: before.attempts.saturating_add(1),
        due_at: after.due_at,
        first_tried_at: before.first_tried_at.unwrap_or(now),
        tried_at: attempt.at,
        duration: attempt.duration,
        status: answer.map(|answer| i32::from(answer.status)),
        error: after.error.as_deref(),
        sent_to: (!attempt.url.is_empty()).then_some(&*sealed),
        signed: attempt.signed,
        response_headers: headers.as_deref(),
        response_body: body.as_deref(),
        now,
    };
    store::deliveries::note(tx.db(), &tried)?;
    record.tried.push((after.state, attempt.duration));
    if after.state == DeliveryState::Failed {
        record.given_up.push((report.hook, report.delivery, after.error.clone().unwrap_or_default()));
    }
    if after.failures > 0 {
        lane.due_at = Some(after.lane_waits_until);
    } else if rules::order(before.failures) != rules::order(0) {
        // It is there again: what it has missed comes in the old order.
        store::deliveries::hasten(tx.db(), lane.hook, now)?;
    }
    lane.failures = after.failures;
    if after.is_paused() {
        let reason = after.pause_reason();
        if lane.paused_at.is_none() {
            record.paused.push((lane.hook, reason.clone()));
        }
        lane.paused_at = lane.paused_at.or(Some(now));
        lane.pause_reason = Some(reason);
    } else if lane.paused_at.take().is_some() {
        lane.pause_reason = None;
        record.recovered.push(lane.hook);
    }
    Ok(())
}

/// Takes lanes that are due, as far as there is room.
fn take(tx: &mut WriteTx<'_>, room: &Room, record: &mut Record) -> Result<Vec<Lane>> {
    let now = tx.now();
    let chosen = choose(tx, room)?;
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let until = now + LEASE;
    let mut bytes = room.bytes;
    let mut taken = Vec::new();
    for lane in store::deliveries::take(tx.db(), &chosen, now, until)? {
        if bytes == 0 {
            store::deliveries::give_back(tx.db(), lane.hook, lane.due_at)?;
            continue;
        }
        let order = rules::order(lane.failures);
        let most = if lane.failures > 0 { 1 } else { BATCH };
        let mut envelopes = store::deliveries::envelopes(tx.db(), lane.hook, order, most, now)?;
        let shared = tx.shared();
        let address = address(shared, lane.project, &lane.url, lane.token.as_deref(), lane.verify);
        match address {
            Some(address) if !envelopes.is_empty() => {
                bytes -= keep_what_fits(&mut envelopes, bytes);
                taken.push((lane, address, envelopes));
            }
            readable => {
                if readable.is_none() && !envelopes.is_empty() {
                    let lost: Vec<i64> = envelopes.iter().map(|envelope| envelope.delivery).collect();
                    store::deliveries::fail(tx.db(), &lost, UNREADABLE, now)?;
                    record.unreadable.push(lane.hook);
                }
                let next = store::deliveries::next_of(tx.db(), lane.hook, order)?;
                store::deliveries::give_back(tx.db(), lane.hook, next)?;
            }
        }
    }
    fill(tx, taken, until)
}

/// The lanes that there is room for, longest due first. Those whose last attempt failed have a few places of their own,
/// so that neither kind keeps the other waiting.
fn choose(tx: &mut WriteTx<'_>, room: &Room) -> Result<Vec<i64>> {
    let now = tx.now();
    let (mut busy, mut busy_projects) = (room.busy.clone(), room.busy_projects.clone());
    let mut chosen = Vec::new();
    for failing in [true, false] {
        let places = room.lanes - chosen.len();
        let places = if failing { places.min(room.failing) } else { places };
        if places == 0 || room.bytes == 0 {
            continue;
        }
        let is_full = |count: usize| count >= room.per_receiver;
        let full: Vec<String> =
            busy.iter().filter(|(_, count)| is_full(**count)).map(|(name, _)| name.clone()).collect();
        let full: Vec<&str> = full.iter().map(String::as_str).collect();
        let full_projects: Vec<i64> =
            busy_projects.iter().filter(|(_, count)| **count >= room.per_project).map(|(id, _)| *id).collect();
        // Of each receiver as many are found as could be taken if nobody were there yet; so many more are asked for.
        let there: usize = busy.values().filter(|count| !is_full(**count)).sum();
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let wanted = Wanted {
            failing,
            full: &full,
            per_receiver: number(room.per_receiver),
            full_projects: &full_projects,
            per_project: number(room.per_project),
            most: number(places.saturating_add(there)),
        };
        let mut left = places;
        for (hook, receiver, project) in store::deliveries::due_lanes(tx.db(), wanted, now)? {
            let count = busy.entry(receiver).or_default();
            // Hooks of the instance belong to those who run it.
            let of_project = project.map_or(0, |project| busy_projects.get(&project).copied().unwrap_or(0));
            if left > 0 && *count < room.per_receiver && of_project < room.per_project {
                *count += 1;
                if let Some(project) = project {
                    busy_projects.insert(project, of_project + 1);
                }
                left -= 1;
                chosen.push(hook);
            }
        }
    }
    Ok(chosen)
}

/// Keeps the first messages, as many as fit, at least one; says how many bytes that takes of what is left.
fn keep_what_fits(envelopes: &mut Vec<Envelope>, bytes: usize) -> usize {
    let mut used = 0_usize;
    let mut kept = 0;
    for envelope in envelopes.iter() {
        let with = used.saturating_add(usize::try_from(envelope.size).unwrap_or(0));
        if kept > 0 && with > bytes {
            break;
        }
        used = with;
        kept += 1;
    }
    envelopes.truncate(kept);
    used.min(bytes)
}

/// Puts into the envelopes what they are to say; what goes to many is there once.
fn fill(tx: &mut WriteTx<'_>, taken: Vec<(TakenLane, Address, Vec<Envelope>)>, lease: Time) -> Result<Vec<Lane>> {
    let events: BTreeSet<i64> =
        taken.iter().flat_map(|(.., envelopes)| envelopes).map(|envelope| envelope.event).collect();
    let events: Vec<i64> = events.into_iter().collect();
    let payloads = if events.is_empty() { Vec::new() } else { store::deliveries::payloads(tx.db(), &events)? };
    let payloads: HashMap<i64, Arc<str>> = payloads.into_iter().map(|(id, payload)| (id, payload.into())).collect();
    let lanes = taken.into_iter().map(|(lane, address, envelopes)| {
        let letters = envelopes.into_iter().filter_map(|envelope| {
            Some(Letter {
                delivery: envelope.delivery,
                uuid: delivery_uuid(&envelope.seed, lane.hook),
                occasion: envelope.occasion.unwrap_or(EventKind::System),
                depth: envelope.depth,
                body: payloads.get(&envelope.event)?.clone(),
            })
        });
        let letters = letters.collect();
        Lane {
            hook: lane.hook,
            project: lane.project,
            receiver: lane.receiver,
            failing: lane.failures > 0,
            address,
            letters,
            lease,
        }
    });
    Ok(lanes.collect())
}

/// A number between 0 and 1.
fn chance(shared: &Shared) -> f64 {
    let mut bytes = [0; 4];
    shared.secrets.fill(&mut bytes);
    f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
}

/// The beginning of a text, without what PostgreSQL cannot hold.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text[..end];
    if text.contains('\0') { Cow::Owned(text.replace('\0', " ")) } else { Cow::Borrowed(text) }
}
