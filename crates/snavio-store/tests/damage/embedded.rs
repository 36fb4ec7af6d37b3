//! The embedded store. The tests change its file directly; SQLite accepts any value in any column.

use snavio_model::id::Serial;
use snavio_store::conformance::samples::{
    RECEIVES_MAX, act, at, ids, notify, pay, queue, queued, receive, settle_one,
};
use snavio_store::engine::sqlite::{EmbeddedStore, FILE, Options, backup, check_integrity, restore};
use snavio_store::{Journal, Ledger, Queue, Store, StoreError};

use crate::Damaged;

/// SQL for a text that is not valid UTF-8.
const NO_TEXT: &str = "CAST(x'ff61' AS TEXT)";

struct Embedded {
    folder: tempfile::TempDir,
    store: EmbeddedStore,
}

impl Embedded {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&Options::new(folder.path())).unwrap();
        Self { folder, store }
    }
}

impl Damaged for Embedded {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn flip(&self, change: &str) {
        let connection = rusqlite::Connection::open(self.folder.path().join(FILE)).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(connection.execute(change, []).unwrap(), 1, "{change}");
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = EmbeddedStore::open(&Options::new(self.folder.path())).unwrap();
    }
}

/// Every column of a message, each with a value that only damage can have put there.
const OTHER_MESSAGE: [&str; 23] = [
    "id = 'id-other'",
    "source = 'acme/other'",
    "target = 'acme/other'",
    "name = 'other'",
    "signed_target = 'other'",
    "sent_at = '2026-11-15T08:30:01Z'",
    "key_version = 'hmac-v2'",
    "key_version = ''",
    "signature = 'other'",
    "correlation_id = 'other'",
    "traceparent = '00-00000000000000000000000000000001-0000000000000001-00'",
    "received_at = received_at + 1",
    "registry_version = 6",
    "hash_version = 9",
    "domain_hash = zeroblob(32)",
    "path = 'fast'",
    "payload = CAST(replace(CAST(payload AS TEXT), 'came', 'cams') AS BLOB)",
    "event = '{\"version\":\"1.0\",\"timestamp\":\"\"}'",
    "check_value = check_value + 1",
    "source = CAST(x'ff61' AS TEXT)",
    "sent_at = CAST(x'80' AS TEXT)",
    "path = CAST(x'66ff' AS TEXT)",
    "hash_version = 1 << 40",
];

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_message_is_never_read_back() {
    for change in OTHER_MESSAGE {
        crate::check_changed_message(&Embedded::new(), change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_moved_to_another_tenant_is_hidden() {
    crate::check_message_moved_to_another_tenant(&Embedded::new()).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_of_a_damaged_message_becomes_a_dead_letter() {
    let damaged = Embedded::new();
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
    // This commit comes after those of the ended deliveries, so their dead letters exist now.
    settle_one(store, "c", &pay(), at(3)).await;
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
        "source = CAST(x'ff61' AS TEXT)",
        "message = message + 1",
        "first_seen_at = first_seen_at + 1",
        "expires_at = 0",
        "check_value = check_value + 1",
    ] {
        crate::check_changed_claim(&Embedded::new(), change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_delivery_does_not_stop_the_store() {
    for change in
        [format!("queue = {NO_TEXT}"), "receives = 1 << 40".to_owned(), "receives_max = -1".to_owned()]
    {
        let mut damaged = Embedded::new();
        let delivery = queued(settle_one(&damaged.store, "a", &notify(), at(0)).await).unwrap();
        settle_one(&damaged.store, "b", &notify(), at(0)).await;
        damaged.flip(&format!("UPDATE delivery SET {change} WHERE id = {delivery}"));
        // A running node does not read the row. Both deliveries end, and one of them becomes a dead letter.
        for _ in 0..RECEIVES_MAX {
            receive(&damaged.store, "notify", 0, at(0)).await;
        }
        assert_eq!(damaged.store.sweep(at(0)).await.unwrap().dead_letters, 2, "{change}");
        let listed = damaged.store.dead_letters("acme", None, Serial(0), 10).await.unwrap();
        assert_eq!(
            listed.iter().map(|dead_letter| dead_letter.message_id.as_str()).collect::<Vec<_>>(),
            ["b"],
            "{change}"
        );
        settle_one(&damaged.store, "c", &notify(), at(1)).await;
        damaged.reopen().await;
        assert_eq!(ids(&receive(&damaged.store, "notify", 30, at(1)).await), ["c"], "{change}");
        damaged.store.close().await;
    }
}

/// QUA-1, DLV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_dead_letter_is_left_out() {
    for change in [
        format!("destination = {NO_TEXT}"),
        format!("reason = {NO_TEXT}"),
        "reason = 'other'".to_owned(),
        "receives = -1".to_owned(),
    ] {
        crate::check_damaged_dead_letter(&Embedded::new(), &change).await;
    }
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_continues_past_damaged_messages() {
    crate::check_page_past_damage(&Embedded::new()).await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_audit_entry_is_never_read_back() {
    let text = |column: &str| [format!("{column} = 'other'"), format!("{column} = {NO_TEXT}")];
    let texts = ["who", "why", "action", "object", "outcome"].into_iter().flat_map(text);
    let numbers =
        ["at = at + 1", "check_value = check_value + 1", "check_value = 1 << 40"].map(str::to_owned);
    for change in texts.chain(numbers) {
        crate::check_changed_audit_entry(&Embedded::new(), &change).await;
    }
}

/// QUA-1, ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn integrity_check_and_restore_report_all_damage() {
    let damaged = Embedded::new();
    let folder = damaged.folder.path();
    settle_one(&damaged.store, "a", &pay(), at(0)).await;
    damaged.store.purge(&queue("notify"), act("a test", at(0))).await.unwrap();
    assert_eq!(check_integrity(folder).unwrap(), Vec::<String>::new());
    damaged.flip("UPDATE message SET payload = x'7b7d'");
    damaged.flip(&format!("UPDATE claim SET source = {NO_TEXT}"));
    damaged.flip("UPDATE audit SET who = 'nobody'");
    let found = check_integrity(folder).unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    for kind in ["message", "claim a", "audit entry"] {
        assert!(found.iter().any(|fault| fault.starts_with(kind)), "{kind}: {found:?}");
    }
    damaged.flip("DELETE FROM known_id");
    let found = check_integrity(folder).unwrap();
    assert!(found.len() == 4 && found[3].contains("cannot be found"), "{found:?}");
    let copy = folder.join("copy.db");
    backup(folder, &copy).unwrap();
    let restored = restore(&copy, &folder.join("restored"), false, at(60)).unwrap();
    assert_eq!(restored.damaged, found);
    damaged.store.close().await;
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_hold_lets_nothing_be_deleted() {
    for change in crate::OTHER_HOLD {
        crate::check_changed_hold(&Embedded::new(), change).await;
    }
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_message_is_not_marked_erased() {
    crate::check_erasure_of_changed_message(&Embedded::new()).await;
}

/// QUA-1, CLM-1, CLM-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_claim_at_another_destination_keeps_its_id() {
    crate::check_changed_claim_at_another_destination(&Embedded::new()).await;
}

/// QUA-1, CLM-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_claim_keeps_its_response() {
    crate::check_response_of_changed_claim(&Embedded::new()).await;
}

/// QUA-1, ORD-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_entity_decides_nothing() {
    for change in crate::OTHER_ENTITY {
        crate::check_changed_entity(&Embedded::new(), change).await;
    }
}

/// QUA-1, ORD-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_entity_is_not_overwritten_or_passed() {
    for change in crate::OTHER_ENTITY {
        crate::check_parking_of_changed_entity(&mut Embedded::new(), change).await;
    }
}
