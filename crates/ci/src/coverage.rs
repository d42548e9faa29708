//! Finding the coverage that a job tells in its trace.

use crate::patterns::Patterns;

/// The coverage in percent: the first number in the last place where the expression, written `/…/`, is found. If the
/// expression has groups, the first of them counts instead of the whole.
pub fn find_coverage(pattern: &str, trace: &str) -> Option<f64> {
    let pattern = Patterns::default().compile(pattern)?;
    let found = pattern.last_in(trace)?;
    let start = found.find(|sign: char| sign.is_ascii_digit())?;
    let number = &found[start..];
    let end = number.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(number.len());
    let mut parts = number[..end].split('.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let coverage: f64 = format!("{whole}.{fraction}0").parse().ok()?;
    // Whatever else a trace says, this is a share of something.
    (coverage <= 100.0).then_some(coverage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, trace: &str, expected: Option<f64>) {
        assert_eq!(find_coverage(pattern, trace), expected, "{pattern}");
    }

    #[test]
    fn the_last_place_counts() {
        let trace = "Coverage 10%\nCoverage 98.76% (1/2)\ndone 100\n";
        check(r"/Coverage \d+(\.\d+)?%/", "Coverage 10%\n", None);
        check(r"/Coverage \d+(?:\.\d+)?%/", trace, Some(98.76));
        check(r"/Coverage (\d+\.\d+)%/", trace, Some(98.76));
        check(r"/\d+\.\d+%/", trace, Some(98.76));
        check("/nothing/", trace, None);
        check("/done/", trace, None);
        check("/(/", trace, None);
        check(r"/\d+/", "999999", None);
        check(r"/\d+[.]/", "12.", Some(12.0));
    }
}
