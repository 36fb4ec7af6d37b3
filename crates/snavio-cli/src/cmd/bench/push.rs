//! HTTP push: how many a second to fifty receivers, and what one of them that is dead does to the latency of the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
use super::node::{Keeps, Target};
use super::round::Spread;
use super::scenario::{Pacing, apart};
use crate::Ended;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// Receivers, each with a route and a queue of its own.
const RECEIVERS: usize = 50;
/// Messages that wait for each when throughput is measured.
const WAITING: usize = 200;
/// Senders at once while they are put there.
const SENDERS: usize = 64;
/// Where latency is measured, each receiver is sent a message once in this time.
const PACE: Duration = Duration::from_millis(200);
/// How long all may take to arrive.
const ARRIVE_MAX: Duration = Duration::from_secs(120);

/// Measures throughput with a backlog for everybody, then latency without and with a dead receiver, in turns.
pub(super) async fn run(rounds: usize, pacing: Pacing, output: Output) -> Ended {
    let mut throughput = Vec::new();
    let mut latency: [Vec<Percentiles>; 2] = Default::default();
    for round in 0..rounds {
        let per_second = Stage::set(None).await?.drain(pacing.payload_bytes).await?;
        print_error(format_args!("round {}: {per_second:.0} pushes a second", round + 1));
        throughput.push(per_second);
        for (place, dead) in [None, Some(0)].into_iter().enumerate() {
            let figures = Stage::set(dead).await?.latencies(pacing).await?;
            print_error(format_args!(
                "round {}: dead {dead:?}: p50 {} µs, p99 {} µs",
                round + 1,
                figures.p50,
                figures.p99
            ));
            latency[place].push(figures);
        }
    }
    let spread = Spread::of(throughput.into_iter()).unwrap_or_default();
    let [alive, beside_dead] = latency.map(|it| Percentiles::median(&it));
    let millis = |micros: u64| format!("{:.2}", micros as f64 / 1000.0);
    let ratio =
        |of: fn(&Percentiles) -> u64| format!("{:.2}", of(&beside_dead) as f64 / of(&alive).max(1) as f64);
    let rows = [
        json!({
            "what": format!("pushes a second, {RECEIVERS} receivers, a backlog of {WAITING} for each"),
            "figure": format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most),
        }),
        json!({ "what": "latency, all alive, ms", "p50": millis(alive.p50), "p99": millis(alive.p99) }),
        json!({
            "what": "latency of the other 49, one dead, ms",
            "p50": millis(beside_dead.p50), "p99": millis(beside_dead.p99),
        }),
        json!({ "what": "ratio", "p50": ratio(|it| it.p50), "p99": ratio(|it| it.p99) }),
    ];
    output.rows(&json!({ "push": rows }), &rows, &["what", "figure", "p50", "p99"]);
    Ok(())
}

/// What arrived.
#[derive(Default)]
struct Arrived {
    count: AtomicUsize,
    seen: Mutex<Seen>,
}

struct Seen {
    latencies: Latencies,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { latencies: Latencies::new(), first: None, last: None }
    }
}

