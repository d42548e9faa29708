//! The retry policy: the consequences of an attempt for its delivery and its queue, as pure functions.

use jiff::SignedDuration;
use model::{
    Time,
    hooks::{AttemptOutcome, DeliveryState},
};
use store::deliveries::QueueOrder;

/// The delay after the first failure; it doubles with each further one.
const INITIAL_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// The maximum delay before a delivery is retried.
const MAX_DELIVERY_BACKOFF: SignedDuration = SignedDuration::from_hours(2);
/// The maximum delay before a queue is processed again after failures.
const MAX_QUEUE_BACKOFF: SignedDuration = SignedDuration::from_hours(1);
/// The maximum delay that a receiver can request with `Retry-After`.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How long a delivery is retried after its first attempt.
const RETRY_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// The number of failed attempts for which a delivery blocks those behind it.
const BLOCKING_ATTEMPTS: i32 = 3;
/// The number of consecutive failures from which the delivery with the fewest attempts goes first.
const REORDER_FAILURES: i32 = 4;
/// The number of consecutive failures from which a hook is paused.
const PAUSE_FAILURES: i32 = 10;

/// What to do with a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The receiver accepted it.
    Delivered,
    /// Another attempt may succeed.
    Retry,
    /// Every further attempt would fail in the same way.
    Fail,
}

/// Decides what to do after an attempt. Redirects fail: following one would bypass the check of the target.
pub(crate) fn classify(outcome: &AttemptOutcome) -> Disposition {
    match outcome {
        AttemptOutcome::Responded(response) => match response.status {
            200..=299 => Disposition::Delivered,
            429 | 500..=599 => Disposition::Retry,
            _ => Disposition::Fail,
        },
        AttemptOutcome::Unreachable(_) => Disposition::Retry,
        AttemptOutcome::Refused(_) => Disposition::Fail,
    }
}

/// Describes a failure without secrets; `None` after a success.
pub(crate) fn error_message(outcome: &AttemptOutcome) -> Option<String> {
    match outcome {
        AttemptOutcome::Responded(response) => match response.status {
            200..=299 => None,
            status @ 300..=399 => Some(format!("the receiver answered {status}; redirects are not followed")),
            status => Some(format!("the receiver answered {status}")),
        },
        AttemptOutcome::Unreachable(error) | AttemptOutcome::Refused(error) => Some(error.clone()),
    }
}

/// A delivery and its queue before an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateBefore {
    /// The number of attempts of the delivery.
    pub(crate) attempts: i32,
    /// When the delivery was first attempted.
    pub(crate) first_tried_at: Option<Time>,
    /// The number of consecutive failures of the queue.
    pub(crate) failures: i32,
}

/// A delivery and its queue after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateAfter {
    /// The state of the delivery.
    pub(crate) state: DeliveryState,
    /// When the delivery is retried, if it is still pending.
    pub(crate) due_at: Time,
    /// The number of consecutive failures of the queue.
    pub(crate) failures: i32,
    /// The queue is not processed before this time.
    pub(crate) queue_blocked_until: Time,
    /// Why the attempt failed.
    pub(crate) error: Option<String>,
}

impl StateAfter {
    /// Returns whether the hook is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.failures >= PAUSE_FAILURES
    }

    /// Describes why the hook is paused.
    pub(crate) fn pause_reason(&self) -> String {
        let error = self.error.as_deref().unwrap_or("unknown error");
        format!("{} attempts in a row failed, the last one because: {error}", self.failures)
    }
}

/// Computes the consequences of an attempt. `jitter`, between 0 and 1, spreads the retries of simultaneous failures.
pub(crate) fn after_attempt(before: StateBefore, outcome: &AttemptOutcome, now: Time, jitter: f64) -> StateAfter {
    let error = error_message(outcome);
    let state = match classify(outcome) {
        Disposition::Delivered => DeliveryState::Delivered,
        Disposition::Fail => DeliveryState::Failed,
        Disposition::Retry => return retry(before, outcome, error, now, jitter),
    };
    // A receiver that responds is up, even if it rejects the delivery: the queue goes on.
    StateAfter { state, due_at: now, failures: 0, queue_blocked_until: now, error }
}

