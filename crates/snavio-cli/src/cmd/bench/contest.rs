//! Contests: Snavio and other systems in alternation, so that other load on the machine affects all of them
//! alike.

use async_trait::async_trait;
use serde::Serialize;

use super::round::{Round, Rounds, Spread};
use super::scenario::{Cell, Driver};
use crate::cmd::Failure;

/// A system that the bench measures in rounds.
#[async_trait]
pub(super) trait Contestant: Send {
    /// The name for the report.
    fn what(&self) -> String;
    /// The settings and the client, for the report.
    fn how(&self) -> String;
    /// Measures one round.
    async fn round(&mut self) -> Result<Round, Failure>;
}

/// A node of Snavio in one cell.
pub(super) struct NodeContestant {
    pub(super) driver: Driver,
    pub(super) cell: Cell,
    /// The text before the name of the cell.
    pub(super) prefix: &'static str,
    pub(super) how: String,
}

#[async_trait]
impl Contestant for NodeContestant {
    fn what(&self) -> String {
        format!("{}{}", self.prefix, self.cell.name())
    }

    fn how(&self) -> String {
        self.how.clone()
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        self.driver.round(&self.cell).await
    }
}

/// Runs the rounds of all contestants in alternation.
pub(super) async fn alternate(
    contestants: &mut [&mut dyn Contestant],
    rounds: usize,
    mut progress: impl FnMut(&str, &Round),
) -> Result<Vec<Rounds>, Failure> {
    let mut measured: Vec<Vec<Round>> = contestants.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contestant, measured) in contestants.iter_mut().zip(&mut measured) {
            let round = contestant.round().await?;
            progress(&contestant.what(), &round);
            measured.push(round);
        }
    }
    let named = contestants.iter().zip(measured);
    Ok(named.map(|(contestant, rounds)| Rounds::of(contestant.what(), contestant.how(), rounds)).collect())
}

/// The figures of several contestants and their ratios.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) title: String,
    pub(super) contestants: Vec<Rounds>,
    pub(super) ratios: Vec<Ratio>,
}

/// The ratio of two contestants' throughput, round by round.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) ratio: Spread,
    /// The least ratio to reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wanted: Option<f64>,
}

impl Ratio {
    pub(super) fn of(ours: &Rounds, theirs: &Rounds, wanted: Option<f64>) -> Self {
        let pairs = ours.rounds.iter().zip(&theirs.rounds);
        let ratios = pairs.map(|(ours, theirs)| ours.per_second / theirs.per_second.max(f64::MIN_POSITIVE));
        let ratio = Spread::of(ratios).unwrap_or_default();
        Self { ours: ours.what.clone(), theirs: theirs.what.clone(), ratio, wanted }
    }
}
