//! The push part: HTTP pushes a second to fifty receivers, and the latency of the others while one of them is
//! dead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, TargetText};
use snavio_sdk::{Api, Client, Command, Credentials};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::clock;
use super::latency::{Latencies, Percentiles};
use super::node::{StoreMode, Target};
use super::round::Spread;
use super::scenario::{Pacing, run_blocking};
use crate::CommandResult;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// The number of receivers, each with its own route and queue.
const RECEIVERS: usize = 50;
/// The backlog of each receiver for measuring throughput, in messages.
const BACKLOG: usize = 200;
/// Concurrent senders that make the backlog.
const SENDERS: usize = 64;
/// The interval between two messages to a receiver for measuring latency.
const PACE: Duration = Duration::from_millis(200);
/// The longest time until all messages have arrived.
const ARRIVE_MAX: Duration = Duration::from_secs(120);

/// Measures in each round the throughput with a backlog for all receivers, then the latency without and with
/// a dead receiver.
pub(super) async fn run(rounds: usize, pacing: Pacing, output: Output) -> CommandResult {
    let mut throughput = Vec::new();
    let mut latency: [Vec<Percentiles>; 2] = Default::default();
    for round in 0..rounds {
        let per_second = PushStage::start(None).await?.measure_throughput(pacing.payload_bytes).await?;
        print_error(format_args!("round {}: {per_second:.0} pushes a second", round + 1));
        throughput.push(per_second);
        for (index, dead) in [None, Some(0)].into_iter().enumerate() {
            let figures = PushStage::start(dead).await?.measure_latencies(pacing).await?;
            print_error(format_args!(
                "round {}: {}: p50 {} µs, p99 {} µs",
                round + 1,
                if dead.is_some() { "one receiver dead" } else { "all receivers alive" },
                figures.p50,
                figures.p99
            ));
            latency[index].push(figures);
        }
    }
    let spread = Spread::of(throughput.into_iter()).unwrap_or_default();
    let [alive, beside_dead] = latency.map(|rounds| Percentiles::median(&rounds));
    let rows = [
        json!({
            "what": format!("pushes a second, {RECEIVERS} receivers, a backlog of {BACKLOG} for each"),
            "figure": format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most),
        }),
        json!({ "what": "latency, all alive, ms", "p50": millis(alive.p50), "p99": millis(alive.p99) }),
        json!({
            "what": "latency of the other 49, one dead, ms",
            "p50": millis(beside_dead.p50), "p99": millis(beside_dead.p99),
        }),
        json!({
            "what": "ratio",
            "p50": ratio(beside_dead.p50, alive.p50), "p99": ratio(beside_dead.p99, alive.p99),
        }),
    ];
    output.print_rows(&json!({ "push": rows }), &rows, &["what", "figure", "p50", "p99"]);
    Ok(())
}

fn millis(micros: u64) -> String {
    format!("{:.2}", micros as f64 / 1000.0)
}

fn ratio(beside_dead: u64, alive: u64) -> String {
    format!("{:.2}", beside_dead as f64 / alive.max(1) as f64)
}

/// Counts the messages that arrive at all receivers.
#[derive(Default)]
struct ArrivalCounter {
    count: AtomicUsize,
    figures: Mutex<ArrivalFigures>,
}

