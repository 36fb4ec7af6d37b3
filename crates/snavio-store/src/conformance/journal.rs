//! Reads of messages, telemetry and the audit log: in order, page by page, and only by their own tenant
//! (TEL-2 to TEL-4, DLV-5).

use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::event::EventEnvelope;
use snavio_model::name::TenantName;
use snavio_model::refusal::{Reason, Refusal, Subject};
use snavio_model::telemetry::{Record, StoredRecord, refused};
use snavio_model::time::Timestamp;

use super::eventually;
use super::samples::{act, at, event_intake, intake_of, message, notify, queue, receive, settle, settle_one};
use crate::{Deed, Store};

fn record(source: &str, reason: Reason, now: i64) -> Record {
    let source = source.parse().expect("a service");
    let record = refused(&source, &Subject::default(), &Refusal::new(reason, ""), at(now));
    record.expect("such a refusal is reported")
}

/// TEL-2, TEL-4: records from the telemetry table and records from the message log come in one order.
pub async fn telemetry_pages_without_gap_or_repeat(store: &Arc<dyn Store>) {
    let mut expected = Vec::new();
    for n in 0..12 {
        if n % 3 == 0 {
            store.record(vec![record("acme/billing", Reason::AclDeny, n)]).await.expect("it is recorded");
            expected.push(("snavio.command.failed", at(n)));
        } else {
            settle_one(&**store, &format!("id-{n}"), &notify(), at(n)).await;
            expected.push(("snavio.command.delivered", at(n)));
        }
    }
    for limit in [1, 5, 100] {
        let mut read = Vec::new();
        let mut after = Serial(0);
        loop {
            let page = store.telemetry("acme", after, limit).await.expect("telemetry can be read");
            assert!(page.len() <= limit && page.is_sorted_by_key(|record| record.number));
            let Some(last) = page.last() else { break };
            assert!(last.number > after);
            after = last.number;
            read.extend(page);
        }
        let read: Vec<_> = read.iter().map(|record| (record.kind.as_str(), record.at)).collect();
        assert_eq!(read, expected, "in pages of {limit}");
    }
}

/// TEL-4
pub async fn telemetry_wakes_its_readers(store: &Arc<dyn Store>) {
    let written = store.telemetry_written("acme");
    for _ in 0..2 {
        let more = written.notified();
        tokio::pin!(more);
        more.as_mut().enable();
        store.record(vec![record("acme/billing", Reason::AclDeny, 0)]).await.expect("it is recorded");
        tokio::time::timeout(Duration::from_secs(20), more).await.expect("woken by a record");
        let more = written.notified();
        tokio::pin!(more);
        more.as_mut().enable();
        settle_one(&**store, "a", &notify(), at(0)).await;
        tokio::time::timeout(Duration::from_secs(20), more).await.expect("woken by a message");
    }
}

/// TEL-4, QUA-1: a flood of one tenant does not wake the readers of other tenants.
pub async fn telemetry_wakes_no_other_tenant(store: &Arc<dyn Store>) {
    let written = store.telemetry_written("zeta");
    let more = written.notified();
    tokio::pin!(more);
    more.as_mut().enable();
    store.record(vec![record("acme/billing", Reason::AclDeny, 0)]).await.expect("it is recorded");
    settle_one(&**store, "a", &notify(), at(0)).await;
    // Once this notification has come, all notifications of the writes above have been sent.
    let own = store.telemetry_written("acme");
    let woken = own.notified();
    tokio::pin!(woken);
    woken.as_mut().enable();
    store.record(vec![record("acme/billing", Reason::AclDeny, 0)]).await.expect("it is recorded");
    tokio::time::timeout(Duration::from_secs(20), woken).await.expect("woken by a record");
    // A backend that polls now and then does not wake the reader either.
    let quiet = tokio::time::timeout(Duration::from_millis(600), more).await;
    assert!(quiet.is_err(), "nothing was written for it");
}

