//! Conversion of timestamps to their stored form: microseconds since 1970.

use model::Time;

pub(crate) fn to_micros(time: Time) -> i64 {
    time.as_microsecond()
}

pub(crate) fn from_micros(micros: i64) -> Time {
    Time::from_microsecond(micros).unwrap_or(Time::UNIX_EPOCH)
}

pub(crate) fn from_micros_opt(micros: Option<i64>) -> Option<Time> {
    micros.map(from_micros)
}
