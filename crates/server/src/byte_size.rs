//! Sizes as people write them in settings: `512`, `64K`, `10M`, `2G`, `1T`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// The units above the byte; each is 1024 times the one before.
const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];

/// A number of bytes. Units are powers of 1024, with or without `B` or `iB` behind them, in upper or lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

impl ByteSize {
    /// The number of bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed =
            || format!("{text} is not a size; write a number of bytes, or one with a unit such as 64K, 10M, 2G or 1T");
        let text = text.trim();
        let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| malformed())?;
        let unit = unit.trim_start().to_ascii_uppercase();
        let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
        let exponent = match unit {
            // `5iB` is no size, `5B` is.
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
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text} is more than can be counted in bytes"))
    }
}

impl fmt::Display for ByteSize {
    /// The largest unit that leaves no remainder, so that what is shown is exact and can be read back.
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

impl<'de> Deserialize<'de> for ByteSize {
    /// A number of bytes, or a text with a unit.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a number of bytes, or a text such as \"2G\"")
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }

        from.deserialize_any(Visitor)
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
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "G", "-1", "1.5G", "2X", "2GG", "2iB", "iB", "2 G B", "0x10", "１"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert!(error.contains("2G"), "{text}: {error}");
        }
        for text in ["18446744073709551616K", "18446744073709551615K", "16384P"] {
            text.parse::<ByteSize>().expect_err(text);
        }
    }

    #[test]
    fn a_size_is_shown_exactly_and_can_be_read_back() {
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

    #[test]
    fn a_file_gives_a_size_as_a_number_or_as_a_text() {
        #[derive(Deserialize)]
        struct File {
            size: ByteSize,
        }

        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.size);
        assert_eq!(read("size = 1048576").expect("a number"), ByteSize(1 << 20));
        assert_eq!(read("size = \"1M\"").expect("a text"), ByteSize(1 << 20));
        for wrong in ["size = -1", "size = \"1X\"", "size = true", "size = 1.5"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
