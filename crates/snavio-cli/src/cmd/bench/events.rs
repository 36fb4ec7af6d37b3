//! The events part: the cost of additional subscriptions and of ordering, on both engines.

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::ServiceName;

use super::clock;
use super::database::Database;
use super::http::{answer, head};
use super::load::{Tally, Wire};
use super::messages::{Ids, RandomBits, payload};
use super::node::{StoreMode, Target};
use super::round::Spread;
use super::scenario::{Driver, Pacing, run_blocking, run_load};
use crate::CommandResult;
use crate::cmd::Failure;
use crate::output::{Output, print_error};

/// Requests in flight. Each connection has its own entity, so that the numbers of an entity arrive in order.
const IN_FLIGHT: usize = 64;

/// Events of one type under load.
#[derive(Debug, Clone, Copy)]
struct EventCase {
    event_type: &'static str,
    subscriptions: usize,
    /// The ordering mode, if any.
    order: Option<&'static str>,
}

const CASES: [EventCase; 7] = [
    EventCase { event_type: "one", subscriptions: 1, order: None },
    EventCase { event_type: "three", subscriptions: 3, order: None },
    EventCase { event_type: "ten", subscriptions: 10, order: None },
    EventCase { event_type: "lenient", subscriptions: 1, order: Some("lenient") },
    EventCase { event_type: "skip", subscriptions: 1, order: Some("skip") },
    EventCase { event_type: "strict", subscriptions: 1, order: Some("strict") },
    EventCase { event_type: "reorder", subscriptions: 1, order: Some("reorder") },
];

/// Measures each case on each engine. Within a round the cases alternate.
pub(super) async fn run(rounds: usize, pacing: Pacing, output: Output) -> CommandResult {
    let driver = Driver::start(StoreMode::Embedded, pacing).await?;
    let mut rows = measure("embedded", &driver, rounds).await?;
    drop(driver);
    let server = Database::start(&["shared_buffers=512MB"]).await?;
    server.make("events").await?;
    let url = server.url("events");
    let target = run_blocking(move || Target::start_fleet(1, &url)).await??;
    let driver = Driver::over(target, pacing).await?;
    rows.extend(measure("postgresql", &driver, rounds).await?);
    let columns = ["engine", "subscriptions", "order", "events_per_second", "of_one", "p50_ms", "p99_ms"];
    output.print_rows(&json!({ "events": rows }), &rows, &columns);
    Ok(())
}

async fn measure(engine: &str, driver: &Driver, rounds: usize) -> Result<Vec<Value>, Failure> {
    register_subscriptions(driver).await?;
    let mut figures = CASES.map(|_| Vec::new());
    for _ in 0..rounds {
        for (case, figures) in CASES.iter().zip(&mut figures) {
            let figure = measure_round(driver, case).await?;
            print_error(format_args!("{engine}, {}: {:.0} a second", case.event_type, figure.0));
            figures.push(figure);
        }
    }
    let with_one = figures[0].clone();
    let rows = CASES.iter().zip(&figures);
    Ok(rows.map(|(case, figures)| case_row(engine, case, figures, &with_one)).collect())
}

/// The table row of a case. `with_one` are the figures of the first case, to compare with.
fn case_row(
    engine: &str,
    case: &EventCase,
    figures: &[(f64, f64, f64)],
    with_one: &[(f64, f64, f64)],
) -> Value {
    let spread = Spread::of(figures.iter().map(|figure| figure.0)).unwrap_or_default();
    let ratios = figures.iter().zip(with_one).map(|(figure, one)| figure.0 / one.0);
    let ratio = Spread::of(ratios).unwrap_or_default();
    let p50 = Spread::of(figures.iter().map(|figure| figure.1)).unwrap_or_default();
    let p99 = Spread::of(figures.iter().map(|figure| figure.2)).unwrap_or_default();
    json!({
        "engine": engine, "subscriptions": case.subscriptions, "order": case.order.unwrap_or("none"),
        "events_per_second": format!("{:.0} ({:.0}–{:.0})", spread.median, spread.least, spread.most),
        "of_one": format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.least, ratio.most),
        "p50_ms": format!("{:.2}", p50.median), "p99_ms": format!("{:.2}", p99.median),
    })
}

