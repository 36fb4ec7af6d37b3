//! Queues: the behaviour that consumers rely on, over days in virtual time (DLV-2, DLV-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::delivery::processing::Ending;
use snavio_model::delivery::{DeadReason, QueueAttributes, Receipt, ReceiptOutcome};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;

use super::samples::{
    self, RECEIVES_MAX, act, at, ids, intake, notify, pay, queue, queued, receipt, receive, settle,
    settle_one,
};
use super::{eventually, give_up_after};
use crate::{ListedDeadLetter, Purged, Received, Redriven, Report, Store};

async fn acknowledge(store: &dyn Store, name: &str, receipts: &[Receipt]) -> Vec<ReceiptOutcome> {
    samples::acknowledge(store, &queue(name), receipts.to_vec()).await.expect("the store acknowledges")
}

async fn receive_one(store: &dyn Store, visibility: u64, now: i64) -> Received {
    let mut received = receive(store, "notify", visibility, at(now)).await;
    assert_eq!(received.len(), 1, "at {now}");
    received.remove(0)
}

/// Receives the only delivery of a queue as often as it may be received, and returns its dead letter.
async fn exhaust_receives(store: &dyn Store, now: i64) -> ListedDeadLetter {
    for attempt in 1..=RECEIVES_MAX {
        assert_eq!(receive_one(store, 0, now).await.attempt, attempt);
    }
    assert!(receive(store, "notify", 0, at(now)).await.is_empty());
    dead_letter(store, now).await
}

async fn dead_letter(store: &dyn Store, now: i64) -> ListedDeadLetter {
    eventually("a dead letter", async || {
        store.sweep(at(now)).await.expect("the store sweeps");
        let mut letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        letters.pop()
    })
    .await
}

/// DLV-2, DLV-3
pub async fn a_lease_hides_until_it_ends(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let first = receive_one(&**store, 30, 0).await;
    assert!(receive(&**store, "notify", 30, at(29)).await.is_empty());
    let second = receive_one(&**store, 30, 30).await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    assert_eq!(first.delivery_id, second.delivery_id);
    assert!(second.fence > first.fence);
    let fenced = acknowledge(&**store, "notify", &[receipt(&first)]).await;
    assert_eq!(fenced, [ReceiptOutcome::Fenced]);
    let outcomes = acknowledge(&**store, "notify", &[receipt(&second), receipt(&second)]).await;
    assert_eq!(outcomes, [ReceiptOutcome::Done, ReceiptOutcome::Gone]);
    assert!(receive(&**store, "notify", 30, at(90)).await.is_empty());
}

/// DLV-2: if a caller hangs up before it receives a delivery, the delivery loses no attempt.
pub async fn abandoned_receive_spends_no_attempt(store: &Arc<dyn Store>) {
    for round in 0..20 {
        settle_one(&**store, &format!("id-{round}"), &notify(), at(0)).await;
        let asked = receive(&**store, "notify", 600, at(0));
        let received = match tokio::time::timeout(Duration::ZERO, asked).await {
            Ok(received) if !received.is_empty() => received,
            // A receive that was dropped in an earlier round may still have it for a moment.
            Ok(_) | Err(_) => {
                eventually("the delivery is there again", async || {
                    let received = receive(&**store, "notify", 600, at(0)).await;
                    (!received.is_empty()).then_some(received)
                })
                .await
            }
        };
        assert_eq!(received[0].attempt, 1);
        acknowledge(&**store, "notify", &[receipt(&received[0])]).await;
    }
}

/// DLV-2
pub async fn an_extension_hides_for_longer(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let lease = receive_one(&**store, 30, 0).await;
    let longer = Duration::from_secs(100);
    let extended = store.extend(&queue("notify"), vec![receipt(&lease)], longer, at(20)).await;
    assert_eq!(extended.expect("the store extends"), [ReceiptOutcome::Done]);
    assert!(receive(&**store, "notify", 30, at(119)).await.is_empty());
    assert_eq!(receive_one(&**store, 30, 120).await.attempt, 2);
    let late = store.extend(&queue("notify"), vec![receipt(&lease)], longer, at(121)).await;
    assert_eq!(late.expect("the store answers"), [ReceiptOutcome::Fenced]);
}

