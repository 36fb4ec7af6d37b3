//! QUA-1: the store notices a damaged record when it reads it, refuses only that record, and never returns a
//! wrong answer.
//!
//! This file has the requirements, which are the same on every engine. The file of an engine has the changes
//! that its columns can suffer, and the way to make them in the database directly.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod embedded;
mod postgres;

use snavio_model::archive::hold::Held;
use snavio_model::claim::{ClaimPolicy, IdKey};
use snavio_model::delivery::processing::Ending;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::ordering::{EntityKey, Mode, OnFailure};
use snavio_model::settle::Outcome;
use snavio_store::conformance::ordering::{numbered, ordered};
use snavio_store::conformance::processing::{failed_report, finish_one, lease_new};
use snavio_store::conformance::samples::{
    RECEIVES_MAX, acknowledge, act, at, ids, intake, message, notify, pay, queue, queued, receipt, receive,
    route, settle, settle_one,
};
use snavio_store::{NewHold, Redriven, Report, Reset, Store, StoreError};

/// A new store. The test can change its rows in the database directly.
trait Damaged {
    fn store(&self) -> &dyn Store;

    /// Changes one row, as a flipped bit would.
    fn flip(&self, change: &str);

    /// Closes the store and opens it again.
    async fn reopen(&mut self);
}

/// A message with a changed column is not read back, and its neighbour is.
async fn check_changed_message(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    settle_one(store, "a", &notify(), at(0)).await;
    settle_one(store, "b", &notify(), at(0)).await;
    damaged.flip(&format!("UPDATE message SET {change} WHERE id = 'a'"));
    let received = receive(store, "notify", 0, at(1)).await;
    assert_eq!(ids(&received), ["b"], "{change}: its neighbour is handed out, itself not");
    assert_eq!(*received[0].message, message("acme/billing", "b", at(0)));
    let messages = store.messages("acme", Serial(0), 10).await.unwrap();
    assert_eq!(
        messages.iter().map(|logged| logged.message.id.as_str()).collect::<Vec<_>>(),
        ["b"],
        "{change}"
    );
    let records = store.telemetry("acme", Serial(0), 10).await.unwrap();
    assert_eq!(records.len(), 1, "{change}: {records:?}");
    store.close().await;
}

async fn check_message_moved_to_another_tenant(damaged: &impl Damaged) {
    let store = damaged.store();
    settle_one(store, "a", &notify(), at(0)).await;
    damaged.flip("UPDATE message SET tenant = 'zeta' WHERE id = 'a'");
    for tenant in ["acme", "zeta"] {
        assert!(store.messages(tenant, Serial(0), 10).await.unwrap().is_empty(), "{tenant}");
    }
    store.close().await;
}

/// A changed claim decides nothing, and its neighbours in a batch are settled.
async fn check_changed_claim(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    settle_one(store, "a", &pay(), at(0)).await;
    damaged.flip(&format!("UPDATE claim SET {change} WHERE id = 'a'"));
    let batch = ["b", "a", "c"].map(|id| intake(id, &pay(), at(1))).to_vec();
    let settled = settle(store, batch, at(1)).await;
    assert!(
        queued(settled[0].outcomes[0]).is_some() && queued(settled[2].outcomes[0]).is_some(),
        "{change}: {settled:?}"
    );
    assert_eq!(settled[1].outcomes, [Outcome::Unreadable], "{change}");
    assert_eq!(ids(&receive(store, "pay", 30, at(1)).await), ["a", "b", "c"], "{change}: once each");
    store.close().await;
}

async fn check_damaged_dead_letter(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    let delivery = queued(settle_one(store, "a", &notify(), at(0)).await).unwrap();
    settle_one(store, "b", &notify(), at(0)).await;
    for _ in 0..RECEIVES_MAX {
        receive(store, "notify", 0, at(0)).await;
    }
    store.sweep(at(0)).await.unwrap();
    damaged.flip(&format!("UPDATE dead_letter SET {change} WHERE id = {delivery}"));
    for queue in [None, Some(&queue("dead"))] {
        let listed = store.dead_letters("acme", queue, Serial(0), 1).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|dead_letter| dead_letter.message_id.as_str()).collect();
        assert_eq!(listed, ["b"], "{change}: a page of one is not empty before the end");
    }
    let shown = store.dead_letter("acme", delivery).await;
    assert!(matches!(shown, Err(StoreError::Damaged { what: "dead letter", .. })), "{change}: {shown:?}");
    let all = store.dead_letter_origins(&queue("dead"), Serial(0), 10).await.unwrap();
    let all = all.into_iter().map(|origin| origin.id).collect();
    let redriven = store.redrive("acme", all, act("fixed", at(1))).await.unwrap();
    assert_eq!(redriven.back.len(), 1, "{change}");
    assert_eq!(ids(&receive(store, "notify", 30, at(1)).await), ["b"], "{change}");
    store.close().await;
}

