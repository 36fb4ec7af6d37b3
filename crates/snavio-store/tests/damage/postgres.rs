//! PostgreSQL. The tests change its rows in another session; a column accepts only values of its type.

use snavio_model::id::Serial;
use snavio_store::conformance::samples::{RECEIVES_MAX, at, ids, notify, queue, queued, receive, settle_one};
use snavio_store::postgres::{Options, PostgresStore};
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
async fn a_changed_message_is_never_read_back_whichever_column_changed() {
    for change in OTHER_MESSAGE {
        crate::a_changed_message_is_never_read_back(&Database::new().await, change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_moved_to_another_tenant_is_shown_to_neither() {
    crate::a_message_moved_to_another_tenant_is_shown_to_neither(&Database::new().await).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_damaged_message_ends_as_a_dead_letter_that_says_so() {
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
async fn a_changed_claim_decides_nothing_and_its_neighbours_are_settled() {
    for change in [
        "source = 'acme/other'",
        "source = 'not a name'",
        "message = message + 1",
        "first_seen_at = first_seen_at + 1",
        "expires_at = expires_at + 1",
        "expires_at = 0",
        "check_value = check_value + 1",
    ] {
        crate::a_changed_claim_decides_nothing(&Database::new().await, change).await;
    }
}

/// QUA-1, DLV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_dead_letter_is_left_out_of_lists_and_redrives() {
    for change in ["reason = 'other'", "receives = -1"] {
        crate::a_damaged_dead_letter_is_left_out_of_lists_and_redrives(&Database::new().await, change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_goes_on_behind_what_is_damaged() {
    crate::a_page_goes_on_behind_what_is_damaged(&Database::new().await).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_audit_entry_is_never_read_back_whichever_column_changed() {
    let texts = ["who", "why", "action", "object", "outcome"].map(|column| format!("{column} = 'other'"));
    let numbers = ["at = at + 1", "check_value = check_value + 1", "check_value = 0"].map(str::to_owned);
    for change in texts.into_iter().chain(numbers) {
        crate::a_changed_audit_entry_is_never_read_back(&Database::new().await, &change).await;
    }
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_hold_lets_nothing_go_whichever_column_changed() {
    for change in crate::OTHER_HOLD {
        crate::a_changed_hold_lets_nothing_go(&Database::new().await, change).await;
    }
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_message_is_not_called_erased() {
    crate::a_changed_message_is_not_called_erased(&Database::new().await).await;
}

/// QUA-1, CLM-1, CLM-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_claim_elsewhere_keeps_its_id() {
    crate::a_changed_claim_elsewhere_keeps_its_id(&Database::new().await).await;
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_claim_keeps_its_answer() {
    crate::a_changed_claim_keeps_its_answer(&Database::new().await).await;
}

/// QUA-1, ORD-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_entity_decides_nothing_and_others_go_on() {
    for change in crate::OTHER_ENTITY {
        crate::a_changed_entity_decides_nothing(&Database::new().await, change).await;
    }
}

/// QUA-1, ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_entity_is_not_written_over_and_not_passed() {
    for change in crate::OTHER_ENTITY {
        crate::a_changed_entity_is_parked_as_it_is(&mut Database::new().await, change).await;
    }
}
