//! What was sent, what was answered, what came out: kept by id, and added up at the end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use snavio_model::id::MessageId;
use snavio_sdk::{ApiError, Client, Command};

/// Between two tries of a message.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Clone)]
struct Page {
    /// Whether some try of it ended without a word: it may have been taken.
    in_doubt: bool,
    accepted: u32,
    duplicates: u32,
    delivered: u32,
    /// Its consumer was told that it is done.
    ended: bool,
}

/// The books of one run.
#[derive(Default)]
pub(crate) struct Books(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    pages: BTreeMap<String, Page>,
    /// Answers that nobody may get.
    wrong: Vec<String>,
    unavailable: u64,
    lost: u64,
}

/// What the books say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) ids: usize,
    pub(crate) acknowledged: usize,
    pub(crate) delivered: usize,
    /// Acknowledged, and came out nowhere.
    pub(crate) missing: usize,
    /// Came out twice.
    pub(crate) twice: usize,
    /// Told to be duplicates though nothing of them can have been there.
    pub(crate) false_duplicates: usize,
    pub(crate) unavailable: u64,
    pub(crate) lost: u64,
}

/// A command under a new id.
pub(crate) fn command(id: Option<&str>) -> Command {
    let payload = br#"{"amount":"12.50","currency":"EUR"}"#.to_vec();
    let command = Command::new("acme/bot".parse().unwrap(), "pay".parse().unwrap(), payload);
    match id {
        Some(id) => Command { id: MessageId::uuid(id).unwrap(), ..command },
        None => command,
    }
}

impl Books {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Sends ids in one batch, each again until it is answered with yes or duplicate, by turns to these nodes.
    pub(crate) async fn send(&self, producers: &[Client], ids: &[String]) {
        let mut open: Vec<_> = ids.to_vec();
        for attempt in 0.. {
            let producer = &producers[attempt % producers.len()];
            let results = self.try_once(producer, &open).await;
            open = match results {
                Some(results) => self.enter(&open, &results),
                None => open,
            };
            if open.is_empty() {
                return;
            }
            assert!(attempt < 1200, "never answered: {open:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(&self, producer: &Client, ids: &[String]) -> Option<Vec<Value>> {
        let signed: Vec<_> = ids.iter().map(|id| producer.sign(&command(Some(id))).unwrap()).collect();
        let body = [&b"["[..], &signed.join(&b','), b"]"].concat();
        // Without a token nothing was sent.
        let api = match producer.authorized().await {
            Ok(api) => api,
            Err(error) => return self.failed(&error, &[]),
        };
        match api.send(Method::POST, "/v1/commands/batch", Some(body), "application/json").await {
            Ok((_, answer)) => Some(answer["results"].as_array().unwrap().clone()),
            Err(error) => self.failed(&error, ids),
        }
    }

    /// Enters why a request got no results: the ids in it are in doubt, unless it was refused as a whole.
    pub(crate) fn failed(&self, error: &ApiError, ids: &[String]) -> Option<Vec<Value>> {
        let mut books = self.lock();
        let in_doubt = match error {
            ApiError::Refused { status: 503, document, .. } => {
                books.unavailable += 1;
                document["accepted"] != false
            }
            ApiError::Unreachable { source, .. } => {
                books.lost += 1;
                // Nothing was sent to whom nobody answered the door.
                !source.is_connect()
            }
            other => {
                books.wrong.push(format!("{other:?}"));
                true
            }
        };
        for id in ids {
            books.pages.entry(id.clone()).or_default().in_doubt |= in_doubt;
        }
        None
    }

    /// Enters the answers to a batch, and gives back the ids that must be sent again.
    fn enter(&self, ids: &[String], results: &[Value]) -> Vec<String> {
        assert_eq!(ids.len(), results.len());
        let mut books = self.lock();
        let mut again = Vec::new();
        for (id, result) in ids.iter().zip(results) {
            let page = books.pages.entry(id.clone()).or_default();
            match result["status"].as_u64() {
                Some(202) => page.accepted += 1,
                Some(200) => page.duplicates += 1,
                Some(503) => {
                    page.in_doubt |= result["accepted"] != false;
                    again.push(id.clone());
                    books.unavailable += 1;
                }
                _ => books.wrong.push(result.to_string()),
            }
        }
        again
    }

    /// Enters what came out of the queue.
    pub(crate) fn delivered(&self, ids: impl IntoIterator<Item = String>) {
        let mut books = self.lock();
        for id in ids {
            books.pages.entry(id).or_default().delivered += 1;
        }
    }

    /// Enters what was handed out and then acknowledged without a word back: it came out.
    pub(crate) fn maybe_delivered(&self, ids: impl IntoIterator<Item = String>) {
        let mut books = self.lock();
        for id in ids {
            let page = books.pages.entry(id).or_default();
            page.delivered = page.delivered.max(1);
        }
    }

    /// Enters what was acknowledged, and is gone for good.
    pub(crate) fn ended(&self, ids: impl IntoIterator<Item = String>) {
        let mut books = self.lock();
        for id in ids {
            let page = books.pages.entry(id).or_default();
            page.delivered += 1;
            page.ended = true;
        }
    }

    /// Whether an id was acknowledged by its consumer.
    pub(crate) fn has_ended(&self, id: &str) -> bool {
        self.lock().pages.get(id).is_some_and(|page| page.ended)
    }

    /// How many ids have been answered with yes.
    pub(crate) fn acknowledged(&self) -> usize {
        self.lock().pages.values().filter(|page| page.accepted > 0).count()
    }

    /// How many answers were 503.
    pub(crate) fn unavailable(&self) -> u64 {
        self.lock().unavailable
    }

    /// Ids that were answered.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().pages.keys().cloned().collect()
    }

    /// Adds up; fails if anybody got an answer that nobody may get, or an id won twice.
    pub(crate) fn close(&self) -> Totals {
        let books = self.lock();
        assert!(books.wrong.is_empty(), "{} wrong answers, first: {}", books.wrong.len(), books.wrong[0]);
        let count = |what: &dyn Fn(&Page) -> bool| books.pages.values().filter(|page| what(page)).count();
        assert_eq!(count(&|page| page.accepted > 1), 0, "no id wins twice");
        Totals {
            ids: books.pages.len(),
            acknowledged: count(&|page| page.accepted + page.duplicates > 0),
            delivered: count(&|page| page.delivered > 0),
            missing: count(&|page| page.accepted + page.duplicates > 0 && page.delivered == 0),
            twice: count(&|page| page.delivered > 1),
            false_duplicates: count(&|page| page.accepted == 0 && page.duplicates > 0 && !page.in_doubt),
            unavailable: books.unavailable,
            lost: books.lost,
        }
    }
}
