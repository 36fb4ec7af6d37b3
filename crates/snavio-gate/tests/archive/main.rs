//! Claims that are kept for seven years, over a real store and a real folder. The test sets the clock (CLM-15
//! to CLM-18).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod books;
mod conflicts;
mod deleting;
mod erasing;
mod identity;
mod leftovers;
mod reading;

use std::sync::Arc;

use snavio_gate::{ArchiveTrouble, Gate, Settings};
use snavio_model::id::Serial;
use snavio_model::time::Clock;
use snavio_store::conformance::samples::{at, intake, settle};
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::{Erasure, Store};

use books::{DAY, Fixture, NoKeys, book, is_conflict, is_replay, key, moved_round};

/// CLM-5, CLM-8, CLM-16
#[tokio::test(flavor = "multi_thread")]
async fn archived_response_is_replayed_unchanged_for_seven_years() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(399);
    assert_eq!(fixture.gate.archive_once().await, moved_round(0));
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(2));
    assert_eq!(fixture.gate.archive_once().await, moved_round(0), "it may run twice");
    assert_eq!((fixture.messages().await, fixture.objects().len()), (0, 1));
    for day in [401, 2519] {
        fixture.set_day(day);
        assert_eq!(fixture.body("a").await, "{ \"of\":\t\"a\" }");
        assert_eq!(fixture.body("b").await, "{ \"of\":\t\"b\" }");
        assert!(is_replay(fixture.resend("a", 9).await) && is_conflict(fixture.resend("a", 7).await));
        let number = fixture.claim("a").await.claim.message;
        let original = fixture.gate.archived_message(&key("a"), number).await.unwrap().unwrap();
        assert_eq!(original.message.id.as_str(), "a");
    }
    fixture.gate.stop().await;
}

/// CLM-17
#[tokio::test(flavor = "multi_thread")]
async fn archive_outage_affects_only_archived_responses() {
    let fixture = Fixture::open().await;
    fixture.post("cold").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let aside = fixture.archive.with_extension("aside");
    std::fs::rename(&fixture.archive, &aside).unwrap();
    std::fs::write(&fixture.archive, "in the way").unwrap();

    fixture.post("hot").await;
    assert!(is_replay(fixture.resend("cold", 9).await) && is_conflict(fixture.resend("cold", 7).await));
    assert!(fixture.answer("cold").await.is_err());
    assert_eq!(fixture.body("hot").await, "{ \"of\":\t\"hot\" }");
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.moved, round.failures), (0, 1), "newly cooled messages wait too");
    assert_eq!(fixture.store.archive_backlog(fixture.clock.now()).await.unwrap(), 1);
    assert_eq!(fixture.messages().await, 1, "and nothing is deleted");

    std::fs::remove_file(&fixture.archive).unwrap();
    std::fs::rename(&aside, &fixture.archive).unwrap();
    assert_eq!(fixture.body("cold").await, "{ \"of\":\t\"cold\" }");
    assert_eq!(fixture.gate.archive_once().await, moved_round(1), "it catches up");
    assert_eq!(fixture.body("hot").await, "{ \"of\":\t\"hot\" }");
    fixture.gate.stop().await;
}

/// CLM-18: a crash after the object was written, and a crash after a claim points to it.
#[tokio::test(flavor = "multi_thread")]
async fn archiver_crash_loses_and_doubles_nothing() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    // An archiver died between writing and pointing: it did everything but the last step.
    let written = fixture.write(&fixture.cooled().await).await;
    let file = fixture.archive.join(&written[0].1.object);
    std::fs::write(&file, "half of it").unwrap();
    assert_eq!(fixture.gate.archive_once().await, moved_round(1), "the next one writes the same object");
    assert_eq!(fixture.objects(), [file]);
    assert_eq!(fixture.body("a").await, "{ \"of\":\t\"a\" }");

    // An archiver died after it pointed a claim to another object, and before it deleted the old one.
    let act = fixture.act();
    let rewritten = fixture.gate.erase(&key("a"), None, act).await.unwrap();
    assert!(matches!(rewritten.erasure, Erasure::Erased { before: false, .. }));
    assert_eq!(fixture.objects().len(), 1, "the old object is gone");
    fixture.gate.stop().await;
}

/// CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn two_archivers_at_once_move_everything_once() {
    let fixture = Fixture::open().await;
    for number in 0..20 {
        fixture.post(&format!("a{number}")).await;
    }
    fixture.set_day(401);
    let (one, other) = tokio::join!(fixture.gate.archive_once(), fixture.gate.archive_once());
    assert_eq!((one.moved + other.moved, one.failures + other.failures), (20, 0));
    for number in 0..20 {
        let id = format!("a{number}");
        assert_eq!(fixture.body(&id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    assert_eq!(fixture.messages().await, 0);
    fixture.gate.stop().await;
}

/// CLM-18, QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn altered_segment_is_noticed_and_not_returned() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let object = fixture.objects().remove(0);
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&object, &bytes).unwrap();
    assert!(fixture.answer("a").await.is_err());
    assert!(fixture.gate.erase(&key("a"), None, fixture.act()).await.is_err(), "nor is it written again");
    assert!(is_replay(fixture.resend("a", 9).await));
    std::fs::remove_file(&object).unwrap();
    let missing = fixture.answer("a").await;
    let Err(ArchiveTrouble::Read(missing)) = missing else { panic!("{missing:?}") };
    assert!(matches!(*missing, ArchiveTrouble::Missing { .. }), "{missing:?}");
    fixture.gate.stop().await;
}

/// CLM-17: a node that has no archive configured moves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_archive_everything_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&Options::new(folder.path())).unwrap());
    let gate =
        Gate::start(Settings::default(), Arc::clone(&store), Arc::new(at(500 * DAY)), Arc::new(NoKeys));
    let gate = gate.await.unwrap();
    settle(&*store, vec![intake("a", &book(), at(0))], at(0)).await;
    let round = gate.archive_once().await;
    assert_eq!((round.moved, round.failures), (0, 1));
    assert_eq!(store.messages("acme", Serial(0), 10).await.unwrap().len(), 1);
    gate.stop().await;
}
