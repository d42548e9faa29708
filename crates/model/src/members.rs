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

/// The moment at which a day begins, for what ends on that day. Days are days in UTC.
pub fn start_of(day: Date) -> Time {
    day.to_zoned(jiff::tz::TimeZone::UTC).map_or(Time::MAX, |zoned| zoned.timestamp())
}

/// The day that begins at this moment.
pub fn day_of(moment: Time) -> Date {
    jiff::tz::Offset::UTC.to_datetime(moment).date()
}
