//! Spans of time as people write them: `7d`, `1 week`, `3 mins 4 sec`, `2h20min`, plain seconds, `never`.

use serde::{Deserialize, Serialize};

/// How long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// It goes after so many seconds.
    Seconds(u64),
    /// It stays.
    Never,
}

/// The longest span that is accepted: a hundred years.
pub const MAX_SECONDS: u64 = 100 * YEAR;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY + 6 * HOUR;

/// Reads `expire_in`: a span of time or `never`.
pub fn read_lifetime(text: &str) -> Option<Lifetime> {
    if text.trim().eq_ignore_ascii_case("never") {
        return Some(Lifetime::Never);
    }
    read_seconds(text).map(Lifetime::Seconds)
}

/// Reads a span of time in seconds; fractions of a second are dropped.
pub fn read_seconds(text: &str) -> Option<u64> {
    // Longer ones are no durations, and nobody has to look at them.
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
        let end = after.find(|sign: char| !sign.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        // A number without a unit counts seconds, but only when it stands alone.
        let seconds = if unit.is_empty() { (parts == 0 && after.is_empty()).then_some(1)? } else { seconds_of(unit)? };
        total = total.checked_add(number.checked_mul(seconds)? / THOUSANDTHS)?;
        parts += 1;
        rest = after.trim_start_matches([' ', ',', '\t']);
        rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
    }
    (parts > 0 && total <= MAX_SECONDS).then_some(total)
}

const THOUSANDTHS: u64 = 1000;

/// Takes a number, in thousandths, from the beginning of a text.
fn take_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    let whole = whole.parse::<u64>().ok()?.checked_mul(THOUSANDTHS)?;
    let Some(fraction) = rest.strip_prefix('.') else { return Some((whole, rest)) };
    let end = fraction.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(fraction.len());
    let (digits, rest) = fraction.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let thousandths: u64 = format!("{digits:0<3.3}").parse().ok()?;
    Some((whole + thousandths, rest))
}

fn seconds_of(unit: &str) -> Option<u64> {
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
        assert_eq!(read_seconds(text), expected, "{text}");
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
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
    fn other_texts_are_no_spans() {
        for text in
            ["", " ", "soon", "7 elephants", "1 week 3", "-1 day", "d7", "1..5h", "99999999999999999999d", "101 years"]
        {
            check(text, None);
        }
        check(&"1s ".repeat(1000), None);
        check(&format!("{}.5 y", u64::MAX / 1000), None);
    }

    #[test]
    fn only_a_lifetime_may_be_endless() {
        assert_eq!(read_lifetime("never"), Some(Lifetime::Never));
        assert_eq!(read_lifetime("1 day"), Some(Lifetime::Seconds(DAY)));
        assert_eq!(read_lifetime("nevermore"), None);
        check("never", None);
    }
}
