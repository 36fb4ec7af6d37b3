//! Moves a store with every kind of row to PostgreSQL. Everything that can be read is the same there, and new
//! work continues from it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::sync::Arc;

use snavio_model::archive::{self, segment};
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::processing::UnknownOutcome;
use snavio_model::delivery::{Receipt, ReceiptOutcome};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::ordering::{EntityKey, Mode, OnFailure};
use snavio_model::refusal::{Reason, Refusal, Subject};
use snavio_model::registry::{
    BoundRoute, Change, Entry, LoggedChange, Seal, SealingKey, Service, Signer as _, Tenant, verify,
};
use snavio_model::settle::{Outcome, Settlement};
use snavio_model::telemetry::refused;
use snavio_model::time::Timestamp;
use snavio_store::conformance::ordering::{numbered, ordered};
use snavio_store::conformance::processing::{
    completed_report, failed_report, finish_one, read_claim, tracked_route_with,
};
use snavio_store::conformance::samples::{
    RECEIVES_MAX, acknowledge, act, at, event_intake, ids, intake, intake_of, message, notify, pay, queue,
    queued, receipt, receive, route, settle, settle_one,
};
use snavio_store::engine::postgres::PostgresStore;
use snavio_store::engine::sqlite::{EmbeddedStore, FILE};
use snavio_store::engine::{postgres, sqlite};
use snavio_store::{
    Archive, Claims, Conflicts, Entities, Fleet, Journal, Ledger, MoveError, Moved, NewHold, NewSegment,
    Queue, RegistryLog, Store, move_store,
};
use snavio_testbed::Postgres;

fn open(folder: &Path) -> EmbeddedStore {
    EmbeddedStore::open(&sqlite::Options::new(folder)).unwrap()
}

async fn open_database(url: &str) -> PostgresStore {
    PostgresStore::open(&postgres::Options::new(url)).await.unwrap()
}

async fn move_to(folder: &Path, url: &str) -> Result<Moved, MoveError> {
    move_store(folder, &postgres::Options::new(url), false).await
}

fn change(version: i64, before: Option<Entry>, after: Option<Entry>) -> Change {
    let key = before.as_ref().or(after.as_ref()).unwrap().key();
    Change { version, at: at(version), who: "operator".into(), why: "naïve ☃".into(), key, before, after }
}

fn story() -> Vec<Change> {
    let tenant = |suspended| {
        Entry::Tenant(Tenant {
            name: "acme".parse().unwrap(),
            contact: Some("a@example.com".into()),
            suspended,
        })
    };
    let service = Entry::Service(Service::new("acme/bot".parse().unwrap()));
    vec![
        change(1, None, Some(tenant(false))),
        change(2, None, Some(service.clone())),
        change(3, Some(tenant(false)), Some(tenant(true))),
        change(4, Some(service), None),
    ]
}

/// Receipts from before the move: one of a waiting delivery, and one of a delivery that is gone.
struct HeldReceipts {
    waiting: Receipt,
    gone: Receipt,
}

/// Writes two tenants, all kinds of rows, and more messages than a page of a move holds.
async fn fill(store: &dyn Store) -> HeldReceipts {
    store.apply(story()).await.unwrap();
    store.pin("platform_key", "0123456789abcdef").await.unwrap();
    settle_one(store, "dead", &notify(), at(0)).await;
    for _ in 0..=RECEIVES_MAX {
        receive(store, "notify", 0, at(0)).await;
    }
    store.sweep(at(0)).await.unwrap();
    for id in ["strict", "done"] {
        settle_one(store, id, &pay(), at(1)).await;
    }
    let held = receive(store, "pay", 60, at(2)).await;
    let (waiting, gone) = (receipt(&held[0]), receipt(&held[1]));
    acknowledge(store, &queue("pay"), vec![gone]).await.unwrap();
    let many: Vec<_> =
        (0..2500).map(|n| intake_of("zeta/shop", &format!("many-{n}"), &[notify()], at(3))).collect();
    settle(store, many, at(3)).await;
    let source = "acme/billing".parse().unwrap();
    let record = refused(&source, &Subject::default(), &Refusal::new(Reason::AclDeny, ""), at(4));
    store.record(record.into_iter().collect()).await.unwrap();
    store.purge(&queue("nobody"), act("naïve ☃", at(5))).await.unwrap();
    HeldReceipts { waiting, gone }
}

