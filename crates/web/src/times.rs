//! Times as text: how long ago, with the exact time in a tooltip.

use std::fmt;

use askama::filters::HtmlSafe;
use model::{Time, objects::Signature};

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const MONTH: i64 = 30 * DAY;
const YEAR: i64 = 365 * DAY;

/// Formats the times on a page, relative to the time of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) now: Time,
}

/// A `<time>` element.
pub(crate) struct TimeElement {
    time: Time,
    now: Time,
    /// Whether times in the future are described as such; otherwise clocks that differ are the reason.
    is_due: bool,
}

impl Times {
    pub(crate) fn at(&self, time: &Time) -> TimeElement {
        TimeElement { time: *time, now: self.now, is_due: false }
    }

    /// Formats a time that may be in the future.
    pub(crate) fn due(&self, time: &Time) -> TimeElement {
        TimeElement { time: *time, now: self.now, is_due: true }
    }

    /// Formats the time of a commit. Times out of range become the beginning of 1970.
    pub(crate) fn of(&self, signature: &Signature) -> TimeElement {
        let time = Time::from_second(signature.seconds).unwrap_or(Time::UNIX_EPOCH);
        TimeElement { time, now: self.now, is_due: false }
    }
}

impl fmt::Display for TimeElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = Time::from_second(self.time.as_second()).unwrap_or(self.time);
        let readable = exact.strftime("%-d %b %Y, %H:%M UTC");
        let seconds = self.now.as_second() - self.time.as_second();
        let text = match ago(-seconds).strip_suffix(" ago") {
            Some(span) if self.is_due && seconds < 0 => format!("in {span}"),
            _ => ago(seconds),
        };
        write!(f, "<time datetime=\"{exact}\" title=\"{readable}\">{text}</time>")
    }
}

impl HtmlSafe for TimeElement {}

/// Formats a day on which something ends.
pub(crate) fn day(time: &Time) -> DayElement {
    DayElement(*time)
}

/// A `<time>` element with the date only.
pub(crate) struct DayElement(Time);

impl fmt::Display for DayElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, readable) = (self.0.strftime("%Y-%m-%d"), self.0.strftime("%-d %b %Y, %H:%M UTC"));
        write!(f, "<time datetime=\"{day}\" title=\"{readable}\">{day}</time>")
    }
}

impl HtmlSafe for DayElement {}

/// Describes a number of seconds in the past; clocks may differ, so the future is "just now".
fn ago(seconds: i64) -> String {
    let count = |unit: i64, name: &str| match seconds / unit {
        1 => format!("1 {name} ago"),
        count => format!("{count} {name}s ago"),
    };
    match seconds {
        ..MINUTE => "just now".to_owned(),
        MINUTE..HOUR => count(MINUTE, "minute"),
        HOUR..DAY => count(HOUR, "hour"),
        DAY..MONTH => count(DAY, "day"),
        MONTH..YEAR => count(MONTH, "month"),
        YEAR.. => count(YEAR, "year"),
    }
}

/// Describes how long something took.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds {
        ..MINUTE => format!("{} s", seconds.max(0)),
        MINUTE..HOUR => format!("{} min {} s", seconds / MINUTE, seconds % MINUTE),
        HOUR.. => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_relative() {
        let check = |seconds, expected: &str| assert_eq!(ago(seconds), expected, "{seconds}");
        check(-5, "just now");
        check(59, "just now");
        check(60, "1 minute ago");
        check(2 * HOUR, "2 hours ago");
        check(DAY, "1 day ago");
        check(45 * DAY, "1 month ago");
        check(800 * DAY, "2 years ago");
        let times = Times { now: Time::UNIX_EPOCH };
        let tomorrow = Time::from_second(DAY).expect("a time");
        assert!(times.due(&tomorrow).to_string().ends_with(">in 1 day</time>"));
        assert!(times.at(&tomorrow).to_string().ends_with(">just now</time>"));
        let element = times.at(&Time::UNIX_EPOCH).to_string();
        assert_eq!(element, "<time datetime=\"1970-01-01T00:00:00Z\" title=\"1 Jan 1970, 00:00 UTC\">just now</time>");
    }

    #[test]
    fn a_duration_has_two_units() {
        let check = |seconds, expected: &str| assert_eq!(duration(seconds), expected, "{seconds}");
        check(-1, "0 s");
        check(59, "59 s");
        check(61, "1 min 1 s");
        check(2 * HOUR + 3 * MINUTE + 4, "2 h 3 min");
    }
}
