//! The fairness part: the latency of a calm tenant while another tenant floods the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::http::Ingest;
use super::load::{Load, LoadResult};
use super::machine::LoadWatch;
use super::messages::Ids;
use super::node::{BenchTenant, Policy};
use super::round::{Round, Rounds};
use super::scenario::{Driver, run_blocking, run_load};
use crate::cmd::Failure;

/// The number of connections of the calm tenant.
const CALM_CONNECTIONS: usize = 4;
/// The interval between two messages on a connection of the calm tenant.
const CALM_PACE: Duration = Duration::from_millis(20);
/// Requests in flight that keep a node with two cores busy: the share of one tenant.
const SHARE_CONNECTIONS: usize = 64;
/// Requests in flight of a flood.
const FLOOD_CONNECTIONS: usize = 10 * SHARE_CONNECTIONS;
/// Messages that the neighbour prepares for each second.
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

/// Measures the calm tenant alternately alone, beside a neighbour with its share, and beside a flood.
pub(super) async fn measure(driver: &Driver, rounds: usize, time: Duration) -> Result<Fairness, Failure> {
    let calm = driver.target.register_tenant().await?;
    let neighbour = driver.target.register_tenant().await?;
    let mut measured: [Vec<Round>; 3] = Default::default();
    let mut neighbours: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for (index, connections) in [0, SHARE_CONNECTIONS, FLOOD_CONNECTIONS].into_iter().enumerate() {
            let (round, per_second) = measure_beside(driver, &calm, &neighbour, connections, time).await?;
            measured[index].push(round);
            neighbours[index].push(per_second);
        }
    }
    let [alone, share, flood] = measured;
    let how = format!("{CALM_CONNECTIONS} connections, each once in {} ms", CALM_PACE.as_millis());
    let alone = Rounds::of("alone".to_owned(), how.clone(), alone);
    let share_name = format!("beside a tenant with {SHARE_CONNECTIONS} in flight");
    let share = Rounds::of(share_name, how.clone(), share);
    let flood = Rounds::of(format!("beside a flood with {FLOOD_CONNECTIONS} in flight"), how, flood);
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

fn p99(rounds: &Rounds) -> f64 {
    rounds.latency_micros.p99.max(1) as f64
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Measures one round of the calm tenant, and returns it with the messages a second of its neighbour.
async fn measure_beside(
    driver: &Driver,
    calm: &BenchTenant,
    neighbour: &BenchTenant,
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
    let mut flood: Option<tokio::task::JoinHandle<Result<(LoadResult, Ingest), Failure>>> = None;
    if connections > 0 {
        let flooding = prepare(driver, neighbour, time, NEIGHBOUR_PER_SECOND).await?;
        flood = Some(tokio::spawn(run_load(load(connections, time * 2, None), flooding)));
        tokio::time::sleep(Duration::from_millis(200).min(time)).await;
    }
    let watch = LoadWatch::start();
    let (result, _) = run_load(load(CALM_CONNECTIONS, time, Some(CALM_PACE)), ingest).await?;
    let mut round = Round::from_load(&result);
    round.busy = watch.busy();
    stop.store(true, Ordering::Relaxed);
    let Some(flood) = flood else { return Ok((round, 0.0)) };
    let (flooded, _) = flood.await.map_err(|error| Failure::caused_by("the flood failed", &error))??;
    Ok((round, flooded.tally.accepted as f64 / flooded.elapsed.as_secs_f64()))
}

async fn prepare(
    driver: &Driver,
    tenant: &BenchTenant,
    time: Duration,
    per_second: f64,
) -> Result<Ingest, Failure> {
    let signer = driver.signer_of(tenant, Policy::Strict)?;
    let token = driver.target.token(&tenant.producer).await?;
    let count = ((per_second * (time.as_secs_f64() + 1.0)) as usize).min(driver.pacing.messages_max);
    let stock = run_blocking(move || signer.prepare(count, Ids::Ordered, per_second)).await??;
    Ok(Ingest::new(stock, 1, &driver.target.host, &token))
}