/// DLV-2
pub async fn release_waits_for_its_delay(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let lease = receive_one(&**store, 600, 0).await;
    let back = vec![Report::given_back(receipt(&lease), at(11), None)];
    let released = store.finish(&queue("notify"), back, "bot", at(1)).await.expect("the store releases");
    assert_eq!(released[0].outcome, ReceiptOutcome::Done);
    assert!(receive(&**store, "notify", 30, at(10)).await.is_empty());
    assert_eq!(receive_one(&**store, 30, 11).await.delivery_id, lease.delivery_id);
}

/// DLV-4
pub async fn unattempted_delivery_waits_and_spends_no_attempt(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let take_back = async |lease: &Received, until| {
        let taken = store.take_back(&queue("notify"), vec![receipt(lease)], at(until)).await;
        taken.expect("the store takes it back");
    };
    let mut now = 0;
    let mut fence = Serial(0);
    for _ in 0..2 * RECEIVES_MAX {
        let lease = receive_one(&**store, 600, now).await;
        assert_eq!(lease.attempt, 1, "it has spent no attempt");
        assert!(lease.fence > fence, "its lease is still known");
        // A caller that got no answer repeats the call.
        take_back(&lease, now + 10).await;
        take_back(&lease, now + 10).await;
        assert!(receive(&**store, "notify", 30, at(now + 9)).await.is_empty());
        (now, fence) = (now + 10, lease.fence);
    }
    let first = receive_one(&**store, 0, now).await;
    let second = receive_one(&**store, 600, now).await;
    take_back(&first, now + 10).await;
    assert!(receive(&**store, "notify", 30, at(now + 10)).await.is_empty(), "another worker has it");
    assert_eq!(acknowledge(&**store, "notify", &[receipt(&second)]).await, [ReceiptOutcome::Done]);
    take_back(&second, now + 10).await;
    assert!(receive(&**store, "notify", 30, at(now + 20)).await.is_empty(), "it is gone");
}

/// DLV-3
pub async fn a_receipt_ends_only_its_own_delivery(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    settle_one(&**store, "b", &pay(), at(0)).await;
    let lease = receive_one(&**store, 30, 0).await;
    let unknown = Receipt { delivery_id: Serial(lease.delivery_id.0 + 1_000), fence: lease.fence };
    assert_eq!(acknowledge(&**store, "notify", &[unknown]).await, [ReceiptOutcome::Gone]);
    let elsewhere = acknowledge(&**store, "pay", &[receipt(&lease)]).await;
    assert_eq!(elsewhere, [ReceiptOutcome::Gone], "a receipt counts in its own queue only");
    assert_eq!(acknowledge(&**store, "notify", &[receipt(&lease)]).await, [ReceiptOutcome::Done]);
    assert_eq!(ids(&receive(&**store, "pay", 30, at(1)).await), ["b"]);
}

/// DLV-3
pub async fn forged_receipt_ends_nothing(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let waiting = queued(settle_one(&**store, "b", &notify(), at(0)).await).expect("it is queued");
    let leased = store.receive(&queue("notify"), 1, Duration::from_secs(30), at(0)).await;
    let leased = leased.expect("the store hands out").remove(0);
    assert_eq!(leased.message.id.as_str(), "a");
    for forged in [
        Receipt { fence: Serial(leased.fence.0 + 1), ..receipt(&leased) },
        Receipt { delivery_id: waiting, fence: leased.fence },
        Receipt { delivery_id: waiting, fence: Serial(0) },
    ] {
        let outcome = acknowledge(&**store, "notify", &[forged]).await;
        assert_ne!(outcome, [ReceiptOutcome::Done], "{forged:?}");
    }
    assert_eq!(ids(&receive(&**store, "notify", 30, at(30)).await).len(), 2, "both are there");
}

