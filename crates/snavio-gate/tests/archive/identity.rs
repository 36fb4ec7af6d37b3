//! Each archive belongs to one store.

use snavio_gate::ArchiveTrouble;

use crate::books::{Fixture, key, moved_round};

/// CLM-18: two nodes over one store are configured with different archives, each a folder on its own disk. An
/// object that one node does not find is in the archive of the other.
#[tokio::test(flavor = "multi_thread")]
async fn node_with_another_archive_moves_and_deletes_nothing() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    fixture.post("b").await;
    let other = fixture.start_node_with_archive("elsewhere").await;
    let round = other.archive_once().await;
    assert_eq!((round.moved, round.failures), (0, 1));
    assert_eq!(fixture.messages().await, 1, "nothing is moved");
    let erasure = other.erase(&key("a"), None, fixture.act()).await.unwrap_err();
    assert!(matches!(erasure, ArchiveTrouble::Foreign { .. }), "nor erased: {erasure:?}");
    for words in ["archive.url", "claims/identity there says nothing", "should say the first"] {
        assert!(erasure.to_string().contains(words), "{erasure}");
    }
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    let round = other.archive_once().await;
    assert_eq!((round.deleted, round.failures, fixture.count_audited("archive.delete").await), (0, 1, 0));
    assert_eq!(fixture.objects().len(), 1, "nor are objects deleted");
    assert_eq!(fixture.gate.archive_once().await.deleted, 1, "which the right one does");
    other.stop().await;
    fixture.gate.stop().await;
}

/// CLM-18: a backup is restored beside the running store and has the same archive.
#[tokio::test(flavor = "multi_thread")]
async fn restored_copy_leaves_the_archive_to_the_original() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(2));
    let copy = fixture.restore_backup(false);
    let gate = fixture.start_node(&copy).await;
    let objects = fixture.objects();
    let erasure = gate.erase(&key("a"), None, fixture.act()).await.unwrap_err();
    assert!(matches!(erasure, ArchiveTrouble::Copy { .. }), "{erasure:?}");
    assert!(erasure.to_string().contains("snavio restore --takes-over-archive"), "{erasure}");
    let now = fixture.set_day(2600);
    copy.sweep(now).await.unwrap();
    let round = gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (0, 0, 0, 1));
    assert_eq!(fixture.objects(), objects);
    fixture.set_day(2500);
    assert_eq!(fixture.body("a").await, "{ \"of\":\t\"a\" }", "the original has it still");
    gate.stop().await;
    copy.close().await;
    fixture.gate.stop().await;
}

/// CLM-18: if the original store is lost, the restored copy takes over its archive.
#[tokio::test(flavor = "multi_thread")]
async fn restored_store_can_take_over_the_archive() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let copy = fixture.restore_backup(true);
    let gate = fixture.start_node(&copy).await;
    fixture.gate.stop().await;
    let now = fixture.set_day(2600);
    copy.sweep(now).await.unwrap();
    let round = gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    gate.stop().await;
    copy.close().await;
}

/// CLM-17: a node must not take an archive that is not mounted for an archive that has lost all objects.
#[tokio::test(flavor = "multi_thread")]
async fn unmounted_archive_is_not_taken_for_empty() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    let aside = fixture.archive.with_extension("aside");
    std::fs::rename(&fixture.archive, &aside).unwrap();
    std::fs::create_dir(&fixture.archive).unwrap();
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures, fixture.count_audited("archive.delete").await), (0, 1, 0));
    std::fs::remove_dir_all(&fixture.archive).unwrap();
    std::fs::rename(&aside, &fixture.archive).unwrap();
    assert_eq!(fixture.gate.archive_once().await.deleted, 1);
    fixture.gate.stop().await;
}

/// CLM-18: a node that restarts, and other nodes that name the same archive, use the name that it got first.
#[tokio::test(flavor = "multi_thread")]
async fn archive_keeps_its_first_name() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    let (one, other) =
        (fixture.start_node_with_archive("archive").await, fixture.start_node_with_archive("archive").await);
    let (first, second) = tokio::join!(one.archive_once(), other.archive_once());
    assert_eq!((first.moved + second.moved, first.failures + second.failures), (1, 0));
    assert_eq!(fixture.gate.archive_once().await, moved_round(0));
    let name = std::fs::read_to_string(fixture.archive.join("claims/identity")).unwrap();
    assert_eq!(Some(name), fixture.store.pinned("archive").await.unwrap());
    for gate in [one, other, std::sync::Arc::clone(&fixture.gate)] {
        gate.stop().await;
    }
}