/// Reads everything that can be read, as text.
async fn read_all(store: &dyn Store) -> String {
    let mut text = format!("{:?}\n", store.version().await.unwrap());
    let (_, mut entries) = store.load().await.unwrap();
    entries.sort_by_key(|entry| format!("{:?}", entry.key()));
    text += &format!("{entries:?}\n{:?}\n", store.logged_since(0, 100).await.unwrap());
    text += &format!("{:?}\n", store.seals(0, 100).await.unwrap());
    for tenant in ["acme", "zeta"] {
        text += &pages(async |after| {
            let page = store.messages(tenant, after, 1000).await.unwrap();
            page.last().map(|last| (last.number, format!("{page:?}")))
        })
        .await;
        text += &pages(async |after| {
            let page = store.telemetry(tenant, after, 1000).await.unwrap();
            page.last().map(|last| (last.number, format!("{page:?}")))
        })
        .await;
        let dead = store.dead_letters(tenant, None, Serial(0), 100).await.unwrap();
        text += &format!("{dead:?}\n");
        for letter in &dead {
            text += &format!("{:?}\n", store.dead_letter(tenant, letter.letter.delivery.id).await.unwrap());
        }
    }
    text += &format!("{:?}\n", store.dead_letter_origins(&queue("dead"), Serial(0), 100).await.unwrap());
    let mut audit = store.audit(Serial(0), 100).await.unwrap();
    audit.retain(|entry| entry.action != "store.move");
    assert!(!audit.is_empty() && text.contains("strict") && text.contains("many-2499"));
    text + &format!("{audit:?}\n")
}

async fn pages(page: impl AsyncFn(Serial) -> Option<(Serial, String)>) -> String {
    let (mut after, mut all) = (Serial(0), String::new());
    while let Some((last, text)) = page(after).await {
        all += &text;
        after = last;
    }
    all + "\n"
}

/// Returns the folder with a filled and closed store, everything that could be read of it, and the receipts
/// that a consumer still holds.
async fn filled() -> (tempfile::TempDir, String, HeldReceipts) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let held = fill(&store).await;
    let before = read_all(&store).await;
    store.close().await;
    (folder, before, held)
}

/// REG-5: a move copies the text of a change that its seal covers, also if an older version wrote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_changelog_stays_sealed_after_a_move() {
    let (folder, _, _) = filled().await;
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    let older =
        r#"UPDATE registry_change SET after = '{"name":"acme/bot", "kind":"service"}' WHERE version = 2"#;
    assert_eq!(file.execute(older, []).unwrap(), 1);
    drop(file);
    let store = open(folder.path());
    let signer = SealingKey::from_bytes(&[7; 32]);
    let mut last = None;
    for (first, changes) in [(0, 1), (1, 2)] {
        let logged = store.logged_since(first, changes).await.unwrap();
        let evidence: Vec<_> = logged.iter().map(LoggedChange::evidence).collect();
        last = Some(Seal::next(last.as_ref(), &evidence, at(9), &signer).unwrap());
        store.seal(last.clone().unwrap()).await.unwrap();
    }
    let before = read_all(&store).await;
    store.close().await;
    let url = Postgres::shared().database().unwrap();
    assert_eq!(move_to(folder.path(), &url).await.unwrap().seals, 2);
    let store = open_database(&url).await;
    assert_eq!(read_all(&store).await, before);
    let logged = store.logged_since(0, 10).await.unwrap();
    let evidence: Vec<_> = logged.iter().map(LoggedChange::evidence).collect();
    let seals = store.seals(0, 10).await.unwrap();
    let sound = verify(&seals, &evidence, 4, &[signer.public_key()], None).unwrap();
    assert_eq!((sound.head, sound.unsealed()), (last.unwrap().head_digest(), Some((4, 4))));
    store.close().await;
}