/// DLV-2, TEL-1
pub async fn receives_are_counted_to_the_last(store: &Arc<dyn Store>) {
    let delivery = queued(settle_one(&**store, "a", &notify(), at(0)).await);
    settle_one(&**store, "b", &pay(), at(0)).await;
    let ListedDeadLetter { letter, message_id, .. } = exhaust_receives(&**store, 7).await;
    assert_eq!((letter.reason, letter.dead_at), (DeadReason::ReceivesExhausted, at(7)));
    assert_eq!((letter.delivery.receives, Some(letter.delivery.id)), (RECEIVES_MAX, delivery));
    assert_eq!((letter.delivery.queue, letter.delivery.dead_letter_queue), (queue("notify"), queue("dead")));
    assert_eq!(message_id.as_str(), "a");
    assert_eq!(ids(&receive(&**store, "pay", 30, at(7)).await), ["b"], "its neighbour goes on");

    let records = store.telemetry("acme", Serial(0), 10).await.expect("telemetry can be read");
    let failed = records
        .iter()
        .find(|record| record.kind == "snavio.command.failed")
        .expect("the sender gets a record");
    assert_eq!(failed.body["reason"], "delivery-failure");
    assert_eq!(failed.body["dead_letter_reason"], "receives_exhausted");
    assert_eq!(failed.body["attempts"], RECEIVES_MAX);
    assert_eq!(failed.body["command_id"], "a");
}

/// DLV-4
pub async fn dead_letter_has_the_last_error(store: &Arc<dyn Store>) {
    for (id, error) in [("a", "the receiver answered 503"), ("b", "odd: \u{1}ä\n'x'")] {
        settle_one(&**store, id, &notify(), at(0)).await;
        let lease = receive_one(&**store, 30, 0).await;
        assert_eq!(lease.attempts_max, RECEIVES_MAX, "the worker knows which attempt is the last");
        let ending = Ending::Unknown { error: error.to_owned() }.last();
        let report = Report { ending, ..Report::done(receipt(&lease)) };
        let finished =
            store.finish(&queue("notify"), vec![report], "test", at(1)).await.expect("it is taken");
        assert_eq!(finished[0].outcome, ReceiptOutcome::Done);
        let letter = dead_letter(&**store, 1).await.letter;
        let kept = error.replace(['\u{1}', '\n'], " ");
        assert_eq!((letter.reason, letter.error), (DeadReason::Failed, Some(kept)));
        let whole =
            store.dead_letter("acme", lease.delivery_id).await.expect("it can be read").expect("it is there");
        assert_eq!(whole.letter.error, letter_error(&**store, lease.delivery_id).await);
        let back =
            store.redrive("acme", vec![lease.delivery_id], act("fixed", at(2))).await.expect("it redrives");
        assert_eq!(back.back, [lease.delivery_id]);
        let again = receive_one(&**store, 30, 3).await;
        assert_eq!((again.delivery_id, again.attempt), (lease.delivery_id, 1));
        acknowledge(&**store, "notify", &[receipt(&again)]).await;
    }
}

async fn letter_error(store: &dyn Store, id: Serial) -> Option<String> {
    let letters =
        store.dead_letters("acme", Some(&queue("dead")), Serial(0), 10).await.expect("they are listed");
    letters.into_iter().find(|dead_letter| dead_letter.letter.delivery.id == id)?.letter.error
}

