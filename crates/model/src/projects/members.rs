//! Members of projects and groups, and projects shared with groups.

use jiff::civil::Date;

use crate::{NamespaceId, ProjectId, Role, ShareId, Time, UserId, users::UserSummary};

/// A member of a project or a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// The user.
    pub user: UserSummary,
    /// The role of the user.
    pub role: Role,
    /// The first day on which it is no longer valid.
    pub expires_on: Option<Date>,
}

/// A membership to create.
#[derive(Clone, Copy, Debug)]
pub struct NewMember {
    /// The ID of the user.
    pub user_id: UserId,
    /// The access level as sent, not necessarily that of a role.
    pub access_level: i64,
    /// The first day on which it is no longer valid.
    pub expires_on: Option<Date>,
}

/// A project shared with a group.
#[derive(Clone, Debug)]
pub struct Share {
    /// The ID of the share.
    pub id: ShareId,
    /// The ID of the project.
    pub project_id: ProjectId,
    /// The ID of the group.
    pub group_id: NamespaceId,
    /// The maximum role of the group's members in the project.
    pub role: Role,
    /// The first day on which it is no longer valid.
    pub expires_on: Option<Date>,
}

/// A group that a project is shared with.
#[derive(Clone, Debug)]
pub struct SharedGroup {
    /// The ID of the group.
    pub group_id: NamespaceId,
    /// The name of the group.
    pub group_name: String,
    /// The maximum role of the group's members in the project.
    pub role: Role,
}

/// Returns the UTC date of a time.
pub fn utc_date(time: Time) -> Date {
    jiff::tz::Offset::UTC.to_datetime(time).date()
}

const MICROS_PER_DAY: i64 = 86_400_000_000;
const EPOCH: Date = Date::constant(1970, 1, 1);

/// Returns the microseconds from the Unix epoch to the start of a day; also works for `Date::MAX`, which is beyond
/// [`Time::MAX`].
pub fn start_of_day(day: Date) -> i64 {
    day.duration_since(EPOCH).as_hours() / 24 * MICROS_PER_DAY
}

/// Returns the day that starts at this microsecond.
pub fn date_from_micros(micros: i64) -> Date {
    let days = micros.div_euclid(MICROS_PER_DAY);
    let span = jiff::SignedDuration::from_hours(days.saturating_mul(24));
    EPOCH.checked_add(span).unwrap_or(Date::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_survive_a_round_trip_through_microseconds() {
        for day in ["0001-01-01", "1969-12-31", "1970-01-01", "2026-03-02", "9999-12-30", "9999-12-31"] {
            let day: Date = day.parse().expect("a day");
            assert_eq!(date_from_micros(start_of_day(day)), day);
        }
        assert_eq!(start_of_day("1970-01-02".parse().expect("a day")), MICROS_PER_DAY);
    }
}