/// ENG-3, ENG-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_the_same_after_a_move() {
    let (folder, before, _) = filled().await;
    let url = Postgres::shared().database().unwrap();
    let moved = move_to(folder.path(), &url).await.unwrap();
    assert_eq!((moved.registry_version, moved.registry_entries, moved.registry_changes), (4, 1, 4));
    assert_eq!((moved.messages, moved.claims, moved.deliveries), (2503, 2, 2501));
    assert_eq!((moved.dead_letters, moved.audit, moved.damaged.len()), (1, 1, 0));
    let store = open_database(&url).await;
    assert_eq!(read_all(&store).await, before);
    let audit = store.audit(Serial(0), 100).await.unwrap();
    let last = audit.last().unwrap();
    assert_eq!((last.action.as_str(), last.act.who.as_str()), ("store.move", "operator"));
    assert!(last.outcome.contains("2503 messages") && last.number.0 > moved.numbers_above, "{last:?}");
    let pinned = store.pin("platform_key", "another").await.unwrap();
    assert_eq!(pinned, "0123456789abcdef", "a node with another key is still refused");
    let attributes = store.attributes(&queue("notify"), at(6)).await.unwrap();
    assert_eq!((attributes.depth, attributes.in_flight), (2500, 0));
    assert_eq!(store.attributes(&queue("dead"), at(6)).await.unwrap().dead_letters, 1);
    store.close().await;
}

/// CLM-8, CLM-15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_records_and_conflicts_are_moved() {
    let folder = tempfile::tempdir().unwrap();
    let post = route("post", ClaimPolicy::ledger());
    let contents = [1, 2, 3].map(|content| {
        let mut intake = intake("a", &post, at(0));
        intake.message.domain_hash = DomainHash([content; 32]);
        intake
    });
    let store = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    settle(&store, contents[..2].to_vec(), at(0)).await;
    let before = store.conflicts(None, None, Serial(0), 10).await.unwrap();
    store.close().await;
    drop(store);
    let url = Postgres::shared().database().unwrap();
    assert_eq!(move_to(folder.path(), &url).await.unwrap().conflicts, 1);
    let store = open_database(&url).await;
    assert_eq!(store.conflicts(None, None, Serial(0), 10).await.unwrap(), before);
    let settled = settle(&store, contents.to_vec(), at(1)).await;
    assert_eq!(settled[0].outcomes, [Outcome::Duplicate { first_seen_at: at(0) }]);
    assert_eq!(settled[1].outcomes, [Outcome::Conflict { conflict: before[0].id, is_new: false }]);
    assert!(matches!(settled[2].outcomes[..], [Outcome::Conflict { is_new: true, .. }]), "{settled:?}");
    assert_eq!(store.conflicts(None, None, Serial(0), 10).await.unwrap().len(), 2);
    store.close().await;
}

/// MSG-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_is_moved_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let event = event_intake("a", &notify(), at(0));
    let store = EmbeddedStore::open(&sqlite::Options::new(folder.path())).unwrap();
    settle(&store, vec![event.clone()], at(0)).await;
    store.close().await;
    drop(store);
    let url = Postgres::shared().database().unwrap();
    assert_eq!(move_to(folder.path(), &url).await.unwrap().messages, 1);
    let store = open_database(&url).await;
    let received = receive(&store, "notify", 30, at(1)).await;
    assert_eq!(*received[0].message, event.message);
    store.close().await;
}

