//! PostgreSQL. The tests change its rows in another session; a column accepts only values of its type.

use snavio_model::id::Serial;
use snavio_store::conformance::samples::{RECEIVES_MAX, at, ids, notify, queue, queued, receive, settle_one};
use snavio_store::engine::postgres::{Options, PostgresStore};
use snavio_store::{Journal, Ledger, Store, StoreError};
use snavio_testbed::Postgres;

use crate::Damaged;

struct Database {
    url: String,
    store: PostgresStore,
}

impl Database {
    async fn new() -> Self {
        let url = Postgres::shared().database().unwrap();
        let store = PostgresStore::open(&Options::new(&url)).await.unwrap();
        Self { url, store }
    }
}

impl Damaged for Database {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn flip(&self, change: &str) {
        let counted = format!("WITH changed AS ({change} RETURNING 1) SELECT count(*) FROM changed");
        assert_eq!(Postgres::shared().ask(&self.url, &counted).unwrap(), "1", "{change}");
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = PostgresStore::open(&Options::new(&self.url)).await.unwrap();
    }
}

/// Every column of a message, each with a value that only damage can have put there.
const OTHER_MESSAGE: [&str; 23] = [
    "id = 'id-other'",
    "source = 'acme/other'",
    "source = 'not a name'",
    "target = 'acme/other'",
    "name = 'other'",
    "signed_target = 'other'",
    "sent_at = '2026-11-15T08:30:01Z'",
    "key_version = 'hmac-v2'",
    "key_version = ''",
    "signature = 'other'",
    "correlation_id = 'other'",
    "traceparent = '00-00000000000000000000000000000001-0000000000000001-00'",
    "traceparent = 'none'",
    "received_at = received_at + 1",
    "settled_at = settled_at + 1",
    "registry_version = 6",
    "hash_version = 9",
    "hash_version = 1 << 20",
    "domain_hash = '\\x00'",
    "path = 'fast'",
    "payload = '{}'",
    "event = '{\"version\":\"1.0\",\"timestamp\":\"\"}'",
    "check_value = check_value + 1",
];

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_message_is_never_read_back() {
    for change in OTHER_MESSAGE {
        crate::check_changed_message(&Database::new().await, change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_moved_to_another_tenant_is_hidden() {
    crate::check_message_moved_to_another_tenant(&Database::new().await).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_of_a_damaged_message_becomes_a_dead_letter() {
    let damaged = Database::new().await;
    let store = &damaged.store;
    let delivery = queued(settle_one(store, "a", &notify(), at(0)).await).unwrap();
    damaged.flip("UPDATE message SET payload = '{}'");
    settle_one(store, "b", &notify(), at(0)).await;
    for _ in 0..RECEIVES_MAX {
        assert_eq!(ids(&receive(store, "notify", 0, at(1)).await), ["b"]);
    }
    assert_eq!(store.sweep(at(1)).await.unwrap().dead_letters, 2);
    let shown = store.dead_letter("acme", delivery).await;
    assert!(matches!(shown, Err(StoreError::Damaged { what: "message", .. })), "{shown:?}");
    let listed = store.dead_letters("acme", Some(&queue("dead")), Serial(0), 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|dead_letter| dead_letter.message_id.as_str()).collect();
    assert_eq!(listed, ["b"], "and does not hide the others");
    store.close().await;
}

/// QUA-1, CLM-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_claim_decides_nothing() {
    for change in [
        "source = 'acme/other'",
        "source = 'not a name'",
        "message = message + 1",
        "first_seen_at = first_seen_at + 1",
        "expires_at = expires_at + 1",
        "expires_at = 0",
        "check_value = check_value + 1",
    ] {
        crate::check_changed_claim(&Database::new().await, change).await;
    }
}

/// QUA-1, DLV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_dead_letter_is_left_out() {
    for change in ["reason = 'other'", "receives = -1"] {
        crate::check_damaged_dead_letter(&Database::new().await, change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_continues_past_damaged_messages() {
    crate::check_page_past_damage(&Database::new().await).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_audit_entry_is_never_read_back() {
    let texts = ["who", "why", "action", "object", "outcome"].map(|column| format!("{column} = 'other'"));
    let numbers = ["at = at + 1", "check_value = check_value + 1", "check_value = 0"].map(str::to_owned);
    for change in texts.into_iter().chain(numbers) {
        crate::check_changed_audit_entry(&Database::new().await, &change).await;
    }
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_hold_lets_nothing_be_deleted() {
    for change in crate::OTHER_HOLD {
        crate::check_changed_hold(&Database::new().await, change).await;
    }
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_message_is_not_marked_erased() {
    crate::check_erasure_of_changed_message(&Database::new().await).await;
}

/// QUA-1, CLM-1, CLM-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_claim_at_another_destination_keeps_its_id() {
    crate::check_changed_claim_at_another_destination(&Database::new().await).await;
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_claim_keeps_its_response() {
    crate::check_response_of_changed_claim(&Database::new().await).await;
}

/// QUA-1, ORD-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_entity_decides_nothing() {
    for change in crate::OTHER_ENTITY {
        crate::check_changed_entity(&Database::new().await, change).await;
    }
}

/// QUA-1, ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_entity_is_not_overwritten_or_passed() {
    for change in crate::OTHER_ENTITY {
        crate::check_parking_of_changed_entity(&mut Database::new().await, change).await;
    }
}