struct ArrivalFigures {
    latencies: Latencies,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Default for ArrivalFigures {
    fn default() -> Self {
        Self { latencies: Latencies::new(), first: None, last: None }
    }
}

impl ArrivalCounter {
    /// Counts a message that was sent at `sent` after `began`.
    fn record(&self, sent: Duration, began: Instant) {
        let now = clock::now();
        let mut figures = self.figures();
        figures.latencies.record(now.duration_since(began).saturating_sub(sent));
        figures.first.get_or_insert(now);
        figures.last = Some(now);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn figures(&self) -> MutexGuard<'_, ArrivalFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait_for(&self, count: usize) -> Result<(), Failure> {
        let until = clock::now() + ARRIVE_MAX;
        while self.count.load(Ordering::Relaxed) < count {
            if clock::now() > until {
                let arrived = self.count.load(Ordering::Relaxed);
                return Err(Failure::new(format!(
                    "only {arrived} of {count} pushes arrived within {} s",
                    ARRIVE_MAX.as_secs()
                )));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// A node with its receivers.
struct PushStage {
    target: Target,
    producer: Arc<Client>,
    worker: TargetText,
    urls: Vec<String>,
    dead: Option<usize>,
    arrivals: Arc<ArrivalCounter>,
    began: Instant,
}

fn route_name(index: usize) -> String {
    format!("push-{index}")
}

impl PushStage {
    /// Starts a node and its receivers. A receiver with the index `dead` accepts connections and never
    /// answers.
    async fn start(dead: Option<usize>) -> Result<Self, Failure> {
        let target = run_blocking(|| Target::start(StoreMode::Embedded)).await??;
        let tenant = target.register_tenant().await?;
        let worker = TargetText::new(tenant.worker.source.as_str())?;
        let (arrivals, began) = (Arc::<ArrivalCounter>::default(), clock::now());
        let mut urls = Vec::new();
        for index in 0..RECEIVERS {
            let arrivals = (dead != Some(index)).then(|| Arc::clone(&arrivals));
            urls.push(start_receiver(arrivals, began).await?);
        }
        let producer = client(target.operators()[0], tenant.producer)?;
        let stage = Self { target, producer: Arc::new(producer), worker, urls, dead, arrivals, began };
        stage.register_routes().await?;
        Ok(stage)
    }

    async fn register_routes(&self) -> Result<(), Failure> {
        let (source, worker) = (self.producer.credentials().source.clone(), self.worker.as_str());
        let grant = |index| json!({ "source": source, "target": worker, "name": route_name(index) });
        let routes: Vec<_> = (0..RECEIVERS).map(|index| self.route(index, false)).collect();
        let file = json!({
            "routes": routes, "grants": (0..RECEIVERS).map(grant).collect::<Vec<_>>(), "why": "snavio bench",
        });
        self.target.operators()[0].call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        self.producer.authorized().await?;
        // Give the courier time to find the new routes: it looks for them at intervals.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    fn route(&self, index: usize, is_disabled: bool) -> Value {
        let mut route = json!({
            "target": self.worker.as_str(), "name": route_name(index), "queue": route_name(index),
            "dead_letter_queue": "dead", "receives_max": 1000,
            "processing": { "kind": "push", "url": self.urls[index], "timeout_seconds": 5, "deadline_seconds": 10 },
        });
        if is_disabled {
            route["disabled"] = json!({ "why": "to make a backlog" });
        }
        route
    }

    async fn put_all_routes(&self, is_disabled: bool) -> Result<(), Failure> {
        let operator = self.target.operators()[0];
        for index in 0..RECEIVERS {
            let path = format!("/v1/routes/{}/{}", self.worker.as_str(), route_name(index));
            operator.call(Method::PUT, &path, Some(&self.route(index, is_disabled))).await?;
        }
        // Give the courier time to find the changed routes: it looks for them at intervals.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    async fn send(&self, index: usize, payload_bytes: usize) -> Result<(), Failure> {
        let name = CommandName::new(&route_name(index))?;
        let at = self.began.elapsed().as_micros();
        let padding = "x".repeat(payload_bytes.saturating_sub(32));
        let payload = format!(r#"{{"at":{at},"padding":"{padding}"}}"#);
        self.producer.send(&Command::new(self.worker.clone(), name, payload.into_bytes())).await?;
        Ok(())
    }

    /// Sends a backlog while the routes are disabled, enables them, and returns the pushes a second.
    async fn measure_throughput(&self, payload_bytes: usize) -> Result<f64, Failure> {
        self.put_all_routes(true).await?;
        let all = RECEIVERS * BACKLOG;
        let sender = async |first: usize| -> Result<(), Failure> {
            for number in (first..all).step_by(SENDERS) {
                self.send(number % RECEIVERS, payload_bytes).await?;
            }
            Ok(())
        };
        try_join_all((0..SENDERS).map(sender)).await?;
        self.put_all_routes(false).await?;
        self.arrivals.wait_for(all).await?;
        let figures = self.arrivals.figures();
        let span = figures.first.zip(figures.last);
        let span = span.map_or(Duration::ZERO, |(first, last)| last.duration_since(first));
        Ok((all - 1) as f64 / span.as_secs_f64().max(1e-6))
    }

    /// Sends to all receivers at the same pace, and returns the latency of the messages to the live ones.
    async fn measure_latencies(&self, pacing: Pacing) -> Result<Percentiles, Failure> {
        let count = (pacing.time.as_secs_f64() / PACE.as_secs_f64()).ceil().max(1.0) as usize;
        let sender = async |index: usize| -> Result<(), Failure> {
            // The first messages are spread over one interval.
            tokio::time::sleep(PACE * index as u32 / RECEIVERS as u32).await;
            let mut tick = tokio::time::interval(PACE);
            for _ in 0..count {
                tick.tick().await;
                self.send(index, pacing.payload_bytes).await?;
            }
            Ok(())
        };
        try_join_all((0..RECEIVERS).map(sender)).await?;
        let alive = RECEIVERS - usize::from(self.dead.is_some());
        self.arrivals.wait_for(count * alive).await?;
        Ok(self.arrivals.figures().latencies.percentiles())
    }
}

fn client(node: &Api, credentials: Credentials) -> Result<Client, Failure> {
    Ok(Client::new(Api::new(node.base(), None)?, credentials)?.without_following())
}

/// Starts a receiver that answers every push at once or, without a counter, one that never answers. Returns
/// its URL.
async fn start_receiver(arrivals: Option<Arc<ArrivalCounter>>, began: Instant) -> Result<String, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    tokio::spawn(async move {
        // A dead receiver keeps its connections open.
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            match &arrivals {
                Some(arrivals) => drop(tokio::spawn(answer_all(stream, Arc::clone(arrivals), began))),
                None => open.push(stream),
            }
        }
    });
    Ok(url)
}

async fn answer_all(mut stream: TcpStream, arrivals: Arc<ArrivalCounter>, began: Instant) -> Option<()> {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = super::ledger::request_end(&received) {
                break end;
            }
            if stream.read_buf(&mut received).await.ok()? == 0 {
                return None;
            }
        };
        arrivals.record(sent_at(&received[..end])?, began);
        received.drain(..end);
        stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}

/// Reads the time of sending from the payload of a message.
fn sent_at(request: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(request).ok()?;
    let digits = text.split(r#""at":"#).nth(1)?;
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit())?];
    digits.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_time_is_read_from_the_payload() {
        assert_eq!(
            sent_at(br#"POST / HTTP/1.1 {"payload":{"at":1500,"padding":"x"}}"#),
            Some(Duration::from_micros(1500))
        );
        assert_eq!(sent_at(b"POST /"), None);
    }
}