/// CLM-4, DLV-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_work_continues_from_the_moved_state() {
    let (folder, _, held) = filled().await;
    let url = Postgres::shared().database().unwrap();
    let moved = move_to(folder.path(), &url).await.unwrap();
    let store = open_database(&url).await;
    assert!(matches!(settle_one(&store, "strict", &pay(), at(6)).await, Outcome::Duplicate { .. }));
    assert!(matches!(settle_one(&store, "done", &pay(), at(6)).await, Outcome::Duplicate { .. }));
    let shown = vec![held.waiting, held.gone];
    let outcomes = acknowledge(&store, &queue("pay"), shown.clone()).await.unwrap();
    assert_eq!(outcomes, [ReceiptOutcome::Fenced, ReceiptOutcome::Gone], "no lease is held");
    let again = receive(&store, "pay", 30, at(6)).await;
    assert_eq!(ids(&again), ["strict"], "and it is there for the next");
    assert_eq!(*again[0].message, message("acme/billing", "strict", at(1)));
    assert_eq!((again[0].delivery_id, again[0].attempt), (held.waiting.delivery_id, 2), "receives count on");
    assert!(again[0].fence > held.waiting.fence && again[0].fence.0 > moved.numbers_above);
    let late = acknowledge(&store, &queue("pay"), shown).await.unwrap();
    assert_eq!(late[0], ReceiptOutcome::Fenced, "an old receipt does not end the new lease");
    let done = acknowledge(&store, &queue("pay"), vec![receipt(&again[0])]).await.unwrap();
    assert_eq!(done, [ReceiptOutcome::Done]);
    let fresh = queued(settle_one(&store, "fresh", &pay(), at(7)).await).unwrap();
    assert!(fresh.0 > moved.numbers_above, "{fresh:?} may have been given before");
    let log = store.messages("acme", Serial(0), 100).await.unwrap();
    assert_eq!(log.last().unwrap().message.id.as_str(), "fresh");
    let dead = store.dead_letter_origins(&queue("dead"), Serial(0), 10).await.unwrap()[0].id;
    assert_eq!(store.redrive("acme", vec![dead], act("fixed", at(8))).await.unwrap().back, [dead]);
    let more = store.apply(vec![Change { version: 5, ..story().swap_remove(1) }]).await;
    more.unwrap();
    store.close().await;
}

/// ENG-2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_in_use_and_empty_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = Postgres::shared().database().unwrap();
    let none = move_to(folder.path(), &url).await.unwrap_err();
    assert!(matches!(none, MoveError::From(sqlite::BackupError::Unfit { .. })), "{none:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made there");
    let store = open(folder.path());
    let refused = move_to(folder.path(), &url).await.unwrap_err();
    let in_use = matches!(refused, MoveError::From(sqlite::BackupError::Folder(sqlite::OpenError::InUse(_))));
    assert!(in_use, "{refused:?}");
    store.close().await;
}

/// ENG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonempty_database_is_left_unchanged() {
    let (folder, _, _) = filled().await;
    let url = Postgres::shared().database().unwrap();
    move_to(folder.path(), &url).await.unwrap();
    let again = move_to(folder.path(), &url).await.unwrap_err();
    assert!(matches!(again, MoveError::NotEmpty("message")), "{again:?}");

    let url = Postgres::shared().database().unwrap();
    let store = open_database(&url).await;
    store.apply(story()).await.unwrap();
    let refused = move_to(folder.path(), &url).await.unwrap_err();
    assert!(matches!(refused, MoveError::NotEmpty("registry_entry")), "{refused:?}");
    assert!(store.messages("acme", Serial(0), 10).await.unwrap().is_empty());
    store.close().await;

    let url = Postgres::shared().database().unwrap();
    let store = open_database(&url).await;
    store.pin("platform_key", "another").await.unwrap();
    let refused = move_to(folder.path(), &url).await.unwrap_err();
    assert!(format!("{refused:?}").contains("other secrets"), "{refused:?}");
    assert_eq!(store.version().await.unwrap(), 0);
    store.close().await;
}