impl Arrived {
    fn note(&self, sent: Duration, began: Instant) {
        let now = clock::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.latencies.record(now.duration_since(began).saturating_sub(sent));
        seen.first.get_or_insert(now);
        seen.last = Some(now);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    async fn wait_for(&self, count: usize) -> Result<(), Failure> {
        let until = clock::now() + ARRIVE_MAX;
        while self.count.load(Ordering::Relaxed) < count {
            if clock::now() > until {
                let came = self.count.load(Ordering::Relaxed);
                return Err(Failure::new(format!("only {came} of {count} pushes arrived")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// A node with fifty receivers.
struct Stage {
    target: Target,
    producer: Arc<Client>,
    worker: TargetText,
    urls: Vec<String>,
    dead: Option<usize>,
    arrived: Arc<Arrived>,
    began: Instant,
}

fn route_name(place: usize) -> String {
    format!("push-{place}")
}

impl Stage {
    /// One of the receivers may be dead: it takes connections, and never answers.
    async fn set(dead: Option<usize>) -> Result<Self, Failure> {
        let target = apart(|| Target::start(Keeps::Everything)).await??;
        let cast = target.cast().await?;
        let worker = TargetText::new(cast.worker.source.as_str())
            .map_err(|_| Failure::new("a service is a target"))?;
        let (arrived, began) = (Arc::<Arrived>::default(), clock::now());
        let mut urls = Vec::new();
        for place in 0..RECEIVERS {
            let arrived = (dead != Some(place)).then(|| Arc::clone(&arrived));
            urls.push(receiver(arrived, began).await?);
        }
        let producer = client(target.operators()[0], cast.producer)?;
        let stage = Self { target, producer: Arc::new(producer), worker, urls, dead, arrived, began };
        stage.register().await?;
        Ok(stage)
    }

    async fn register(&self) -> Result<(), Failure> {
        let (source, worker) = (self.producer.credentials().source.clone(), self.worker.as_str());
        let grant = |place| json!({ "source": source, "target": worker, "name": route_name(place) });
        let routes: Vec<_> = (0..RECEIVERS).map(|place| self.route(place, false)).collect();
        let file = json!({
            "routes": routes, "grants": (0..RECEIVERS).map(grant).collect::<Vec<_>>(), "why": "snavio bench",
        });
        self.target.operators()[0].call(Method::POST, "/v1/registry/apply", Some(&file)).await?;
        self.producer.authorized().await?;
        // The courier looks for new routes now and then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    fn route(&self, place: usize, is_disabled: bool) -> Value {
        let mut route = json!({
            "target": self.worker.as_str(), "name": route_name(place), "queue": route_name(place),
            "dead_letter_queue": "dead", "receives_max": 1000,
            "processing": { "kind": "push", "url": self.urls[place], "timeout_seconds": 5, "deadline_seconds": 10 },
        });
        if is_disabled {
            route["disabled"] = json!({ "why": "a backlog gathers" });
        }
        route
    }

    async fn put_all(&self, is_disabled: bool) -> Result<(), Failure> {
        let operator = self.target.operators()[0];
        for place in 0..RECEIVERS {
            let path = format!("/v1/routes/{}/{}", self.worker.as_str(), route_name(place));
            operator.call(Method::PUT, &path, Some(&self.route(place, is_disabled))).await?;
        }
        // The courier looks for changed routes now and then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    async fn send(&self, place: usize, payload_bytes: usize) -> Result<(), Failure> {
        let name = CommandName::new(&route_name(place)).map_err(|_| Failure::new("it is a name"))?;
        let at = self.began.elapsed().as_micros();
        let padding = "x".repeat(payload_bytes.saturating_sub(32));
        let payload = format!(r#"{{"at":{at},"padding":"{padding}"}}"#);
        self.producer.send(&Command::new(self.worker.clone(), name, payload.into_bytes())).await?;
        Ok(())
    }

    /// Lets a backlog gather, and says how many a second arrive once nothing holds it any more.
    async fn drain(&self, payload_bytes: usize) -> Result<f64, Failure> {
        self.put_all(true).await?;
        let all = RECEIVERS * WAITING;
        let sender = async |first: usize| -> Result<(), Failure> {
            for number in (first..all).step_by(SENDERS) {
                self.send(number % RECEIVERS, payload_bytes).await?;
            }
            Ok(())
        };
        try_join_all((0..SENDERS).map(sender)).await?;
        self.put_all(false).await?;
        self.arrived.wait_for(all).await?;
        let seen = self.arrived.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let took =
            seen.first.zip(seen.last).map_or(Duration::ZERO, |(first, last)| last.duration_since(first));
        Ok((all - 1) as f64 / took.as_secs_f64().max(1e-6))
    }

    /// Sends to everybody at the same pace, and says how long it took until those arrived that somebody took.
    async fn latencies(&self, pacing: Pacing) -> Result<Percentiles, Failure> {
        let count = (pacing.time.as_secs_f64() / PACE.as_secs_f64()).ceil().max(1.0) as usize;
        let sender = async |place: usize| -> Result<(), Failure> {
            // Not all at once.
            tokio::time::sleep(PACE * place as u32 / RECEIVERS as u32).await;
            let mut tick = tokio::time::interval(PACE);
            for _ in 0..count {
                tick.tick().await;
                self.send(place, pacing.payload_bytes).await?;
            }
            Ok(())
        };
        try_join_all((0..RECEIVERS).map(sender)).await?;
        let alive = RECEIVERS - usize::from(self.dead.is_some());
        self.arrived.wait_for(count * alive).await?;
        let seen = self.arrived.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(seen.latencies.percentiles())
    }
}

fn client(node: &Api, credentials: Credentials) -> Result<Client, Failure> {
    Ok(Client::new(Api::new(node.base(), None)?, credentials)?.without_following())
}

/// A receiver that takes everything at once, or one that takes nothing.
async fn receiver(arrived: Option<Arc<Arrived>>, began: Instant) -> Result<String, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            match &arrived {
                Some(arrived) => drop(tokio::spawn(take_all(stream, Arc::clone(arrived), began))),
                None => held.push(stream),
            }
        }
    });
    Ok(url)
}

async fn take_all(mut stream: TcpStream, arrived: Arc<Arrived>, began: Instant) -> Option<()> {
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
        arrived.note(sent_at(&received[..end])?, began);
        received.drain(..end);
        stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}

/// When a message was sent, by what it says itself.
fn sent_at(request: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(request).ok()?;
    let digits = text.split(r#""at":"#).nth(1)?;
    let digits = &digits[..digits.find(|it: char| !it.is_ascii_digit())?];
    digits.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_when_it_was_sent() {
        assert_eq!(
            sent_at(br#"POST / HTTP/1.1 {"payload":{"at":1500,"padding":"x"}}"#),
            Some(Duration::from_micros(1500))
        );
        assert_eq!(sent_at(b"POST /"), None);
    }
}
