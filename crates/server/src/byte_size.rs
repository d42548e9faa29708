//! Sizes in settings: `512`, `64K`, `10M`, `2G`, `1T`.

use std::{fmt, str::FromStr};

/// The units above the byte; each is 1024 times the one before.
const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

/// A number of bytes. Units are powers of 1024, optionally followed by `B` or `iB`, in upper or lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// The number of bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes, unless it is 0, which disables a limit.
    pub(crate) fn non_zero(self) -> Option<u64> {
        Some(self.0).filter(|bytes| *bytes > 0)
    }
}

/// Why a text is not a size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ByteSizeError {
    #[error("{0} is not a size; write a number of bytes, or one with a unit such as 64K, 10M, 2G or 1T")]
    Malformed(String),
    #[error("{0} is too large")]
    TooLarge(String),
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let malformed = || ByteSizeError::Malformed(text.to_owned());
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let unit = unit.trim_start().to_ascii_uppercase();
        let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
        let exponent = match unit {
            // `5B` is valid, `5iB` is not.
            "" if text.to_ascii_uppercase().ends_with("IB") => return Err(malformed()),
            "" => 0,
            unit => {
                1 + UNITS
                    .iter()
                    .position(|known| unit.eq_ignore_ascii_case(&known.to_string()))
                    .ok_or_else(malformed)?
            }
        };
        let factor = 1_u64 << (10 * exponent);
        number.checked_mul(factor).map(Self).ok_or_else(|| ByteSizeError::TooLarge(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    /// Uses the largest unit without a remainder, so that the text is exact and can be parsed again.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut unit) = (self.0, None);
        for larger in UNITS {
            if number == 0 || number % 1024 != 0 {
                break;
            }
            (number, unit) = (number / 1024, Some(larger));
        }
        match unit {
            Some(unit) => write!(to, "{number} {unit}iB"),
            None if number == 1 => to.write_str("1 byte"),
            None => write!(to, "{number} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, bytes: u64) {
        assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
    }

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        check("0", 0);
        check("512", 512);
        check("512B", 512);
        check("64K", 64 << 10);
        check("64k", 64 << 10);
        check("64KB", 64 << 10);
        check("64KiB", 64 << 10);
        check("10M", 10 << 20);
        check("10 MiB", 10 << 20);
        check("2G", 2 << 30);
        check("2gb", 2 << 30);
        check(" 1T ", 1 << 40);
        check("1PiB", 1 << 50);
        check("18446744073709551615", u64::MAX);
    }

    #[test]
    fn an_invalid_size_is_refused_with_an_example() {
        for text in ["", "G", "-1", "1.5G", "2X", "2GG", "2iB", "iB", "2 G B", "0x10", "１", "18446744073709551616K"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert_eq!(error, ByteSizeError::Malformed(text.to_owned()));
            assert!(error.to_string().contains("2G"), "{error}");
        }
        for text in ["18446744073709551615K", "16384P"] {
            assert_eq!(text.parse::<ByteSize>(), Err(ByteSizeError::TooLarge(text.to_owned())));
        }
    }

    #[test]
    fn a_size_is_formatted_exactly_and_can_be_parsed_again() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (1536, "1536 bytes"),
            (64 << 10, "64 KiB"),
            (10 << 20, "10 MiB"),
            (2 << 30, "2 GiB"),
            (1 << 40, "1 TiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), shown);
        }
        for shown in ["64 KiB", "10 MiB", "2 GiB", "1 TiB"] {
            assert_eq!(shown.parse::<ByteSize>().map(|size| size.to_string()).as_deref(), Ok(shown));
        }
    }
}
