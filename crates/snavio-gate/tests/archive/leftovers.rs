//! Segments without a pointer after an interrupted or racing move. In the end the archive holds each moved
//! message once, and no erased content.

use std::collections::BTreeMap;
use std::task::Poll;

use snavio_model::archive::segment;
use snavio_store::Erasure;

use crate::books::{Books, key, moved};

impl Books {
    /// Maps each id in the archive to the number of its records and to whether one of them has content.
    fn says(&self) -> BTreeMap<String, (usize, bool)> {
        let mut said = BTreeMap::new();
        for file in self.objects() {
            let object = file.strip_prefix(&self.archive).unwrap().to_str().unwrap();
            let text = zstd::decode_all(&std::fs::read(&file).unwrap()[..]).unwrap();
            for record in segment::read(object, &text).unwrap() {
                let is_empty = record.message.payload.is_empty()
                    && record
                        .claims
                        .iter()
                        .all(|claim| claim.answer.as_ref().is_none_or(|answer| answer.body.is_empty()));
                let (times, says) = said.entry(record.message.id.to_string()).or_insert((0, false));
                *times += 1;
                *says |= !is_empty;
            }
        }
        said
    }

    async fn erase(&self, id: &str) {
        let erased = self.gate.erase(&key(id), None, self.act()).await.unwrap();
        assert!(matches!(erased.erasure, Erasure::Erased { before: false, .. }), "{erased:?}");
    }
}

fn said(of: &[(&str, bool)]) -> BTreeMap<String, (usize, bool)> {
    of.iter().map(|(id, says)| ((*id).to_owned(), (1, *says))).collect()
}

/// CLM-18: an archiver dies at each await point, on the store or on the archive, and the next archiver
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_wait_loses_and_doubles_nothing() {
    let mut wakes = 0;
    loop {
        let books = Books::open().await;
        for id in ["a", "b"] {
            books.post(id).await;
        }
        books.day(401);
        let is_done = dies_after(wakes, books.gate.archive_once()).await;
        for id in ["a", "b"] {
            assert_eq!(books.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"), "after {wakes} wakes");
        }
        // The next archiver leaves the segments that the dead one began alone for an hour.
        for day in [402, 403] {
            books.day(day);
            while books.gate.archive_once().await != moved(0) {}
        }
        assert_eq!(books.messages().await, 0, "after {wakes} wakes");
        assert_eq!(books.says(), said(&[("a", true), ("b", true)]), "after {wakes} wakes");
        for id in ["a", "b"] {
            assert_eq!(books.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"), "after {wakes} wakes");
        }
        books.gate.stop().await;
        if is_done {
            break;
        }
        wakes += 1;
    }
    assert!(wakes > 5, "it waits for the store and the archive more often: {wakes}");
}

/// Polls the work until it has been woken this many times, and then drops it. Returns true if the work was
/// done by then.
async fn dies_after<T>(wakes: usize, work: impl Future<Output = T>) -> bool {
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
async fn what_was_erased_while_it_was_moved_is_in_no_object() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    let now = books.day(401);
    let written = books.write(&books.cooled().await).await;
    books.erase("a").await;
    assert_eq!(books.store.moved(written, now).await.unwrap(), 1, "its neighbour is as it was written");
    assert_eq!(books.says(), said(&[("a", true), ("b", true)]), "and so is what was erased");
    let round = books.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (1, 1, 1, 0));
    assert_eq!(books.says(), said(&[("a", false), ("b", true)]));
    assert_eq!(books.body("b").await, "{ \"of\":\t\"b\" }");
    assert_eq!(books.gate.archive_once().await, moved(0), "there is nothing left to do");
    books.gate.stop().await;
}

/// CLM-18: the erased message was alone in its segment. No claim points to the segment, so it ends at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_of_which_nothing_moved_ends_at_once() {
    let books = Books::open().await;
    books.post("a").await;
    let now = books.day(401);
    let written = books.write(&books.cooled().await).await;
    books.erase("a").await;
    assert_eq!(books.store.moved(written, now).await.unwrap(), 0);
    let round = books.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (1, 0, 1, 0));
    assert_eq!(books.says(), said(&[("a", false)]));
    books.gate.stop().await;
}