/// ENG-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_with_a_running_node_is_refused() {
    let (folder, _, _) = filled().await;
    let url = Postgres::shared().database().unwrap();
    let store = open_database(&url).await;
    let node = snavio_store::NodeState {
        id: "n".into(),
        started_at: at(0),
        now: at(0),
        address: "10.0.0.7:8080".into(),
        software: "0".into(),
        registry_version: 0,
        waiting: 0,
        draining: false,
    };
    store.announce(&node).await.unwrap();
    let refused = move_to(folder.path(), &url).await.unwrap_err();
    assert!(matches!(&refused, MoveError::Served(at) if at == "10.0.0.7:8080"), "{refused:?}");
    store.leave("n").await.unwrap();
    move_to(folder.path(), &url).await.unwrap();
    store.close().await;
}

/// QUA-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_row_stops_a_move_or_is_reported() {
    for (change, words) in [
        ("UPDATE message SET payload = x'7b7d' WHERE id = 'many-7'", "message"),
        ("UPDATE claim SET expires_at = expires_at + 1 WHERE id = 'strict'", "claim strict"),
        ("UPDATE audit SET why = 'other'", "audit entry"),
        ("UPDATE delivery SET id = 1 << 54 WHERE queue LIKE '%pay%'", "delivery 18014398509481984"),
        (
            "UPDATE telemetry SET body = 'no json' WHERE seq = (SELECT max(seq) FROM telemetry)",
            "telemetry record",
        ),
        ("UPDATE dead_letter SET reason = 'other'", "dead letter"),
    ] {
        let (folder, _, _) = filled().await;
        let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
        assert_eq!(file.execute(change, []).unwrap(), 1, "{change}");
        drop(file);
        let url = Postgres::shared().database().unwrap();
        let refused = move_to(folder.path(), &url).await.unwrap_err();
        let MoveError::Damaged(why) = &refused else { panic!("{change}: {refused:?}") };
        assert!(why.to_string().contains(words), "{why}");
        let store = open_database(&url).await;
        assert_eq!(
            (store.version().await.unwrap(), messages(&store).await),
            (0, 0),
            "{change}: nothing is left"
        );
        store.close().await;
        let moved = move_store(folder.path(), &postgres::Options::new(&url), true).await.unwrap();
        assert_eq!(moved.damaged.len(), 1, "{moved:?}");
        assert!(moved.damaged[0].contains(words), "{moved:?}");
        let store = open_database(&url).await;
        assert!(messages(&store).await >= 3, "{change}: the rest is there");
        let audit = store.audit(Serial(0), 10).await.unwrap();
        assert!(audit.last().unwrap().outcome.contains(words), "{audit:?}");
        store.close().await;
    }
}

/// QUA-1, CLM-18: without its hold, the new store would delete a held record. So a move never leaves a hold
/// out, even if the operator asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_hold_is_never_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    settle_one(&store, "a", &route("post", ClaimPolicy::ledger()), at(0)).await;
    let hold = NewHold { tenant: "acme".parse().unwrap(), held: archive::hold::Held::Tenant };
    store.set_hold(hold, act("a lawsuit", at(0))).await.unwrap();
    store.close().await;
    drop(store);
    let file = rusqlite::Connection::open(folder.path().join(FILE)).unwrap();
    assert_eq!(file.execute("UPDATE hold SET tenant = 'zeta'", []).unwrap(), 1);
    drop(file);
    let url = Postgres::shared().database().unwrap();
    let refused = move_store(folder.path(), &postgres::Options::new(&url), true).await.unwrap_err();
    let MoveError::Needed(why) = &refused else { panic!("{refused:?}") };
    assert!(why.to_string().contains("hold"), "{why}");
    let store = open_database(&url).await;
    assert_eq!(messages(&store).await, 0, "nothing is left");
    store.close().await;
}

async fn messages(store: &PostgresStore) -> usize {
    store.messages("acme", Serial(0), 10).await.unwrap().len()
}

