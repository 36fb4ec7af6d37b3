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
use snavio_store::embedded::{EmbeddedStore, FILE, Options};
use snavio_store::{Archive, Erasure, Ledger, NewSegment, Store};

const DAY: i64 = 86_400;
const MARK: &str = "of Jane Doe, ";

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&Options::new(folder)).unwrap()
}

fn says(folder: &Path) -> bool {
    let bytes = std::fs::read(folder.join(FILE)).unwrap();
    bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}

/// Posts one small and one large message, runs `delete` on the store, and returns whether the file still
/// contains the content.
async fn is_left_after(what: impl AsyncFn(&EmbeddedStore)) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let post = route("post", ClaimPolicy::ledger());
    let of = |id: &str, times: usize| {
        let mut intake = intake(id, &post, at(0));
        intake.message.payload = MARK.repeat(times).into();
        intake
    };
    settle(&store, vec![of("a", 1), of("b", 5_000)], at(0)).await;
    let work = receive(&store, "post", 30, at(0)).await;
    acknowledge(&store, &queue("post"), work.iter().map(receipt).collect()).await.unwrap();
    store.close().await;
    drop(store);
    assert!(says(folder.path()), "it is there to be found");
    let store = open(folder.path());
    what(&store).await;
    store.close().await;
    drop(store);
    says(folder.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_moved_is_not_left_in_the_file() {
    let moving = async |store: &EmbeddedStore| {
        let now = at(401 * DAY);
        let records = store.cooled(None, now).await.unwrap().records;
        let segment = segment::write(&records).unwrap();
        let new = NewSegment { object: segment.key, records: 2, expires_at: at(2_557 * DAY) };
        assert!(store.begin_segment(new, now).await.unwrap());
        let pointed = records.into_iter().zip(segment.pointers).collect();
        assert_eq!(store.moved(pointed, now).await.unwrap(), 2);
    };
    assert!(!is_left_after(moving).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_is_not_left_in_the_file() {
    let sweeping = async |store: &EmbeddedStore| {
        assert!(store.sweep(at(2_600 * DAY)).await.unwrap().claims > 0);
    };
    assert!(!is_left_after(sweeping).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_erased_is_not_left_in_the_file() {
    let erasing = async |store: &EmbeddedStore| {
        for id in ["a", "b"] {
            let id = IdKey { id: MessageId::stored(id), tenant: "acme".parse().unwrap() };
            let erasure = store.erase(&id, Vec::new(), None, act("asked for", at(5))).await.unwrap();
            assert!(matches!(erasure, Erasure::Erased { .. }));
        }
    };
    assert!(!is_left_after(erasing).await);
}