/// CLM-18: an archiver died after the claims of some records of a segment were pointed to it.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_move_left_over_is_taken_out() {
    let books = Books::open().await;
    for id in ["a", "b", "c"] {
        books.post(id).await;
    }
    let now = books.day(401);
    let mut written = books.write(&books.cooled().await).await;
    written.truncate(1);
    assert_eq!(books.store.moved(written, now).await.unwrap(), 1);
    books.erase("b").await;
    let round = books.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (2, 1, 1, 0));
    assert_eq!(books.says(), said(&[("a", true), ("b", false), ("c", true)]));
    for id in ["a", "c"] {
        assert_eq!(books.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    books.gate.stop().await;
}

/// CLM-18: an archiver is killed before its object has its final name, and an erasure follows.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_of_writing_an_object_says_nothing_after_an_erasure() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    let written = books.write(&books.cooled().await).await;
    let object = books.archive.join(&written[0].1.object);
    let left = std::path::PathBuf::from(format!("{}#1", object.display()));
    std::fs::rename(&object, &left).unwrap();
    books.erase("a").await;
    while books.gate.archive_once().await != moved(0) {}
    assert!(left.exists(), "somebody may be about to name it");
    assert!(
        books.store.unsettled_segments().await.unwrap() > 0,
        "and who erased is told that something is left"
    );
    books.day(402);
    while books.gate.archive_once().await != moved(0) {}
    assert!(!left.exists());
    assert_eq!(books.says(), said(&[("a", false), ("b", true)]));
    books.gate.stop().await;
}

/// CLM-18: two archivers both believe that they lead, and their batches overlap.
#[tokio::test(flavor = "multi_thread")]
async fn what_two_archivers_wrote_both_is_kept_once() {
    let books = Books::open().await;
    for id in ["a", "b", "c"] {
        books.post(id).await;
    }
    let now = books.day(401);
    let cooled = books.cooled().await;
    let (one, other) = (books.write(&cooled[..2]).await, books.write(&cooled[1..]).await);
    assert_eq!(books.store.moved(one, now).await.unwrap(), 2);
    assert_eq!(books.store.moved(other, now).await.unwrap(), 1);
    assert_eq!(books.says()["b"], (2, true));
    let round = books.gate.archive_once().await;
    assert_eq!((round.moved, round.rewritten, round.deleted, round.failures), (0, 1, 1, 0));
    assert_eq!(books.says(), said(&[("a", true), ("b", true), ("c", true)]));
    books.erase("b").await;
    assert_eq!(books.says(), said(&[("a", true), ("b", false), ("c", true)]));
    books.gate.stop().await;
}

/// CLM-18: erasures and archiver rounds run at the same time, repeatedly. They find and keep everything.
#[tokio::test(flavor = "multi_thread")]
async fn erasing_beside_the_archiver_leaves_nothing_over() {
    let books = Books::open().await;
    let ids: Vec<_> = (0..12).map(|number| format!("a{number:02}")).collect();
    for id in &ids {
        books.post(id).await;
    }
    let now = books.day(401);
    let mut written = books.write(&books.cooled().await).await;
    written.truncate(8);
    assert_eq!(books.store.moved(written, now).await.unwrap(), 8);
    let other = books.another("archive").await;
    for id in &ids[..6] {
        let (key, act) = (key(id), books.act());
        let (erased, round) = tokio::join!(other.erase(&key, None, act), books.gate.archive_once());
        assert!(matches!(erased.unwrap().erasure, Erasure::Erased { .. }));
        assert_eq!(round.failures, 0);
    }
    for _ in 0..5 {
        books.gate.archive_once().await;
    }
    assert_eq!(books.gate.archive_once().await, moved(0));
    let expected: Vec<_> = ids.iter().enumerate().map(|(place, id)| (id.as_str(), place >= 6)).collect();
    assert_eq!(books.says(), said(&expected));
    for id in &ids[6..] {
        assert_eq!(books.body(id).await, format!("{{ \"of\":\t\"{id}\" }}"));
    }
    other.stop().await;
    books.gate.stop().await;
}
