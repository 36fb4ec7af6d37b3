//! Each archive belongs to one store.

use snavio_gate::ArchiveTrouble;

use crate::books::{Books, key, moved};

/// CLM-18: two nodes over one store are configured with different archives, each a folder on its own disk. An
/// object that one node does not find is in the archive of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_archive_moves_and_deletes_nothing() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    books.post("b").await;
    let other = books.another("elsewhere").await;
    let round = other.archive_once().await;
    assert_eq!((round.moved, round.failures), (0, 1));
    assert_eq!(books.messages().await, 1, "nothing is moved");
    let erasure = other.erase(&key("a"), None, books.act()).await.unwrap_err();
    assert!(matches!(erasure, ArchiveTrouble::Foreign { .. }), "nor erased: {erasure:?}");
    for words in ["archive.url", "claims/identity there says nothing", "should say the first"] {
        assert!(erasure.to_string().contains(words), "{erasure}");
    }
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    let round = other.archive_once().await;
    assert_eq!((round.deleted, round.failures, books.audited("archive.delete").await), (0, 1, 0));
    assert_eq!(books.objects().len(), 1, "nor told to be deleted");
    assert_eq!(books.gate.archive_once().await.deleted, 1, "which the right one does");
    other.stop().await;
    books.gate.stop().await;
}

/// CLM-18: a backup is restored beside the running store and has the same archive.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_copy_leaves_the_archive_to_the_original() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(2));
    let copy = books.restored(false);
    let gate = books.serving(&copy).await;
    let objects = books.objects();
    let erasure = gate.erase(&key("a"), None, books.act()).await.unwrap_err();
    assert!(matches!(erasure, ArchiveTrouble::Copy { .. }), "{erasure:?}");
    assert!(erasure.to_string().contains("snavio restore --takes-over-archive"), "{erasure}");
    let now = books.day(2600);
    copy.sweep(now).await.unwrap();
    let round = gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (0, 0, 0, 1));
    assert_eq!(books.objects(), objects);
    books.day(2500);
    assert_eq!(books.body("a").await, "{ \"of\":\t\"a\" }", "the original has it still");
    gate.stop().await;
    copy.close().await;
    books.gate.stop().await;
}

/// CLM-18: if the original store is lost, the restored copy takes over its archive.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_that_takes_the_archive_over_goes_on_with_it() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let copy = books.restored(true);
    let gate = books.serving(&copy).await;
    books.gate.stop().await;
    let now = books.day(2600);
    copy.sweep(now).await.unwrap();
    let round = gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    gate.stop().await;
    copy.close().await;
}

/// CLM-17: a node must not take an archive that is not mounted for an archive that has lost all objects.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_not_mounted_is_not_taken_for_an_empty_one() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    let aside = books.archive.with_extension("aside");
    std::fs::rename(&books.archive, &aside).unwrap();
    std::fs::create_dir(&books.archive).unwrap();
    let round = books.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures, books.audited("archive.delete").await), (0, 1, 0));
    std::fs::remove_dir_all(&books.archive).unwrap();
    std::fs::rename(&aside, &books.archive).unwrap();
    assert_eq!(books.gate.archive_once().await.deleted, 1);
    books.gate.stop().await;
}

/// CLM-18: a node that restarts, and other nodes that name the same archive, use the name that it got first.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_keeps_the_name_that_it_was_given_first() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    let (one, other) = (books.another("archive").await, books.another("archive").await);
    let (first, second) = tokio::join!(one.archive_once(), other.archive_once());
    assert_eq!((first.moved + second.moved, first.failures + second.failures), (1, 0));
    assert_eq!(books.gate.archive_once().await, moved(0));
    let said = std::fs::read_to_string(books.archive.join("claims/identity")).unwrap();
    assert_eq!(Some(said), books.store.pinned("archive").await.unwrap());
    for gate in [one, other, std::sync::Arc::clone(&books.gate)] {
        gate.stop().await;
    }
}
