//! Erasure removes the content of one id from the archive, and no other content.

use snavio_gate::ArchiveTrouble;
use snavio_model::archive::Fault;
use snavio_model::hash::DomainHash;
use snavio_store::Erasure;

use crate::books::{Fixture, is_conflict, is_replay, key, moved_round};

/// CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn erased_content_leaves_the_archive_and_stays_known() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(2));
    let old = fixture.objects();
    let erased_at = fixture.set_day(402);
    let erase = async || fixture.gate.erase(&key("a"), None, fixture.act()).await.unwrap().erasure;
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: false });
    fixture.set_day(403);
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: true });
    assert_ne!(fixture.objects(), old, "the segment was written again");
    assert_eq!(fixture.objects().len(), 1, "and the old object is gone");
    let answer = fixture.answer("a").await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.len()), (201, 0));
    let claim = fixture.claim("a").await;
    assert_eq!((claim.erased_at, claim.hash), (Some(erased_at), Some(DomainHash([9; 32]))));
    assert_eq!(claim.claim.progress.unwrap().reference.as_deref(), Some("JE-a"));
    assert!(is_replay(fixture.resend("a", 9).await) && is_conflict(fixture.resend("a", 7).await));
    assert_eq!(fixture.body("b").await, "{ \"of\":\t\"b\" }", "its neighbour is as it was");
    assert_eq!(fixture.count_audited("claim.erase").await, 1);
    fixture.gate.stop().await;
}

/// CLM-18: an altered pointer leads to the record of another id. The gateway neither returns that record as
/// the stored response nor erases it.
#[tokio::test(flavor = "multi_thread")]
async fn pointer_to_another_record_is_not_used() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(2));
    let [a, b] = [fixture.pointer("a").await, fixture.pointer("b").await];
    assert!(fixture.store.repoint(vec![(a, b.clone()), (b.clone(), b.clone())]).await.unwrap());
    assert_eq!(fixture.pointer("a").await, b, "the pointer is altered");
    let is_noticed = |error: &ArchiveTrouble| matches!(error, ArchiveTrouble::Fault(Fault::Record { .. }));
    assert!(is_noticed(&fixture.answer("a").await.unwrap_err()));
    let number = fixture.claim("a").await.claim.message;
    assert!(is_noticed(&fixture.gate.archived_message(&key("a"), number).await.unwrap_err()));
    assert!(is_noticed(&fixture.gate.erase(&key("a"), None, fixture.act()).await.unwrap_err()));
    assert_eq!(fixture.claim("a").await.erased_at, None);
    assert_eq!(fixture.body("b").await, "{ \"of\":\t\"b\" }", "its neighbour is as it was");
    fixture.gate.stop().await;
}

/// CLM-18: the caller of an erasure learns whether an object with the content may still exist.
#[tokio::test(flavor = "multi_thread")]
async fn erasure_reports_objects_still_to_delete() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(401);
    // An archiver has written a segment and not pointed to it yet, or has died before it did.
    fixture.write(&fixture.cooled().await).await;
    let erased = fixture.gate.erase(&key("a"), None, fixture.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }));
    assert_eq!(erased.objects_left, 1);
    fixture.set_day(402);
    assert_eq!(fixture.gate.archive_once().await.deleted, 1);
    let erased = fixture.gate.erase(&key("a"), None, fixture.act()).await.unwrap();
    assert!(matches!(erased.erasure, Erasure::Erased { before: true, .. }));
    assert_eq!(erased.objects_left, 0);
    fixture.gate.stop().await;
}
