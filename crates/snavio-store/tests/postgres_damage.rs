//! QUA-1 on PostgreSQL: a damaged row is noticed when it is read, refused for itself alone, and never a wrong answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use snavio_model::id::Serial;
use snavio_model::settle::Outcome;
use snavio_store::conformance::samples::{
    RECEIVES_MAX, act, at, ids, intake, message, notify, pay, queue, queued, receive, settle, settle_one,
};
use snavio_store::postgres::{Options, PostgresStore};
use snavio_store::{Journal, Ledger, Queue, Store, StoreError};
use snavio_testbed::Postgres;

struct Damaged {
    url: String,
    store: PostgresStore,
}

impl Damaged {
    async fn new() -> Self {
        let url = Postgres::shared().database().unwrap();
        let store = PostgresStore::open(&Options::new(&url)).await.unwrap();
        Self { url, store }
    }

    /// Changes a row behind the store's back, as a flipped bit would.
    fn flip(&self, change: &str) {
        let counted = format!("WITH changed AS ({change} RETURNING 1) SELECT count(*) FROM changed");
        assert_eq!(Postgres::shared().ask(&self.url, &counted).unwrap(), "1", "{change}");
    }

    /// Puts a row back as it was.
    fn mend(&self, table: &str) {
        let back = format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept_{table}");
        Postgres::shared().ask(&self.url, &back).unwrap();
    }

    /// Keeps a table as it is, to be put back.
    fn keep(&self, table: &str) {
        Postgres::shared().ask(&self.url, &format!("CREATE TABLE kept_{table} AS TABLE {table}")).unwrap();
    }
}

/// Every column of a message, and a value that only damage could have put there.
const OTHER_MESSAGE: [&str; 21] = [
    "id = 'id-other'",
    "source = 'acme/other'",
    "source = 'not a name'",
    "target = 'acme/other'",
    "name = 'other'",
    "signed_target = 'other'",
    "sent_at = '2026-11-15T08:30:01Z'",
    "key_version = 'hmac-v2'",
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
    "check_value = check_value + 1",
];

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_message_is_never_read_back_whichever_column_changed() {
    let damaged = Damaged::new().await;
    let store = &damaged.store;
    settle_one(store, "a", &notify(), at(0)).await;
    settle_one(store, "b", &notify(), at(0)).await;
    for table in ["message", "delivery"] {
        damaged.keep(table);
    }
    for change in OTHER_MESSAGE {
        damaged.flip(&format!("UPDATE message SET {change} WHERE id = 'a'"));
        let received = receive(store, "notify", 0, at(1)).await;
        assert_eq!(ids(&received), ["b"], "{change}: its neighbour is handed out, itself not");
        assert_eq!(*received[0].message, message("acme/billing", "b", at(0)));
        let messages = store.messages("acme", Serial(0), 10).await.unwrap();
        assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["b"], "{change}");
        let told = store.telemetry("acme", Serial(0), 10).await.unwrap();
        assert_eq!(told.len(), 1, "{change}: {told:?}");
        for table in ["message", "delivery"] {
            damaged.mend(table);
        }
    }
    assert_eq!(ids(&receive(store, "notify", 0, at(1)).await), ["a", "b"], "what was put back is as it was");
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_moved_to_another_tenant_is_shown_to_neither() {
    let damaged = Damaged::new().await;
    settle_one(&damaged.store, "a", &notify(), at(0)).await;
    damaged.flip("UPDATE message SET tenant = 'zeta' WHERE id = 'a'");
    for tenant in ["acme", "zeta"] {
        assert!(damaged.store.messages(tenant, Serial(0), 10).await.unwrap().is_empty(), "{tenant}");
    }
    damaged.store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_damaged_message_ends_as_a_dead_letter_that_says_so() {
    let damaged = Damaged::new().await;
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
    let listed: Vec<_> = listed.iter().map(|it| it.message_id.as_str()).collect();
    assert_eq!(listed, ["b"], "and does not hide the others");
    store.close().await;
}

/// QUA-1, CLM-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_claim_decides_nothing_and_its_neighbours_are_settled() {
    let damaged = Damaged::new().await;
    let store = &damaged.store;
    for (n, change) in [
        "source = 'acme/other'",
        "source = 'not a name'",
        "message = message + 1",
        "first_seen_at = first_seen_at + 1",
        "expires_at = expires_at + 1",
        "expires_at = 0",
        "check_value = check_value + 1",
    ]
    .into_iter()
    .enumerate()
    {
        let names = ["b", "a", "c"].map(|name| format!("{name}-{n}"));
        settle_one(store, &names[1], &pay(), at(0)).await;
        damaged.flip(&format!("UPDATE claim SET {change} WHERE id = 'a-{n}'"));
        let batch = names.iter().map(|id| intake(id, &pay(), at(1))).collect();
        let settled = settle(store, batch, at(1)).await;
        assert!(
            queued(settled[0].outcomes[0]).is_some() && queued(settled[2].outcomes[0]).is_some(),
            "{change}: {settled:?}"
        );
        assert_eq!(settled[1].outcomes, [Outcome::Unreadable], "{change}");
        let mut received = receive(store, "pay", 3600, at(1)).await;
        received.sort_by_key(|it| it.delivery_id);
        assert_eq!(ids(&received), [&*names[1], &*names[0], &*names[2]], "{change}: once each");
    }
    store.close().await;
}

