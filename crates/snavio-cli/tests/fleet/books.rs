//! The tally of a run: requests, answers and deliveries by message id, with totals at the end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use snavio_model::id::MessageId;
use snavio_sdk::{ApiError, Client, Command};

/// The pause between two attempts to send a message.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Clone)]
struct MessageRecord {
    /// Whether a request with the message ended without an answer, so that it may have been accepted.
    outcome_unknown: bool,
    accepted: u32,
    duplicates: u32,
    delivered: u32,
    /// Whether the consumer's acknowledgement was answered.
    ended: bool,
}

/// The tally of one run.
#[derive(Default)]
pub(crate) struct Tally(Mutex<TallyState>);

#[derive(Default)]
struct TallyState {
    records: BTreeMap<String, MessageRecord>,
    /// Answers that must not occur.
    wrong_answers: Vec<String>,
    unavailable: u64,
    lost: u64,
}

/// The totals of a tally.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) ids: usize,
    pub(crate) acknowledged: usize,
    pub(crate) delivered: usize,
    /// Acknowledged messages that were never delivered.
    pub(crate) missing: usize,
    /// Messages that were delivered twice.
    pub(crate) twice: usize,
    /// Messages that were called duplicates although no earlier request can have stored them.
    pub(crate) false_duplicates: usize,
    pub(crate) unavailable: u64,
    pub(crate) lost: u64,
}

/// A command with the given id or a new one.
pub(crate) fn command(id: Option<&str>) -> Command {
    let payload = br#"{"amount":"12.50","currency":"EUR"}"#.to_vec();
    let command = Command::new("acme/bot".parse().unwrap(), "pay".parse().unwrap(), payload);
    match id {
        Some(id) => Command { id: MessageId::uuid(id).unwrap(), ..command },
        None => command,
    }
}

impl Tally {
    fn lock(&self) -> std::sync::MutexGuard<'_, TallyState> {
        self.0.lock().unwrap()
    }

    /// Sends ids in one batch to the nodes in turn, and repeats each until it is accepted or a duplicate.
    pub(crate) async fn send(&self, producers: &[Client], ids: &[String]) {
        let mut unanswered: Vec<_> = ids.to_vec();
        for attempt in 0.. {
            let producer = &producers[attempt % producers.len()];
            let results = self.try_once(producer, &unanswered).await;
            unanswered = match results {
                Some(results) => self.record_results(&unanswered, &results),
                None => unanswered,
            };
            if unanswered.is_empty() {
                return;
            }
            assert!(attempt < 1200, "never answered: {unanswered:?}");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_once(&self, producer: &Client, ids: &[String]) -> Option<Vec<Value>> {
        let signed: Vec<_> = ids.iter().map(|id| producer.sign(&command(Some(id))).unwrap()).collect();
        let body = [&b"["[..], &signed.join(&b','), b"]"].concat();
        // Without a token no message was sent.
        let api = match producer.authorized().await {
            Ok(api) => api,
            Err(error) => return self.record_failure(&error, &[]),
        };
        match api.send(Method::POST, "/v1/commands/batch", Some(body), "application/json").await {
            Ok((_, answer)) => Some(answer["results"].as_array().unwrap().clone()),
            Err(error) => self.record_failure(&error, ids),
        }
    }

    /// Records a failed request. The outcome of its ids is unknown, unless the node refused the whole
    /// request.
    pub(crate) fn record_failure(&self, error: &ApiError, ids: &[String]) -> Option<Vec<Value>> {
        let mut tally = self.lock();
        let outcome_unknown = match error {
            ApiError::Refused { status: 503, document, .. } => {
                tally.unavailable += 1;
                document["accepted"] != false
            }
            ApiError::Unreachable { source, .. } => {
                tally.lost += 1;
                // A failed connect sends nothing.
                !source.is_connect()
            }
            other => {
                tally.wrong_answers.push(format!("{other:?}"));
                true
            }
        };
        for id in ids {
            tally.records.entry(id.clone()).or_default().outcome_unknown |= outcome_unknown;
        }
        None
    }

    /// Records the answers to a batch, and returns the ids to send again.
    fn record_results(&self, ids: &[String], results: &[Value]) -> Vec<String> {
        assert_eq!(ids.len(), results.len());
        let mut tally = self.lock();
        let mut again = Vec::new();
        for (id, result) in ids.iter().zip(results) {
            let record = tally.records.entry(id.clone()).or_default();
            match result["status"].as_u64() {
                Some(202) => record.accepted += 1,
                Some(200) => record.duplicates += 1,
                Some(503) => {
                    record.outcome_unknown |= result["accepted"] != false;
                    again.push(id.clone());
                    tally.unavailable += 1;
                }
                _ => tally.wrong_answers.push(result.to_string()),
            }
        }
        again
    }

    /// Records deliveries.
    pub(crate) fn record_delivered(&self, ids: impl IntoIterator<Item = String>) {
        let mut tally = self.lock();
        for id in ids {
            tally.records.entry(id).or_default().delivered += 1;
        }
    }

    /// Records deliveries whose acknowledgement had no answer.
    pub(crate) fn record_maybe_delivered(&self, ids: impl IntoIterator<Item = String>) {
        let mut tally = self.lock();
        for id in ids {
            let record = tally.records.entry(id).or_default();
            record.delivered = record.delivered.max(1);
        }
    }

    /// Records deliveries whose acknowledgement was answered, so that they must not come again.
    pub(crate) fn record_acknowledged(&self, ids: impl IntoIterator<Item = String>) {
        let mut tally = self.lock();
        for id in ids {
            let record = tally.records.entry(id).or_default();
            record.delivered += 1;
            record.ended = true;
        }
    }

    pub(crate) fn has_ended(&self, id: &str) -> bool {
        self.lock().records.get(id).is_some_and(|record| record.ended)
    }

    /// The number of ids that were accepted.
    pub(crate) fn accepted_count(&self) -> usize {
        self.lock().records.values().filter(|record| record.accepted > 0).count()
    }

    /// The number of 503 answers.
    pub(crate) fn unavailable_count(&self) -> u64 {
        self.lock().unavailable
    }

    /// All ids in the tally.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().records.keys().cloned().collect()
    }

    /// Adds up the totals. Panics if there was a wrong answer, or an id was accepted twice.
    pub(crate) fn totals(&self) -> Totals {
        let tally = self.lock();
        assert!(
            tally.wrong_answers.is_empty(),
            "{} wrong answers, first: {}",
            tally.wrong_answers.len(),
            tally.wrong_answers[0]
        );
        let count = |matches: &dyn Fn(&MessageRecord) -> bool| {
            tally.records.values().filter(|record| matches(record)).count()
        };
        assert_eq!(count(&|record| record.accepted > 1), 0, "no id is accepted twice");
        Totals {
            ids: tally.records.len(),
            acknowledged: count(&|record| record.accepted + record.duplicates > 0),
            delivered: count(&|record| record.delivered > 0),
            missing: count(&|record| record.accepted + record.duplicates > 0 && record.delivered == 0),
            twice: count(&|record| record.delivered > 1),
            false_duplicates: count(&|record| {
                record.accepted == 0 && record.duplicates > 0 && !record.outcome_unknown
            }),
            unavailable: tally.unavailable,
            lost: tally.lost,
        }
    }
}
