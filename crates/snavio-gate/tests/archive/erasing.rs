//! Erasure removes the content of one id from the archive, and no other content.

use snavio_gate::ArchiveTrouble;
use snavio_model::archive::Fault;
use snavio_model::hash::DomainHash;
use snavio_store::Erasure;

use crate::books::{Books, is_conflict, is_replay, key, moved};

/// CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_is_gone_from_the_archive_and_still_known() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(2));
    let old = books.objects();
    let erased_at = books.day(402);
    let erase = async || books.gate.erase(&key("a"), None, books.act()).await.unwrap().erasure;
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: false });
    books.day(403);
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: true });
    assert_ne!(books.objects(), old, "the segment was written again");
    assert_eq!(books.objects().len(), 1, "and the old object is gone");
    let answer = books.answer("a").await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.len()), (201, 0));
    let claim = books.claim("a").await;
    assert_eq!((claim.erased_at, claim.hash), (Some(erased_at), Some(DomainHash([9; 32]))));
    assert_eq!(claim.claim.progress.unwrap().reference.as_deref(), Some("JE-a"));
    assert!(is_replay(books.again("a", 9).await) && is_conflict(books.again("a", 7).await));
    assert_eq!(books.body("b").await, "{ \"of\":\t\"b\" }", "its neighbour is as it was");
    assert_eq!(books.audited("claim.erase").await, 1);
    books.gate.stop().await;
}

/// CLM-18: an altered pointer leads to the record of another id. The gateway neither returns that record as
/// the stored response nor erases it.
#[tokio::test(flavor = "multi_thread")]
async fn what_points_to_somebody_elses_record_is_not_used() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(2));
    let [a, b] = [books.pointer("a").await, books.pointer("b").await];
    assert!(books.store.repoint(vec![(a, b.clone()), (b.clone(), b.clone())]).await.unwrap());
    assert_eq!(books.pointer("a").await, b, "the pointer is altered");
    let is_noticed = |error: &ArchiveTrouble| matches!(error, ArchiveTrouble::Fault(Fault::Record { .. }));
    assert!(is_noticed(&books.answer("a").await.unwrap_err()));
    let number = books.claim("a").await.claim.message;
    assert!(is_noticed(&books.gate.archived_message(&key("a"), number).await.unwrap_err()));
    assert!(is_noticed(&books.gate.erase(&key("a"), None, books.act()).await.unwrap_err()));
    assert_eq!(books.claim("a").await.erased_at, None);
    assert_eq!(books.body("b").await, "{ \"of\":\t\"b\" }", "its neighbour is as it was");
    books.gate.stop().await;
}

/// CLM-18: the caller of an erasure learns whether an object with the content may still exist.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_tells_of_objects_that_are_still_to_be_deleted() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    // An archiver has written a segment and not pointed to it yet, or has died before it did.
    books.write(&books.cooled().await).await;
    let erased = books.gate.erase(&key("a"), None, books.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }));
    assert_eq!(erased.objects_left, 1);
    books.day(402);
    assert_eq!(books.gate.archive_once().await.deleted, 1);
    let erased = books.gate.erase(&key("a"), None, books.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: true, .. }));
    assert_eq!(erased.objects_left, 0);
    books.gate.stop().await;
}
