//! The node's promises and their results: recorded during a run, and judged at its end.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::id::Serial;
use snavio_sdk::Delivery;
use tokio::time::Instant;

/// A logical time of a tally: the number of acknowledged deliveries so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(usize);

/// A message that was answered with 2xx.
#[derive(Debug, Clone, Copy)]
struct AcknowledgedMessage {
    strict: bool,
    first_at: Instant,
}

/// A lower bound of the time for which a strict route remembers an id, with a margin for the requests.
const STRICT_KEEP: Duration = bounds::STRICT_KEEP.saturating_sub(Duration::from_secs(20));

/// The record of one run against one store.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    kills: usize,
    duplicates: usize,
    refused: usize,
    acknowledged: HashMap<String, AcknowledgedMessage>,
    /// Ids of messages that must be refused, also if the node was killed before it answered.
    unfit: HashSet<String>,
    /// The deliveries of each id that were received, and whether from a strict route.
    delivered: HashMap<String, (bool, HashSet<Serial>)>,
    /// Deliveries whose acknowledgement was answered `done`, with the logical time of the answer.
    ended: HashMap<Serial, Moment>,
    dead: HashSet<String>,
    /// Queues whose registration was answered.
    registered: HashSet<String>,
    /// Acknowledged ids that had not arrived when all queues were empty.
    lost: Vec<String>,
    broken: Vec<String>,
}

impl Tally {
    pub(crate) fn killed(&mut self) {
        self.kills += 1;
    }

    /// Records a 2xx.
    pub(crate) fn acknowledged(&mut self, id: &str, strict: bool, duplicate: bool) {
        let entry = AcknowledgedMessage { strict, first_at: Instant::now() };
        self.acknowledged.entry(id.to_owned()).or_insert(entry);
        self.duplicates += usize::from(duplicate);
        if self.unfit.contains(id) {
            self.broken.push(format!("{id} was acknowledged and must be refused"));
        }
    }

    /// Records that an invalid message will be sent, which no consumer may ever receive.
    pub(crate) fn unfit(&mut self, id: &str) {
        self.unfit.insert(id.to_owned());
    }

    /// Records a refusal.
    pub(crate) fn refused(&mut self) {
        self.refused += 1;
    }

    /// The current logical time. A consumer takes it before a receive, to compare the deliveries with those
    /// that had ended by then.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.ended.len())
    }

    /// Records a delivery of a receive that began at `asked`.
    pub(crate) fn received(&mut self, asked: Moment, strict: bool, delivery: &Delivery) {
        let id = delivery.message.id().expect("deliveries carry their message's id");
        if self.ended.get(&delivery.delivery_id).is_some_and(|ended| *ended <= asked) {
            self.broken.push(format!("{id} was delivered again after its acknowledgement"));
        }
        let entry = self.delivered.entry(id.to_owned()).or_default();
        entry.0 |= strict;
        entry.1.insert(delivery.delivery_id);
    }

    /// Records an acknowledgement that the node answered with `done`.
    pub(crate) fn ended(&mut self, delivery: Serial) {
        let moment = Moment(self.ended.len() + 1);
        self.ended.entry(delivery).or_insert(moment);
    }

    pub(crate) fn dead_letter(&mut self, id: &str) {
        self.dead.insert(id.to_owned());
    }

    /// Records that the node answered the registration of a queue.
    pub(crate) fn registered(&mut self, queue: &str) {
        self.registered.insert(queue.to_owned());
    }

    /// Records whether the node has a queue.
    pub(crate) fn found(&mut self, queue: &str, exists: bool) {
        if !exists && self.registered.contains(queue) {
            self.broken.push(format!("{queue} was registered and is gone"));
        }
    }

    /// Records a broken promise that the caller has found.
    pub(crate) fn broken(&mut self, description: String) {
        self.broken.push(description);
    }

    /// The number of messages that were answered with 2xx.
    pub(crate) fn acknowledged_so_far(&self) -> usize {
        self.acknowledged.len()
    }

    /// Acknowledged ids that a strict route must still remember.
    pub(crate) fn strict(&self) -> Vec<String> {
        let is_remembered =
            |message: &AcknowledgedMessage| message.strict && message.first_at.elapsed() < STRICT_KEEP;
        self.acknowledged
            .iter()
            .filter(|(_, message)| is_remembered(message))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Finds the losses: call it after all queues are drained and all dead letters read, so that no message
    /// can still arrive.
    pub(crate) fn look_for_losses(&mut self) {
        let missing = self.acknowledged.keys().filter(|id| !self.has_arrived(id));
        self.lost = missing.cloned().collect();
    }

    fn has_arrived(&self, id: &str) -> bool {
        self.delivered.contains_key(id) || self.dead.contains(id)
    }

    /// Judges the run and returns its totals.
    pub(crate) fn totals(mut self) -> Totals {
        let passed: Vec<_> = self.unfit.iter().filter(|id| self.has_arrived(id)).cloned().collect();
        let twice = self.delivered.iter().filter(|(_, (strict, deliveries))| *strict && deliveries.len() > 1);
        self.broken.extend(twice.map(|(id, _)| format!("{id} was dispatched twice by a strict route")));
        self.broken.extend(self.lost.iter().map(|id| format!("{id} was acknowledged and is lost")));
        self.broken.extend(passed.iter().map(|id| format!("{id} was refused and then delivered")));
        Totals {
            kills: self.kills,
            acknowledged: self.acknowledged.len(),
            delivered: self.delivered.len(),
            dead_letters: self.dead.len(),
            duplicates: self.duplicates,
            refused: self.refused,
            refused_then_delivered: passed.len(),
            lost: self.lost.len(),
            broken: self.broken,
        }
    }
}

