//! What follows from how an attempt went, for the message and for its lane. Nothing here asks anybody.

use jiff::SignedDuration;
use model::{
    Time,
    hooks::{DeliveryState, Outcome},
};
use store::deliveries::Order;

/// How long the first pause is; each further one is twice as long.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// How long a message waits at most before it is tried again.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(2);
/// How long a lane waits at most before its receiver is tried again.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// For how long a receiver may ask to be left alone.
const LONGEST_WISH: SignedDuration = SignedDuration::from_hours(1);
/// For how long a message is tried again and again.
const TRIED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// After how many attempts a message no longer keeps those behind it waiting.
const HELD_FOR: i32 = 3;
/// From how many failures in a row on the message that was tried least goes first.
const DOUBTED_FROM: i32 = 4;
/// From how many failures in a row on a hook is paused.
const PAUSED_FROM: i32 = 10;

/// What an attempt amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It arrived, and was welcome.
    Delivered,
    /// It may go better another time.
    Again,
    /// It would go the same way every time.
    Never,
}

/// What an attempt amounts to. A redirect is never followed: it would lead past the check of the target.
pub(crate) fn judge(outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Answered(answer) => match answer.status {
            200..=299 => Verdict::Delivered,
            429 | 500..=599 => Verdict::Again,
            _ => Verdict::Never,
        },
        Outcome::Unreachable(_) => Verdict::Again,
        Outcome::Refused(_) => Verdict::Never,
    }
}

/// What went wrong, in words that hold nothing secret; `None` if nothing did.
pub(crate) fn trouble(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Answered(answer) => match answer.status {
            200..=299 => None,
            status @ 300..=399 => Some(format!("the receiver answered {status}; redirects are not followed")),
            status => Some(format!("the receiver answered {status}")),
        },
        Outcome::Unreachable(why) | Outcome::Refused(why) => Some(why.clone()),
    }
}

/// How a message and its lane stood before an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// How often the message was tried.
    pub(crate) attempts: i32,
    /// When it was first tried.
    pub(crate) first_tried_at: Option<Time>,
    /// How many attempts in a row the lane has failed.
    pub(crate) failures: i32,
}

/// How they stand after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct After {
    /// How the message stands.
    pub(crate) state: DeliveryState,
    /// When it is tried again, if it waits.
    pub(crate) due_at: Time,
    /// How many attempts in a row the lane has failed.
    pub(crate) failures: i32,
    /// Until when the lane waits, whatever else is due in it.
    pub(crate) lane_waits_until: Time,
    /// Why the message is given up, or why it has to be tried again.
    pub(crate) error: Option<String>,
}

impl After {
    /// Whether the hook is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.failures >= PAUSED_FROM
    }

    /// Why the hook is paused.
    pub(crate) fn pause_reason(&self) -> String {
        let why = self.error.as_deref().unwrap_or("nobody knows why");
        format!("{} attempts in a row failed, the last one because: {why}", self.failures)
    }
}

/// What follows from an attempt. `chance` is between 0 and 1: it spreads what failed at the same moment.
pub(crate) fn follow(before: Before, outcome: &Outcome, now: Time, chance: f64) -> After {
    let error = trouble(outcome);
    let state = match judge(outcome) {
        Verdict::Delivered => DeliveryState::Delivered,
        Verdict::Never => DeliveryState::Failed,
        Verdict::Again => return retry(before, outcome, error, now, chance),
    };
    // Whoever answers is there, also with a refusal: nothing speaks against going on.
    After { state, due_at: now, failures: 0, lane_waits_until: now, error }
}

fn retry(before: Before, outcome: &Outcome, error: Option<String>, now: Time, chance: f64) -> After {
    let (attempts, failures) = (before.attempts.saturating_add(1), before.failures.saturating_add(1));
    let end = before.first_tried_at.unwrap_or(now) + TRIED_FOR;
    let wish = wish(outcome);
    let poisonous = attempts > HELD_FOR && failures == 1;
    // A message that fails alone, while all others arrive, keeps nobody waiting.
    let lane_wait = if poisonous { wish } else { spread(pause(failures), chance).max(wish) };
    let (state, error) = if now >= end {
        let why = error.unwrap_or_default();
        (DeliveryState::Failed, Some(format!("given up a day after the first of {attempts} attempts: {why}")))
    } else {
        (DeliveryState::Waiting, error)
    };
    // The last attempt is made when the day ends.
    let due_at = (now + spread(wait(attempts), chance).max(wish)).min(end.max(now));
    After { state, due_at, failures, lane_waits_until: now + lane_wait, error }
}

/// How long a message waits after its n-th attempt.
fn wait(attempts: i32) -> SignedDuration {
    doubled(attempts).min(LONGEST_WAIT)
}

/// How long a lane waits after its n-th failure in a row.
fn pause(failures: i32) -> SignedDuration {
    doubled(failures).min(LONGEST_PAUSE)
}

