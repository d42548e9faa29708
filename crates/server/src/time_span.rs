//! Durations as people write them in settings: `30s`, `5m`, `2h`, `7d`, `2w`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// The units and how many seconds each has.
const UNITS: [(&str, u64); 5] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 7 * 86_400)];
/// About a hundred years, so that adding one to a time is never too much.
const LONGEST: u64 = 36_525 * 86_400;

/// A length of time. A number without a unit is a number of `PLAIN` seconds, as the name of the setting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimeSpan<const PLAIN: u64>(u64);

/// A setting whose plain numbers are seconds.
pub(crate) type Seconds = TimeSpan<1>;
/// A setting whose plain numbers are hours.
pub(crate) type Hours = TimeSpan<3600>;

impl<const PLAIN: u64> TimeSpan<PLAIN> {
    /// A number of seconds.
    pub(crate) const fn of_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The whole seconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.0
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }

    /// Reads what a flag gives, where nothing is not allowed.
    pub(crate) fn parse_positive(text: &str) -> Result<Self, String> {
        text.parse::<Self>().and_then(Self::positive)
    }

    /// The same, unless it is nothing.
    pub(crate) fn positive(self) -> Result<Self, String> {
        if self.0 == 0 { Err("must be greater than 0".to_owned()) } else { Ok(self) }
    }

    fn of(number: u64, factor: u64, text: &str) -> Result<Self, String> {
        let seconds = number.checked_mul(factor).filter(|seconds| *seconds <= LONGEST);
        seconds.map(Self).ok_or_else(|| format!("{text} is longer than 100 years"))
    }
}

impl<const PLAIN: u64> FromStr for TimeSpan<PLAIN> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            let plain =
                UNITS.iter().find(|(_, seconds)| *seconds == PLAIN).map_or("seconds", |(name, _)| match *name {
                    "h" => "hours",
                    _ => "seconds",
                });
            format!("{text} is not a duration; write a number of {plain}, or one with a unit such as 30s, 5m, 2h or 7d")
        };
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let factor = match unit.trim_start() {
            "" => PLAIN,
            unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds).ok_or_else(malformed)?,
        };
        Self::of(number, factor, text)
    }
}

impl<const PLAIN: u64> fmt::Display for TimeSpan<PLAIN> {
    /// The largest unit that leaves no remainder, so that what is shown can be read back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, seconds): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(*seconds);
        let (unit, seconds) = UNITS.iter().take(4).rev().find(fits).unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

impl<'de, const PLAIN: u64> Deserialize<'de> for TimeSpan<PLAIN> {
    /// A number, or a text with a unit.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<const PLAIN: u64>;

        impl<const PLAIN: u64> de::Visitor<'_> for Visitor<PLAIN> {
            type Value = TimeSpan<PLAIN>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a text such as \"30s\", \"5m\", \"2h\" or \"7d\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                let number = u64::try_from(number).map_err(|_| E::custom("a duration is not negative"))?;
                TimeSpan::of(number, PLAIN, &number.to_string()).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_any(Visitor)
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
    fn what_is_no_duration_is_refused_with_examples() {
        for text in ["", "h", "-1", "1.5h", "2x", "2hh", "5M", "1h30m"] {
            let error = text.parse::<Hours>().expect_err(text);
            assert!(error.contains("a number of hours") && error.contains("30s, 5m, 2h or 7d"), "{text}: {error}");
        }
        assert_eq!("99999999w".parse::<Seconds>(), Err("99999999w is longer than 100 years".to_owned()));
        assert!("18446744073709551615d".parse::<Seconds>().is_err());
        assert!(Seconds::parse_positive("0s").is_err() && Seconds::parse_positive("1s").is_ok());
    }

    #[test]
    fn a_duration_is_shown_so_that_it_can_be_read_back() {
        for (seconds, shown) in [(0, "0s"), (59, "59s"), (60, "1m"), (90, "90s"), (7200, "2h"), (86_400, "1d")] {
            assert_eq!(Seconds::of_seconds(seconds).to_string(), shown);
            assert_eq!(shown.parse(), Ok(Hours::of_seconds(seconds)));
        }
    }

    #[test]
    fn a_file_gives_a_duration_as_a_number_or_as_a_text() {
        #[derive(Deserialize)]
        struct File {
            every: Hours,
        }

        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.every.seconds());
        assert_eq!(read("every = 2").expect("a number"), 7200);
        assert_eq!(read("every = \"30m\"").expect("a text"), 1800);
        for wrong in ["every = -1", "every = \"1x\"", "every = true", "every = 1.5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
