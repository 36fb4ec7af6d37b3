//! The test kills a consumer's process repeatedly while messages flow. Each message still has exactly one
//! effect (CLM-10).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use snavio_sdk::once::{Once, OnceError};
use snavio_sdk::{Api, Client, Credentials, Delivery, Receiver};

use crate::consumer::Consumer;
use crate::consuming::{Books, id_of};
use crate::node::{Cast, Draft, Node, new_id, post, seconds_from_now};
use crate::patience::{eventually, within};

const KILLS: usize = 10;
/// The variables by which the consumer's process finds the node and its files.
const URL: &str = "TEST_CONSUMER_URL";
const FOLDER: &str = "TEST_CONSUMER_FOLDER";
/// Longer than the leases of the last killed process and the time to drain the rest of the queue.
const DRAINED_WITHIN: Duration = Duration::from_secs(90);

/// CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn repeatedly_killed_consumer_has_each_effect_once() {
    let node = Node::start();
    let cast = cast(&node).await;
    let credentials = serde_json::to_vec(&cast.bot).unwrap();
    std::fs::write(node.folder().join("bot.json"), credentials).unwrap();
    let books = Books::open(&node.folder().join("books.db")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let sending = tokio::spawn(send(node.client(&cast.billing), cast.billing.clone(), Arc::clone(&stop)));

    let mut at_work = 0;
    for _ in 0..KILLS {
        let before = count(node.folder(), "begun");
        let mut process = spawn_consumer(&node);
        eventually("the process is at work", async || (count(node.folder(), "begun") > before).then_some(()))
            .await;
        tokio::time::sleep(Duration::from_millis(random_below(400))).await;
        at_work += usize::from(process.try_wait().unwrap().is_none());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(at_work, KILLS, "each process was killed at work");
    stop.store(true, Ordering::SeqCst);
    let sent: BTreeSet<String> = sending.await.unwrap();

    let mut last = spawn_consumer(&node);
    let bot = Consumer::new(&node, &cast.bot, "inbox");
    within(DRAINED_WITHIN, "an empty queue", async || {
        let attributes = bot.attributes().await;
        let is_empty =
            ["depth", "in_flight", "delayed"].iter().all(|attribute| attributes[attribute] == json!(0));
        is_empty.then_some(())
    })
    .await;
    last.kill().unwrap();
    last.wait().unwrap();

    let (effects, attempts) = (books.effects().await, count(node.folder(), "begun"));
    let repeated = count(node.folder(), "done-before");
    let (messages, effect_count) = (sent.len(), effects.len());
    println!(
        "{KILLS} kills: messages {messages}, attempts {attempts}, repeated {repeated}, effects {effect_count}"
    );
    assert!(
        repeated > 0,
        "some deliveries came again after their commit, because they were not acknowledged"
    );
    assert_eq!(effects, sent.into_iter().collect::<Vec<_>>());
}

/// `acme/billing` may send `notify` to `acme/bot`. `receives_max` is high enough for every kill of the
/// consumer.
async fn cast(node: &Node) -> Cast {
    let registry = json!({
        "tenants": [{ "name": "acme" }],
        "services": [{ "name": "acme/billing" }, { "name": "acme/bot" }],
        "routes": [{
            "target": "acme/bot", "name": "notify", "queue": "inbox", "dead_letter_queue": "dead",
            "claim": { "policy": "none" }, "receives_max": 1000,
        }],
        "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "notify" }],
    });
    let [billing, bot] = <[_; 2]>::try_from(node.apply(&registry).await).unwrap();
    Cast { billing, bot }
}

/// Sends messages until `stop` is set, every fifth one twice, and returns their ids.
async fn send(client: Client, credentials: Credentials, stop: Arc<AtomicBool>) -> BTreeSet<String> {
    let mut sent = BTreeSet::new();
    while !stop.load(Ordering::SeqCst) {
        let draft = Draft::new("notify", &new_id());
        let copy = Draft { timestamp: seconds_from_now(-1), ..draft.clone() };
        let copies = if sent.len() % 5 == 0 { vec![&draft, &copy] } else { vec![&draft] };
        for copy in copies {
            let (status, answer) = post(&client, copy.sign(&credentials)).await;
            assert_eq!(status, 202, "{answer}");
        }
        sent.insert(draft.id);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sent
}

/// The number of lines in the consumers' log that begin with a word.
fn count(folder: &Path, word: &str) -> usize {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with(word)).count()
}

/// A random number below `bound`, from the last digits of a time-ordered id, which are random.
fn random_below(bound: u64) -> u64 {
    u64::from_str_radix(&new_id()[28..], 16).unwrap() % bound
}

fn spawn_consumer(node: &Node) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "consumer_kills::consumer_process", "--ignored", "--nocapture"])
        .env(URL, node.url())
        .env(FOLDER, node.folder())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in processes that the test above starts and kills"]
async fn consumer_process() {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let credentials = serde_json::from_slice(&std::fs::read(folder.join("bot.json")).unwrap()).unwrap();
    let api = Api::new(&std::env::var(URL).unwrap(), None).unwrap();
    let client = Arc::new(Client::new(api, credentials).unwrap());
    let books = Books::open(&folder.join("books.db")).await;
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let log = Arc::new(log);
    let work = move |delivery: Delivery| {
        let (books, log) = (books.clone(), Arc::clone(&log));
        async move {
            let (id, attempt) = (id_of(&delivery), delivery.attempt);
            // Each line is a single write, so that a kill never tears it.
            (&*log).write_all(format!("begun {id}\n").as_bytes()).unwrap();
            let once = books.once(delivery, || Ok(())).await?;
            if attempt > 1 && matches!(once, Once::DoneBefore(_)) {
                (&*log).write_all(format!("done-before {id}\n").as_bytes()).unwrap();
            }
            // The pause makes some kills fall between commit and acknowledgement.
            tokio::time::sleep(Duration::from_millis(random_below(40))).await;
            Ok::<_, OnceError>(once)
        }
    };
    let receiver = Receiver::new(client, "inbox".parse().unwrap()).visibility(Duration::from_secs(3));
    receiver.run(work, std::future::pending()).await.unwrap();
}
