//! One tenant floods, another sends calmly: what the flood does to the calm one's latency.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::http::Ingest;
use super::load::{Load, Ran};
use super::machine::Watch;
use super::messages::Ids;
use super::node::{Cast, Policy};
use super::round::{Round, Rounds};
use super::scenario::{Driver, apart, run_apart};
use crate::cmd::Failure;

/// The calm tenant: so many connections, each sending once in this time.
const CALM_CONNECTIONS: usize = 4;
const CALM_PACE: Duration = Duration::from_millis(20);
/// Requests in flight that keep a node of two cores busy: a tenant's share of it.
const SHARE_CONNECTIONS: usize = 64;
/// The flood is ten times that.
const FLOOD_CONNECTIONS: usize = 10 * SHARE_CONNECTIONS;
/// What the neighbour has prepared for each second.
const NEIGHBOUR_PER_SECOND: f64 = 70_000.0;

/// The calm tenant's latency, alone and beside others.
#[derive(Debug, Serialize)]
pub(super) struct Fairness {
    pub(super) alone: Rounds,
    pub(super) beside_share: Rounds,
    pub(super) beside_flood: Rounds,
    /// The neighbours' messages a second.
    pub(super) share_per_second: f64,
    pub(super) flood_per_second: f64,
    pub(super) p99_flood_to_alone: f64,
    pub(super) p99_flood_to_share: f64,
}

/// Measures the calm tenant in turns: alone, beside a neighbour at its share, beside a flood.
pub(super) async fn measure(driver: &Driver, rounds: usize, time: Duration) -> Result<Fairness, Failure> {
    let (calm, neighbour) = (driver.target.cast().await?, driver.target.cast().await?);
    let mut measured: [Vec<Round>; 3] = Default::default();
    let mut neighbours: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (index, connections) in [0, SHARE_CONNECTIONS, FLOOD_CONNECTIONS].into_iter().enumerate() {
            let (round, per_second) = beside(driver, &calm, &neighbour, connections, time).await?;
            measured[index].push(round);
            neighbours[index].push(per_second);
        }
    }
    let [alone, share, flood] = measured;
    let how = format!("{CALM_CONNECTIONS} connections, each once in {} ms", CALM_PACE.as_millis());
    let named = |what: &str, rounds| Rounds::of(what.to_owned(), how.clone(), rounds);
    let alone = named("alone", alone);
    let share = named(&format!("beside a tenant with {SHARE_CONNECTIONS} in flight"), share);
    let flood = named(&format!("beside a flood with {FLOOD_CONNECTIONS} in flight"), flood);
    let p99 = |rounds: &Rounds| rounds.latency_micros.p99.max(1) as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    Ok(Fairness {
        p99_flood_to_alone: p99(&flood) / p99(&alone),
        p99_flood_to_share: p99(&flood) / p99(&share),
        share_per_second: mean(&neighbours[1]),
        flood_per_second: mean(&neighbours[2]),
        alone,
        beside_share: share,
        beside_flood: flood,
    })
}

/// One round of the calm tenant, and what its neighbour did a second meanwhile.
async fn beside(
    driver: &Driver,
    calm: &Cast,
    neighbour: &Cast,
    connections: usize,
    time: Duration,
) -> Result<(Round, f64), Failure> {
    let calm_per_second = CALM_CONNECTIONS as f64 / CALM_PACE.as_secs_f64();
    let ingest = prepare(driver, calm, time, calm_per_second).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = |connections, time, pace| Load {
        addresses: vec![driver.target.address],
        connections,
        time,
        pace,
        stop: Some(Arc::clone(&stop)),
    };
    let mut flood: Option<tokio::task::JoinHandle<Result<(Ran, Ingest), Failure>>> = None;
    if connections > 0 {
        let flooding = prepare(driver, neighbour, time, NEIGHBOUR_PER_SECOND).await?;
        flood = Some(tokio::spawn(run_apart(load(connections, time * 2, None), flooding)));
        tokio::time::sleep(Duration::from_millis(200).min(time)).await;
    }
    let watch = Watch::start();
    let (ran, _) = run_apart(load(CALM_CONNECTIONS, time, Some(CALM_PACE)), ingest).await?;
    let mut round = Round::of(&ran);
    round.busy = watch.busy();
    stop.store(true, Ordering::Relaxed);
    let Some(flood) = flood else { return Ok((round, 0.0)) };
    let (flooded, _) = flood.await.map_err(|error| Failure::of("the flood failed", &error))??;
    Ok((round, flooded.tally.accepted as f64 / flooded.elapsed.as_secs_f64()))
}

async fn prepare(driver: &Driver, cast: &Cast, time: Duration, per_second: f64) -> Result<Ingest, Failure> {
    let signer = driver.signer_of(cast, Policy::Strict)?;
    let token = driver.target.token(&cast.producer).await?;
    let count = ((per_second * (time.as_secs_f64() + 1.0)) as usize).min(driver.pacing.messages_max);
    let stock = apart(move || signer.prepare(count, Ids::Ordered, per_second)).await??;
    Ok(Ingest::new(stock, 1, &driver.target.host, &token))
}
