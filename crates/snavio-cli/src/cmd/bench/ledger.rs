//! The ledger part: the cost of claims that are kept for seven years. It measures new messages, duplicates
//! and conflicts, over an empty or a filled store, on both engines.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::clock;
use super::database::Database;
use super::http::Ingest;
use super::messages::{Ids, RandomBits, Signer};
use super::node::{Policy, StoreMode, Target};
use super::round::Spread;
use super::scenario::{Driver, Pacing, run_blocking, run_load};
use crate::CommandResult;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// Requests in flight.
const IN_FLIGHT: usize = 64;
/// The most messages of a round. For duplicates and conflicts all of them are sent once before the measured
/// round.
const MESSAGES: usize = 60_000;
/// The same for rounds through an HTTP processor: each message costs a call.
const POSTS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LedgerCase {
    New,
    Replay,
    Conflict,
    Posted,
    PostedReplay,
}

impl LedgerCase {
    const ALL: [Self; 5] = [Self::New, Self::Replay, Self::Conflict, Self::Posted, Self::PostedReplay];

    fn name(self) -> &'static str {
        match self {
            Self::New => "new, onto a queue",
            Self::Replay => "replay",
            Self::Conflict => "conflict",
            Self::Posted => "new, through an HTTP processor",
            Self::PostedReplay => "replay with its stored answer",
        }
    }
}

/// One engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Engine {
    /// The embedded store.
    Embedded,
    /// PostgreSQL.
    Postgres,
}

pub(super) struct Options {
    /// The number of claims to put into the store first.
    pub(super) preload: usize,
    pub(super) ids: Vec<Ids>,
    /// One engine, or both.
    pub(super) engine: Option<Engine>,
}

/// Measures each case on each engine.
pub(super) async fn run(options: &Options, rounds: usize, pacing: Pacing, output: Output) -> CommandResult {
    let processor = start_processor().await?;
    let preload = options.preload;
    let mut rows = Vec::new();
    for ids in &options.ids {
        if options.engine != Some(Engine::Postgres) {
            let driver = Driver::start(StoreMode::Embedded, pacing).await?;
            rows.extend(measure("embedded", driver, None, preload, *ids, rounds, &processor).await?);
        }
        if options.engine == Some(Engine::Embedded) {
            continue;
        }
        let server = Database::start(&["shared_buffers=512MB"]).await?;
        server.make("ledger").await?;
        let url = server.url("ledger");
        let target = run_blocking(move || Target::start_fleet(1, &url)).await??;
        let driver = Driver::over(target, pacing).await?;
        rows.extend(measure("postgresql", driver, Some(&server), preload, *ids, rounds, &processor).await?);
    }
    let columns = ["engine", "ids", "claims_before", "what", "per_second", "p50_ms", "p99_ms"];
    output.print_rows(&json!({ "ledger": rows }), &rows, &columns);
    Ok(())
}

async fn measure(
    engine: &'static str,
    driver: Driver,
    server: Option<&Database>,
    preload: usize,
    ids: Ids,
    rounds: usize,
    processor: &str,
) -> Result<Vec<Value>, Failure> {
    let before = store_bytes(&driver, server).await?;
    let began = clock::now();
    let progress =
        |done| print_error(format_args!("{engine}, {} ids: {done} of {preload} claims", ids.name()));
    driver.fill(Policy::Ledger, ids, preload, progress).await?;
    let filled_in = began.elapsed();
    let grown = store_bytes(&driver, server).await?.saturating_sub(before);
    register_post_route(&driver, processor).await?;
    let mut rows = Vec::new();
    for case in LedgerCase::ALL {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            let figure = measure_round(&driver, case, ids).await?;
            print_error(format_args!(
                "{engine}, {} ids, {}: {:.0} a second",
                ids.name(),
                case.name(),
                figure.0
            ));
            figures.push(figure);
        }
        let per_second = Spread::of(figures.iter().map(|figure| figure.0)).unwrap_or_default();
        let p50 = Spread::of(figures.iter().map(|figure| figure.1)).unwrap_or_default();
        let p99 = Spread::of(figures.iter().map(|figure| figure.2)).unwrap_or_default();
        rows.push(json!({
            "engine": engine, "ids": ids.name(), "claims_before": preload, "what": case.name(),
            "per_second": format!("{:.0} ({:.0}–{:.0})", per_second.median, per_second.least, per_second.most),
            "p50_ms": format!("{:.2}", p50.median), "p99_ms": format!("{:.2}", p99.median),
        }));
    }
    if preload > 0 {
        let per_million = grown as f64 / preload as f64;
        rows.push(json!({
            "engine": engine, "ids": ids.name(), "claims_before": preload, "what": "growth per million, in MB",
            "per_second": format!("{per_million:.0}"),
        }));
        rows.push(json!({
            "engine": engine, "ids": ids.name(), "claims_before": preload, "what": "filled in batches of 500",
            "per_second": format!("{:.0}", preload as f64 / filled_in.as_secs_f64()),
        }));
    }
    Ok(rows)
}