/// QUA-1, DLV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_dead_letter_is_left_out_of_lists_and_redrives() {
    let damaged = Damaged::new().await;
    let store = &damaged.store;
    for change in ["reason = 'other'", "receives = -1"] {
        let delivery = queued(settle_one(store, "a", &notify(), at(0)).await).unwrap();
        settle_one(store, "b", &notify(), at(0)).await;
        for _ in 0..RECEIVES_MAX {
            receive(store, "notify", 0, at(0)).await;
        }
        assert_eq!(store.sweep(at(0)).await.unwrap().dead_letters, 2);
        damaged.flip(&format!("UPDATE dead_letter SET {change} WHERE id = {delivery}"));
        for queue in [None, Some(&queue("dead"))] {
            let listed = store.dead_letters("acme", queue, Serial(0), 1).await.unwrap();
            let listed: Vec<_> = listed.iter().map(|it| it.message_id.as_str()).collect();
            assert_eq!(listed, ["b"], "{change}: a page of one is not empty before the end");
        }
        let shown = store.dead_letter("acme", delivery).await;
        assert!(matches!(shown, Err(StoreError::Damaged { what: "dead letter", .. })), "{change}: {shown:?}");
        let all = store.dead_letter_origins(&queue("dead"), Serial(0), 10).await.unwrap();
        let all = all.into_iter().map(|(id, _)| id).collect();
        let redriven = store.redrive("acme", all, act("mended", at(1))).await.unwrap();
        assert_eq!(redriven.back.len(), 1, "{change}");
        assert_eq!(ids(&receive(store, "notify", 30, at(1)).await), ["b"], "{change}");
        store.purge(&queue("notify"), act("next", at(1))).await.unwrap();
        damaged.flip(&format!("DELETE FROM dead_letter WHERE id = {delivery}"));
    }
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_goes_on_behind_what_is_damaged() {
    let damaged = Damaged::new().await;
    let store = &damaged.store;
    for id in ["a", "b", "c"] {
        settle_one(store, id, &notify(), at(0)).await;
    }
    for id in ["a", "b"] {
        damaged.flip(&format!("UPDATE message SET payload = '{{}}' WHERE id = '{id}'"));
    }
    let messages = store.messages("acme", Serial(0), 1).await.unwrap();
    assert_eq!(messages.iter().map(|it| it.message.id.as_str()).collect::<Vec<_>>(), ["c"]);
    let told = store.telemetry("acme", Serial(0), 1).await.unwrap();
    assert_eq!(told[0].body["command_id"], "c");
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_audit_entry_is_never_read_back_whichever_column_changed() {
    let damaged = Damaged::new().await;
    let store = &damaged.store;
    for why in ["first", "second"] {
        store.purge(&queue("notify"), act(why, at(0))).await.unwrap();
    }
    damaged.keep("audit");
    let texts = ["who", "why", "action", "object", "outcome"].map(|column| format!("{column} = 'other'"));
    let numbers = ["at = at + 1", "check_value = check_value + 1", "check_value = 0"].map(str::to_owned);
    for change in texts.into_iter().chain(numbers) {
        damaged.flip(&format!("UPDATE audit SET {change} WHERE seq = (SELECT min(seq) FROM audit)"));
        let audit = store.audit(Serial(0), 1).await.unwrap();
        let why: Vec<_> = audit.iter().map(|it| it.act.why.as_str()).collect();
        assert_eq!(why, ["second"], "{change}");
        damaged.mend("audit");
    }
    assert_eq!(store.audit(Serial(0), 10).await.unwrap().len(), 2, "what was put back is as it was");
    store.close().await;
}