fn retry(before: StateBefore, outcome: &AttemptOutcome, error: Option<String>, now: Time, jitter: f64) -> StateAfter {
    let (attempts, failures) = (before.attempts.saturating_add(1), before.failures.saturating_add(1));
    let end = before.first_tried_at.unwrap_or(now) + RETRY_WINDOW;
    let requested = requested_delay(outcome);
    let fails_alone = attempts > BLOCKING_ATTEMPTS && failures == 1;
    // A delivery that fails alone, while others succeed, does not block the queue.
    let queue_wait = if fails_alone { requested } else { apply_jitter(queue_backoff(failures), jitter).max(requested) };
    let (state, error) = if now >= end {
        let error = error.unwrap_or_default();
        let error = format!("gave up 24 hours after the first attempt ({attempts} attempts): {error}");
        (DeliveryState::Failed, Some(error))
    } else {
        (DeliveryState::Waiting, error)
    };
    // The last attempt is made at the end of the window.
    let due_at = (now + apply_jitter(delivery_backoff(attempts), jitter).max(requested)).min(end.max(now));
    StateAfter { state, due_at, failures, queue_blocked_until: now + queue_wait, error }
}

/// Returns the delay of a delivery after its n-th attempt.
fn delivery_backoff(attempts: i32) -> SignedDuration {
    backoff(attempts).min(MAX_DELIVERY_BACKOFF)
}

/// Returns the delay of a queue after its n-th consecutive failure.
fn queue_backoff(failures: i32) -> SignedDuration {
    backoff(failures).min(MAX_QUEUE_BACKOFF)
}

fn backoff(times: i32) -> SignedDuration {
    INITIAL_BACKOFF * 2_i32.pow(u32::try_from(times.clamp(1, 20) - 1).unwrap_or(0))
}

/// Scales a duration by a factor between 0.8 and 1.2.
fn apply_jitter(duration: SignedDuration, jitter: f64) -> SignedDuration {
    duration.mul_f64(0.8 + 0.4 * jitter)
}

/// Returns the delay that the receiver requested with `Retry-After`.
fn requested_delay(outcome: &AttemptOutcome) -> SignedDuration {
    match outcome {
        AttemptOutcome::Responded(response) if matches!(response.status, 429 | 503) => {
            SignedDuration::from_secs(response.retry_after.unwrap_or(0).into()).min(MAX_RETRY_AFTER)
        }
        _ => SignedDuration::ZERO,
    }
}

/// Returns the order in which a queue is processed. After several failures the receiver is probed with the deliveries
/// that it has seen least, so that a few that it cannot handle do not block all others.
pub(crate) fn queue_order(failures: i32) -> QueueOrder {
    if failures >= REORDER_FAILURES { QueueOrder::FewestAttempts } else { QueueOrder::Fifo(BLOCKING_ATTEMPTS + 1) }
}

/// Returns when a released queue is next processed; `first` is when its first delivery is due. It is never due in the
/// past, so that a queue with a large backlog does not take precedence over others.
pub(crate) fn queue_due_at(first: Option<Time>, failures: i32, blocked_until: Option<Time>, now: Time) -> Option<Time> {
    let first = first?.max(now);
    Some(if failures > 0 { blocked_until.map_or(first, |until| until.max(first)) } else { first })
}

/// Returns when a queue with a new delivery is next processed. Unless the receiver is failing, a new delivery does not
/// wait for older ones that are not due yet.
pub(crate) fn due_with_new_delivery(due_at: Option<Time>, failures: i32, now: Time) -> Time {
    // After a single failure the delivery blocks those behind it, not the queue.
    let soonest = if failures > 1 { now + queue_backoff(failures) } else { now };
    due_at.unwrap_or(now).min(soonest)
}

#[cfg(test)]
mod tests {
    use model::hooks::HookResponse;

    use super::*;

    /// The factor is 1.
    const NO_JITTER: f64 = 0.5;
    const FIRST_ATTEMPT: StateBefore = StateBefore { attempts: 0, first_tried_at: None, failures: 0 };

