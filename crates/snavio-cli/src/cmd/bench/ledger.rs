//! The ledger route: what a claim for seven years costs, new, replayed and contradicted, with an empty store and a full
//! one, on both engines.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::clock;
use super::database::Database;
use super::http::Ingest;
use super::messages::{Bits, Ids, Signer};
use super::node::{Keeps, Policy, Target};
use super::round::Spread;
use super::scenario::{Driver, Pacing, apart, run_apart};
use crate::Ended;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// Requests in flight.
const IN_FLIGHT: usize = 64;
/// Messages of a round at most: replays and conflicts are sent first without being measured.
const MESSAGES: usize = 60_000;
/// The same through an HTTP processor, which takes a call for each.
const POSTS: usize = 10_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    New,
    Replay,
    Conflict,
    Posted,
    PostedReplay,
}

impl What {
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

/// An engine by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Engine {
    /// The embedded store.
    Embedded,
    /// PostgreSQL.
    Postgres,
}

/// What is in the stores before, and which they are.
pub(super) struct Stock {
    pub(super) preload: usize,
    pub(super) ids: Vec<Ids>,
    /// Both, if none is named.
    pub(super) engine: Option<Engine>,
}

/// Measures each kind on each engine, with so many claims in the store.
pub(super) async fn run(stock: &Stock, rounds: usize, pacing: Pacing, output: Output) -> Ended {
    let processor = processor().await?;
    let preload = stock.preload;
    let mut rows = Vec::new();
    for ids in &stock.ids {
        if stock.engine != Some(Engine::Postgres) {
            let driver = Driver::start(Keeps::Everything, pacing).await?;
            rows.extend(measure("embedded", driver, None, preload, *ids, rounds, &processor).await?);
        }
        if stock.engine == Some(Engine::Embedded) {
            continue;
        }
        let server = Database::start(&["shared_buffers=512MB"]).await?;
        server.make("ledger").await?;
        let url = server.url("ledger");
        let target = apart(move || Target::start_fleet(1, &url)).await??;
        let driver = Driver::over(target, pacing).await?;
        rows.extend(measure("postgresql", driver, Some(&server), preload, *ids, rounds, &processor).await?);
    }
    let columns = ["engine", "ids", "claims_before", "what", "per_second", "p50_ms", "p99_ms"];
    output.rows(&json!({ "ledger": rows }), &rows, &columns);
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
    let before = bytes(&driver, server).await?;
    let began = clock::now();
    let progress =
        |done| print_error(format_args!("{engine}, {} ids: {done} of {preload} claims", ids.name()));
    driver.fill(Policy::Ledger, ids, preload, progress).await?;
    let filled_in = began.elapsed();
    let grown = bytes(&driver, server).await?.saturating_sub(before);
    post_route(&driver, processor).await?;
    let mut rows = Vec::new();
    for what in What::ALL {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            let figure = round(&driver, what, ids).await?;
            print_error(format_args!(
                "{engine}, {} ids, {}: {:.0} a second",
                ids.name(),
                what.name(),
                figure.0
            ));
            figures.push(figure);
        }
        let spread = Spread::of(figures.iter().map(|it| it.0)).unwrap_or_default();
        let middle =
            |of: fn(&(f64, f64, f64)) -> f64| Spread::of(figures.iter().map(of)).map_or(0.0, |it| it.median);
        rows.push(json!({
            "engine": engine, "ids": ids.name(), "claims_before": preload, "what": what.name(),
            "per_second": format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most),
            "p50_ms": format!("{:.2}", middle(|it| it.1)), "p99_ms": format!("{:.2}", middle(|it| it.2)),
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

/// What the store takes on disk.
async fn bytes(driver: &Driver, server: Option<&Database>) -> Result<u64, Failure> {
    match server {
        Some(server) => {
            Ok(server.ask("ledger", "SELECT pg_database_size(current_database())").await?.parse()?)
        }
        None => Ok(driver.target.store_bytes().unwrap_or_default()),
    }
}

/// A route of the ledger policy whose messages go to an HTTP processor.
async fn post_route(driver: &Driver, processor: &str) -> Result<(), Failure> {
    let (producer, worker) = (&driver.cast().producer.source, &driver.cast().worker.source);
    let route = json!({
        "queue": "posts", "dead_letter_queue": "dead", "claim": { "policy": "ledger" },
        "processing": { "kind": "http", "url": processor, "reference": "/reference" },
    });
    let grant = json!({ "source": producer, "target": worker, "name": "post" });
    let operator = driver.target.operators()[0];
    operator.call(Method::PUT, &format!("/v1/routes/{worker}/post"), Some(&route)).await?;
    operator.call(Method::PUT, "/v1/grants", Some(&grant)).await?;
    driver.target.in_step().await?;
    // The courier looks for new routes now and then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// Messages a second, and their median and 99th percentile in milliseconds.
async fn round(driver: &Driver, what: What, ids: Ids) -> Result<(f64, f64, f64), Failure> {
    let is_post = matches!(what, What::Posted | What::PostedReplay);
    let command = if is_post { "post" } else { Policy::Ledger.command() };
    let (producer, worker) = (&driver.cast().producer, driver.cast().worker.source.as_str());
    let signer = Signer::new(producer, worker, command, driver.pacing.payload_bytes)?;
    let count = if is_post { POSTS } else { MESSAGES };
    let (seed, ids_from) = (Bits::new().next(), clock::wall());
    let stock = |signer: Signer| async move {
        apart(move || signer.prepare_seeded(count, ids, 20_000.0, ids_from, seed)).await?
    };
    let send = async |signer: Signer, time: Duration| {
        let token = driver.target.token(producer).await?;
        let ingest = Ingest::new(stock(signer).await?, 1, &driver.target.host, &token);
        run_apart(driver.load(IN_FLIGHT, time), ingest).await.map(|(ran, _)| ran)
    };
    let (time, enough) = (driver.pacing.time, Duration::from_secs(120));
    let ran = match what {
        What::New | What::Posted => send(signer, time).await?,
        What::Replay | What::PostedReplay => {
            send(signer.clone(), enough).await?;
            send(signer, time).await?
        }
        What::Conflict => {
            send(signer.clone(), enough).await?;
            send(signer.saying_otherwise(), time).await?
        }
    };
    let wanted = match what {
        What::New | What::Posted => ran.tally.accepted,
        What::Replay | What::PostedReplay => ran.tally.duplicate,
        What::Conflict => ran.tally.refused.get(&409).copied().unwrap_or_default(),
    };
    if wanted != ran.tally.answered() {
        return Err(Failure::new(format!("{}: not all were answered so: {:?}", what.name(), ran.tally)));
    }
    let latency = ran.latencies.percentiles();
    let millis = |micros: u64| micros as f64 / 1000.0;
    Ok((wanted as f64 / ran.elapsed.as_secs_f64(), millis(latency.p50), millis(latency.p99)))
}

/// A processor that is done at once: what is measured is the gateway.
async fn processor() -> Result<String, Failure> {
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

/// Where the first request ends, if it is all there.
pub(super) fn request_end(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&received[..head]).ok()?.to_ascii_lowercase();
    let length = text.split("content-length:").nth(1).and_then(|it| it.split("\r\n").next());
    let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    (received.len() >= head + length).then_some(head + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_with_its_body() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST";
        assert_eq!(request_end(request), Some(request.len() - 4));
        assert_eq!(request_end(&request[..30]), None);
    }
}
