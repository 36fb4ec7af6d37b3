//! Deletion of expired rows and segments. Only the leader deletes, and each deletion is audited.

use std::sync::Arc;
use std::time::Duration;

use snavio_model::archive::hold::Held;
use snavio_model::id::MessageId;
use snavio_store::postgres::{Options, PostgresStore};
use snavio_store::{NewHold, Store};
use snavio_testbed::Postgres;

use crate::books::{Books, key, moved};

/// CLM-15, CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn after_its_time_rows_and_objects_are_deleted_on_the_record_unless_they_are_held() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let new = NewHold { tenant: key("a").tenant, held: Held::Id(MessageId::stored("a")) };
    let hold = books.store.set_hold(new, books.act()).await.unwrap().unwrap();
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    assert_eq!(books.gate.archive_once().await, moved(0));
    assert_eq!((books.objects().len(), books.audited("claims.expire").await), (1, 0), "it is held");
    books.store.lift_hold(hold.id, books.act()).await.unwrap();
    books.store.sweep(now).await.unwrap();
    let round = books.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    assert!(books.objects().is_empty());
    assert_eq!((books.audited("claims.expire").await, books.audited("archive.delete").await), (1, 1));
    books.gate.stop().await;
}

/// CLM-18: the archiver counts an object that it cannot delete as a failure, tries it again in the next
/// round, and deletes the other objects.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_deleted_does_not_keep_the_others() {
    let books = Books::open().await;
    for id in ["a", "b", "c"] {
        books.post(id).await;
        books.day(401);
        assert_eq!(books.gate.archive_once().await, moved(1));
        books.day(0);
    }
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    let mut objects = books.objects();
    objects.sort();
    let stubborn = &objects[0];
    std::fs::remove_file(stubborn).unwrap();
    std::fs::create_dir_all(stubborn.join("in the way")).unwrap();
    let round = books.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (2, 1));
    assert!(objects[1..].iter().all(|object| !object.exists()));
    assert_eq!(books.audited("archive.delete").await, 2);
    std::fs::remove_dir_all(stubborn).unwrap();
    let round = books.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures), (1, 0));
    books.gate.stop().await;
}

/// CLM-18: a node that has lost the lease of the archiver, and does not know it yet, deletes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_lead_deletes_nothing() {
    let url = Postgres::shared().database().unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&Options::new(&url)).await.unwrap());
    let books = Books::over(store).await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let now = books.day(2600);
    books.store.sweep(now).await.unwrap();
    books.store.leave("").await.unwrap();
    assert!(books.store.lead("archiver", "another", Duration::from_secs(600)).await.unwrap());
    let round = books.gate.archive_once().await;
    assert_eq!((round.deleted, round.failures, books.objects().len()), (0, 0, 1));
    books.store.leave("another").await.unwrap();
    assert_eq!((books.gate.archive_once().await.deleted, books.objects().len()), (1, 0));
    books.gate.stop().await;
}
