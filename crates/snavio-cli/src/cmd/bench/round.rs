//! The figures of one measured round, and the summary of several rounds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::Percentiles;
use super::load::LoadResult;
use super::machine::MachineLoad;

/// The figures of one round.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Round {
    pub(super) seconds: f64,
    /// Messages with an answer.
    pub(super) messages: u64,
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) refused: BTreeMap<u16, u64>,
    /// Broken connections.
    pub(super) broken: u64,
    /// Accepted messages a second.
    pub(super) per_second: f64,
    pub(super) latency_micros: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages_per_flush: Option<f64>,
    /// Messages that the store settled, by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settled: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_micros_per_message: Option<f64>,
    /// Processor time of a database that is not itself the server under load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database_micros_per_message: Option<f64>,
    /// Statements per message, counted by the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statements_per_message: Option<f64>,
    /// Statements per message that the nodes sent and awaited, counted by the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_micros_per_message: Option<f64>,
    /// Deliveries a second that consumers acknowledged during the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumed_per_second: Option<f64>,
    pub(super) busy: MachineLoad,
}

impl Round {
    /// The figures that the load generator measured.
    pub(super) fn from_load(result: &LoadResult) -> Self {
        let seconds = result.elapsed.as_secs_f64();
        let messages = result.tally.answered();
        Self {
            seconds,
            messages,
            accepted: result.tally.accepted,
            duplicate: result.tally.duplicate,
            refused: result.tally.refused.clone(),
            broken: result.broken,
            per_second: result.tally.accepted as f64 / seconds,
            latency_micros: result.latencies.percentiles(),
            client_micros_per_message: divide(result.processor.as_secs_f64() * 1e6, messages),
            ..Self::default()
        }
    }
}

/// A quotient; none for a count of zero.
pub(super) fn divide(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Several rounds of one contestant: medians and ranges.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rounds {
    /// The name of the contestant.
    pub(super) what: String,
    /// Its settings and its client.
    pub(super) how: String,
    pub(super) per_second: Spread,
    pub(super) latency_micros: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages_per_flush: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_micros_per_message: Option<f64>,
    /// Processor time of a database that is not itself the server under load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database_micros_per_message: Option<f64>,
    /// Statements per message, counted by the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statements_per_message: Option<f64>,
    /// Statements per message that the nodes sent and awaited, counted by the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_micros_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumed_per_second: Option<f64>,
    /// Refused messages of all rounds. They cost the server time and count in no other figure.
    pub(super) refused_percent: f64,
    pub(super) others_percent_max: f64,
    pub(super) rounds: Vec<Round>,
}

/// The median and the range of some figures.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, least, most })
    }
}

impl Rounds {
    pub(super) fn of(what: String, how: String, rounds: Vec<Round>) -> Self {
        let latencies: Vec<_> = rounds.iter().map(|round| round.latency_micros).collect();
        let median = |pick: fn(&Round) -> Option<f64>| {
            Spread::of(rounds.iter().filter_map(pick)).map(|spread| spread.median)
        };
        Self {
            what,
            how,
            per_second: Spread::of(rounds.iter().map(|round| round.per_second)).unwrap_or_default(),
            latency_micros: Percentiles::median(&latencies),
            messages_per_flush: median(|round| round.messages_per_flush),
            server_micros_per_message: median(|round| round.server_micros_per_message),
            database_micros_per_message: median(|round| round.database_micros_per_message),
            statements_per_message: median(|round| round.statements_per_message),
            round_trips_per_message: median(|round| round.round_trips_per_message),
            client_micros_per_message: median(|round| round.client_micros_per_message),
            consumed_per_second: median(|round| round.consumed_per_second),
            refused_percent: refused_percent(&rounds),
            others_percent_max: rounds.iter().map(|round| round.busy.others_percent).fold(0.0, f64::max),
            rounds,
        }
    }
}

fn refused_percent(rounds: &[Round]) -> f64 {
    let refused: u64 = rounds.iter().flat_map(|round| round.refused.values()).sum();
    let messages = rounds.iter().map(|round| round.messages).sum();
    divide(refused as f64 * 100.0, messages).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_a_percentage_of_all_messages() {
        let rounds = [30, 10].map(|refused| Round {
            messages: 100,
            refused: BTreeMap::from([(429, refused)]),
            ..Round::default()
        });
        assert_eq!(refused_percent(&rounds), 20.0);
        assert_eq!(refused_percent(&[]), 0.0);
    }

    #[test]
    fn spread_is_the_median_and_the_range() {
        let spread = Spread::of([3.0, 1.0, 10.0].into_iter()).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (3.0, 1.0, 10.0));
        assert_eq!(Spread::of([1.0, 3.0].into_iter()).unwrap().median, 2.0);
        assert!(Spread::of(std::iter::empty()).is_none());
    }
}
