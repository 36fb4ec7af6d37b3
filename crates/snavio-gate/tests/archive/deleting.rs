//! Deletion of expired rows and segments. Only the leader deletes, and each deletion is audited.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::archive::hold::Held;
use snavio_model::id::MessageId;
use snavio_store::engine::postgres::{Options, PostgresStore};
use snavio_store::{NewHold, Store};
use snavio_testbed::Postgres;

use crate::books::{Fixture, key, moved_round};

/// CLM-15, CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn expired_rows_and_objects_are_deleted_unless_held() {
    let fixture = Fixture::open().await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let new = NewHold { tenant: key("a").tenant, held: Held::Id(MessageId::stored("a")) };
    let hold = fixture.store.set_hold(new, fixture.act()).await.unwrap().unwrap();
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    assert_eq!(fixture.gate.archive_once().await, moved_round(0));
    assert_eq!((fixture.objects().len(), fixture.count_audited("claims.expire").await), (1, 0), "it is held");
    fixture.store.lift_hold(hold.id, fixture.act()).await.unwrap();
    fixture.store.sweep(now).await.unwrap();
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    assert!(fixture.objects().is_empty());
    assert_eq!(
        (fixture.count_audited("claims.expire").await, fixture.count_audited("archive.delete").await),
        (1, 1)
    );
    fixture.gate.stop().await;
}

/// CLM-18: the archiver counts an object that it cannot delete as a failure, tries it again in the next
/// round, and deletes the other objects.
#[tokio::test(flavor = "multi_thread")]
async fn undeletable_object_does_not_keep_the_others() {
    let fixture = Fixture::open().await;
    for id in ["a", "b", "c"] {
        fixture.post(id).await;
        fixture.set_day(401);
        assert_eq!(fixture.gate.archive_once().await, moved_round(1));
        fixture.set_day(0);
    }
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    let mut objects = fixture.objects();
    objects.sort();
    let stubborn = &objects[0];
    std::fs::remove_file(stubborn).unwrap();
    std::fs::create_dir_all(stubborn.join("in the way")).unwrap();
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (2, 1));
    assert!(objects[1..].iter().all(|object| !object.exists()));
    assert_eq!(fixture.count_audited("archive.delete").await, 2);
    std::fs::remove_dir_all(stubborn).unwrap();
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    fixture.gate.stop().await;
}

/// CLM-18: a node that has lost the lease of the archiver, and does not know it yet, deletes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn node_that_does_not_lead_deletes_nothing() {
    let url = Postgres::shared().database().unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&Options::new(&url)).await.unwrap());
    let fixture = Fixture::over(store).await;
    fixture.post("a").await;
    fixture.set_day(401);
    assert_eq!(fixture.gate.archive_once().await, moved_round(1));
    let now = fixture.set_day(2600);
    fixture.store.sweep(now).await.unwrap();
    fixture.store.leave("").await.unwrap();
    assert!(fixture.store.lead("archiver", "another", Duration::from_secs(600)).await.unwrap());
    let round = fixture.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures, fixture.objects().len()), (0, 0, 1));
    fixture.store.leave("another").await.unwrap();
    assert_eq!((fixture.gate.archive_once().await.deleted, fixture.objects().len()), (1, 0));
    fixture.gate.stop().await;
}
