//! Reads of stored responses from the archive, and reads that do not need it.

use futures_util::future::join_all;
use snavio_model::claim::ClaimPolicy;
use snavio_model::processing::Answer;
use snavio_store::conformance::samples::{at, intake, route, settle};

use crate::books::{Books, key, moved};

/// CLM-16: a batch of replays, all from one segment, with large stored responses.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_replays_gets_all_of_its_answers() {
    let books = Books::open().await;
    let ids: Vec<_> = (0..150).map(|number| format!("a{number:03}")).collect();
    let body = |id: &str| format!("{{ \"of\":\t\"{id}\", \"padding\": \"{}\" }}", id.repeat(5_000));
    for id in &ids {
        books.post_with(id, Some(body(id))).await;
    }
    books.day(401);
    assert_eq!(books.gate.archive_once().await.moved, 150);
    let answers = join_all(ids.iter().map(|id| books.answer(id))).await;
    for (id, answer) in ids.iter().zip(answers) {
        assert_eq!(answer.unwrap().unwrap().body, body(id));
    }
    books.gate.stop().await;
}

/// CLM-17: only a stored response that is in the archive waits for the archive.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_archive_down_what_has_no_answer_there_does_not_wait() {
    let books = Books::open().await;
    books.post("answered").await;
    books.post("erased").await;
    books.post_with("silent", None).await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(3));
    books.gate.erase(&key("erased"), None, books.act()).await.unwrap();
    std::fs::remove_dir_all(&books.archive).unwrap();
    assert!(books.answer("answered").await.is_err());
    assert_eq!(books.answer("silent").await.unwrap(), None);
    let erased = Answer { status: 201, content_type: None, body: "".into() };
    assert_eq!(books.answer("erased").await.unwrap(), Some(erased));
    assert_eq!(books.claim("silent").await.claim.progress.unwrap().reference.as_deref(), Some("JE-silent"));
    books.gate.stop().await;
}

/// CLM-18: dead letters and conflicts stay hot until a person decides about them. Messages that cool after
/// them do not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn what_stays_does_not_keep_what_comes_after_it() {
    let books = Books::open().await;
    let waits = route("waits", ClaimPolicy::ledger());
    for batch in 0..41 {
        let intakes = (0..500).map(|number| intake(&format!("stays {batch} {number}"), &waits, at(0)));
        settle(&*books.store, intakes.collect(), at(0)).await;
    }
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(0), "more stays than is looked at in one round");
    assert_eq!(books.gate.archive_once().await, moved(1));
    assert_eq!(books.gate.archive_once().await, moved(0), "and it begins again at the end");
    books.day(0);
    books.post("b").await;
    books.day(402);
    let all = [books.gate.archive_once().await, books.gate.archive_once().await];
    assert_eq!(all.map(|round| round.moved).iter().sum::<usize>(), 1);
    books.gate.stop().await;
}
