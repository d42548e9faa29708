//! Sessions of the web interface.

use jiff::SignedDuration;

use crate::{Time, UserId, WebSessionId};

/// How long a session lasts without a request.
pub const IDLE_LIFETIME: SignedDuration = SignedDuration::from_hours(14 * 24);
/// How long a session lasts at most.
pub const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A session of the web interface without its secret, which is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSession {
    /// The ID of the session.
    pub id: WebSessionId,
    /// The user who signed in.
    pub user_id: UserId,
    /// The time of the sign-in.
    pub created_at: Time,
    /// The time of the last request, to within a quarter of an hour.
    pub last_used_at: Time,
}

impl WebSession {
    /// Returns whether the session has neither been idle for too long nor reached its maximum age.
    pub fn is_active(&self, now: Time) -> bool {
        now.duration_since(self.last_used_at) < IDLE_LIFETIME && now.duration_since(self.created_at) < MAX_LIFETIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_when_it_is_idle_or_old() {
        let start = Time::UNIX_EPOCH;
        let check = |idle_hours: i64, age_hours: i64, expected: bool| {
            let now = start + SignedDuration::from_hours(age_hours);
            let last_used_at = now - SignedDuration::from_hours(idle_hours);
            let session =
                WebSession { id: WebSessionId::new(1), user_id: UserId::new(1), created_at: start, last_used_at };
            assert_eq!(session.is_active(now), expected, "{idle_hours} {age_hours}");
        };
        check(0, 0, true);
        check(14 * 24 - 1, 14 * 24, true);
        check(14 * 24, 14 * 24, false);
        check(1, 90 * 24 - 1, true);
        check(0, 90 * 24, false);
    }
}
