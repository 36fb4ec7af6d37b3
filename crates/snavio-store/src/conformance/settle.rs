//! Settling: a message comes out of its queue as it was sent (PIP-4, PIP-5, DLV-3).

use std::sync::Arc;

use snavio_model::settle::Outcome;

use super::samples::{
    at, ids, intake, intake_of, message, notify, pay, queue, queued, receive, settle, settle_one,
};
use super::{eventually, give_up_after};
use crate::Store;

/// DLV-3, MSG-10: every member is read back as it was written, the payload byte for byte.
pub async fn what_is_settled_is_delivered_as_it_came(store: &Arc<dyn Store>) {
    let outcome = settle_one(&**store, "a", &notify(), at(0)).await;
    let received = receive(&**store, "notify", 30, at(5)).await;
    assert_eq!(*received[0].message, message("acme/billing", "a", at(0)));
    assert_eq!(Some(received[0].delivery_id), queued(outcome));
    assert_eq!((received[0].attempt, received[0].queued_at, received[0].visible_at), (1, at(0), at(35)));
}

/// DLV-2: a queue delivers its messages in the order in which they were settled.
pub async fn queues_keep_the_order_of_settling(store: &Arc<dyn Store>) {
    let mut sent = Vec::new();
    for batch in 0..6 {
        let names: Vec<_> = (0..7).map(|n| format!("{batch}-{n}")).collect();
        let route = if batch % 2 == 0 { notify() } else { pay() };
        let intakes = names.iter().map(|id| intake(id, &route, at(batch))).collect();
        settle(&**store, intakes, at(batch)).await;
        if batch % 2 == 0 {
            sent.extend(names);
        }
    }
    let mut got = Vec::new();
    while got.len() < sent.len() {
        let some = store.receive(&queue("notify"), 4, std::time::Duration::from_secs(60), at(9)).await;
        let some = some.expect("the store hands out");
        assert!((1..=4).contains(&some.len()), "at most as many as asked for");
        got.extend(ids(&some).into_iter().map(str::to_owned));
    }
    assert_eq!(got, sent);
}

/// PIP-5
pub async fn empty_batch_settles_nothing(store: &Arc<dyn Store>) {
    assert!(settle(&**store, Vec::new(), at(0)).await.is_empty());
    assert!(receive(&**store, "notify", 30, at(0)).await.is_empty());
}

/// DLV-3
pub async fn serials_rise(store: &Arc<dyn Store>) {
    let mut last = None;
    for n in 0..20 {
        let batch = (0..3).map(|m| intake(&format!("{n}-{m}"), &notify(), at(n))).collect();
        for settled in settle(&**store, batch, at(n)).await {
            let delivery = queued(settled.outcomes[0]);
            assert!(settled.message > last && delivery > settled.message, "{settled:?} after {last:?}");
            last = delivery;
        }
    }
}

/// MSG-12: an engine may be unable to store a message that another engine stores. The other messages of the
/// batch are settled.
pub async fn message_that_the_engine_cannot_store_fails_alone(store: &Arc<dyn Store>) {
    const IDS: [&str; 7] = ["a", "b\0c", "d", "e", "\0", "f", "g"];
    let is_odd = |id: &str| id.contains('\0');
    for now in 0..2 {
        let batch = IDS.map(|id| intake(id, &pay(), at(now))).to_vec();
        let settled = settle(&**store, batch, at(now)).await;
        assert_eq!(settled.len(), IDS.len());
        for (id, settlement) in IDS.iter().zip(&settled) {
            let outcome = settlement.outcomes[0];
            let good = if now == 0 {
                queued(outcome).is_some()
            } else {
                outcome == Outcome::Duplicate { first_seen_at: at(0) }
            };
            assert!(good || is_odd(id) && outcome == Outcome::Unfit, "{id:?} at {now}: {outcome:?}");
        }
    }
    let alone = settle_one(&**store, "h\0", &notify(), at(2)).await;
    assert!(queued(alone).is_some() || alone == Outcome::Unfit, "{alone:?}");
    let received = receive(&**store, "pay", 30, at(2)).await;
    let good: Vec<_> = ids(&received).into_iter().filter(|id| !is_odd(id)).collect();
    assert_eq!(good, ["a", "d", "e", "f", "g"]);
}

/// PIP-4, ENG-1: the sender may hang up before its message is settled.
pub async fn abandoned_batch_is_settled_whole(store: &Arc<dyn Store>) {
    let batch = |id: &str| {
        let routes = [notify(), pay()];
        (0..5).map(|n| intake_of("acme/billing", &format!("{id}-{n}"), &routes, at(0))).collect::<Vec<_>>()
    };
    for round in 0..10 {
        let id = format!("id-{round}");
        give_up_after(round % 3, settle(&**store, batch(&id), at(0))).await;
        // The second batch settles after the first, or instead of it. Either way there are five of each.
        let again = settle(&**store, batch(&id), at(0)).await;
        let fresh = again.iter().filter(|settlement| queued(settlement.outcomes[1]).is_some()).count();
        assert!(fresh == 0 || fresh == 5, "half a batch was there: {again:?}");
    }
    let depth =
        async |name: &str| store.attributes(&queue(name), at(0)).await.expect("the store answers").depth;
    eventually("all are settled, strict ones once", async || {
        ((depth("notify").await, depth("pay").await) == (100, 50)).then_some(())
    })
    .await;
}
