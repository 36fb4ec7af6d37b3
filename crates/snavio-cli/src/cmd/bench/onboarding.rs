//! The onboarding part: the time from a grant until the target receives the first command, without a restart.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, TargetText};
use snavio_sdk::{Api, ApiError, Client, Command, Credentials};

use super::clock;
use super::database::Database;
use super::node::{StoreMode, Target};
use super::round::Spread;
use super::scenario::run_blocking;
use crate::CommandResult;
use crate::cmd::Failure;
use crate::output::Output;

/// The pause between two attempts of a producer that is refused.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time for which a consumer waits for the command.
const WAIT: Duration = Duration::from_secs(10);
/// The longest time until a grant takes effect.
const GRANT_MAX: Duration = Duration::from_secs(30);

/// Onboards a tenant in each round: with one node, and with two nodes over a database, where the grant is
/// made on the first node and used on the second.
pub(super) async fn run(rounds: usize, output: Output) -> CommandResult {
    let alone = run_blocking(|| Target::start(StoreMode::Embedded)).await??;
    let server = Database::start(&[]).await?;
    server.make("onboarding").await?;
    let url = server.url("onboarding");
    let fleet = run_blocking(move || Target::start_fleet(2, &url)).await??;
    let mut rows = Vec::new();
    for (nodes, target) in [("one node, embedded", &alone), ("two nodes over PostgreSQL", &fleet)] {
        let mut times = Vec::new();
        for round in 0..rounds {
            times.push(onboard(target, round).await?);
        }
        rows.push(summary(nodes, &times));
    }
    let columns = ["nodes", "registered_ms", "accepted_ms", "delivered_ms", "refused_before"];
    output.print_rows(&json!({ "onboarding": rows }), &rows, &columns);
    Ok(())
}

/// The times of one onboarding.
struct OnboardingTimes {
    /// The registration of tenant, services and route with one file.
    registered: Duration,
    /// From the request for the grant until a command is accepted.
    accepted: Duration,
    /// From the request for the grant until the command is received.
    delivered: Duration,
    /// Attempts to send the command that were refused before.
    refused: u32,
}

fn summary(nodes: &str, times: &[OnboardingTimes]) -> Value {
    json!({
        "nodes": nodes,
        "registered_ms": millis_text(times.iter().map(|times| times.registered)),
        "accepted_ms": millis_text(times.iter().map(|times| times.accepted)),
        "delivered_ms": millis_text(times.iter().map(|times| times.delivered)),
        "refused_before": times.iter().map(|times| times.refused).sum::<u32>(),
    })
}

/// The median and the range of durations in milliseconds.
fn millis_text(durations: impl Iterator<Item = Duration>) -> String {
    let spread = Spread::of(durations.map(|duration| duration.as_secs_f64() * 1e3)).unwrap_or_default();
    format!("{:.1} ({:.1}–{:.1})", spread.median, spread.least, spread.most)
}

async fn onboard(target: &Target, round: usize) -> Result<OnboardingTimes, Failure> {
    let operators = target.operators();
    let (first, last) = (operators[0], operators[operators.len() - 1]);
    let tenant = format!("bench-{:08x}-{round}", u32::from_le_bytes(snavio_server::random()));
    let (producer, worker) = (format!("{tenant}/producer"), format!("{tenant}/worker"));
    let registry = json!({
        "tenants": [{ "name": tenant }],
        "services": [{ "name": producer }, { "name": worker }],
        "routes": [{ "target": worker, "name": "order", "queue": "orders", "dead_letter_queue": "dead", "claim": { "policy": "strict" } }],
        "why": "snavio bench",
    });
    let began = clock::now();
    let answer = first.call(Method::POST, "/v1/registry/apply", Some(&registry)).await?;
    let registered = began.elapsed();
    target.wait_for_sync().await?;
    let credentials: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone())?;
    let [producer, worker] = <[_; 2]>::try_from(credentials)
        .map_err(|_| Failure::new("the node did not return the credentials of two services"))?;
    let to = TargetText::new(worker.source.as_str())?;
    let (producer, worker) = (client(last, producer)?, client(last, worker)?);
    // Both services get their tokens before the measurement.
    producer.authorized().await?;
    worker.authorized().await?;

    let began = clock::now();
    let receive = async {
        let received = worker.receive("orders", 1, Duration::from_secs(30), WAIT).await?;
        Ok::<_, Failure>((received.len(), began.elapsed()))
    };
    let grant = json!({ "source": format!("{tenant}/producer"), "target": to.as_str(), "name": "order" });
    let produce = async {
        first.call(Method::PUT, "/v1/grants", Some(&grant)).await?;
        let mut refused = 0;
        loop {
            let name = CommandName::new("order")?;
            match producer.send_once(&Command::new(to.clone(), name, b"{}".to_vec())).await {
                Ok(_) => return Ok::<_, Failure>((began.elapsed(), refused)),
                Err(ApiError::Refused { reason, .. })
                    if reason == "acl-deny" && began.elapsed() < GRANT_MAX =>
                {
                    refused += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let ((accepted, refused), (count, delivered)) = tokio::try_join!(produce, receive)?;
    if count != 1 {
        return Err(Failure::new(format!(
            "the consumer received {count} deliveries of the one accepted command within {} s",
            WAIT.as_secs()
        )));
    }
    Ok(OnboardingTimes { registered, accepted, delivered, refused })
}

fn client(node: &Api, credentials: Credentials) -> Result<Client, Failure> {
    Ok(Client::new(Api::new(node.base(), None)?, credentials)?.without_following())
}