/// DLV-2
pub async fn unreceived_delivery_ends_after_its_retention(store: &Arc<dyn Store>) {
    let retention = i64::try_from(bounds::QUEUE_RETENTION.as_secs()).expect("two weeks");
    settle_one(&**store, "a", &notify(), at(0)).await;
    settle_one(&**store, "b", &notify(), at(10)).await;
    let early = store.sweep(at(retention - 1)).await.expect("the store sweeps");
    assert_eq!(early.dead_letters, 0);
    let swept = store.sweep(at(retention)).await.expect("the store sweeps");
    assert_eq!(swept.dead_letters, 1);
    let letter = dead_letter(&**store, retention).await;
    assert_eq!((letter.letter.reason, letter.message_id.as_str()), (DeadReason::RetentionExpired, "a"));
    assert!(
        receive(&**store, "notify", 30, at(retention + 10)).await.is_empty(),
        "nor is it handed out late"
    );
    eventually("a second dead letter", async || {
        store.sweep(at(retention + 10)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        (letters.len() == 2).then_some(())
    })
    .await;
}

/// DLV-2, DLV-3
pub async fn a_redriven_delivery_is_itself_again(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let first = receive_one(&**store, 0, 0).await;
    receive_one(&**store, 0, 0).await;
    let last = receive_one(&**store, 0, 0).await;
    assert!(receive(&**store, "notify", 0, at(0)).await.is_empty());
    let dead = dead_letter(&**store, 0).await.letter.delivery.id;
    assert_eq!(dead, first.delivery_id);
    // A younger delivery waits already. The redriven one has the lower serial, and must not be lost behind
    // it.
    settle_one(&**store, "b", &notify(), at(1)).await;
    let back = store.redrive("acme", vec![dead, Serial(7)], act("fixed", at(2))).await;
    let back = back.expect("the store redrives");
    assert_eq!(back, Redriven { back: vec![dead], ..Redriven::default() }, "and reports only known ones");
    assert!(store.dead_letter("acme", dead).await.expect("it can be asked for").is_none());

    let again = receive(&**store, "notify", 0, at(2)).await;
    let redriven = again.iter().find(|delivery| delivery.delivery_id == dead).expect("it is handed out");
    assert_eq!((redriven.attempt, redriven.queued_at), (1, at(2)));
    assert!(redriven.fence > last.fence);
    assert_eq!(acknowledge(&**store, "notify", &[receipt(&last)]).await, [ReceiptOutcome::Fenced]);
    assert_eq!(again.len(), 2);
    let twice = store.redrive("acme", vec![dead], act("again", at(3))).await;
    assert_eq!(twice.expect("the store answers"), Redriven::default());
    let audit = store.audit(Serial(0), 10).await.expect("the record can be read");
    assert_eq!((audit.len(), audit[0].action.as_str()), (1, "dead_letter.redrive"));
    assert_eq!((audit[0].act.why.as_str(), audit[0].act.at), ("fixed", at(2)));
}

/// DLV-2
pub async fn purge_deletes_present_deliveries_and_is_audited(store: &Arc<dyn Store>) {
    for id in ["a", "b", "c"] {
        settle_one(&**store, id, &notify(), at(0)).await;
    }
    settle_one(&**store, "d", &pay(), at(0)).await;
    let leased = store.receive(&queue("notify"), 1, Duration::from_secs(60), at(0)).await;
    let leased = leased.expect("the store hands out");
    let purged = store.purge(&queue("notify"), act("a test", at(1))).await;
    assert_eq!(
        purged.expect("the store purges"),
        Purged { deleted: 3, ..Purged::default() },
        "a delivery in flight goes too"
    );
    assert!(receive(&**store, "notify", 30, at(100)).await.is_empty());
    assert_eq!(acknowledge(&**store, "notify", &[receipt(&leased[0])]).await, [ReceiptOutcome::Gone]);
    assert_eq!(ids(&receive(&**store, "pay", 30, at(1)).await), ["d"], "other queues stay");
    let audit = store.audit(Serial(0), 10).await.expect("the record can be read");
    assert_eq!((audit[0].action.as_str(), audit[0].object.as_str()), ("queue.purge", "acme/notify"));
    assert_eq!((audit[0].act.who.as_str(), audit[0].act.why.as_str()), ("acme/bot (client)", "a test"));
    assert_eq!(audit[0].outcome, "3 deliveries deleted");
}

/// DLV-2: a long queue is purged in steps, and each step has an audit entry.
pub async fn purge_of_a_long_queue_deletes_everything(store: &Arc<dyn Store>) {
    const BATCH: usize = 250;
    let batches = bounds::SWEEP_ROWS_MAX / BATCH + 1;
    for batch in 0..batches {
        let messages = (0..BATCH).map(|n| intake(&format!("{batch}-{n}"), &notify(), at(0))).collect();
        settle(&**store, messages, at(0)).await;
    }
    let purged = store.purge(&queue("notify"), act("a test", at(1))).await.expect("the store purges").deleted;
    assert_eq!(purged, (batches * BATCH) as u64);
    assert!(receive(&**store, "notify", 30, at(1)).await.is_empty());
    let seen = store.attributes(&queue("notify"), at(1)).await.expect("the store answers");
    assert_eq!(seen.depth, 0);
    let audit = store.audit(Serial(0), 10).await.expect("the record can be read");
    let counted = audit.iter().filter_map(|entry| entry.outcome.split(' ').next()?.parse::<u64>().ok());
    assert_eq!(counted.sum::<u64>(), purged, "{audit:?}");
}

/// DLV-2: a message that races with a purge is wholly there or wholly gone.
pub async fn purge_during_traffic_loses_and_doubles_nothing(store: &Arc<dyn Store>) {
    let mut settled = 0;
    let mut purged = 0;
    for round in 0..30 {
        let before = (0..3).map(|n| intake(&format!("{round}-b{n}"), &notify(), at(0))).collect();
        let after = (0..3).map(|n| intake(&format!("{round}-a{n}"), &notify(), at(0))).collect();
        let key = queue("notify");
        let purge = store.purge(&key, act("a test", at(0)));
        let (_, count, _) =
            tokio::join!(settle(&**store, before, at(0)), purge, settle(&**store, after, at(0)));
        settled += 6;
        purged += count.expect("the store purges").deleted;
    }
    let mut left = 0;
    loop {
        let some = receive(&**store, "notify", 600, at(0)).await;
        if some.is_empty() {
            break;
        }
        left += some.len() as u64;
    }
    assert_eq!(purged + left, settled, "none is counted twice or not at all");
}

/// DLV-2
pub async fn attributes_count_depth_in_flight_delayed_and_age(store: &Arc<dyn Store>) {
    for id in ["a", "b", "c", "d"] {
        settle_one(&**store, id, &notify(), at(0)).await;
    }
    let leased = store.receive(&queue("notify"), 3, Duration::from_secs(60), at(5)).await;
    let leased = leased.expect("the store hands out");
    let back = vec![Report::given_back(receipt(&leased[1]), at(605), None)];
    store.finish(&queue("notify"), back, "bot", at(5)).await.expect("it releases");
    acknowledge(&**store, "notify", &[receipt(&leased[0])]).await;
    let seen = store.attributes(&queue("notify"), at(20)).await.expect("the store answers");
    assert_eq!((seen.depth, seen.in_flight, seen.delayed), (1, 1, 1));
    assert_eq!((seen.oldest_age_seconds, seen.dead_letters), (20, 0));
    let seen = store.attributes(&queue("notify"), at(66)).await.expect("the store answers");
    assert_eq!((seen.depth, seen.in_flight, seen.delayed), (2, 0, 1), "the lease has ended");
    let seen = store.attributes(&queue("nobody"), at(66)).await.expect("the store answers");
    assert_eq!((seen.depth, seen.oldest_age_seconds), (0, 0));
}

/// DLV-2, REG-24
pub async fn queue_is_empty_only_after_its_last_delivery(store: &Arc<dyn Store>) {
    assert_eq!((holds_any(store, "notify").await, holds_any(store, "dead").await), (false, false));
    settle_one(&**store, "a", &notify(), at(0)).await;
    assert_eq!((holds_any(store, "notify").await, holds_any(store, "dead").await), (true, false));
    exhaust_receives(&**store, 1).await;
    assert_eq!(
        (holds_any(store, "notify").await, holds_any(store, "dead").await),
        (false, true),
        "a dead letter is held too"
    );
    settle_one(&**store, "b", &pay(), at(2)).await;
    let leased = receive(&**store, "pay", 60, at(3)).await;
    assert!(holds_any(store, "pay").await, "a delivery in flight counts");
    acknowledge(&**store, "pay", &[receipt(&leased[0])]).await;
    assert!(!holds_any(store, "pay").await);
}

async fn holds_any(store: &Arc<dyn Store>, name: &str) -> bool {
    store.holds_any(&queue(name)).await.expect("the store answers")
}

async fn destinations(store: &Arc<dyn Store>, name: &str) -> BTreeSet<String> {
    store.destinations(&queue(name)).await.expect("the store answers")
}

/// REG-24, ORD-3
pub async fn queue_lists_the_destinations_of_its_deliveries(store: &Arc<dyn Store>) {
    assert_eq!(destinations(store, "notify").await, BTreeSet::new());
    settle_one(&**store, "a", &notify(), at(0)).await;
    settle_one(&**store, "b", &notify(), at(0)).await;
    settle_one(&**store, "c", &pay(), at(0)).await;
    assert_eq!(destinations(store, "notify").await, BTreeSet::from([notify().destination.to_string()]));
    let leased = receive(&**store, "pay", 60, at(3)).await;
    assert_eq!(
        destinations(store, "pay").await,
        BTreeSet::from([pay().destination.to_string()]),
        "a delivery in flight counts"
    );
    acknowledge(&**store, "pay", &[receipt(&leased[0])]).await;
    assert_eq!(destinations(store, "pay").await, BTreeSet::new());
}

/// DLV-2, TEL-8
pub async fn all_attributes_cover_every_nonempty_queue(store: &Arc<dyn Store>) {
    assert_eq!(all_attributes(store, 0).await, BTreeMap::new());
    settle_one(&**store, "a", &notify(), at(0)).await;
    exhaust_receives(&**store, 1).await;
    for id in ["b", "c"] {
        settle_one(&**store, id, &notify(), at(2)).await;
    }
    settle_one(&**store, "d", &pay(), at(3)).await;
    let leased = receive(&**store, "pay", 60, at(4)).await;
    receive(&**store, "nobody", 60, at(4)).await;
    let all = all_attributes(store, 10).await;
    assert_eq!(all.keys().collect::<Vec<_>>(), [&queue("dead"), &queue("notify"), &queue("pay")]);
    for (queue, attributes) in &all {
        let alone = store.attributes(queue, at(10)).await.expect("the store answers");
        assert_eq!(*attributes, alone, "{queue}");
    }
    assert_eq!((all[&queue("dead")].dead_letters, all[&queue("notify")].depth), (1, 2));
    assert_eq!((all[&queue("pay")].in_flight, all[&queue("pay")].oldest_age_seconds), (1, 7));
    acknowledge(&**store, "pay", &[receipt(&leased[0])]).await;
    assert!(!all_attributes(store, 10).await.contains_key(&queue("pay")), "an empty queue is left out");
}

async fn all_attributes(store: &Arc<dyn Store>, now: i64) -> BTreeMap<QueueKey, QueueAttributes> {
    let all = store.all_attributes(at(now)).await.expect("the store answers");
    let count = all.len();
    let all: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(all.len(), count, "each comes once");
    all
}

/// DLV-2
pub async fn arrivals_wake_their_own_queue_only(store: &Arc<dyn Store>) {
    let (own, other) = (store.arrivals(&queue("notify")), store.arrivals(&queue("pay")));
    let (own, other) = (own.notified(), other.notified());
    tokio::pin!(own, other);
    own.as_mut().enable();
    other.as_mut().enable();
    settle_one(&**store, "a", &notify(), at(0)).await;
    tokio::time::timeout(Duration::from_secs(20), own).await.expect("woken");
    let quiet = tokio::time::timeout(Duration::ZERO, other).await;
    assert!(quiet.is_err(), "nothing arrived there");
}

/// QUA-5
pub async fn tenants_do_not_see_each_others_dead_letters(store: &Arc<dyn Store>) {
    settle_one(&**store, "a", &notify(), at(0)).await;
    let dead = exhaust_receives(&**store, 0).await.letter.delivery.id;
    assert!(store.dead_letter("zeta", dead).await.expect("it can be asked for").is_none());
    for queue in [None, Some(&queue("dead"))] {
        let theirs = store.dead_letters("zeta", queue, Serial(0), 10).await;
        assert!(theirs.expect("they can be listed").is_empty(), "{queue:?}");
    }
    let back = store.redrive("zeta", vec![dead], act("not mine", at(1))).await;
    assert_eq!(back.expect("the store answers"), Redriven::default());
    assert!(store.dead_letter("acme", dead).await.expect("it can be asked for").is_some());
    let _ = settle(&**store, Vec::new(), at(0)).await;
}

/// DLV-3, ENG-1: if the caller hangs up, its acknowledgement has ended all deliveries or none.
pub async fn abandoned_acknowledgement_is_whole(store: &Arc<dyn Store>) {
    const COUNT: u64 = 8;
    for wakes in 0.. {
        let batch = (0..COUNT).map(|n| intake(&format!("{wakes}-{n}"), &notify(), at(0))).collect();
        settle(&**store, batch, at(0)).await;
        let receipts: Vec<_> = receive(&**store, "notify", 600, at(0)).await.iter().map(receipt).collect();
        assert_eq!(receipts.len() as u64, COUNT);
        let given_up =
            give_up_after(wakes, samples::acknowledge(&**store, &queue("notify"), receipts.clone())).await;
        let held = store.attributes(&queue("notify"), at(0)).await.expect("the store answers").in_flight;
        assert!(held == 0 || held == COUNT, "{held} of {COUNT} are there after {wakes} wakes");
        let again = acknowledge(&**store, "notify", &receipts).await;
        assert!(again.iter().all(|outcome| *outcome == again[0]), "after {wakes} wakes: {again:?}");
        if given_up.is_some() {
            break;
        }
    }
}

/// DLV-5, ENG-1: if the caller hangs up, its redrive has put back all deliveries, with their audit entries,
/// or none.
pub async fn abandoned_redrive_is_whole(store: &Arc<dyn Store>) {
    const COUNT: usize = 5;
    let mut recorded = 0;
    for wakes in 0.. {
        let batch = (0..COUNT).map(|n| intake(&format!("{wakes}-{n}"), &notify(), at(0))).collect();
        settle(&**store, batch, at(0)).await;
        for _ in 0..RECEIVES_MAX {
            receive(&**store, "notify", 0, at(0)).await;
        }
        let letters = async || {
            let letters = store.dead_letters("acme", None, Serial(0), 100).await.expect("they can be listed");
            letters.iter().map(|dead_letter| dead_letter.letter.delivery.id).collect::<Vec<_>>()
        };
        let dead = eventually("all are dead letters", async || {
            store.sweep(at(0)).await.expect("the store sweeps");
            Some(letters().await).filter(|dead| dead.len() == COUNT)
        })
        .await;
        let redriven = give_up_after(wakes, store.redrive("acme", dead.clone(), act("fixed", at(1)))).await;
        let left = letters().await.len();
        assert!(left == 0 || left == COUNT, "{left} of {COUNT} are left after {wakes} wakes");
        store.redrive("acme", dead, act("fixed", at(1))).await.expect("the store redrives");
        assert_eq!(
            store.purge(&queue("notify"), act("next", at(1))).await.expect("the store purges").deleted,
            COUNT as u64
        );
        assert!(letters().await.is_empty());
        recorded += COUNT;
        eventually("each is on the record, once", async || {
            let audit = store.audit(Serial(0), 10_000).await.expect("the record can be read");
            let redrives = audit.iter().filter(|entry| entry.action == "dead_letter.redrive").count();
            assert!(redrives <= recorded, "{redrives} of {recorded} after {wakes} wakes");
            (redrives == recorded).then_some(())
        })
        .await;
        if redriven.is_some() {
            break;
        }
    }
}
