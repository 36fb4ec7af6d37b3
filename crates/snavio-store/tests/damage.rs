//! QUA-1: a damaged record is noticed when it is read, refused for itself alone, and never a wrong answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use snavio_model::id::Serial;
use snavio_model::settle::Outcome;
use snavio_store::conformance::samples::{
    RECEIVES_MAX, at, ids, intake, message, notify, pay, queue, queued, receive, settle, settle_one,
};
use snavio_store::embedded::{EmbeddedStore, FILE, Options};
use snavio_store::{Journal, Store, StoreError};

struct Damaged {
    folder: tempfile::TempDir,
    store: EmbeddedStore,
}

impl Damaged {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&Options::new(folder.path())).unwrap();
        Self { folder, store }
    }

    /// Changes the file behind the store's back, as a flipped bit would.
    fn flip(&self, change: &str) {
        let connection = rusqlite::Connection::open(self.folder.path().join(FILE)).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(connection.execute(change, []).unwrap(), 1, "{change}");
    }
}

/// Every column of a message, and a value that only damage could have put there.
const OTHER_MESSAGE: [&str; 17] = [
    "id = 'id-other'",
    "source = 'acme/other'",
    "target = 'acme/other'",
    "name = 'other'",
    "signed_target = 'other'",
    "sent_at = '2026-11-15T08:30:01Z'",
    "key_version = 'hmac-v2'",
    "signature = 'other'",
    "correlation_id = 'other'",
    "traceparent = '00-00000000000000000000000000000001-0000000000000001-00'",
    "received_at = received_at + 1",
    "registry_version = 6",
    "hash_version = 9",
    "domain_hash = zeroblob(32)",
    "path = 'fast'",
    "payload = CAST(replace(CAST(payload AS TEXT), 'came', 'cams') AS BLOB)",
    "check_value = check_value + 1",
];

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_message_is_never_read_back_whichever_column_changed() {
    for change in OTHER_MESSAGE {
        let damaged = Damaged::new();
        let store = &damaged.store;
        settle_one(store, "a", &notify(), at(0)).await;
        settle_one(store, "b", &notify(), at(0)).await;
        damaged.flip(&format!("UPDATE message SET {change} WHERE id = 'a'"));

        let received = receive(store, "notify", 0, at(1)).await;
        assert_eq!(ids(&received), ["b"], "{change}: its neighbour is handed out, itself not");
        assert_eq!(*received[0].message, message("acme/billing", "b", at(0)));
        let messages = store.messages("acme", Serial(0), 10).await.unwrap();
        assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["b"], "{change}");
        let told = store.telemetry("acme", Serial(0), 10).await.unwrap();
        assert_eq!(told.len(), 1, "{change}: {told:?}");
        store.close().await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_moved_to_another_tenant_is_shown_to_neither() {
    let damaged = Damaged::new();
    let store = &damaged.store;
    settle_one(store, "a", &notify(), at(0)).await;
    damaged.flip("UPDATE message SET tenant = 'zeta' WHERE id = 'a'");
    for tenant in ["acme", "zeta"] {
        assert!(store.messages(tenant, Serial(0), 10).await.unwrap().is_empty(), "{tenant}");
    }
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_damaged_message_ends_as_a_dead_letter_that_says_so() {
    let damaged = Damaged::new();
    let store = &damaged.store;
    let delivery = queued(settle_one(store, "a", &notify(), at(0)).await).unwrap();
    damaged.flip("UPDATE message SET payload = x'7b7d'");
    for _ in 0..=RECEIVES_MAX {
        assert!(receive(store, "notify", 0, at(1)).await.is_empty());
    }
    settle_one(store, "b", &notify(), at(2)).await;
    for _ in 0..=RECEIVES_MAX {
        receive(store, "notify", 0, at(2)).await;
    }
    // A commit after theirs: what was ended is a dead letter by now.
    settle_one(store, "c", &pay(), at(3)).await;
    let shown = store.dead_letter("acme", delivery).await;
    assert!(matches!(shown, Err(StoreError::Damaged { what: "message", .. })), "{shown:?}");
    let listed = store.dead_letters("acme", Some(&queue("dead")), Serial(0), 10).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|it| it.message.id.as_str()).collect();
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
        "expires_at = 0",
        "check_value = check_value + 1",
    ] {
        let damaged = Damaged::new();
        let store = &damaged.store;
        settle_one(store, "a", &pay(), at(0)).await;
        damaged.flip(&format!("UPDATE claim SET {change} WHERE id = 'a'"));
        let batch = ["b", "a", "c"].map(|id| intake(id, &pay(), at(1))).to_vec();
        let settled = settle(store, batch, at(1)).await;
        assert!(
            queued(settled[0].outcomes[0]).is_some() && queued(settled[2].outcomes[0]).is_some(),
            "{change}"
        );
        assert_eq!(settled[1].outcomes, [Outcome::Unreadable], "{change}");
        assert_eq!(ids(&receive(store, "pay", 30, at(1)).await), ["a", "b", "c"], "{change}: once each");
        store.close().await;
    }
}
