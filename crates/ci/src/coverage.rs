//! Finds the coverage of a job in its trace.

use crate::patterns::PatternCache;

/// Returns the coverage in percent: the first number in the last match of the expression, written `/…/`. If the
/// expression has groups, the first group is used instead of the whole match.
pub fn find_coverage(pattern: &str, trace: &str) -> Option<f64> {
    let pattern = PatternCache::default().compile(pattern)?;
    let found = pattern.last_match(trace)?;
    let start = found.find(|ch: char| ch.is_ascii_digit())?;
    let number = &found[start..];
    let end = number.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(number.len());
    let mut parts = number[..end].split('.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
    let coverage: f64 = format!("{whole}.{fraction}0").parse().ok()?;
    // Numbers above 100 are not percentages.
    (coverage <= 100.0).then_some(coverage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, trace: &str, expected: Option<f64>) {
        assert_eq!(find_coverage(pattern, trace), expected, "{pattern}");
    }

    #[test]
    fn the_last_match_counts() {
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
