//! Durations in the notation of GitLab: `7d`, `1 week`, `3 mins 4 sec`, `2h20min`, plain seconds, `never`.

use serde::{Deserialize, Serialize};

/// How long something is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// The number of seconds.
    Seconds(u64),
    /// No expiry.
    Never,
}

/// The maximum duration: a hundred years.
pub const MAX_SECONDS: u64 = 100 * YEAR;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY + 6 * HOUR;

/// Parses `expire_in`: a duration or `never`.
pub fn parse_lifetime(text: &str) -> Option<Lifetime> {
    if text.trim().eq_ignore_ascii_case("never") {
        return Some(Lifetime::Never);
    }
    parse_seconds(text).map(Lifetime::Seconds)
}

/// Parses a duration in seconds; fractions of a second are dropped.
pub fn parse_seconds(text: &str) -> Option<u64> {
    // Bounds the time spent on hostile input.
    if text.len() > 200 {
        return None;
    }
    let text = text.to_ascii_lowercase();
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let (number, after) = take_number(rest)?;
        let after = after.trim_start();
        let end = after.find(|ch: char| !ch.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        // A number without a unit means seconds, but only on its own.
        let seconds =
            if unit.is_empty() { (parts == 0 && after.is_empty()).then_some(1)? } else { unit_seconds(unit)? };
        total = total.checked_add(number.checked_mul(seconds)? / THOUSANDTHS)?;
        parts += 1;
        rest = after.trim_start_matches([' ', ',', '\t']);
        rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
    }
    (parts > 0 && total <= MAX_SECONDS).then_some(total)
}

const THOUSANDTHS: u64 = 1000;

/// Splits a number, in thousandths, off the beginning of a text.
fn take_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|ch: char| !ch.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    let whole = whole.parse::<u64>().ok()?.checked_mul(THOUSANDTHS)?;
    let Some(fraction) = rest.strip_prefix('.') else { return Some((whole, rest)) };
    let end = fraction.find(|ch: char| !ch.is_ascii_digit()).unwrap_or(fraction.len());
    let (digits, rest) = fraction.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let thousandths: u64 = format!("{digits:0<3.3}").parse().ok()?;
    Some((whole + thousandths, rest))
}

fn unit_seconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => 1,
        "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
        "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "wk" | "wks" | "week" | "weeks" => 7 * DAY,
        "mo" | "mos" | "month" | "months" => 30 * DAY,
        "y" | "yr" | "yrs" | "year" | "years" => YEAR,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(parse_seconds(text), expected, "{text}");
    }

    #[test]
    fn durations_are_parsed() {
        check("42", Some(42));
        check("7d", Some(7 * DAY));
        check("1 week", Some(7 * DAY));
        check("3 mins 4 sec", Some(184));
        check("2 hrs 20 min", Some(8400));
        check("2h20min", Some(8400));
        check("6 mos 1 day", Some(181 * DAY));
        check("47 yrs 6 mos and 4d", Some(47 * YEAR + 184 * DAY));
        check("1.5 hours", Some(5400));
        check("1 hour, 30 minutes", Some(5400));
        check(" 3 Weeks ", Some(21 * DAY));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in
            ["", " ", "soon", "7 elephants", "1 week 3", "-1 day", "d7", "1..5h", "99999999999999999999d", "101 years"]
        {
            check(text, None);
        }
        check(&"1s ".repeat(1000), None);
        check(&format!("{}.5 y", u64::MAX / 1000), None);
    }

    #[test]
    fn never_is_a_lifetime_but_not_a_duration() {
        assert_eq!(parse_lifetime("never"), Some(Lifetime::Never));
        assert_eq!(parse_lifetime("1 day"), Some(Lifetime::Seconds(DAY)));
        assert_eq!(parse_lifetime("nevermore"), None);
        check("never", None);
    }
}
