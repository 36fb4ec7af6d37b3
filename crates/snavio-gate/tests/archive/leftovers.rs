//! Segments without a pointer after an interrupted or racing move. In the end the archive holds each moved
//! message once, and no erased content.

use std::collections::BTreeMap;
use std::task::Poll;

use snavio_model::archive::segment;
use snavio_store::Erasure;

use crate::books::{Fixture, key, moved_round};

impl Fixture {
    /// Maps each id in the archive to the number of its records and to whether one of them has content.
    fn contents(&self) -> BTreeMap<String, (usize, bool)> {
        let mut contents = BTreeMap::new();
        for file in self.objects() {
            let object = file.strip_prefix(&self.archive).unwrap().to_str().unwrap();
            let text = zstd::decode_all(&std::fs::read(&file).unwrap()[..]).unwrap();
            for record in segment::read(object, &text).unwrap() {
                let is_empty = record.message.payload.is_empty()
                    && record
                        .claims
                        .iter()
                        .all(|claim| claim.answer.as_ref().is_none_or(|answer| answer.body.is_empty()));
                let (times, has_content) =
                    contents.entry(record.message.id.to_string()).or_insert((0, false));
                *times += 1;
                *has_content |= !is_empty;
            }
        }
        contents
    }

    async fn erase(&self, id: &str) {
        let erased = self.gate.erase(&key(id), None, self.act()).await.unwrap();
        assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }), "{erased:?}");
    }
}

fn expected(contents: &[(&str, bool)]) -> BTreeMap<String, (usize, bool)> {
    contents.iter().map(|(id, has_content)| ((*id).to_owned(), (1, *has_content))).collect()
}

/// CLM-18: an archiver dies at each await point, on the store or on the archive, and the next archiver
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn crash_at_any_await_loses_and_doubles_nothing() {
    let mut wakes = 0;
    loop {
        let fixture = Fixture::open().await;
        for id in ["a", "b"] {
            fixture.post(id).await;
        }
        fixture.set_day(401);
        let is_done = poll_and_drop_after(wakes, fixture.gate.archive_once()).await;
        for id in ["a", "b"] {
            assert_eq!(fixture.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"), "after {wakes} wakes");
        }
        // The next archiver leaves the segments that the dead one began alone for an hour.
        for day in [402, 403] {
            fixture.set_day(day);
            while fixture.gate.archive_once().await != moved_round(0) {}
        }
        assert_eq!(fixture.messages().await, 0, "after {wakes} wakes");
        assert_eq!(fixture.contents(), expected(&[("a", true), ("b", true)]), "after {wakes} wakes");
        for id in ["a", "b"] {
            assert_eq!(fixture.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"), "after {wakes} wakes");
        }
        fixture.gate.stop().await;
        if is_done {
            break;
        }
        wakes += 1;
    }
    assert!(wakes > 5, "it waits for the store and the archive more often: {wakes}");
}

/// Polls the work until it has been woken this many times, and then drops it. Returns true if the work was
/// done by then.
async fn poll_and_drop_after<T>(wakes: usize, work: impl Future<Output = T>) -> bool {
    let (mut work, mut woken) = (Box::pin(work), 0);
    std::future::poll_fn(move |context| match work.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending if woken == wakes => Poll::Ready(false),
        Poll::Pending => {
            woken += 1;
            Poll::Pending
        }
    })
    .await
}

/// CLM-18: the erasure comes after the segment was written, and before a claim points to it.
#[tokio::test(flavor = "multi_thread")]
async fn message_erased_during_a_move_is_in_no_object() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    let now = fixture.set_day(401);
    let written = fixture.write(&fixture.cooled().await).await;
    fixture.erase("a").await;
    assert_eq!(fixture.store.moved(written, now).await.unwrap(), 1, "its neighbour is as it was written");
    assert_eq!(fixture.contents(), expected(&[("a", true), ("b", true)]), "and the erased message too");
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (1, 1, 1, 0));
    assert_eq!(fixture.contents(), expected(&[("a", false), ("b", true)]));
    assert_eq!(fixture.body("b").await, "{ \"of\":\t\"b\" }");
    assert_eq!(fixture.gate.archive_once().await, moved_round(0), "there is nothing left to do");
    fixture.gate.stop().await;
}

/// CLM-18: the erased message was alone in its segment. No claim points to the segment, so it ends at once.
#[tokio::test(flavor = "multi_thread")]
async fn segment_without_moved_records_ends_at_once() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    let now = fixture.set_day(401);
    let written = fixture.write(&fixture.cooled().await).await;
    fixture.erase("a").await;
    assert_eq!(fixture.store.moved(written, now).await.unwrap(), 0);
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (1, 0, 1, 0));
    assert_eq!(fixture.contents(), expected(&[("a", false)]));
    fixture.gate.stop().await;
}