/// TEL-3: a record that is written while a page is read is on that page or on a later one.
pub async fn reader_among_writers_misses_nothing(store: &Arc<dyn Store>) {
    const ROUNDS: i64 = 150;
    let writing = tokio::spawn({
        let store = Arc::clone(store);
        async move {
            for n in 0..ROUNDS {
                let refused = store.record(vec![record("acme/billing", Reason::AclDeny, n)]);
                let id = format!("id-{n}");
                let route = notify();
                let (refused, _) = tokio::join!(refused, settle_one(&*store, &id, &route, at(n)));
                refused.expect("it is recorded");
            }
        }
    });
    let mut seen = Vec::new();
    loop {
        let ended = writing.is_finished();
        let after = seen.last().copied().unwrap_or(Serial(0));
        let page = store.telemetry("acme", after, 7).await.expect("telemetry can be read");
        if page.is_empty() && ended {
            break;
        }
        seen.extend(page.iter().map(|record| record.number));
    }
    writing.await.expect("the writer ends well");
    assert_eq!(seen.len() as i64, 2 * ROUNDS);
}

/// PIP-9: a page of the largest messages fits in memory.
pub async fn page_of_messages_is_bounded_in_bytes(store: &Arc<dyn Store>) {
    const MESSAGES: usize = bounds::PAGE_BYTES_MAX / bounds::BODY_BYTES_MAX + 2;
    for n in 0..MESSAGES {
        let mut intake = intake_of("acme/billing", &format!("id-{n}"), &[notify()], at(0));
        // The large part of a message can also be an event's metadata.
        if n % 2 == 0 {
            intake.message.payload = vec![b' '; bounds::BODY_BYTES_MAX].into();
        } else {
            intake = event_intake(&format!("id-{n}"), &notify(), at(0));
            let event = intake.message.event.as_deref().cloned().expect("it is an event");
            let metadata = Some(format!(r#"{{"x":"{}"}}"#, "x".repeat(bounds::BODY_BYTES_MAX - 512)));
            intake.message.event = Some(Arc::new(EventEnvelope { metadata, ..event }));
        }
        settle(&**store, vec![intake], at(0)).await;
    }
    let mut read = 0;
    let mut after = Serial(0);
    loop {
        let page = store.messages("acme", after, bounds::PAGE_MAX).await.expect("messages can be read");
        let bytes: usize = page.iter().map(|logged| logged.message.content_bytes()).sum();
        assert!(bytes <= bounds::PAGE_BYTES_MAX, "{bytes}");
        let Some(last) = page.last() else { break };
        after = last.number;
        read += page.len();
    }
    assert_eq!(read, MESSAGES);
}

/// TEL-4, QUA-5
pub async fn tenants_read_only_their_own_records(store: &Arc<dyn Store>) {
    let batch = ["acme/billing", "zeta/shop"].map(|source| intake_of(source, "a", &[notify()], at(0)));
    settle(&**store, batch.to_vec(), at(0)).await;
    let records = ["acme/billing", "zeta/shop"].map(|source| record(source, Reason::AclDeny, 1));
    store.record(records.to_vec()).await.expect("they are recorded");
    for (tenant, source) in [("acme", "acme/billing"), ("zeta", "zeta/shop")] {
        let records = store.telemetry(tenant, Serial(0), 10).await.expect("telemetry can be read");
        let sources: Vec<_> =
            records.iter().map(|record| record.source.as_deref().unwrap_or_default()).collect();
        assert_eq!(sources, [source; 2], "{tenant}");
        let messages = store.messages(tenant, Serial(0), 10).await.expect("messages can be read");
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].message.source.as_str(), source);
        let after = store.messages(tenant, messages[0].number, 10).await.expect("messages can be read");
        assert!(after.is_empty());
    }
    assert!(store.telemetry("nobody", Serial(0), 10).await.expect("telemetry can be read").is_empty());
}

