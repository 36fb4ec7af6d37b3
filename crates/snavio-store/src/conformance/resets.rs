//! A reset of an entity is audited (ORD-6), and refused while deliveries of the entity wait.

use std::sync::Arc;

use snavio_model::id::Serial;
use snavio_model::ordering::Mode;

use super::ordering::{acknowledge_all, entity_key, ordered, read_state, send, strict, verdict_name};
use super::samples::{act, at};
use crate::{Reset, Store};

/// ORD-6
pub async fn reset_sees_concurrent_messages(store: &Arc<dyn Store>) {
    let strict = strict();
    let mut kept = 0;
    for round in 0..40 {
        let entity = format!("e{round}");
        send(&**store, &entity, 1, &strict, at(0)).await;
        assert_eq!(acknowledge_all(&**store, "strict", at(0)).await, [1]);
        let of = entity_key("strict", &entity);
        // The message before keeps the store busy, so that the store does the next two steps together.
        let before = send(&**store, "other", round, &strict, at(1));
        let beside = send(&**store, &entity, 2, &strict, at(1));
        let reset = store.reset_entity(&of, false, act("counted anew", at(1)));
        let (_, _, reset) = tokio::join!(before, beside, reset);
        let known = read_state(&**store, "strict", &entity, at(1)).await;
        match reset.expect("it answers") {
            Reset::Busy { deliveries } => assert_eq!(deliveries, 1),
            Reset::Forgotten(_) => {
                let known = known.expect("it came after the reset, and is the first of a new count");
                assert_eq!(known.last, 2);
                kept += 1;
            }
            other => panic!("{other:?}"),
        }
        acknowledge_all(&**store, "strict", at(1)).await;
    }
    println!("{kept} of 40 resets went before the message beside them");
}

/// ORD-6
pub async fn forced_reset_releases_waiting_messages_and_is_audited(store: &Arc<dyn Store>) {
    let reorder = ordered("reorder", Mode::Reorder, |_| {});
    for number in [5, 9, 7] {
        send(&**store, "e", number, &reorder, at(0)).await;
    }
    let of = entity_key("reorder", "e");
    let reset =
        async |force| store.reset_entity(&of, force, act("counted anew", at(1))).await.expect("it answers");
    assert_eq!(reset(false).await, Reset::Busy { deliveries: 3 }, "new ones would be handed out amid them");
    let Reset::Forgotten(was) = reset(true).await else { panic!("it is known") };
    assert_eq!((was.last, was.waiting.len()), (5, 2));
    assert!(read_state(&**store, "reorder", "e", at(1)).await.is_none());
    assert_eq!(acknowledge_all(&**store, "reorder", at(1)).await, [5, 7, 9]);
    assert_eq!(verdict_name(&send(&**store, "e", 1, &reorder, at(2)).await), "queued");
    assert_eq!(acknowledge_all(&**store, "reorder", at(2)).await, [1]);
    let reset = store.reset_entity(&of, false, act("again", at(3))).await.expect("it answers");
    assert!(matches!(reset, Reset::Forgotten(_)), "nothing of it is there any more");
    let unknown = store.reset_entity(&entity_key("reorder", "nobody"), false, act("no", at(3))).await;
    assert_eq!(unknown.expect("it can be asked"), Reset::Unknown);
    let audit = store.audit(Serial(0), 10).await.expect("the record can be read");
    assert_eq!(audit.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(), ["entity.reset"; 2]);
    assert!(
        audit.iter().all(|entry| entry.object.starts_with("acme acme/bot:reorder sha256:")),
        "and not by its name"
    );
}