/// CLM-18: an archiver died after the claims of some records of a segment were pointed to it.
#[tokio::test(flavor = "multi_thread")]
async fn leftovers_of_an_interrupted_move_are_removed() {
    let fixture = Fixture::open().await;
    for id in ["a", "b", "c"] {
        fixture.post(id).await;
    }
    let now = fixture.set_day(401);
    let mut written = fixture.write(&fixture.cooled().await).await;
    written.truncate(1);
    assert_eq!(fixture.store.moved(written, now).await.unwrap(), 1);
    fixture.erase("b").await;
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (2, 1, 1, 0));
    assert_eq!(fixture.contents(), expected(&[("a", true), ("b", false), ("c", true)]));
    for id in ["a", "c"] {
        assert_eq!(fixture.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    fixture.gate.stop().await;
}

/// CLM-18: an archiver is killed before its object has its final name, and an erasure follows.
#[tokio::test(flavor = "multi_thread")]
async fn erasure_covers_partly_written_objects() {
    let fixture = Fixture::open().await;
    for id in ["a", "b"] {
        fixture.post(id).await;
    }
    fixture.set_day(401);
    let written = fixture.write(&fixture.cooled().await).await;
    let object = fixture.archive.join(&written[0].1.object);
    let left = std::path::PathBuf::from(format!("{}#1", object.display()));
    std::fs::rename(&object, &left).unwrap();
    fixture.erase("a").await;
    while fixture.gate.archive_once().await != moved_round(0) {}
    assert!(left.exists(), "an archiver may be about to name it");
    assert!(
        fixture.store.unsettled_segments().await.unwrap() > 0,
        "and the erasure reports an object that is left"
    );
    fixture.set_day(402);
    while fixture.gate.archive_once().await != moved_round(0) {}
    assert!(!left.exists());
    assert_eq!(fixture.contents(), expected(&[("a", false), ("b", true)]));
    fixture.gate.stop().await;
}

/// CLM-18: two archivers both believe that they lead, and their batches overlap.
#[tokio::test(flavor = "multi_thread")]
async fn records_written_by_two_archivers_are_kept_once() {
    let fixture = Fixture::open().await;
    for id in ["a", "b", "c"] {
        fixture.post(id).await;
    }
    let now = fixture.set_day(401);
    let cooled = fixture.cooled().await;
    let (one, other) = (fixture.write(&cooled[..2]).await, fixture.write(&cooled[1..]).await);
    assert_eq!(fixture.store.moved(one, now).await.unwrap(), 2);
    assert_eq!(fixture.store.moved(other, now).await.unwrap(), 1);
    assert_eq!(fixture.contents()["b"], (2, true));
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (0, 1, 1, 0));
    assert_eq!(fixture.contents(), expected(&[("a", true), ("b", true), ("c", true)]));
    fixture.erase("b").await;
    assert_eq!(fixture.contents(), expected(&[("a", true), ("b", false), ("c", true)]));
    fixture.gate.stop().await;
}

/// CLM-18: erasures and archiver rounds run at the same time, repeatedly. They find and keep everything.
#[tokio::test(flavor = "multi_thread")]
async fn erasures_beside_the_archiver_leave_nothing_over() {
    let fixture = Fixture::open().await;
    let ids: Vec<_> = (0..12).map(|number| format!("a{number:02}")).collect();
    for id in &ids {
        fixture.post(id).await;
    }
    let now = fixture.set_day(401);
    let mut written = fixture.write(&fixture.cooled().await).await;
    written.truncate(8);
    assert_eq!(fixture.store.moved(written, now).await.unwrap(), 8);
    let other = fixture.start_node_with_archive("archive").await;
    for id in &ids[..6] {
        let (key, act) = (key(id), fixture.act());
        let (erased, round) = tokio::join!(other.erase(&key, None, act), fixture.gate.archive_once());
        assert!(matches!(erased.unwrap().erasure, Erasure::Erased { .. }));
        assert_eq!(round.failures, 0);
    }
    for _ in 0..5 {
        fixture.gate.archive_once().await;
    }
    assert_eq!(fixture.gate.archive_once().await, moved_round(0));
    let kept: Vec<_> = ids.iter().enumerate().map(|(place, id)| (id.as_str(), place >= 6)).collect();
    assert_eq!(fixture.contents(), expected(&kept));
    for id in &ids[6..] {
        assert_eq!(fixture.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    other.stop().await;
    fixture.gate.stop().await;
}
