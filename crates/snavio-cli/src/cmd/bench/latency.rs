//! Latencies: gathered in a histogram, told as percentiles in microseconds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer ones are told as this long; no request of a round may wait that long.
const LONGEST_MICROS: u64 = 120_000_000;

/// Latencies of one run.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// No latency yet.
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_MICROS, 3).expect("these bounds are within the crate's"))
    }

    /// Adds one.
    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LONGEST_MICROS).max(1));
    }

    /// What is told of them.
    pub(super) fn percentiles(&self) -> Percentiles {
        let at = |percent| self.0.value_at_percentile(percent);
        Percentiles { p50: at(50.0), p90: at(90.0), p99: at(99.0), p999: at(99.9), max: self.0.max() }
    }
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p999: u64,
    pub(super) max: u64,
}

impl Percentiles {
    /// The median of each percentile over rounds.
    pub(super) fn median(rounds: &[Self]) -> Self {
        let middle = |pick: fn(&Self) -> u64| {
            let mut values: Vec<_> = rounds.iter().map(pick).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        Self {
            p50: middle(|it| it.p50),
            p90: middle(|it| it.p90),
            p99: middle(|it| it.p99),
            p999: middle(|it| it.p999),
            max: rounds.iter().map(|it| it.max).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_off_the_histogram() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let Percentiles { p50, p90, p99, p999, max } = latencies.percentiles();
        assert_eq!((p50, p90, p99, max), (500, 900, 990, 1000));
        assert!((999..=1000).contains(&p999));
    }

    #[test]
    fn the_median_of_rounds_is_taken_for_each_percentile() {
        let round = |p50, max| Percentiles { p50, max, ..Percentiles::default() };
        let median = Percentiles::median(&[round(5, 9), round(1, 30), round(3, 10)]);
        assert_eq!((median.p50, median.max), (3, 30));
    }
}
