//! A database that was restored to an earlier state by the steps of the guide (QUA-1: backup and restore
//! under load).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use snavio_sdk::{ApiError, Client, Delivery};
use snavio_testbed::Postgres;

use crate::audit::whole_after_a_restore;
use crate::engine::Database;
use crate::node::{Cast, Draft, Launch, Node, drain, new_id, post};
use crate::patience::eventually;

/// The statements that the guide says to run before a node starts over a restored database.
fn statements_of_the_guide() -> String {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/fleet.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let section = guide.split("\n## Back up and restore\n").nth(1).expect("the guide has the section");
    let section = section.split("\n## ").next().unwrap();
    let mut blocks =
        section.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    let block = blocks.next().expect("the section has statements");
    assert_eq!(blocks.next(), None, "the test runs all of them");
    block
}

/// The state that a producer shares with the test.
#[derive(Default)]
struct ProducerState {
    is_done: AtomicBool,
    accepted: AtomicUsize,
}

/// Starts a producer that sends one message after the other until `is_done`, and returns the accepted
/// messages.
fn produce(
    node: &Node,
    cast: &Cast,
    traffic: &Arc<ProducerState>,
) -> tokio::task::JoinHandle<Vec<AcceptedMessage>> {
    let (billing, credentials) = (node.client(&cast.billing), cast.billing.clone());
    let traffic = Arc::clone(traffic);
    tokio::spawn(async move {
        let mut sent = Vec::new();
        while !traffic.is_done.load(Ordering::Relaxed) {
            let draft = Draft::new("pay", &new_id());
            let (status, answer) = post(&billing, draft.sign(&credentials)).await;
            assert_eq!(status, 202, "{answer}");
            sent.push(AcceptedMessage { draft, delivery_id: answer["delivery_id"].as_i64().unwrap() });
            traffic.accepted.store(sent.len(), Ordering::Relaxed);
        }
        sent
    })
}

struct AcceptedMessage {
    draft: Draft,
    delivery_id: i64,
}

async fn receive_one(bot: &Client) -> Delivery {
    let got = bot.receive("pay-inbox", 1, Duration::from_secs(600), Duration::from_secs(5)).await.unwrap();
    assert_eq!(got.len(), 1);
    got.into_iter().next().unwrap()
}

fn id_of(delivery: &Delivery) -> &str {
    delivery.message.id().unwrap()
}

/// Reads telemetry after a number. Returns the count of delivered messages and the number to continue from.
async fn count_delivered(client: &Client, after: i64) -> (usize, i64) {
    let (mut count, mut after) = (0, after);
    loop {
        let path = format!("/v1/telemetry?type=snavio.command.delivered&limit=1000&after={after}");
        let page = client.call(Method::GET, &path, None).await.unwrap();
        let received = page["items"].as_array().unwrap().len();
        if received == 0 {
            return (count, after);
        }
        count += received;
        after = page["next"].as_i64().unwrap();
    }
}

/// QUA-1, ENG-7, CLM-4, DLV-3, REG-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_database_reuses_no_serial_of_lost_time() {
    let (server, database) = (Postgres::shared(), Database::new());
    let mut node = Node::over(&database, &Launch::default());
    let cast = node.cast().await;
    let bot = node.client(&cast.bot);

    // Dump the database under load.
    let traffic = Arc::new(ProducerState::default());
    let producing = produce(&node, &cast, &traffic);
    let ended = receive_one(&bot).await;
    bot.acknowledge("pay-inbox", &[ended.receipt()]).await.unwrap();
    let dump = node.folder().join("dump.sql");
    tokio::task::block_in_place(|| server.dump(&database.url, &dump)).unwrap();

    // The restored database lacks messages from here on. The first counted one may have been under way before
    // the dump.
    let leased = receive_one(&bot).await;
    let before = traffic.accepted.load(Ordering::Relaxed);
    eventually("more is sent", async || {
        (traffic.accepted.load(Ordering::Relaxed) > before + 1).then_some(())
    })
    .await;
    traffic.is_done.store(true, Ordering::Relaxed);
    let sent = producing.await.unwrap();
    let last_delivery_id = sent.iter().map(|message| message.delivery_id).max().unwrap();
    let read_to = eventually("every message has a record", async || {
        let (recorded, read_to) = count_delivered(&node.client(&cast.billing), 0).await;
        (recorded == sent.len()).then_some(read_to)
    })
    .await;
    let later = json!({ "services": [{ "name": "acme/later" }] });
    node.apply(&later).await;
    let version = node.get("/v1/status").await["registry_version"].as_i64().unwrap();
    node.stop();

    let restored = database.moved_to(tokio::task::block_in_place(|| server.load(&dump)).unwrap());
    restored.ask(&statements_of_the_guide());
    let node = Node::over(&restored, &Launch::default());
    let (billing, bot) = (node.client(&cast.billing), node.client(&cast.bot));

    // A lease from the lost time does not end a newer lease.
    let again = receive_one(&bot).await;
    assert_eq!(again.delivery_id, leased.delivery_id, "the oldest delivery comes first");
    let fenced = bot.acknowledge("pay-inbox", &[leased.receipt()]).await.unwrap_err();
    assert!(matches!(&fenced, ApiError::Refused { reason, .. } if reason == "fenced"), "{fenced:?}");
    bot.acknowledge("pay-inbox", &[again.receipt()]).await.unwrap();

    // A message in the dump is delivered once with its delivery id, and its repeat is a duplicate. The ids of
    // all others are new again.
    let waiting = drain(&bot, "pay-inbox").await;
    let delivered: Vec<_> = [&ended, &again].into_iter().chain(&waiting).collect();
    assert!(
        delivered.len() > 2 && delivered.len() < sent.len(),
        "{} of {} were dumped",
        delivered.len(),
        sent.len()
    );
    for AcceptedMessage { draft, delivery_id } in &sent {
        let copies: Vec<_> = delivered.iter().filter(|delivery| id_of(delivery) == draft.id).collect();
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        match copies[..] {
            [copy] => {
                assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{answer}");
                assert_eq!(copy.delivery_id.0, *delivery_id);
            }
            [] => {
                assert_eq!(status, 202, "{answer}");
                assert!(
                    answer["delivery_id"].as_i64().unwrap() > last_delivery_id,
                    "{answer} after {last_delivery_id}"
                );
            }
            _ => panic!("{} is there {} times", draft.id, copies.len()),
        }
    }

    // A reader who had read all telemetry continues after its number, and no registry version is used twice.
    let left = sent.len() - delivered.len();
    eventually("the remaining messages have records", async || {
        (count_delivered(&billing, read_to).await.0 == left).then_some(())
    })
    .await;
    let status = node.get("/v1/status").await;
    assert!(status["registry_version"].as_i64().unwrap() > version, "{status} after {version}");
    assert_eq!((&status["registry_lag"], status["nodes"].as_array().map(Vec::len)), (&json!(0), Some(1)));
    assert_eq!(node.apply(&later).await.len(), 1, "the entry from after the dump is gone");
    let skipped = node.get("/v1/registry/seals").await["skipped"][0].clone();
    assert_eq!(skipped["last"].as_i64().unwrap() - skipped["first"].as_i64().unwrap(), 999_999);
    whole_after_a_restore(&node, &skipped).await;
}