async fn check_page_past_damage(damaged: &impl Damaged) {
    let store = damaged.store();
    for id in ["a", "b", "c"] {
        settle_one(store, id, &notify(), at(0)).await;
    }
    let first = store.messages("acme", Serial(0), 1).await.unwrap()[0].number;
    for id in ["a", "b"] {
        damaged.flip(&format!("UPDATE message SET signature = 'other' WHERE id = '{id}'"));
    }
    let messages = store.messages("acme", Serial(0), 1).await.unwrap();
    assert_eq!(messages.iter().map(|logged| logged.message.id.as_str()).collect::<Vec<_>>(), ["c"]);
    let records = store.telemetry("acme", Serial(0), 1).await.unwrap();
    assert_eq!(records[0].body["command_id"], "c");
    let asked = store.message("acme", first).await;
    assert!(matches!(asked, Err(StoreError::Damaged { .. })), "it is not as if there were none: {asked:?}");
    let last = messages[0].number;
    assert_eq!(store.message("acme", last).await.unwrap().unwrap().message.id.as_str(), "c");
    assert!(store.message("zeta", last).await.unwrap().is_none(), "another tenant does not see it");
    store.close().await;
}

/// An audit entry with a changed column is not read back, and the next one is.
async fn check_changed_audit_entry(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    for why in ["first", "second"] {
        store.purge(&queue("notify"), act(why, at(0))).await.unwrap();
    }
    damaged.flip(&format!("UPDATE audit SET {change} WHERE seq = (SELECT min(seq) FROM audit)"));
    let audit = store.audit(Serial(0), 1).await.unwrap();
    let why: Vec<_> = audit.iter().map(|entry| entry.act.why.as_str()).collect();
    assert_eq!(why, ["second"], "{change}");
    store.close().await;
}

/// A changed hold may cover any record. So the store deletes nothing, erases nothing, and lets no expired id
/// be used again.
async fn check_changed_hold(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    settle_one(store, "a", &pay(), at(0)).await;
    let tenant: TenantName = "zeta".parse().unwrap();
    let hold = NewHold { tenant, held: Held::Tenant };
    store.set_hold(hold, act("a lawsuit", at(1))).await.unwrap().unwrap();
    damaged.flip(&format!("UPDATE hold SET {change}"));
    let later = at(86_400);
    assert_eq!(store.sweep(later).await.unwrap().claims, 0, "{change}");
    assert_eq!(settle_one(store, "a", &pay(), later).await, Outcome::Unreadable, "{change}");
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().unwrap() };
    let erased = store.erase(&id, Vec::new(), None, act("asked for", later)).await;
    assert!(matches!(erased, Err(StoreError::Damaged { what: "hold", .. })), "{change}: {erased:?}");
    assert!(queued(settle_one(store, "b", &pay(), later).await).is_some(), "{change}: the rest goes on");
    store.close().await;
}

/// An erasure that skipped a changed message would leave its content. So the erasure fails, and marks nothing
/// as erased.
async fn check_erasure_of_changed_message(damaged: &impl Damaged) {
    let store = damaged.store();
    settle_one(store, "a", &route("ledger", ClaimPolicy::ledger()), at(0)).await;
    let work = receive(store, "ledger", 30, at(0)).await.remove(0);
    acknowledge(store, &queue("ledger"), vec![receipt(&work)]).await.unwrap();
    damaged.flip("UPDATE message SET signature = 'other' WHERE id = 'a'");
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().unwrap() };
    let erased = store.erase(&id, Vec::new(), None, act("asked for", at(1))).await;
    assert!(matches!(erased, Err(StoreError::Damaged { what: "message", .. })), "{erased:?}");
    assert_eq!(store.claims_of(&id, at(1)).await.unwrap()[0].erased_at, None);
    store.close().await;
}

/// A changed claim at another destination may keep the id. So the id gets no other content.
async fn check_changed_claim_at_another_destination(damaged: &impl Damaged) {
    let store = damaged.store();
    let policy = ClaimPolicy::Event { keep_seconds: 1_000, answers: false };
    let (book, note) = (route("book", policy), route("note", policy));
    settle_one(store, "a", &book, at(0)).await;
    damaged.flip("UPDATE claim SET check_value = 1 WHERE id = 'a'");
    let later = at(1_000);
    assert_eq!(settle_one(store, "a", &note, later).await, Outcome::Unreadable);
    assert!(queued(settle_one(store, "b", &note, later).await).is_some(), "the rest goes on");
    store.close().await;
}