    fn start_time() -> Time {
        "2026-01-02T03:04:05Z".parse().expect("a valid time")
    }

    fn responded(status: u16, retry_after: Option<u32>) -> AttemptOutcome {
        AttemptOutcome::Responded(HookResponse { status, headers: String::new(), body: String::new(), retry_after })
    }

    fn seconds(after: &StateAfter) -> (i64, i64) {
        let since = |time: Time| time.duration_since(start_time()).as_secs();
        (since(after.due_at), since(after.queue_blocked_until))
    }

    #[test]
    fn only_temporary_failures_are_retried() {
        let check = |outcome: AttemptOutcome, disposition| assert_eq!(classify(&outcome), disposition, "{outcome:?}");
        for status in [200, 201, 204, 299] {
            check(responded(status, None), Disposition::Delivered);
        }
        for status in [100, 301, 302, 307, 400, 401, 404, 410, 499, 600] {
            check(responded(status, None), Disposition::Fail);
        }
        for status in [429, 500, 502, 503, 599] {
            check(responded(status, None), Disposition::Retry);
        }
        check(AttemptOutcome::Unreachable("timed out".into()), Disposition::Retry);
        check(AttemptOutcome::Refused("is in this network".into()), Disposition::Fail);
    }

    #[test]
    fn backoff_doubles_up_to_its_limits() {
        let all = |f: fn(i32) -> SignedDuration| [1, 2, 3, 9, 10, 11, 100, i32::MAX].map(|n| f(n).as_secs());
        assert_eq!(all(delivery_backoff), [10, 20, 40, 2560, 5120, 7200, 7200, 7200]);
        assert_eq!(all(queue_backoff), [10, 20, 40, 2560, 3600, 3600, 3600, 3600]);
    }

    #[test]
    fn jitter_changes_a_delay_by_a_fifth_at_most() {
        let ten = SignedDuration::from_secs(10);
        let all = [0.0, 0.5, 1.0].map(|jitter| apply_jitter(ten, jitter).as_millis());
        assert_eq!(all, [8000, 10_000, 12_000]);
    }

    #[test]
    fn success_and_permanent_failure_do_not_block_the_queue() {
        let before = StateBefore { attempts: 2, first_tried_at: Some(start_time()), failures: 12 };
        for (status, state) in [(204, DeliveryState::Delivered), (404, DeliveryState::Failed)] {
            let after = after_attempt(before, &responded(status, None), start_time(), NO_JITTER);
            assert_eq!((after.state, after.failures, after.is_paused()), (state, 0, false));
            assert_eq!(seconds(&after), (0, 0));
        }
        let after = after_attempt(FIRST_ATTEMPT, &responded(302, None), start_time(), NO_JITTER);
        assert_eq!(after.error.as_deref(), Some("the receiver answered 302; redirects are not followed"));
    }

    #[test]
    fn a_temporary_failure_delays_the_delivery_and_its_queue() {
        let after = after_attempt(FIRST_ATTEMPT, &responded(500, None), start_time(), NO_JITTER);
        assert_eq!((after.state, after.failures), (DeliveryState::Waiting, 1));
        assert_eq!(seconds(&after), (10, 10));
        let before = StateBefore { attempts: 2, first_tried_at: Some(start_time()), failures: 5 };
        let after = after_attempt(before, &AttemptOutcome::Unreachable("timed out".into()), start_time(), NO_JITTER);
        assert_eq!(after.error.as_deref(), Some("timed out"));
        assert_eq!(seconds(&after), (40, 320));
    }

    #[test]
    fn retry_after_is_respected_up_to_an_hour() {
        let check = |status, retry_after, expected| {
            let after = after_attempt(FIRST_ATTEMPT, &responded(status, retry_after), start_time(), NO_JITTER);
            assert_eq!(seconds(&after), (expected, expected), "{status} {retry_after:?}");
        };
        check(429, Some(120), 120);
        check(503, Some(120), 120);
        check(500, Some(120), 10);
        check(429, Some(3), 10);
        check(429, None, 10);
        check(429, Some(1_000_000), 3600);
    }

