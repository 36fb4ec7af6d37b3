//! Retention of the original of an open conflict after the claim's time.

use snavio_store::Erasure;

use crate::books::{Fixture, is_conflict, key, moved_round};

/// CLM-12, CLM-18: the open conflict keeps the claim, so the original can still be read and erased.
#[tokio::test(flavor = "multi_thread")]
async fn original_of_an_open_conflict_is_kept() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    fixture.set_day(500);
    assert!(is_conflict(fixture.resend("a", 7).await));
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    assert_eq!(fixture.gate.archive_once().await, moved_round(0));
    assert_eq!(fixture.objects().len(), 1, "it is kept");
    let conflict = fixture.store.conflicts_of(&key("a"), None).await.unwrap().remove(0);
    let original = fixture.gate.archived_message(&key("a"), conflict.original).await.unwrap().unwrap();
    assert_eq!(original.message.id.as_str(), "a");
    let erased = fixture.gate.erase(&key("a"), None, fixture.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }), "{erased:?}");
    let original = fixture.gate.archived_message(&key("a"), conflict.original).await.unwrap().unwrap();
    assert!(original.message.is_erased());
    fixture.gate.stop().await;
}