/// Registers the event types and their subscriptions.
async fn register_subscriptions(driver: &Driver) -> Result<(), Failure> {
    let producer = &driver.tenant().producer.source;
    let subscriptions = CASES
        .iter()
        .flat_map(|case| (0..case.subscriptions).map(move |index| subscription(producer, case, index)));
    let services = (0..10).map(|index| json!({ "name": subscriber(producer, index) }));
    let registry = json!({
        "services": services.collect::<Vec<_>>(),
        "event_types": CASES.map(|case| json!({ "owner": producer, "name": case.event_type })),
        "subscriptions": subscriptions.collect::<Vec<_>>(),
        "why": "snavio bench",
    });
    let operator = driver.target.operators()[0];
    operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
    driver.target.wait_for_sync().await
}

fn subscriber(producer: &ServiceName, index: usize) -> String {
    format!("{}/subscriber-{index}", producer.tenant())
}

fn subscription(producer: &ServiceName, case: &EventCase, index: usize) -> Value {
    let mut route = json!({
        "target": subscriber(producer, index), "events_of": producer, "name": case.event_type,
        "queue": format!("{}-{index}", case.event_type), "dead_letter_queue": "dead",
        "claim": { "policy": "event" },
    });
    if let Some(mode) = case.order {
        route["order"] = json!({ "entity": "/entity", "number": "/number", "mode": mode });
    }
    route
}

/// Returns events a second, and the median and the 99th percentile of their latency in milliseconds.
async fn measure_round(driver: &Driver, case: &EventCase) -> Result<(f64, f64, f64), Failure> {
    let token = driver.target.token(&driver.tenant().producer).await?;
    let wire = Events::new(case, &driver.target.host, &token, driver.pacing.payload_bytes);
    let (result, _) = run_load(driver.load(IN_FLIGHT, driver.pacing.time), wire).await?;
    if result.tally.accepted != result.tally.answered() {
        return Err(Failure::new(format!(
            "{}: some events were not accepted: {:?}",
            case.event_type, result.tally
        )));
    }
    let latency = result.latencies.percentiles();
    let (p50, p99) = (latency.p50 as f64 / 1000.0, latency.p99 as f64 / 1000.0);
    Ok((result.tally.accepted as f64 / result.elapsed.as_secs_f64(), p50, p99))
}

/// The client side of new events. Each event is made right before it is sent.
struct Events {
    event_type: &'static str,
    head: Vec<u8>,
    note: String,
    bits: RandomBits,
    /// A random part of the entities' names, so that each round has new entities.
    run: u64,
    numbers: [u64; IN_FLIGHT],
}

impl Events {
    fn new(case: &EventCase, host: &str, token: &str, payload_bytes: usize) -> Self {
        let mut bits = RandomBits::new();
        let note = String::from_utf8(payload(payload_bytes)).unwrap_or_default();
        let run = bits.next();
        let (event_type, numbers) = (case.event_type, [0; IN_FLIGHT]);
        let mut events = Self { event_type, head: Vec::new(), note, bits, run, numbers };
        let length = events.body(0).len();
        events.head = head("/v1/events", host, token, length);
        events.numbers = numbers;
        events
    }

    /// The next event of a connection. All events have one length: numbers are texts with leading zeros.
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
    fn events_of_a_connection_have_rising_numbers_and_one_length() {
        let mut events = Events::new(&CASES[0], "localhost", "t", 400);
        let [first, second] = [events.body(3), events.body(3)];
        assert_eq!(first.len(), second.len());
        let data = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()["data"].clone();
        let (first, second) = (data(&first), data(&second));
        assert_eq!((&first["number"], &second["number"]), (&json!("000000000001"), &json!("000000000002")));
        assert_eq!(first["entity"], second["entity"]);
    }
}
