//! Events: what more subscriptions cost, and what order costs, on both engines.

use reqwest::Method;
use serde_json::{Value, json};

use super::clock;
use super::database::Database;
use super::http::{answer, head};
use super::load::{Tally, Wire};
use super::messages::{Bits, Ids, payload};
use super::node::{Keeps, Target};
use super::round::Spread;
use super::scenario::{Driver, Pacing, apart, run_apart};
use crate::Ended;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// Requests in flight, each with an entity of its own: its numbers come in order.
const IN_FLIGHT: usize = 64;

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Case {
    event_type: &'static str,
    subscriptions: usize,
    /// The mode of ordering, if any.
    order: Option<&'static str>,
}

const CASES: [Case; 7] = [
    Case { event_type: "one", subscriptions: 1, order: None },
    Case { event_type: "three", subscriptions: 3, order: None },
    Case { event_type: "ten", subscriptions: 10, order: None },
    Case { event_type: "lenient", subscriptions: 1, order: Some("lenient") },
    Case { event_type: "skip", subscriptions: 1, order: Some("skip") },
    Case { event_type: "strict", subscriptions: 1, order: Some("strict") },
    Case { event_type: "reorder", subscriptions: 1, order: Some("reorder") },
];

/// Measures each case on each engine; within a round they take turns.
pub(super) async fn run(rounds: usize, pacing: Pacing, output: Output) -> Ended {
    let driver = Driver::start(Keeps::Everything, pacing).await?;
    let mut rows = measure("embedded", &driver, rounds).await?;
    drop(driver);
    let server = Database::start(&["shared_buffers=512MB"]).await?;
    server.make("events").await?;
    let url = server.url("events");
    let target = apart(move || Target::start_fleet(1, &url)).await??;
    let driver = Driver::over(target, pacing).await?;
    rows.extend(measure("postgresql", &driver, rounds).await?);
    let columns = ["engine", "subscriptions", "order", "events_per_second", "of_one", "p50_ms", "p99_ms"];
    output.rows(&json!({ "events": rows }), &rows, &columns);
    Ok(())
}

async fn measure(engine: &str, driver: &Driver, rounds: usize) -> Result<Vec<Value>, Failure> {
    register(driver).await?;
    let mut figures = CASES.map(|_| Vec::new());
    for _ in 0..rounds {
        for (case, figures) in CASES.iter().zip(&mut figures) {
            let figure = round(driver, case).await?;
            print_error(format_args!("{engine}, {}: {:.0} a second", case.event_type, figure.0));
            figures.push(figure);
        }
    }
    let alone = figures[0].clone();
    let row = |(case, figures): (&Case, &Vec<(f64, f64, f64)>)| {
        let spread = Spread::of(figures.iter().map(|it| it.0)).unwrap_or_default();
        let ratios = figures.iter().zip(&alone).map(|(it, alone)| it.0 / alone.0);
        let ratio = Spread::of(ratios).unwrap_or_default();
        let middle =
            |of: fn(&(f64, f64, f64)) -> f64| Spread::of(figures.iter().map(of)).map_or(0.0, |it| it.median);
        json!({
            "engine": engine, "subscriptions": case.subscriptions, "order": case.order.unwrap_or("none"),
            "events_per_second": format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most),
            "of_one": format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most),
            "p50_ms": format!("{:.2}", middle(|it| it.1)), "p99_ms": format!("{:.2}", middle(|it| it.2)),
        })
    };
    Ok(CASES.iter().zip(&figures).map(row).collect())
}

