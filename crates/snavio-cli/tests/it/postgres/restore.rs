//! A database that was restored to an earlier state, by the words of the guide (QUA-1: backup and restore under load).

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

/// What the guide tells to run before a node is started over a restored database.
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

/// What a producer is told, and tells.
#[derive(Default)]
struct Traffic {
    is_done: AtomicBool,
    accepted: AtomicUsize,
}

/// A producer that sends one message after the other until it is told to stop, and gives back what was accepted.
fn produce(node: &Node, cast: &Cast, traffic: &Arc<Traffic>) -> tokio::task::JoinHandle<Vec<Sent>> {
    let (billing, credentials) = (node.client(&cast.billing), cast.billing.clone());
    let traffic = Arc::clone(traffic);
    tokio::spawn(async move {
        let mut sent = Vec::new();
        while !traffic.is_done.load(Ordering::Relaxed) {
            let draft = Draft::new("pay", &new_id());
            let (status, answer) = post(&billing, draft.sign(&credentials)).await;
            assert_eq!(status, 202, "{answer}");
            sent.push(Sent { draft, delivery_id: answer["delivery_id"].as_i64().unwrap() });
            traffic.accepted.store(sent.len(), Ordering::Relaxed);
        }
        sent
    })
}

struct Sent {
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

/// How many messages a reader of telemetry hears of who has read so far, and where it goes on.
async fn dispatched(client: &Client, after: i64) -> (usize, i64) {
    let (mut count, mut after) = (0, after);
    loop {
        let path = format!("/v1/telemetry?type=snavio.command.delivered&limit=1000&after={after}");
        let page = client.call(Method::GET, &path, None).await.unwrap();
        let some = page["items"].as_array().unwrap().len();
        if some == 0 {
            return (count, after);
        }
        count += some;
        after = page["next"].as_i64().unwrap();
    }
}

/// QUA-1, ENG-7, CLM-4, DLV-3, REG-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_goes_on_above_every_number_of_the_time_it_forgot() {
    let (server, database) = (Postgres::shared(), Database::new());
    let mut node = Node::over(&database, &Launch::default());
    let cast = node.cast().await;
    let bot = node.client(&cast.bot);

    // Dumped while it is used.
    let traffic = Arc::new(Traffic::default());
    let producing = produce(&node, &cast, &traffic);
    let ended = receive_one(&bot).await;
    bot.acknowledge("pay-inbox", &[ended.receipt()]).await.unwrap();
    let dump = node.folder().join("dump.sql");
    tokio::task::block_in_place(|| server.dump(&database.url, &dump)).unwrap();

    // What comes now will be forgotten. The first that is counted may have been on its way before.
    let held = receive_one(&bot).await;
    let before = traffic.accepted.load(Ordering::Relaxed);
    eventually("more is sent", async || {
        (traffic.accepted.load(Ordering::Relaxed) > before + 1).then_some(())
    })
    .await;
    traffic.is_done.store(true, Ordering::Relaxed);
    let sent = producing.await.unwrap();
    let numbers_max = sent.iter().map(|it| it.delivery_id).max().unwrap();
    let read_to = eventually("all are told", async || {
        let (told, read_to) = dispatched(&node.client(&cast.billing), 0).await;
        (told == sent.len()).then_some(read_to)
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

    // A lease from the forgotten time ends no other that was given since.
    let again = receive_one(&bot).await;
    assert_eq!(again.delivery_id, held.delivery_id, "the longest waiting comes first");
    let fenced = bot.acknowledge("pay-inbox", &[held.receipt()]).await.unwrap_err();
    assert!(matches!(&fenced, ApiError::Refused { reason, .. } if reason == "fenced"), "{fenced:?}");
    bot.acknowledge("pay-inbox", &[again.receipt()]).await.unwrap();

    // What is in the copy is there once, with its number; a copy of it is known. Everything else is free.
    let waiting = drain(&bot, "pay-inbox").await;
    let known: Vec<_> = [&ended, &again].into_iter().chain(&waiting).collect();
    assert!(known.len() > 2 && known.len() < sent.len(), "{} of {} were dumped", known.len(), sent.len());
    for Sent { draft, delivery_id } in &sent {
        let copies: Vec<_> = known.iter().filter(|it| id_of(it) == draft.id).collect();
        let (status, answer) = post(&billing, draft.sign(&cast.billing)).await;
        match copies[..] {
            [copy] => {
                assert_eq!((status, &answer["duplicate"]), (200, &json!(true)), "{answer}");
                assert_eq!(copy.delivery_id.0, *delivery_id);
            }
            [] => {
                assert_eq!(status, 202, "{answer}");
                assert!(
                    answer["delivery_id"].as_i64().unwrap() > numbers_max,
                    "{answer} after {numbers_max}"
                );
            }
            _ => panic!("{} is there {} times", draft.id, copies.len()),
        }
    }

    // A reader who had read all goes on, and nobody takes one version of the registry for another.
    let left = sent.len() - known.len();
    eventually("the rest is told", async || (dispatched(&billing, read_to).await.0 == left).then_some(()))
        .await;
    let status = node.get("/v1/status").await;
    assert!(status["registry_version"].as_i64().unwrap() > version, "{status} after {version}");
    assert_eq!((&status["registry_lag"], status["nodes"].as_array().map(Vec::len)), (&json!(0), Some(1)));
    assert_eq!(node.apply(&later).await.len(), 1, "what was registered since is forgotten");
    let skipped = node.get("/v1/registry/seals").await["skipped"][0].clone();
    assert_eq!(skipped["last"].as_i64().unwrap() - skipped["first"].as_i64().unwrap(), 999_999);
    whole_after_a_restore(&node, &skipped).await;
}
