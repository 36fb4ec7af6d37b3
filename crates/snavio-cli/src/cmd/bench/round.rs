//! One measured stretch of time, and what several of them come to.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::Percentiles;
use super::load::Ran;
use super::machine::Busy;

/// What one round came to.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Round {
    pub(super) seconds: f64,
    /// Messages that were sent and answered.
    pub(super) messages: u64,
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) refused: BTreeMap<u16, u64>,
    /// Connections that broke.
    pub(super) broken: u64,
    /// Accepted messages a second.
    pub(super) per_second: f64,
    pub(super) latency_micros: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages_per_flush: Option<f64>,
    /// Messages that the store says it settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settled: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_micros_per_message: Option<f64>,
    /// Processor time of a database that is none of the servers under load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database_micros_per_message: Option<f64>,
    /// Statements that the database says it was sent, per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statements_per_message: Option<f64>,
    /// Statements that the nodes say they sent and awaited, per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_micros_per_message: Option<f64>,
    /// Deliveries acknowledged a second by consumers beside the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumed_per_second: Option<f64>,
    pub(super) busy: Busy,
}

impl Round {
    /// What the generator saw.
    pub(super) fn of(ran: &Ran) -> Self {
        let seconds = ran.elapsed.as_secs_f64();
        let messages = ran.tally.answered();
        Self {
            seconds,
            messages,
            accepted: ran.tally.accepted,
            duplicate: ran.tally.duplicate,
            refused: ran.tally.refused.clone(),
            broken: ran.broken,
            per_second: ran.tally.accepted as f64 / seconds,
            latency_micros: ran.latencies.percentiles(),
            client_micros_per_message: per(ran.processor.as_secs_f64() * 1e6, messages),
            ..Self::default()
        }
    }
}

/// A quotient, if there is one.
pub(super) fn per(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Several rounds of the same thing: the median, and how far they are apart.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rounds {
    pub(super) what: String,
    /// How it was driven, and with which settings.
    pub(super) how: String,
    pub(super) per_second: Spread,
    pub(super) latency_micros: Percentiles,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages_per_flush: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_micros_per_message: Option<f64>,
    /// Processor time of a database that is none of the servers under load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database_micros_per_message: Option<f64>,
    /// Statements that the database says it was sent, per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) statements_per_message: Option<f64>,
    /// Statements that the nodes say they sent and awaited, per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trips_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_micros_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consumed_per_second: Option<f64>,
    /// Messages of all rounds that were refused: they cost the server time and count for nothing.
    pub(super) refused_percent: f64,
    pub(super) others_percent_max: f64,
    pub(super) rounds: Vec<Round>,
}

/// The median of some figures, and their range.
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
    per(refused as f64 * 100.0, messages).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_as_a_part_of_all_messages() {
        let round = |messages, refused| Round {
            messages,
            refused: BTreeMap::from([(429, refused)]),
            ..Round::default()
        };
        assert_eq!(refused_percent(&[round(100, 30), round(100, 10)]), 20.0);
        assert_eq!(refused_percent(&[]), 0.0);
    }

    #[test]
    fn a_spread_is_the_median_and_the_range() {
        let spread = Spread::of([3.0, 1.0, 10.0].into_iter()).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (3.0, 1.0, 10.0));
        assert_eq!(Spread::of([1.0, 3.0].into_iter()).unwrap().median, 2.0);
        assert!(Spread::of(std::iter::empty()).is_none());
    }
}
