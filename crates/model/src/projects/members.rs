//! Members: who belongs to a project or a group, as what, and until when.

use jiff::civil::Date;

use crate::{Role, Time, users::UserSummary};

/// Somebody who belongs to a project or a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// Who.
    pub user: UserSummary,
    /// As what.
    pub role: Role,
    /// The first day on which it counts no more.
    pub expires_on: Option<Date>,
}

/// A membership about to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewMember {
    /// Who.
    pub user_id: i64,
    /// As what, in numbers; not all of them are roles.
    pub access_level: i64,
    /// The first day on which it counts no more.
    pub expires_on: Option<Date>,
}

/// A project opened to a group.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its number.
    pub id: i64,
    /// Which project.
    pub project_id: i64,
    /// To which group.
    pub group_id: i64,
    /// The most that members of the group may be there.
    pub role: Role,
    /// The first day on which it counts no more.
    pub expires_on: Option<Date>,
}

/// A group that a project is shared with, as the project shows it.
#[derive(Clone, Debug)]
pub struct SharedGroup {
    /// The number of the group.
    pub group_id: i64,
    /// Its name.
    pub group_name: String,
    /// The most that members of the group may be there.
    pub role: Role,
}

/// The day that this moment belongs to. Days are days in UTC.
pub fn day_of(moment: Time) -> Date {
    jiff::tz::Offset::UTC.to_datetime(moment).date()
}

const MICROS_OF_A_DAY: i64 = 86_400_000_000;
const FIRST_DAY: Date = Date::constant(1970, 1, 1);

/// The microsecond since 1970 at which a day begins: also of the last day there is, which is no moment any more.
pub fn start_of(day: Date) -> i64 {
    day.duration_since(FIRST_DAY).as_hours() / 24 * MICROS_OF_A_DAY
}

/// The day that begins at this microsecond.
pub fn day_from(micros: i64) -> Date {
    let days = micros.div_euclid(MICROS_OF_A_DAY);
    let span = jiff::SignedDuration::from_hours(days.saturating_mul(24));
    FIRST_DAY.checked_add(span).unwrap_or(Date::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_is_read_as_it_was_written() {
        for day in ["0001-01-01", "1969-12-31", "1970-01-01", "2026-03-02", "9999-12-30", "9999-12-31"] {
            let day: Date = day.parse().expect("a day");
            assert_eq!(day_from(start_of(day)), day);
        }
        assert_eq!(start_of("1970-01-02".parse().expect("a day")), MICROS_OF_A_DAY);
    }
}