/// ENG-3: nodes wait for a move as they do for a migration, and find all of it or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_started_during_a_move_finds_everything() {
    let (folder, _, _) = filled().await;
    let url = Arc::new(Postgres::shared().database().unwrap());
    open_database(&url).await.close().await;
    let opening = {
        let url = Arc::clone(&url);
        tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.last() != Some(&(4, 3)) {
                let store = open_database(&url).await;
                seen.push((store.version().await.unwrap(), messages(&store).await));
                store.close().await;
            }
            seen
        })
    };
    move_to(folder.path(), &url).await.unwrap();
    let seen = opening.await.unwrap();
    assert!(seen.iter().all(|state| [(0, 0), (4, 3)].contains(state)), "{seen:?}");
}

/// CLM-16, CLM-18: the new store finds archived records, and held records stay held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_claims_are_moved_with_pointers_and_holds() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let ledger = route("post", ClaimPolicy::ledger());
    settle_one(&store, "a", &ledger, at(0)).await;
    let work = receive(&store, "post", 30, at(0)).await.remove(0);
    acknowledge(&store, &queue("post"), vec![receipt(&work)]).await.unwrap();
    let later = at(401 * 86_400);
    let records = store.cooled(None, later).await.unwrap().records;
    let segment = segment::write(&records).unwrap();
    let expires_at = records[0].claims[0].expires_at;
    let new = NewSegment { object: segment.key.clone(), records: 1, expires_at };
    assert!(store.begin_segment(new, later).await.unwrap());
    let pointed = records.into_iter().zip(segment.pointers).collect();
    assert_eq!(store.moved(pointed, later).await.unwrap(), 1);
    let hold = NewHold { tenant: "acme".parse().unwrap(), held: archive::hold::Held::Tenant };
    store.set_hold(hold, act("a lawsuit", later)).await.unwrap();
    let id = IdKey { id: MessageId::stored("a"), tenant: "acme".parse().unwrap() };
    let before = store.claims_of(&id, later).await.unwrap().remove(0);
    assert!(before.archive.is_some());
    let holds = store.holds(None, true, Serial(0), 10).await.unwrap();
    store.close().await;
    drop(store);

    let url = Postgres::shared().database().unwrap();
    move_to(folder.path(), &url).await.unwrap();
    let store = open_database(&url).await;
    let after = store.claims_of(&id, later).await.unwrap().remove(0);
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    assert_eq!(store.holds(None, true, Serial(0), 10).await.unwrap(), holds);
    assert_eq!(settle_one(&store, "a", &ledger, later).await, Outcome::Duplicate { first_seen_at: at(0) });
    store.sweep(at(2600 * 86_400)).await.unwrap();
    let over = at(2600 * 86_400);
    assert!(store.spent_segments("", 10, over).await.unwrap().is_empty(), "it is held");
    store.lift_hold(holds[0].id, act("the lawsuit ended", later)).await.unwrap();
    store.sweep(at(2600 * 86_400)).await.unwrap();
    assert_eq!(store.spent_segments("", 10, over).await.unwrap(), [segment.key]);
    store.close().await;
}

