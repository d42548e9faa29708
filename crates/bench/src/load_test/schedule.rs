//! The schedule of requests, which is fixed before the start, so that a slow response does not delay other requests.

use std::time::Duration;

use crate::rng::Rng;

/// Returns the number of requests of each route within a time, in proportion to the weights, and at least one.
pub(crate) fn counts(weights: &[f64], rate: f64, time: Duration) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and small")]
    let count = |weight: &f64| (rate * time.as_secs_f64() * weight / sum).round().max(1.0) as usize;
    weights.iter().map(count).collect()
}

/// Returns `count` uniformly distributed times, like those of a Poisson process with that many arrivals.
pub(crate) fn instants(count: usize, time: Duration, rng: &mut Rng) -> Vec<Duration> {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let mut instants: Vec<Duration> = (0..count).map(|_| Duration::from_micros(rng.below(micros))).collect();
    instants.sort_unstable();
    instants
}

/// Returns a percentile in milliseconds, by the nearest rank; infinite for requests that were never answered.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    let millis = |value: &Duration| if *value == Duration::MAX { f64::INFINITY } else { value.as_secs_f64() * 1000.0 };
    sorted.get(index).map_or(f64::NAN, millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_proportional_and_at_least_one() {
        let time = Duration::from_secs(60);
        assert_eq!(counts(&[1.0, 2.0, 1.0], 200.0, time), [3000, 6000, 3000]);
        assert_eq!(counts(&[1.0, 0.000_001], 10.0, time), [600, 1]);
        let sum: usize = counts(&[1.0; 47], 200.0, time).iter().sum();
        assert!(sum.abs_diff(12_000) <= 47, "{sum}");
    }

    #[test]
    fn arrivals_are_deterministic_and_spread_over_the_whole_time() {
        let time = Duration::from_secs(10);
        let draw = || instants(1000, time, &mut Rng::new(5));
        assert_eq!(draw(), draw());
        let arrivals = draw();
        assert!(arrivals.is_sorted() && arrivals.iter().all(|at| *at < time));
        let early = arrivals.iter().filter(|at| **at < time / 2).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let values: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        let check = |percent, expected: f64| assert!((percentile(&values, percent) - expected).abs() < 1e-9);
        check(50, 100.0);
        check(90, 180.0);
        check(99, 198.0);
        check(100, 200.0);
        assert!((percentile(&values[..1], 90) - 1.0).abs() < 1e-9);
        assert!(percentile(&[], 90).is_nan());
        assert!(percentile(&[Duration::MAX], 90).is_infinite());
    }
}
