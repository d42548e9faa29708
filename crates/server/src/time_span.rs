//! Durations in settings: `30s`, `5m`, `2h`, `7d`, `2w`.

use std::{fmt, str::FromStr, time::Duration};

/// The units and their lengths in seconds.
const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 7 * 86_400)];
/// About 100 years, so that adding a duration to a time does not overflow.
const MAX_SECONDS: u64 = 36_525 * 86_400;

/// A duration. A number without a unit counts units of `UNIT` seconds, as the name of the setting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeSpan<const UNIT: u64>(u64);

/// A setting whose plain numbers are seconds.
pub(crate) type Seconds = TimeSpan<1>;
/// A setting whose plain numbers are hours.
pub(crate) type Hours = TimeSpan<3600>;

/// Why a text is not a duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeSpanError {
    #[error("{text} is not a duration; write a number of {unit}, or one with a unit such as 30s, 5m, 2h or 7d")]
    Malformed { text: String, unit: &'static str },
    #[error("{0} is longer than 100 years")]
    TooLong(String),
    #[error("must be greater than 0")]
    NotPositive,
}

impl<const UNIT: u64> TimeSpan<UNIT> {
    /// Returns the number of seconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.0
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// Parses a duration greater than 0.
    pub(crate) fn parse_positive(text: &str) -> Result<Self, TimeSpanError> {
        match text.parse()? {
            Self(0) => Err(TimeSpanError::NotPositive),
            span => Ok(span),
        }
    }
}

impl<const UNIT: u64> FromStr for TimeSpan<UNIT> {
    type Err = TimeSpanError;

    fn from_str(text: &str) -> Result<Self, TimeSpanError> {
        let malformed = || {
            let unit = if UNIT == 3600 { "hours" } else { "seconds" };
            TimeSpanError::Malformed { text: text.to_owned(), unit }
        };
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let factor = match unit.trim_start() {
            "" => UNIT,
            unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds).ok_or_else(malformed)?,
        };
        let seconds = number.checked_mul(factor).filter(|seconds| *seconds <= MAX_SECONDS);
        seconds.map(Self).ok_or_else(|| TimeSpanError::TooLong(text.to_owned()))
    }
}

impl<const UNIT: u64> fmt::Display for TimeSpan<UNIT> {
    /// Uses the largest unit without a remainder, so that the text can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, seconds): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*seconds);
        let (unit, seconds) = UNITS.iter().take(4).rev().find(fits).unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_with_or_without_a_unit() {
        let check = |text: &str, seconds: u64, hours: u64| {
            assert_eq!(text.parse::<Seconds>().map(Seconds::seconds), Ok(seconds), "{text}");
            assert_eq!(text.parse::<Hours>().map(Hours::seconds), Ok(hours), "{text}");
        };
        check("0", 0, 0);
        check("60", 60, 60 * 3600);
        check("30s", 30, 30);
        check("5m", 300, 300);
        check(" 2 h ", 7200, 7200);
        check("7d", 604_800, 604_800);
        check("2w", 1_209_600, 1_209_600);
    }

    #[test]
    fn an_invalid_duration_is_refused_with_examples() {
        for text in ["", "h", "-1", "1.5h", "2x", "2hh", "5M", "1h30m"] {
            let error = text.parse::<Hours>().expect_err(text).to_string();
            assert!(error.contains("a number of hours") && error.contains("30s, 5m, 2h or 7d"), "{text}: {error}");
        }
        assert_eq!("99999999w".parse::<Seconds>(), Err(TimeSpanError::TooLong("99999999w".to_owned())));
        assert!("18446744073709551615d".parse::<Seconds>().is_err());
        assert_eq!(Seconds::parse_positive("0s"), Err(TimeSpanError::NotPositive));
        assert_eq!(Seconds::parse_positive("1s"), Ok(TimeSpan(1)));
    }

    #[test]
    fn a_formatted_duration_can_be_parsed_again() {
        for (seconds, shown) in [(0, "0s"), (59, "59s"), (60, "1m"), (90, "90s"), (7200, "2h"), (86_400, "1d")] {
            assert_eq!(TimeSpan::<1>(seconds).to_string(), shown);
            assert_eq!(shown.parse::<Hours>(), Ok(TimeSpan(seconds)));
        }
    }
}