/// CLM-7, ENG-3: a worker keeps its lease over the move, and no other worker gets the work meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_in_progress_is_moved_with_its_leases() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for (id, on_unknown_outcome) in [
        ("reported", UnknownOutcome::Retry),
        ("silent", UnknownOutcome::Retry),
        ("held", UnknownOutcome::Hold),
        ("failed", UnknownOutcome::Hold),
    ] {
        settle_one(&store, id, &tracked_route_with(on_unknown_outcome), at(0)).await;
    }
    let works = receive(&store, "book", 60, at(0)).await;
    finish_one(&store, failed_report(receipt(&works[3]), false, 50), 1).await;
    settle_one(&store, "waiting", &tracked_route_with(UnknownOutcome::Hold), at(2)).await;
    store.close().await;
    drop(store);
    let url = Postgres::shared().database().unwrap();
    assert_eq!(move_to(folder.path(), &url).await.unwrap().deliveries, 5);

    let store = open_database(&url).await;
    assert_eq!(ids(&receive(&store, "book", 600, at(49)).await), ["waiting"]);
    let again = receive(&store, "book", 600, at(50)).await;
    assert_eq!((ids(&again), again[0].attempt), (vec!["failed"], 2), "its pause has ended");
    let finished = finish_one(&store, completed_report(receipt(&works[0]), "1"), 59).await;
    assert_eq!(finished, (ReceiptOutcome::Done, Some(Status::Completed)));
    assert_eq!(store.sweep(at(59)).await.unwrap().lapsed, 0);
    assert_eq!(store.sweep(at(60)).await.unwrap().lapsed, 2);
    let again = receive(&store, "book", 600, at(61)).await;
    assert_eq!(ids(&again), ["silent"]);
    assert!(again[0].fence > works[1].fence);
    assert_eq!(
        finish_one(&store, completed_report(receipt(&works[1]), "1"), 62).await.0,
        ReceiptOutcome::Fenced
    );
    assert_eq!(read_claim(&store, "held", 62).await.status(at(62)), Status::InDoubt);
    store.close().await;
}

/// ORD-2, ORD-3, ORD-7, ENG-3: the move copies entity states, waiting messages and parked messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entity_states_are_moved() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let reorder = ordered("reorder", Mode::Reorder, |_| {});
    let parking = ordered("parking", Mode::Strict, |order| order.on_failure = OnFailure::Park);
    for number in [1, 3] {
        send(&store, &reorder, number, at(0)).await;
        send(&store, &parking, number, at(0)).await;
    }
    let first = receive(&store, "parking", 30, at(0)).await;
    let refused = failed_report(receipt(&first[0]), true, 0);
    store.finish(&queue("parking"), vec![refused], "acme/bot", at(1)).await.unwrap();
    assert!(receive(&store, "parking", 30, at(1)).await.is_empty());
    let [reorder_key, parking_key] =
        ["reorder", "parking"].map(|name| EntityKey::stored(&format!("acme acme/bot:{name} e")).unwrap());
    let before =
        (store.entity(&reorder_key, at(1)).await.unwrap(), store.entity(&parking_key, at(1)).await.unwrap());
    assert_eq!(before.1.as_ref().and_then(|entity| entity.state.parked_at()), Some(1));
    store.close().await;
    drop(store);

    let url = Postgres::shared().database().unwrap();
    move_to(folder.path(), &url).await.unwrap();
    let store = open_database(&url).await;
    let after =
        (store.entity(&reorder_key, at(1)).await.unwrap(), store.entity(&parking_key, at(1)).await.unwrap());
    assert_eq!(after, before);
    assert!(receive(&store, "parking", 30, at(2)).await.is_empty(), "it is parked still");
    store.redrive("acme", vec![first[0].delivery_id], act("fixed", at(2))).await.unwrap();
    for (name, expected) in [("parking", ["parking-1", "parking-3"]), ("reorder", ["reorder-1", "reorder-2"])]
    {
        if name == "reorder" {
            assert!(matches!(send(&store, &reorder, 2, at(2)).await.outcomes[0], Outcome::Queued { .. }));
        }
        for id in expected {
            let received = receive(&store, name, 30, at(3)).await;
            assert_eq!(ids(&received), [id]);
            acknowledge(&store, &queue(name), vec![receipt(&received[0])]).await.unwrap();
        }
    }
    assert_eq!(ids(&receive(&store, "reorder", 30, at(3)).await), ["reorder-3"]);
    store.close().await;
}

/// Settles a message of the entity `e` with this number.
async fn send(store: &dyn Store, route: &Arc<BoundRoute>, number: i64, now: Timestamp) -> Settlement {
    let id = format!("{}-{number}", route.route.name);
    settle(store, vec![numbered(&id, "e", number, std::slice::from_ref(route), now)], now).await.remove(0)
}