    #[test]
    fn a_delivery_that_fails_alone_does_not_block_the_queue_for_long() {
        let check = |attempts, failures, expected| {
            let before = StateBefore { attempts, first_tried_at: Some(start_time()), failures };
            let after = after_attempt(before, &responded(500, None), start_time(), NO_JITTER);
            assert_eq!(seconds(&after), expected, "{attempts} {failures}");
        };
        // The first three attempts block the queue, and so does every further one while no other delivery succeeds.
        check(2, 2, (40, 40));
        check(3, 3, (80, 80));
        // Once another delivery has succeeded, the queue goes on at once.
        check(3, 0, (80, 0));
        check(2, 0, (40, 10));
    }

    #[test]
    fn a_delivery_fails_after_a_day() {
        let day = SignedDuration::from_hours(24);
        let before = StateBefore { attempts: 15, first_tried_at: Some(start_time()), failures: 15 };
        // The last attempt is made at the end of the window.
        let after =
            after_attempt(before, &responded(500, None), start_time() + SignedDuration::from_hours(23), NO_JITTER);
        assert_eq!((after.state, after.due_at), (DeliveryState::Waiting, start_time() + day));
        let after = after_attempt(before, &responded(500, None), start_time() + day, NO_JITTER);
        assert_eq!((after.state, after.failures), (DeliveryState::Failed, 16));
        let error = "gave up 24 hours after the first attempt (16 attempts): the receiver answered 500";
        assert_eq!(after.error.as_deref(), Some(error));
    }

    #[test]
    fn a_hook_is_paused_after_ten_consecutive_failures() {
        let before = |failures| StateBefore { attempts: 1, first_tried_at: Some(start_time()), failures };
        assert!(!after_attempt(before(8), &responded(500, None), start_time(), NO_JITTER).is_paused());
        let after = after_attempt(before(9), &responded(500, None), start_time(), NO_JITTER);
        assert!(after.is_paused());
        let error = "10 attempts in a row failed, the last one because: the receiver answered 500";
        assert_eq!(after.pause_reason(), error);
    }

    #[test]
    fn after_four_failures_the_delivery_with_the_fewest_attempts_goes_first() {
        assert_eq!([0, 3].map(queue_order), [QueueOrder::Fifo(4), QueueOrder::Fifo(4)]);
        assert_eq!([4, 100].map(queue_order), [QueueOrder::FewestAttempts, QueueOrder::FewestAttempts]);
    }

    #[test]
    fn a_released_queue_is_due_when_it_is_not_blocked_and_has_a_due_delivery() {
        let [early, late] = [1, 2].map(|hours| start_time() + SignedDuration::from_hours(hours));
        assert_eq!(queue_due_at(None, 3, Some(late), early), None);
        assert_eq!(queue_due_at(Some(early), 3, Some(late), early), Some(late));
        assert_eq!(queue_due_at(Some(late), 3, Some(early), early), Some(late));
        assert_eq!(queue_due_at(Some(early), 0, Some(late), early), Some(early));
        // A released queue goes to the end of the line, however long its deliveries have been due.
        assert_eq!(queue_due_at(Some(early), 0, None, late), Some(late));
    }

    #[test]
    fn a_new_delivery_waits_for_a_failing_queue_but_not_for_older_deliveries() {
        let hour = start_time() + SignedDuration::from_hours(1);
        let check = |due_at, failures, seconds| {
            let expected = start_time() + SignedDuration::from_secs(seconds);
            assert_eq!(due_with_new_delivery(due_at, failures, start_time()), expected, "{due_at:?} {failures}");
        };
        check(None, 0, 0);
        check(None, 5, 0);
        check(Some(hour), 0, 0);
        check(Some(hour), 1, 0);
        check(Some(hour), 2, 20);
        check(Some(start_time() + SignedDuration::from_secs(5)), 2, 5);
        check(Some(start_time() - SignedDuration::from_secs(5)), 0, -5);
    }
}
