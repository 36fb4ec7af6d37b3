//! CLM-18: if the embedded store deletes a record that was kept for an audit, its content does not stay in
//! free pages of the file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use snavio_model::archive::segment;
use snavio_model::claim::{ClaimPolicy, IdKey};
use snavio_model::id::MessageId;
use snavio_store::conformance::samples::{
    acknowledge, act, at, intake, queue, receipt, receive, route, settle,
};
use snavio_store::engine::sqlite::{EmbeddedStore, FILE, Options};
use snavio_store::{Archive, Erasure, Ledger, NewSegment, Store};

const DAY: i64 = 86_400;
const MARK: &str = "of Jane Doe, ";

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&Options::new(folder)).unwrap()
}

fn has_content(folder: &Path) -> bool {
    let bytes = std::fs::read(folder.join(FILE)).unwrap();
    bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}

/// Posts one small and one large message, runs `delete` on the store, and returns whether the file still
/// contains the content.
async fn is_left_after(delete: impl AsyncFn(&EmbeddedStore)) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let post = route("post", ClaimPolicy::ledger());
    let batch = [("a", 1), ("b", 5_000)].map(|(id, times)| {
        let mut intake = intake(id, &post, at(0));
        intake.message.payload = MARK.repeat(times).into();
        intake
    });
    settle(&store, batch.into(), at(0)).await;
    let work = receive(&store, "post", 30, at(0)).await;
    acknowledge(&store, &queue("post"), work.iter().map(receipt).collect()).await.unwrap();
    store.close().await;
    drop(store);
    assert!(has_content(folder.path()), "the file contains it before");
    let store = open(folder.path());
    delete(&store).await;
    store.close().await;
    drop(store);
    has_content(folder.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_content_is_not_left_in_the_file() {
    assert!(!is_left_after(archive_all).await);
}

async fn archive_all(store: &EmbeddedStore) {
    let now = at(401 * DAY);
    let records = store.cooled(None, now).await.unwrap().records;
    let segment = segment::write(&records).unwrap();
    let new = NewSegment { object: segment.key, records: 2, expires_at: at(2_557 * DAY) };
    assert!(store.begin_segment(new, now).await.unwrap());
    let pointed = records.into_iter().zip(segment.pointers).collect();
    assert_eq!(store.moved(pointed, now).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_content_is_not_left_in_the_file() {
    assert!(!is_left_after(sweep_all).await);
}

async fn sweep_all(store: &EmbeddedStore) {
    assert!(store.sweep(at(2_600 * DAY)).await.unwrap().claims > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_content_is_not_left_in_the_file() {
    assert!(!is_left_after(erase_all).await);
}

async fn erase_all(store: &EmbeddedStore) {
    for id in ["a", "b"] {
        let id = IdKey { id: MessageId::stored(id), tenant: "acme".parse().unwrap() };
        let erasure = store.erase(&id, Vec::new(), None, act("asked for", at(5))).await.unwrap();
        assert!(matches!(erasure, Erasure::Erased { .. }));
    }
}
