//! A consumer's process killed again and again while messages flow: its effects are the messages, each once (CLM-10).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use snavio_sdk::{Credentials, Delivery, Receiver};

use crate::consumer::Consumer;
use crate::consuming::{Books, id_of};
use crate::node::{Cast, Draft, Node, new_id, post};
use crate::patience::{eventually, within};

const KILLS: usize = 10;
/// Tell the consumer's process where to find what it needs.
const URL: &str = "TEST_CONSUMER_URL";
const FOLDER: &str = "TEST_CONSUMER_FOLDER";
/// Longer than the leases of the last killed process, and draining what it left.
const DRAINED_WITHIN: Duration = Duration::from_secs(90);

/// CLM-10
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_killed_again_and_again_has_each_effect_once() {
    let node = Node::start();
    let cast = cast(&node).await;
    let credentials = serde_json::to_vec(&cast.bot).unwrap();
    std::fs::write(node.folder().join("bot.json"), credentials).unwrap();
    let books = Books::open(&node.folder().join("books.db")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let sending = tokio::spawn(send(node.client(&cast.billing), cast.billing.clone(), Arc::clone(&stop)));

    let mut at_work = 0;
    for _ in 0..KILLS {
        let mut process = spawn(&node);
        let before = attempts(node.folder()).len();
        eventually("the process is at work", async || (attempts(node.folder()).len() > before).then_some(()))
            .await;
        tokio::time::sleep(Duration::from_millis(u64::from(new_id().into_bytes()[35]) % 16 * 20)).await;
        at_work += usize::from(process.try_wait().unwrap().is_none());
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(at_work, KILLS, "each process was killed at work");
    stop.store(true, Ordering::SeqCst);
    let sent: BTreeSet<String> = sending.await.unwrap();

    let mut last = spawn(&node);
    let bot = Consumer::new(&node, &cast.bot, "inbox");
    within(DRAINED_WITHIN, "an empty queue", async || {
        let attributes = bot.attributes().await;
        let is_empty = ["depth", "in_flight", "delayed"].iter().all(|it| attributes[it] == json!(0));
        is_empty.then_some(())
    })
    .await;
    last.kill().unwrap();
    last.wait().unwrap();

    let (effects, attempts) = (books.effects().await, attempts(node.folder()).len());
    println!("{KILLS} kills: messages {}, attempts {attempts}, effects {}", sent.len(), effects.len());
    assert!(attempts > sent.len(), "some were delivered again");
    assert_eq!(effects, sent.into_iter().collect::<Vec<_>>());
}

/// `acme/billing` may send `notify` to `acme/bot`, whose consumer may die as often as it likes.
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

/// Sends until told to stop, every fifth message twice, and says which.
async fn send(
    client: snavio_sdk::Client,
    credentials: Credentials,
    stop: Arc<AtomicBool>,
) -> BTreeSet<String> {
    let mut sent = BTreeSet::new();
    while !stop.load(Ordering::SeqCst) {
        let draft = Draft::new("notify", &new_id());
        let copies = if sent.len() % 5 == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let (status, answer) = post(&client, draft.sign(&credentials)).await;
            assert!(matches!(status, 200 | 202), "{answer}");
        }
        sent.insert(draft.id);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sent
}

/// The ids of the deliveries that consumers began to work on.
fn attempts(folder: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(folder.join("attempts")).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}

fn spawn(node: &Node) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "consumer_kills::a_consumers_process", "--ignored", "--nocapture"])
        .env(URL, node.url())
        .env(FOLDER, node.folder())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in processes that the test above starts and kills"]
async fn a_consumers_process() {
    let folder = std::path::PathBuf::from(std::env::var(FOLDER).unwrap());
    let credentials = serde_json::from_slice(&std::fs::read(folder.join("bot.json")).unwrap()).unwrap();
    let api = snavio_sdk::Api::new(&std::env::var(URL).unwrap(), None).unwrap();
    let client = Arc::new(snavio_sdk::Client::new(api, credentials).unwrap());
    let books = Books::open(&folder.join("books.db")).await;
    let log = std::fs::File::options().create(true).append(true).open(folder.join("attempts")).unwrap();
    let work = move |delivery: Delivery| {
        // One write, so that no line is torn.
        (&log).write_all(format!("{}\n", id_of(&delivery)).as_bytes()).unwrap();
        let books = books.clone();
        async move { books.once(delivery, || Ok(())).await }
    };
    let receiver = Receiver::new(client, "inbox".parse().unwrap()).visibility(Duration::from_secs(3));
    receiver.run(work, std::future::pending()).await.unwrap();
}
