//! Latencies: collected in a histogram, reported as percentiles in microseconds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The highest latency of the histogram: higher ones count as this one. No request of a round can wait that
/// long.
const LATENCY_MICROS_MAX: u64 = 120_000_000;

/// Latencies of one run.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3).expect("the bounds are valid"))
    }

    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LATENCY_MICROS_MAX).max(1));
    }

    pub(super) fn percentiles(&self) -> Percentiles {
        let [p50, p90, p99, p999] =
            [50.0, 90.0, 99.0, 99.9].map(|percent| self.0.value_at_percentile(percent));
        Percentiles { p50, p90, p99, p999, max: self.0.max() }
    }
}

/// Percentiles of latencies in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Percentiles {
    /// The median of each percentile over several rounds, and the maximum of all rounds.
    pub(super) fn median(rounds: &[Self]) -> Self {
        Self {
            p50: median(rounds.iter().map(|round| round.p50)),
            p90: median(rounds.iter().map(|round| round.p90)),
            p99: median(rounds.iter().map(|round| round.p99)),
            p999: median(rounds.iter().map(|round| round.p999)),
            max: rounds.iter().map(|round| round.max).max().unwrap_or(0),
        }
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_from_the_histogram() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let Percentiles { p50, p90, p99, p999, max } = latencies.percentiles();
        assert_eq!((p50, p90, p99, max), (500, 900, 990, 1000));
        assert!((999..=1000).contains(&p999));
    }

    #[test]
    fn each_percentile_is_the_median_of_the_rounds() {
        let round = |p50, max| Percentiles { p50, max, ..Percentiles::default() };
        let median = Percentiles::median(&[round(5, 9), round(1, 30), round(3, 10)]);
        assert_eq!((median.p50, median.max), (3, 30));
    }
}