fn doubled(times: i32) -> SignedDuration {
    FIRST_PAUSE * 2_i32.pow(u32::try_from(times.clamp(1, 20) - 1).unwrap_or(0))
}

/// Between four and six fifths of a duration.
fn spread(duration: SignedDuration, chance: f64) -> SignedDuration {
    duration.mul_f64(0.8 + 0.4 * chance)
}

/// For how long the receiver asked to be left alone.
fn wish(outcome: &Outcome) -> SignedDuration {
    match outcome {
        Outcome::Answered(answer) if matches!(answer.status, 429 | 503) => {
            SignedDuration::from_secs(answer.retry_after.unwrap_or(0).into()).min(LONGEST_WISH)
        }
        _ => SignedDuration::ZERO,
    }
}

/// In which order the messages of a lane are tried. After some failures the receiver is asked with what it has seen
/// least, so that a few messages that it cannot bear do not keep it from all others.
pub(crate) fn order(failures: i32) -> Order {
    if failures >= DOUBTED_FROM { Order::LeastTried } else { Order::Kept(HELD_FOR + 1) }
}

/// When a lane that has been given back is next looked at, from what waits in it. It goes to the end of the line, however
/// long its messages have waited: who has many does not come before those who have few.
pub(crate) fn lane_due(first: Option<Time>, failures: i32, waits_until: Option<Time>, now: Time) -> Option<Time> {
    let first = first?.max(now);
    Some(if failures > 0 { waits_until.map_or(first, |until| until.max(first)) } else { first })
}

/// When a lane is next looked at in which something new waits. It may have its time already, because what waits in it is
/// not due before; if the receiver is well, what is new does not wait for that.
pub(crate) fn woken(due_at: Option<Time>, failures: i32, now: Time) -> Time {
    // After a first failure it is the message that keeps those behind it waiting, not the lane.
    let soonest = if failures > 1 { now + pause(failures) } else { now };
    due_at.unwrap_or(now).min(soonest)
}

#[cfg(test)]
mod tests {
    use model::hooks::Answer;

    use super::*;

    /// Neither earlier nor later.
    const MIDDLE: f64 = 0.5;
    const FRESH: Before = Before { attempts: 0, first_tried_at: None, failures: 0 };

    fn start() -> Time {
        "2026-01-02T03:04:05Z".parse().expect("a moment")
    }

    fn answered(status: u16, retry_after: Option<u32>) -> Outcome {
        Outcome::Answered(Answer { status, headers: String::new(), body: String::new(), retry_after })
    }

    fn seconds(after: &After) -> (i64, i64) {
        let since = |moment: Time| moment.duration_since(start()).as_secs();
        (since(after.due_at), since(after.lane_waits_until))
    }

    #[test]
    fn only_what_may_go_better_is_tried_again() {
        let check = |outcome: Outcome, verdict| assert_eq!(judge(&outcome), verdict, "{outcome:?}");
        for status in [200, 201, 204, 299] {
            check(answered(status, None), Verdict::Delivered);
        }
        for status in [100, 301, 302, 307, 400, 401, 404, 410, 499, 600] {
            check(answered(status, None), Verdict::Never);
        }
        for status in [429, 500, 502, 503, 599] {
            check(answered(status, None), Verdict::Again);
        }
        check(Outcome::Unreachable("timed out".into()), Verdict::Again);
        check(Outcome::Refused("is in this network".into()), Verdict::Never);
    }

    #[test]
    fn pauses_double_up_to_their_limits() {
        let all = |f: fn(i32) -> SignedDuration| [1, 2, 3, 9, 10, 11, 100, i32::MAX].map(|n| f(n).as_secs());
        assert_eq!(all(wait), [10, 20, 40, 2560, 5120, 7200, 7200, 7200]);
        assert_eq!(all(pause), [10, 20, 40, 2560, 3600, 3600, 3600, 3600]);
    }

    #[test]
    fn chance_moves_a_pause_by_a_fifth_at_most() {
        let ten = SignedDuration::from_secs(10);
        let all = [0.0, 0.5, 1.0].map(|chance| spread(ten, chance).as_millis());
        assert_eq!(all, [8000, 10_000, 12_000]);
    }

    #[test]
    fn what_arrived_or_never_will_lets_the_lane_go_on() {
        let before = Before { attempts: 2, first_tried_at: Some(start()), failures: 12 };
        for (status, state) in [(204, DeliveryState::Delivered), (404, DeliveryState::Failed)] {
            let after = follow(before, &answered(status, None), start(), MIDDLE);
            assert_eq!((after.state, after.failures, after.is_paused()), (state, 0, false));
            assert_eq!(seconds(&after), (0, 0));
        }
        let after = follow(FRESH, &answered(302, None), start(), MIDDLE);
        assert_eq!(after.error.as_deref(), Some("the receiver answered 302; redirects are not followed"));
    }