/// A changed claim may be held. So another attempt does not destroy its stored response.
async fn check_response_of_changed_claim(damaged: &impl Damaged) {
    let store = damaged.store();
    let work = lease_new(store, "a", 0).await;
    finish_one(store, failed_report(receipt(&work), true, 0), 1).await;
    damaged.flip("UPDATE claim SET check_value = 1 WHERE id = 'a'");
    let id = work.delivery_id;
    let redriven = store.redrive("acme", vec![id], act("fixed", at(3))).await.unwrap();
    assert_eq!(redriven, Redriven { held: vec![id], ..Redriven::default() });
    assert!(store.answer(id).await.unwrap().is_some());
    store.close().await;
}

/// Changes of a hold that only damage can have made.
const OTHER_HOLD: [&str; 5] =
    ["tenant = 'beta'", "event_id = 'b'", "destination = 'zeta/bot:pay'", "lifted_at = 1", "check_value = 1"];

/// A changed entity decides nothing, and other entities go on.
async fn check_changed_entity(damaged: &impl Damaged, change: &str) {
    let store = damaged.store();
    let strict = ordered("strict", Mode::Strict, |_| {});
    let send =
        |id: &str, entity: &str, number| numbered(id, entity, number, std::slice::from_ref(&strict), at(1));
    settle(store, vec![send("a", "e", 5), send("b", "f", 5)], at(1)).await;
    damaged.flip(&format!("UPDATE entity SET {change} WHERE body LIKE '%\"last_id\":\"a\"%'"));
    let settled = settle(store, vec![send("c", "e", 4), send("d", "f", 6)], at(1)).await;
    assert_eq!(settled[0].outcomes, [Outcome::Unreadable], "{change}");
    assert!(queued(settled[1].outcomes[0]).is_some(), "{change}: {settled:?}");
    let key = EntityKey::stored("acme acme/bot:strict e").unwrap();
    assert!(matches!(store.entity(&key, at(1)).await, Err(StoreError::Damaged { what: "entity", .. })));
    // An operator may reset the entity, with an audit entry (ORD-6).
    let reset = async |force| store.reset_entity(&key, force, act("damaged", at(2))).await.unwrap();
    assert_eq!(reset(false).await, Reset::Busy { deliveries: 1 });
    assert_eq!(reset(true).await, Reset::Damaged);
    let settled = settle(store, vec![send("c", "e", 4)], at(2)).await;
    assert!(queued(settled[0].outcomes[0]).is_some(), "{change}: {settled:?}");
    assert_eq!(store.audit(Serial(0), 10).await.unwrap().last().unwrap().outcome, "it was damaged");
    store.close().await;
}

/// A changed entity is not overwritten when one of its messages fails for good, and the messages behind stay
/// (ORD-7).
async fn check_parking_of_changed_entity(damaged: &mut impl Damaged, change: &str) {
    let parking = ordered("parking", Mode::Strict, |order| order.on_failure = OnFailure::Park);
    let send = |id: &str, number| numbered(id, "e", number, std::slice::from_ref(&parking), at(1));
    settle(damaged.store(), vec![send("b", 4), send("a", 5)], at(1)).await;
    damaged.flip(&format!("UPDATE entity SET {change} WHERE body LIKE '%\"last_id\":\"a\"%'"));
    let first = receive(damaged.store(), "parking", 30, at(1)).await;
    assert_eq!(ids(&first), ["b"]);
    let ending = Ending::Failed { error: "no".into(), is_final: true, answer: None, retry_after: None };
    let report = Report { ending, ..Report::done(receipt(&first[0])) };
    damaged.store().finish(&queue("parking"), vec![report], "acme/bot", at(2)).await.unwrap();
    let key = EntityKey::stored("acme acme/bot:parking e").unwrap();
    for _ in 0..2 {
        let store = damaged.store();
        assert!(matches!(store.entity(&key, at(2)).await, Err(StoreError::Damaged { what: "entity", .. })));
        assert!(receive(store, "parking", 30, at(3)).await.is_empty(), "{change}: it is not passed");
        damaged.reopen().await;
    }
    let store = damaged.store();
    assert_eq!(store.reset_entity(&key, true, act("damaged", at(4))).await.unwrap(), Reset::Damaged);
    assert_eq!(ids(&receive(store, "parking", 30, at(5)).await), ["a"]);
    store.close().await;
}

/// Changes of an entity.
const OTHER_ENTITY: [&str; 3] =
    ["body = replace(body, '\"last\":5', '\"last\":3')", "body = '{}'", "check_value = check_value + 1"];
