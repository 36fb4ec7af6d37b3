//! Retention of the original of an open conflict after the claim's time.

use snavio_store::Erasure;

use crate::books::{Books, is_conflict, key, moved};

/// CLM-12, CLM-18: the open conflict keeps the claim, so the original can still be read and erased.
#[tokio::test(flavor = "multi_thread")]
async fn the_original_of_an_open_conflict_is_found_after_its_time() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    books.day(500);
    assert!(is_conflict(books.again("a", 7).await));
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    assert_eq!(books.gate.archive_once().await, moved(0));
    assert_eq!(books.objects().len(), 1, "it is kept");
    let conflict = books.store.conflicts_of(&key("a"), None).await.unwrap().remove(0);
    let original = books.gate.archived_message(&key("a"), conflict.original).await.unwrap().unwrap();
    assert_eq!(original.message.id.as_str(), "a");
    let erased = books.gate.erase(&key("a"), None, books.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }), "{erased:?}");
    let original = books.gate.archived_message(&key("a"), conflict.original).await.unwrap().unwrap();
    assert!(original.message.is_erased());
    books.gate.stop().await;
}
