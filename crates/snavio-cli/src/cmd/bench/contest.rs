//! Contests: ours and others in turns, so that whatever the machine does it does to all of them.

use async_trait::async_trait;
use serde::Serialize;

use super::round::{Round, Rounds, Spread};
use super::scenario::{Cell, Driver};
use crate::cmd::Failure;

/// Something that can be measured for a round.
#[async_trait]
pub(super) trait Contestant: Send {
    /// What it is.
    fn what(&self) -> String;
    /// With which settings, and how it is driven.
    fn how(&self) -> String;
    /// Measures one round.
    async fn round(&mut self) -> Result<Round, Failure>;
}

/// A node of ours.
pub(super) struct Ours {
    pub(super) driver: Driver,
    pub(super) cell: Cell,
    /// Stands before the cell's name.
    pub(super) which: &'static str,
    pub(super) how: String,
}

#[async_trait]
impl Contestant for Ours {
    fn what(&self) -> String {
        format!("{}{}", self.which, self.cell.name())
    }

    fn how(&self) -> String {
        self.how.clone()
    }

    async fn round(&mut self) -> Result<Round, Failure> {
        self.driver.round(&self.cell).await
    }
}

/// Runs everyone in turns.
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

/// Ours and others, and how they compare.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) title: String,
    pub(super) contestants: Vec<Rounds>,
    pub(super) ratios: Vec<Ratio>,
}

/// How many times as much ours does, round by round.
#[derive(Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) ours: String,
    pub(super) theirs: String,
    pub(super) ratio: Spread,
    /// What it should be at least.
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
