//! Settling: a message comes out of its queue as it came in (PIP-4, PIP-5, DLV-3).

use std::sync::Arc;

use super::samples::{at, ids, intake, message, notify, pay, queue, queued, receive, settle, settle_one};
use crate::Store;

/// DLV-3, MSG-10: every member is read back as it was written, the payload byte for byte.
pub async fn what_is_settled_is_delivered_as_it_came(store: &Arc<dyn Store>) {
    let outcome = settle_one(&**store, "a", &notify(), at(0)).await;
    let received = receive(&**store, "notify", 30, at(5)).await;
    assert_eq!(*received[0].message, message("acme/billing", "a", at(0)));
    assert_eq!(Some(received[0].delivery_id), queued(outcome));
    assert_eq!((received[0].attempt, received[0].queued_at, received[0].visible_at), (1, at(0), at(35)));
}

/// DLV-2: a queue hands out in the order in which its messages were settled.
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
pub async fn an_empty_batch_settles_nothing(store: &Arc<dyn Store>) {
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
