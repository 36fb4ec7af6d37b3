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
use snavio_store::embedded::{EmbeddedStore, Options};
use snavio_store::{Erasure, Store};

use books::{Books, DAY, NoKeys, book, is_conflict, is_replay, key, moved};

/// CLM-5, CLM-8, CLM-16
#[tokio::test(flavor = "multi_thread")]
async fn at_day_401_and_in_year_seven_a_replay_gets_its_answer_byte_for_byte() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(399);
    assert_eq!(books.gate.archive_once().await, moved(0));
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(2));
    assert_eq!(books.gate.archive_once().await, moved(0), "it may run twice");
    assert_eq!((books.messages().await, books.objects().len()), (0, 1));
    for day in [401, 2519] {
        books.day(day);
        assert_eq!(books.body("a").await, "{ \"of\":\t\"a\" }");
        assert_eq!(books.body("b").await, "{ \"of\":\t\"b\" }");
        assert!(is_replay(books.again("a", 9).await) && is_conflict(books.again("a", 7).await));
        let number = books.claim("a").await.claim.message;
        let original = books.gate.archived_message(&key("a"), number).await.unwrap().unwrap();
        assert_eq!(original.message.id.as_str(), "a");
    }
    books.gate.stop().await;
}

/// CLM-17
#[tokio::test(flavor = "multi_thread")]
async fn with_the_archive_down_only_what_is_in_it_waits() {
    let books = Books::open().await;
    books.post("cold").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let aside = books.archive.with_extension("aside");
    std::fs::rename(&books.archive, &aside).unwrap();
    std::fs::write(&books.archive, "in the way").unwrap();

    books.post("hot").await;
    assert!(is_replay(books.again("cold", 9).await) && is_conflict(books.again("cold", 7).await));
    assert!(books.answer("cold").await.is_err());
    assert_eq!(books.body("hot").await, "{ \"of\":\t\"hot\" }");
    let round = books.gate.archive_once().await;
    assert_eq!((round.moved, round.failures), (0, 1), "what has cooled meanwhile waits too");
    assert_eq!(books.store.archive_backlog(books.clock.now()).await.unwrap(), 1);
    assert_eq!(books.messages().await, 1, "and nothing is deleted");

    std::fs::remove_file(&books.archive).unwrap();
    std::fs::rename(&aside, &books.archive).unwrap();
    assert_eq!(books.body("cold").await, "{ \"of\":\t\"cold\" }");
    assert_eq!(books.gate.archive_once().await, moved(1), "it catches up");
    assert_eq!(books.body("hot").await, "{ \"of\":\t\"hot\" }");
    books.gate.stop().await;
}

/// CLM-18: a crash after the object was written, and a crash after a claim points to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_loses_and_doubles_nothing() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    // An archiver died between writing and pointing: it did everything but the last step.
    let written = books.write(&books.cooled().await).await;
    let file = books.archive.join(&written[0].1.object);
    std::fs::write(&file, "half of it").unwrap();
    assert_eq!(books.gate.archive_once().await, moved(1), "the next one writes the same object");
    assert_eq!(books.objects(), [file]);
    assert_eq!(books.body("a").await, "{ \"of\":\t\"a\" }");

    // An archiver died after it pointed a claim to another object, and before it deleted the old one.
    let act = books.act();
    let rewritten = books.gate.erase(&key("a"), None, act).await.unwrap();
    assert!(matches!(rewritten.erasure, Erasure::Erased { before: false, .. }));
    assert_eq!(books.objects().len(), 1, "the old object is gone");
    books.gate.stop().await;
}

/// CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn two_archivers_at_once_move_everything_once() {
    let books = Books::open().await;
    for number in 0..20 {
        books.post(&format!("a{number}")).await;
    }
    books.day(401);
    let (one, other) = tokio::join!(books.gate.archive_once(), books.gate.archive_once());
    assert_eq!((one.moved + other.moved, one.failures + other.failures), (20, 0));
    for number in 0..20 {
        let id = format!("a{number}");
        assert_eq!(books.body(&id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    assert_eq!(books.messages().await, 0);
    books.gate.stop().await;
}

/// CLM-18, QUA-1
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_was_tampered_with_is_noticed_and_not_answered() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let object = books.objects().remove(0);
    let mut bytes = std::fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&object, &bytes).unwrap();
    assert!(books.answer("a").await.is_err());
    assert!(books.gate.erase(&key("a"), None, books.act()).await.is_err(), "nor is it written again");
    assert!(is_replay(books.again("a", 9).await));
    std::fs::remove_file(&object).unwrap();
    let missing = books.answer("a").await;
    let Err(ArchiveTrouble::Read(missing)) = missing else { panic!("{missing:?}") };
    assert!(matches!(*missing, ArchiveTrouble::Missing { .. }), "{missing:?}");
    books.gate.stop().await;
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
