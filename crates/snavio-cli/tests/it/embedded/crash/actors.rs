//! Producers, a consumer and an operator that record every answer in a tally while the node is killed and
//! restarted.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use snavio_sdk::{Api, ApiError, Client, Credentials, Delivery};

use super::{Tally, Totals};
use crate::node::{Cast, Draft, Node, new_id, post_batch, seconds_from_now};

/// The queues of the usual services, and of the route that a script registers.
const QUEUES: [&str; 3] = ["notify-inbox", "pay-inbox", "extra-inbox"];
/// Long enough that no lease ends by itself during a run.
const VISIBILITY: Duration = Duration::from_secs(600);

/// The node did not answer: the request may have taken effect or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoAnswer;

/// The result of sending a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    /// 2xx, also for a duplicate.
    Acknowledged,
    /// A refusal: its status and document.
    Refused(u16, Value),
    /// No answer.
    Unknown,
}

/// The ways in which a test message is invalid, and the status of the refusal.
pub(crate) const UNFIT: [(&str, u16); 4] =
    [("forged", 401), ("ungranted", 403), ("late", 401), ("malformed", 400)];

/// The clients of one running process of a node.
pub(crate) struct Actors {
    credentials: Credentials,
    billing: Client,
    bot: Client,
    operator: Api,
    tally: Arc<Mutex<Tally>>,
}