    #[test]
    fn message_and_lane_wait_after_a_failure() {
        let after = follow(FRESH, &answered(500, None), start(), MIDDLE);
        assert_eq!((after.state, after.failures), (DeliveryState::Waiting, 1));
        assert_eq!(seconds(&after), (10, 10));
        let before = Before { attempts: 2, first_tried_at: Some(start()), failures: 5 };
        let after = follow(before, &Outcome::Unreachable("timed out".into()), start(), MIDDLE);
        assert_eq!(after.error.as_deref(), Some("timed out"));
        assert_eq!(seconds(&after), (40, 320));
    }

    #[test]
    fn a_receiver_may_ask_to_be_left_alone_for_an_hour() {
        let check = |status, wanted, expected| {
            let after = follow(FRESH, &answered(status, wanted), start(), MIDDLE);
            assert_eq!(seconds(&after), (expected, expected), "{status} {wanted:?}");
        };
        check(429, Some(120), 120);
        check(503, Some(120), 120);
        check(500, Some(120), 10);
        check(429, Some(3), 10);
        check(429, None, 10);
        check(429, Some(1_000_000), 3600);
    }

    #[test]
    fn one_bad_message_keeps_nobody_waiting_in_the_long_run() {
        let check = |attempts, failures, expected| {
            let before = Before { attempts, first_tried_at: Some(start()), failures };
            let after = follow(before, &answered(500, None), start(), MIDDLE);
            assert_eq!(seconds(&after), expected, "{attempts} {failures}");
        };
        // Its first three attempts hold the lane, and so does every further one while nothing else arrives.
        check(2, 2, (40, 40));
        check(3, 3, (80, 80));
        // If something else has arrived meanwhile, the lane goes on at once.
        check(3, 0, (80, 0));
        check(2, 0, (40, 10));
    }

    #[test]
    fn a_message_is_given_up_after_a_day() {
        let day = SignedDuration::from_hours(24);
        let before = Before { attempts: 15, first_tried_at: Some(start()), failures: 15 };
        // The last attempt is made when the day ends.
        let after = follow(before, &answered(500, None), start() + SignedDuration::from_hours(23), MIDDLE);
        assert_eq!((after.state, after.due_at), (DeliveryState::Waiting, start() + day));
        let after = follow(before, &answered(500, None), start() + day, MIDDLE);
        assert_eq!((after.state, after.failures), (DeliveryState::Failed, 16));
        let why = "given up a day after the first of 16 attempts: the receiver answered 500";
        assert_eq!(after.error.as_deref(), Some(why));
    }

    #[test]
    fn a_hook_is_paused_after_ten_failures_in_a_row() {
        let before = |failures| Before { attempts: 1, first_tried_at: Some(start()), failures };
        assert!(!follow(before(8), &answered(500, None), start(), MIDDLE).is_paused());
        let after = follow(before(9), &answered(500, None), start(), MIDDLE);
        assert!(after.is_paused());
        let why = "10 attempts in a row failed, the last one because: the receiver answered 500";
        assert_eq!(after.pause_reason(), why);
    }

    #[test]
    fn after_four_failures_the_message_that_was_tried_least_goes_first() {
        assert_eq!([0, 3].map(order), [Order::Kept(4), Order::Kept(4)]);
        assert_eq!([4, 100].map(order), [Order::LeastTried, Order::LeastTried]);
    }

    #[test]
    fn a_lane_is_due_when_it_may_go_on_and_something_is_due_in_it() {
        let [early, late] = [1, 2].map(|hours| start() + SignedDuration::from_hours(hours));
        assert_eq!(lane_due(None, 3, Some(late), early), None);
        assert_eq!(lane_due(Some(early), 3, Some(late), early), Some(late));
        assert_eq!(lane_due(Some(late), 3, Some(early), early), Some(late));
        assert_eq!(lane_due(Some(early), 0, Some(late), early), Some(early));
        // However long something has waited: who comes back goes to the end of the line.
        assert_eq!(lane_due(Some(early), 0, None, late), Some(late));
    }
    #[test]
    fn what_is_new_waits_for_the_lane_but_not_for_messages_that_may_be_overtaken() {
        let hour = start() + SignedDuration::from_hours(1);
        let check = |due_at, failures, seconds| {
            let expected = start() + SignedDuration::from_secs(seconds);
            assert_eq!(woken(due_at, failures, start()), expected, "{due_at:?} {failures}");
        };
        check(None, 0, 0);
        check(None, 5, 0);
        check(Some(hour), 0, 0);
        check(Some(hour), 1, 0);
        check(Some(hour), 2, 20);
        check(Some(start() + SignedDuration::from_secs(5)), 2, 5);
        check(Some(start() - SignedDuration::from_secs(5)), 0, -5);
    }
}