/// The types, and who is subscribed to them.
async fn register(driver: &Driver) -> Result<(), Failure> {
    let producer = &driver.cast().producer.source;
    let subscriber = |place: usize| format!("{}/subscriber-{place}", producer.tenant());
    let subscriptions = CASES.iter().flat_map(|case| (0..case.subscriptions).map(move |place| (case, place)));
    let subscription = |(case, place): (&Case, usize)| {
        let mut route = json!({
            "target": subscriber(place), "events_of": producer, "name": case.event_type,
            "queue": format!("{}-{place}", case.event_type), "dead_letter_queue": "dead",
            "claim": { "policy": "event" },
        });
        if let Some(mode) = case.order {
            route["order"] = json!({ "entity": "/entity", "number": "/number", "mode": mode });
        }
        route
    };
    let registry = json!({
        "services": (0..10).map(|place| json!({ "name": subscriber(place) })).collect::<Vec<_>>(),
        "event_types": CASES.map(|case| json!({ "owner": producer, "name": case.event_type })),
        "subscriptions": subscriptions.map(subscription).collect::<Vec<_>>(),
        "why": "snavio bench",
    });
    let operator = driver.target.operators()[0];
    operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
    driver.target.in_step().await
}

/// Events a second, and their median and 99th percentile in milliseconds.
async fn round(driver: &Driver, case: &Case) -> Result<(f64, f64, f64), Failure> {
    let token = driver.target.token(&driver.cast().producer).await?;
    let wire = Events::new(case, &driver.target.host, &token, driver.pacing.payload_bytes);
    let (ran, _) = run_apart(driver.load(IN_FLIGHT, driver.pacing.time), wire).await?;
    if ran.tally.accepted != ran.tally.answered() {
        return Err(Failure::new(format!("{}: not all were accepted: {:?}", case.event_type, ran.tally)));
    }
    let latency = ran.latencies.percentiles();
    let millis = |micros: u64| micros as f64 / 1000.0;
    Ok((ran.tally.accepted as f64 / ran.elapsed.as_secs_f64(), millis(latency.p50), millis(latency.p99)))
}

/// Sends new events, made as they are sent.
struct Events {
    event_type: &'static str,
    head: Vec<u8>,
    note: String,
    bits: Bits,
    /// Entities of this round only.
    run: u64,
    numbers: [u64; IN_FLIGHT],
}

impl Events {
    fn new(case: &Case, host: &str, token: &str, payload_bytes: usize) -> Self {
        let mut bits = Bits::new();
        let note = String::from_utf8(payload(payload_bytes)).unwrap_or_default();
        let run = bits.next();
        let (event_type, numbers) = (case.event_type, [0; IN_FLIGHT]);
        let mut events = Self { event_type, head: Vec::new(), note, bits, run, numbers };
        let length = events.body(0).len();
        events.head = head("/v1/events", host, token, length);
        events.numbers = numbers;
        events
    }

    /// All have one length: numbers are text with zeros in front.
    fn body(&mut self, connection: usize) -> Vec<u8> {
        let number = self.numbers.get_mut(connection).map_or(0, |number| {
            *number += 1;
            *number
        });
        let id = Ids::Ordered.make(u64::try_from(clock::wall().0).unwrap_or(0), &mut self.bits);
        format!(
            r#"{{"eventId":"{id}","eventType":"{}","data":{{"entity":"{:016x}-{connection:03}","number":"{number:012}","note":{}}}}}"#,
            self.event_type, self.run, self.note
        )
        .into_bytes()
    }
}

impl Wire for Events {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.head);
        let body = self.body(connection);
        out.extend_from_slice(&body);
        true
    }

    fn answer(&mut self, _: usize, received: &[u8], tally: &mut Tally) -> std::io::Result<Option<usize>> {
        let Some(answer) = answer(received)? else { return Ok(None) };
        tally.count(answer.status, 1);
        Ok(Some(answer.body.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_connection_are_numbered_on_and_all_of_one_length() {
        let mut events = Events::new(&CASES[0], "localhost", "t", 400);
        let [first, second] = [events.body(3), events.body(3)];
        assert_eq!(first.len(), second.len());
        let data = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()["data"].clone();
        let (first, second) = (data(&first), data(&second));
        assert_eq!((&first["number"], &second["number"]), (&json!("000000000001"), &json!("000000000002")));
        assert_eq!(first["entity"], second["entity"]);
    }
}
