//! Reads of stored responses from the archive, and reads that do not need it.

use futures_util::future::join_all;
use snavio_model::claim::ClaimPolicy;
use snavio_model::delivery::processing::Answer;
use snavio_store::conformance::samples::{at, intake, route, settle};

use crate::books::{Fixture, key, moved_round};

/// CLM-16: a batch of replays, all from one segment, with large stored responses.
#[tokio::test(flavor = "multi_thread")]
async fn batch_of_replays_gets_all_its_responses() {
    let fixture = Fixture::open().await;
    let ids: Vec<_> = (0..150).map(|number| format!("a{number:03}")).collect();
    let body = |id: &str| format!("{{ \"of\":\t\"{id}\", \"padding\": \"{}\" }}", id.repeat(5_000));
    for id in &ids {
        fixture.post_with(id, Some(body(id))).await;
    }
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await.moved, 150);
    let answers = join_all(ids.iter().map(|id| fixture.answer(id))).await;
    for (id, answer) in ids.iter().zip(answers) {
        assert_eq!(answer.unwrap().unwrap().body, body(id));
    }
    fixture.gate.stop().await;
}

/// CLM-17: only a stored response that is in the archive waits for the archive.
#[tokio::test(flavor = "multi_thread")]
async fn claim_without_archived_response_needs_no_archive() {
    let fixture = Fixture::open().await;
    fixture.post("answered").await;
    fixture.post("erased").await;
    fixture.post_with("silent", None).await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(3));
    fixture.gate.erase(&key("erased"), None, fixture.act()).await.unwrap();
    std::fs::remove_dir_all(&fixture.archive).unwrap();
    assert!(fixture.answer("answered").await.is_err());
    assert_eq!(fixture.answer("silent").await.unwrap(), None);
    let erased = Answer { status: 201, content_type: None, body: "".into() };
    assert_eq!(fixture.answer("erased").await.unwrap(), Some(erased));
    assert_eq!(fixture.claim("silent").await.claim.progress.unwrap().reference.as_deref(), Some("JE-silent"));
    fixture.gate.stop().await;
}

/// CLM-18: dead letters and conflicts stay hot until a person decides about them. Messages that cool after
/// them do not wait for them.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_stay_do_not_delay_later_ones() {
    let fixture = Fixture::open().await;
    let waits = route("waits", ClaimPolicy::ledger());
    for batch in 0..41 {
        let intakes = (0..500).map(|number| intake(&format!("stays {batch} {number}"), &waits, at(0)));
        settle(&*fixture.store, intakes.collect(), at(0)).await;
    }
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(
        fixture.gate.archive_once().await,
        moved_round(0),
        "more stays than is looked at in one round"
    );
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    assert_eq!(fixture.gate.archive_once().await, moved_round(0), "and it begins again at the end");
    fixture.set_day(0);
    fixture.post("b").await;
    fixture.set_day(402);
    let all = [fixture.gate.archive_once().await, fixture.gate.archive_once().await];
    assert_eq!(all.map(|round| round.moved).iter().sum::<usize>(), 1);
    fixture.gate.stop().await;
}