impl Actors {
    /// Connects to a running node and continues the tally.
    pub(crate) fn new(node: &Node, cast: &Cast, tally: &Arc<Mutex<Tally>>) -> Self {
        Self {
            credentials: cast.billing.clone(),
            billing: node.client(&cast.billing),
            bot: node.client(&cast.bot),
            operator: node.operator(),
            tally: Arc::clone(tally),
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().expect("the tally's lock is not poisoned")
    }

    /// Signs and sends a message with the current time.
    pub(crate) async fn send(&self, draft: &Draft) -> Sent {
        let draft = Draft { timestamp: seconds_from_now(0), ..draft.clone() };
        let sent = self.post(draft.sign(&self.credentials)).await;
        match sent {
            Ok((_, answer)) => {
                let duplicate = answer["duplicate"] == true;
                self.tally().acknowledged(&draft.id, is_strict(&draft.name), duplicate);
                Sent::Acknowledged
            }
            Err(ApiError::Refused { status, document, .. }) => Sent::Refused(status, document),
            Err(_) => Sent::Unknown,
        }
    }

    /// Sends a new message to a route. Panics if the node refuses it.
    pub(crate) async fn send_new(&self, name: &str) -> Result<(), NoAnswer> {
        match self.send(&Draft::new(name, &new_id())).await {
            Sent::Acknowledged => Ok(()),
            Sent::Unknown => Err(NoAnswer),
            Sent::Refused(status, document) => panic!("a good message was refused: {status} {document}"),
        }
    }

    /// Sends new messages in one batch. Panics if the node refuses one.
    pub(crate) async fn send_batch(&self, name: &str, count: usize) -> Result<(), NoAnswer> {
        let drafts: Vec<_> = (0..count).map(|_| Draft::new(name, &new_id())).collect();
        let results = self.post_batch(&drafts).await?;
        for (draft, result) in drafts.iter().zip(&results) {
            assert_eq!(result["status"], 202, "a good message was refused: {result}");
            self.tally().acknowledged(&draft.id, is_strict(name), false);
        }
        Ok(())
    }

    /// Sends an invalid message. The node must refuse it if it answers.
    pub(crate) async fn send_unfit(&self, kind: (&str, u16)) -> Result<(), NoAnswer> {
        let mut draft = Draft::new("pay", &new_id());
        self.tally().unfit(&draft.id);
        match kind.0 {
            "ungranted" => draft.name = "refund".to_owned(),
            "late" => draft.timestamp = seconds_from_now(-120),
            _ => {}
        }
        let mut body = draft.sign(&self.credentials);
        match kind.0 {
            "forged" => {
                let text = String::from_utf8(body).expect("messages are text").replace("u-1", "u-2");
                body = text.into_bytes();
            }
            "malformed" => body.truncate(body.len() - 1),
            _ => {}
        }
        match self.post(body).await {
            Ok((status, answer)) => {
                self.tally().broken(format!("a message was {} and not refused: {status} {answer}", kind.0));
            }
            Err(ApiError::Refused { status, document, .. }) => {
                assert_eq!(status, kind.1, "a message was {}: {document}", kind.0);
                self.tally().refused();
            }
            Err(_) => return Err(NoAnswer),
        }
        Ok(())
    }

    /// Receives up to `max` deliveries.
    pub(crate) async fn receive(
        &self,
        queue: &str,
        max: usize,
        visibility: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, NoAnswer> {
        let asked_at = self.tally().now();
        let deliveries = expect_answer(self.bot.receive(queue, max, visibility, wait).await)?;
        let mut tally = self.tally();
        deliveries.iter().for_each(|delivery| tally.received(asked_at, is_strict(queue), delivery));
        drop(tally);
        Ok(deliveries)
    }

    pub(crate) async fn acknowledge(&self, queue: &str, deliveries: &[Delivery]) -> Result<(), NoAnswer> {
        let receipts: Vec<_> = deliveries.iter().map(Delivery::receipt).collect();
        if receipts.is_empty() {
            return Ok(());
        }
        let answer = expect_answer(self.bot.acknowledge(queue, &receipts).await)?;
        let outcomes = answer["results"].as_array().expect("every receipt has its outcome");
        for (receipt, outcome) in receipts.iter().zip(outcomes) {
            if outcome["outcome"] == "done" {
                self.tally().ended(receipt.delivery_id);
            }
        }
        Ok(())
    }

    /// Receives and acknowledges up to `max` deliveries, and returns their number.
    pub(crate) async fn consume(&self, queue: &str, max: usize) -> Result<usize, NoAnswer> {
        let deliveries = self.receive(queue, max, VISIBILITY, Duration::ZERO).await?;
        self.acknowledge(queue, &deliveries).await?;
        Ok(deliveries.len())
    }

    pub(crate) async fn register_extra(&self) -> Result<(), NoAnswer> {
        let registry = json!({
            "routes": [{
                "target": "acme/bot", "name": "extra", "queue": "extra-inbox",
                "dead_letter_queue": "bot-dead", "claim": { "policy": "none" },
            }],
            "grants": [{ "source": "acme/billing", "target": "acme/bot", "name": "extra" }],
        });
        let applied = self.operator.call(Method::POST, "/v1/registry/apply", Some(&registry)).await;
        expect_answer(applied)?;
        self.tally().registered("extra-inbox");
        Ok(())
    }

    /// Redrives all dead letters.
    pub(crate) async fn redrive(&self) -> Result<(), NoAnswer> {
        let redriven = self.bot.call(Method::POST, "/v1/queues/bot-dead/redrive", Some(&json!({}))).await;
        expect_answer(redriven).map(|_| ())
    }

    /// Checks the tally's promises on a restarted node: drains all queues and reads the dead letters, then
    /// sends the acknowledged strict messages again, which must be duplicates without a new delivery. No
    /// lease may be under way, so restart the node before.
    pub(crate) async fn account(&self) {
        self.drain().await.expect("a restarted node answers");
        self.read_dead_letters().await.expect("a restarted node answers");
        self.tally().look_for_losses();
        self.send_strict_again().await.expect("a restarted node answers");
        self.drain().await.expect("a restarted node answers");
    }

    async fn drain(&self) -> Result<(), NoAnswer> {
        for queue in QUEUES {
            let exists = self.bot.call(Method::GET, &format!("/v1/queues/{queue}"), None).await.is_ok();
            self.tally().found(queue, exists);
            while exists && self.consume(queue, 10).await? > 0 {}
        }
        Ok(())
    }

    async fn send_strict_again(&self) -> Result<(), NoAnswer> {
        let ids = self.tally().strict();
        for ids in ids.chunks(200) {
            let drafts: Vec<_> = ids.iter().map(|id| Draft::new("pay", id)).collect();
            let results = self.post_batch(&drafts).await?;
            let mut tally = self.tally();
            for (id, result) in ids.iter().zip(&results) {
                if result["duplicate"] == true {
                    tally.acknowledged(id, true, true);
                } else {
                    tally.broken(format!("{id} was acknowledged and is no duplicate: {result}"));
                }
            }
        }
        Ok(())
    }

    async fn read_dead_letters(&self) -> Result<(), NoAnswer> {
        let mut after = json!(0);
        loop {
            let path = format!("/v1/dead-letters?limit=1000&after={after}");
            let page = expect_answer(self.bot.call(Method::GET, &path, None).await)?;
            let items = page["items"].as_array().expect("a page has items");
            if items.is_empty() {
                return Ok(());
            }
            for item in items {
                self.tally().dead_letter(item["message_id"].as_str().expect("a dead letter has its message"));
            }
            after = page["next"].clone();
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(u16, Value), ApiError> {
        let api = self.billing.authorized().await?;
        api.send(Method::POST, "/v1/commands", Some(body), "application/json").await
    }

    async fn post_batch(&self, drafts: &[Draft]) -> Result<Vec<Value>, NoAnswer> {
        let signed: Vec<_> = drafts.iter().map(|draft| draft.sign(&self.credentials)).collect();
        expect_answer(post_batch(&self.billing, &signed).await)
    }
}

/// Ends the tally and returns its totals. No actor may hold it any more.
pub(crate) fn close(tally: Arc<Mutex<Tally>>) -> Totals {
    let tally = Arc::into_inner(tally).expect("all actors have left");
    tally.into_inner().expect("the tally's lock is not poisoned").totals()
}

/// Whether a command name or queue belongs to the strict route of the usual services.
fn is_strict(name: &str) -> bool {
    name.starts_with("pay")
}

fn expect_answer<T>(ended: Result<T, ApiError>) -> Result<T, NoAnswer> {
    match ended {
        Ok(answer) => Ok(answer),
        Err(ApiError::Unreachable { .. }) => Err(NoAnswer),
        Err(error) => panic!("the node answered otherwise: {error}"),
    }
}