/// The size of the store on disk.
async fn store_bytes(driver: &Driver, server: Option<&Database>) -> Result<u64, Failure> {
    match server {
        Some(server) => {
            Ok(server.query("ledger", "SELECT pg_database_size(current_database())").await?.parse()?)
        }
        None => Ok(driver.target.store_bytes().unwrap_or_default()),
    }
}

/// Registers a route with the policy `ledger` and an HTTP processor.
async fn register_post_route(driver: &Driver, processor: &str) -> Result<(), Failure> {
    let (producer, worker) = (&driver.tenant().producer.source, &driver.tenant().worker.source);
    let route = json!({
        "queue": "posts", "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
        "processing": { "kind": "http", "url": processor, "reference": "/reference" },
    });
    let grant = json!({ "source": producer, "target": worker, "name": "post" });
    let operator = driver.target.operators()[0];
    operator.call(Method::PUT, &format!("/v1/routes/{worker}/post"), Some(&route)).await?;
    operator.call(Method::PUT, "/v1/grants", Some(&grant)).await?;
    driver.target.wait_for_sync().await?;
    // Give the courier time to find the new route: it looks for new routes at intervals.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// Returns messages a second, and the median and the 99th percentile of their latency in milliseconds.
async fn measure_round(driver: &Driver, case: LedgerCase, ids: Ids) -> Result<(f64, f64, f64), Failure> {
    let is_post = matches!(case, LedgerCase::Posted | LedgerCase::PostedReplay);
    let command = if is_post { "post" } else { Policy::Ledger.command() };
    let (producer, worker) = (&driver.tenant().producer, driver.tenant().worker.source.as_str());
    let signer = Signer::new(producer, worker, command, driver.pacing.payload_bytes)?;
    let count = if is_post { POSTS } else { MESSAGES };
    let (seed, ids_from) = (RandomBits::new().next(), clock::wall());
    let stock = |signer: Signer| async move {
        run_blocking(move || signer.prepare_seeded(count, ids, 20_000.0, ids_from, seed)).await?
    };
    let send = async |signer: Signer, time: Duration| {
        let token = driver.target.token(producer).await?;
        let ingest = Ingest::new(stock(signer).await?, 1, &driver.target.host, &token);
        run_load(driver.load(IN_FLIGHT, time), ingest).await.map(|(result, _)| result)
    };
    let (time, first_time_max) = (driver.pacing.time, Duration::from_secs(120));
    let result = match case {
        LedgerCase::New | LedgerCase::Posted => send(signer, time).await?,
        LedgerCase::Replay | LedgerCase::PostedReplay => {
            send(signer.clone(), first_time_max).await?;
            send(signer, time).await?
        }
        LedgerCase::Conflict => {
            send(signer.clone(), first_time_max).await?;
            send(signer.with_other_content(), time).await?
        }
    };
    let expected = match case {
        LedgerCase::New | LedgerCase::Posted => result.tally.accepted,
        LedgerCase::Replay | LedgerCase::PostedReplay => result.tally.duplicate,
        LedgerCase::Conflict => result.tally.refused.get(&409).copied().unwrap_or_default(),
    };
    if expected != result.tally.answered() {
        return Err(Failure::new(format!(
            "{}: some messages had another outcome: {:?}",
            case.name(),
            result.tally
        )));
    }
    let latency = result.latencies.percentiles();
    let (p50, p99) = (latency.p50 as f64 / 1000.0, latency.p99 as f64 / 1000.0);
    Ok((expected as f64 / result.elapsed.as_secs_f64(), p50, p99))
}

/// Starts a processor that responds at once, so that the figures are of the gateway. Returns its URL.
async fn start_processor() -> Result<String, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/post", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream));
        }
    });
    Ok(url)
}

async fn answer_all(mut stream: TcpStream) -> Option<()> {
    const ANSWER: &[u8] =
        b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 18\r\n\r\n\
        {\"reference\":\"JE\"}";
    let mut received = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        let end = loop {
            if let Some(end) = request_end(&received) {
                break end;
            }
            match stream.read(&mut part).await.ok()? {
                0 => return None,
                count => received.extend_from_slice(&part[..count]),
            }
        };
        received.drain(..end);
        stream.write_all(ANSWER).await.ok()?;
    }
}

/// The end of the first request, once all of it was received.
pub(super) fn request_end(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&received[..head]).ok()?.to_ascii_lowercase();
    let length = text.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    (received.len() >= head + length).then_some(head + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ends_with_its_body() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST";
        assert_eq!(request_end(request), Some(request.len() - 4));
        assert_eq!(request_end(&request[..30]), None);
    }
}