/// The totals of one run or of many.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) kills: usize,
    pub(crate) acknowledged: usize,
    pub(crate) delivered: usize,
    pub(crate) dead_letters: usize,
    pub(crate) duplicates: usize,
    pub(crate) refused: usize,
    pub(crate) refused_then_delivered: usize,
    pub(crate) lost: usize,
    /// A description of every broken promise.
    pub(crate) broken: Vec<String>,
}

impl Totals {
    /// Fails if a promise was broken.
    pub(crate) fn assert_kept(&self) {
        let first: Vec<_> = self.broken.iter().take(10).collect();
        assert!(self.broken.is_empty(), "{} promises were broken: {first:#?}", self.broken.len());
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.acknowledged += other.acknowledged;
        self.delivered += other.delivered;
        self.dead_letters += other.dead_letters;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.refused_then_delivered += other.refused_then_delivered;
        self.lost += other.lost;
        self.broken.extend(other.broken);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kills {}, acknowledged {}, delivered {}, dead letters {}, duplicates {}, refused {}, \
             refused then delivered {}, lost {}, promises broken {}",
            self.kills,
            self.acknowledged,
            self.delivered,
            self.dead_letters,
            self.duplicates,
            self.refused,
            self.refused_then_delivered,
            self.lost,
            self.broken.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn delivery(id: &str, number: i64) -> Delivery {
        let document = json!({
            "delivery_id": Serial(number), "fence": Serial(1), "attempt": 1,
            "message": { "metadata": { "id": id }, "command": {} },
        });
        serde_json::from_value(document).unwrap()
    }

    fn broken(act: impl FnOnce(&mut Tally)) -> Vec<String> {
        let mut tally = Tally::default();
        act(&mut tally);
        tally.look_for_losses();
        tally.totals().broken
    }

    #[test]
    fn arrived_messages_keep_every_promise() {
        let kept = broken(|tally| {
            tally.unfit("bad");
            tally.acknowledged("a", true, false);
            tally.acknowledged("b", false, false);
            tally.dead_letter("a");
            let asked = tally.now();
            tally.received(asked, false, &delivery("b", 1));
            tally.received(asked, false, &delivery("b", 2));
            tally.ended(Serial(1));
        });
        assert_eq!(kept, Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_broken_promise_is_detected() {
        let lost = broken(|tally| tally.acknowledged("a", false, false));
        assert_eq!(lost, ["a was acknowledged and is lost"]);
        let gone = broken(|tally| {
            tally.registered("q");
            tally.found("q", false);
        });
        assert_eq!(gone, ["q was registered and is gone"]);
        let passed = broken(|tally| {
            tally.unfit("a");
            tally.dead_letter("a");
        });
        assert_eq!(passed, ["a was refused and then delivered"]);
        let twice = broken(|tally| {
            let asked = tally.now();
            tally.received(asked, true, &delivery("a", 1));
            tally.received(asked, true, &delivery("a", 2));
        });
        assert_eq!(twice, ["a was dispatched twice by a strict route"]);
        let again = broken(|tally| {
            tally.ended(Serial(1));
            let asked = tally.now();
            tally.received(asked, false, &delivery("a", 1));
        });
        assert_eq!(again, ["a was delivered again after its acknowledgement"]);
    }
}
