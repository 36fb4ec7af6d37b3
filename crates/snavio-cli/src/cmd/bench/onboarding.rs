//! Onboarding: how long it takes from a grant until its first command is in its target's hands, without a restart.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_model::name::{CommandName, TargetText};
use snavio_sdk::{Api, ApiError, Client, Command, Credentials};

use super::clock;
use super::database::Database;
use super::node::{Keeps, Target};
use super::round::Spread;
use super::scenario::apart;
use crate::Ended;
use crate::cmd::Failure;
use crate::output::Output;

/// Pause between two tries of a producer that is refused.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a consumer waits for what was accepted.
const WAIT: Duration = Duration::from_secs(10);
/// How long a grant may take to act.
const ACTS_WITHIN: Duration = Duration::from_secs(30);

/// Onboards so many tenants with one node, and with two over a database: granted through the one, used through the
/// other.
pub(super) async fn run(rounds: usize, output: Output) -> Ended {
    let alone = apart(|| Target::start(Keeps::Everything)).await??;
    let server = Database::start(&[]).await?;
    server.make("onboarding").await?;
    let url = server.url("onboarding");
    let fleet = apart(move || Target::start_fleet(2, &url)).await??;
    let mut rows = Vec::new();
    for (nodes, target) in [("one node, embedded", &alone), ("two nodes over PostgreSQL", &fleet)] {
        let mut times = Vec::new();
        for round in 0..rounds {
            times.push(onboard(target, round).await?);
        }
        rows.push(summary(nodes, &times));
    }
    let columns = ["nodes", "registered_ms", "accepted_ms", "delivered_ms", "refused_before"];
    output.rows(&json!({ "onboarding": rows }), &rows, &columns);
    Ok(())
}

/// What one onboarding took.
struct Times {
    /// Tenant, services and route: one file.
    registered: Duration,
    /// From the grant's request until a command is accepted,
    accepted: Duration,
    /// and until it is received.
    delivered: Duration,
    /// Tries that were refused before.
    refused: u32,
}

fn summary(nodes: &str, times: &[Times]) -> Value {
    let spread = |of: fn(&Times) -> Duration| {
        let spread = Spread::of(times.iter().map(|it| of(it).as_secs_f64() * 1e3)).unwrap_or_default();
        format!("{:.1} ({:.1}–{:.1})", spread.median, spread.least, spread.most)
    };
    json!({
        "nodes": nodes,
        "registered_ms": spread(|it| it.registered),
        "accepted_ms": spread(|it| it.accepted),
        "delivered_ms": spread(|it| it.delivered),
        "refused_before": times.iter().map(|it| it.refused).sum::<u32>(),
    })
}

async fn onboard(target: &Target, round: usize) -> Result<Times, Failure> {
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
    target.in_step().await?;
    let credentials: Vec<Credentials> = serde_json::from_value(answer["credentials"].clone())?;
    let [producer, worker] = <[_; 2]>::try_from(credentials)
        .map_err(|_| Failure::new("the node did not answer with the credentials of two services"))?;
    let to = TargetText::new(worker.source.as_str()).map_err(|_| Failure::new("a service is a target"))?;
    let (producer, worker) = (client(last, producer)?, client(last, worker)?);
    // Both have their tokens before the clock starts.
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
            let name = CommandName::new("order").map_err(|_| Failure::new("order is a name"))?;
            match producer.send_once(&Command::new(to.clone(), name, b"{}".to_vec())).await {
                Ok(_) => return Ok::<_, Failure>((began.elapsed(), refused)),
                Err(ApiError::Refused { reason, .. })
                    if reason == "acl-deny" && began.elapsed() < ACTS_WITHIN =>
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
        return Err(Failure::new("what was accepted did not come"));
    }
    Ok(Times { registered, accepted, delivered, refused })
}

fn client(node: &Api, credentials: Credentials) -> Result<Client, Failure> {
    Ok(Client::new(Api::new(node.base(), None)?, credentials)?.without_following())
}