/// DLV-5
pub async fn audit_and_dead_letters_page_by_number(store: &Arc<dyn Store>) {
    for n in 0..5 {
        settle_one(&**store, &format!("id-{n}"), &notify(), at(0)).await;
        store.purge(&queue("nobody"), act(&format!("step {n}"), at(n))).await.expect("the store purges");
    }
    for _ in 0..4 {
        receive(&**store, "notify", 0, at(0)).await;
    }
    eventually("five dead letters", async || {
        store.sweep(at(0)).await.expect("the store sweeps");
        let letters = store.dead_letters("acme", None, Serial(0), 10).await.expect("they can be listed");
        (letters.len() == 5).then_some(())
    })
    .await;
    let mut after = Serial(0);
    for sizes in [2, 2, 1, 0] {
        let page =
            store.dead_letters("acme", Some(&queue("dead")), after, 2).await.expect("they can be listed");
        assert_eq!(page.len(), sizes);
        assert!(page.iter().all(|dead_letter| dead_letter.letter.delivery.id > after));
        after = page.last().map_or(after, |dead_letter| dead_letter.letter.delivery.id);
    }
    let other = store.dead_letters("acme", Some(&queue("notify")), Serial(0), 10).await;
    assert!(other.expect("they can be listed").is_empty(), "by the queue they gather in");
    let deed = Deed { action: "config.poll", object: "acme/bot".into(), outcome: "no secret".into() };
    store.put_on_record(act("step 5", at(5)), deed).await.expect("it is put on record");
    let first = store.audit(Serial(0), 3).await.expect("the record can be read");
    let rest = store.audit(first[2].number, 10).await.expect("the record can be read");
    let why: Vec<_> = first.iter().chain(&rest).map(|entry| entry.act.why.as_str()).collect();
    assert_eq!(why, ["step 0", "step 1", "step 2", "step 3", "step 4", "step 5"]);
    let last = rest.last().expect("there is a last one");
    let shown = (last.action.as_str(), last.object.as_str(), last.outcome.as_str());
    assert_eq!(shown, ("config.poll", "acme/bot", "no secret"));
}

/// REG-17: the log says afterwards which permission each message used, without the message's content.
pub async fn permission_uses_are_read_newest_first(store: &Arc<dyn Store>) {
    for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
        settle_one(&**store, id, &notify(), at(n as i64)).await;
    }
    let all = store.uses("acme", Serial(i64::MAX), 10).await.expect("uses can be read");
    let listed: Vec<_> = all.iter().map(|dispatch| (dispatch.id.as_str(), dispatch.settled_at)).collect();
    assert_eq!(listed, [("c", at(2)), ("b", at(1)), ("a", at(0))]);
    let sample = message("acme/billing", "c", at(2));
    let newest = &all[0];
    assert_eq!(
        (&newest.source, &newest.target, &newest.name),
        (&sample.source, &sample.target, &sample.name)
    );
    assert_eq!(
        (&newest.key_version, newest.registry_version),
        (&sample.key_version, sample.registry_version)
    );
    let second = store.uses("acme", all[0].number, 1).await.expect("uses can be read");
    assert_eq!(second, all[1..2]);
    assert!(store.uses("zeta", Serial(i64::MAX), 10).await.expect("uses can be read").is_empty());
}

/// PIP-11: refusals are found by their id, newest first, among the newest records. Records of accepted
/// messages are not searched.
pub async fn records_of_an_id_are_found_among_the_newest(store: &Arc<dyn Store>) {
    let id = r#"an "odd" id"#;
    store.record(vec![record_of(id, 0)]).await.expect("it is recorded");
    store.record((0..30).map(|n| record_of("other", n)).collect()).await.expect("they are recorded");
    store.record(vec![record_of(id, 31)]).await.expect("it is recorded");
    for n in 0..30 {
        settle_one(&**store, &format!("m-{n}"), &notify(), at(32)).await;
    }
    assert_eq!(read_newest(store, id, 32).await, (vec![at(31), at(0)], false));
    assert_eq!(read_newest(store, id, 31).await, (vec![at(31)], true));
    assert_eq!(read_newest(store, "other", 32).await.0.len(), 30);
    assert_eq!(read_newest(store, "nobody", 31).await, (Vec::new(), true));
    assert_eq!(read_newest(store, "m-1", 32).await, (Vec::new(), false));
}

/// The record of a refused message of this id.
fn record_of(id: &str, now: i64) -> Record {
    let source = "acme/billing".parse().expect("a service");
    let subject = Subject { id: Some(MessageId::stored(id)), ..Subject::default() };
    let record = refused(&source, &subject, &Refusal::new(Reason::AclDeny, ""), at(now));
    record.expect("such a refusal is reported")
}

/// Searches the newest records, at most this many, for an id. Returns the times of its records, and whether
/// older records were left out.
async fn read_newest(store: &Arc<dyn Store>, id: &str, most: usize) -> (Vec<Timestamp>, bool) {
    let key = IdKey { id: MessageId::stored(id), tenant: TenantName::new("acme").expect("a tenant") };
    let read = store.told_of(&key, most).await.expect("it is read");
    let is_of_id = |record: &&StoredRecord| record.body.get("command_id").is_some_and(|value| value == id);
    (read.records.iter().filter(is_of_id).map(|record| record.at).collect(), read.is_part)
}
