//! What is kept for seven years, over a real store and a real folder, on a clock that is set by hand (CLM-15 to CLM-18).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use snavio_gate::{Archive, ArchiveRound, ArchiveTrouble, Gate, Settings};
use snavio_model::archive::hold::Held;
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::Receipt;
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::processing::{Answer, Ending, Processing, ProcessingKind, Retry};
use snavio_model::registry::{BoundRoute, Sealed, Unseal};
use snavio_model::settle::Outcome;
use snavio_model::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::conformance::samples::{at, intake, queue, receive, route, settle};
use snavio_store::embedded::{EmbeddedStore, Options};
use snavio_store::objects::{Objects, Place};
use snavio_store::{Act, Erasure, NewHold, Report, Store, StoredClaim};

const DAY: i64 = 86_400;

/// A clock that is set by hand.
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

/// A gate with its store and its archive in one folder.
struct Books {
    _folder: tempfile::TempDir,
    archive: PathBuf,
    clock: Arc<Hands>,
    store: Arc<dyn Store>,
    gate: Arc<Gate>,
}

impl Books {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("data"));
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&options).unwrap());
        let clock = Arc::new(Hands(AtomicI64::new(at(0).0)));
        let shared: Arc<dyn Clock> = Arc::<Hands>::clone(&clock);
        let gate =
            Gate::start(Settings::default(), Arc::clone(&store), shared, Arc::new(NoKeys)).await.unwrap();
        // Nobody but the test sweeps.
        gate.hold_sweeps(true);
        let archive = folder.path().join("archive");
        let url = format!("file://{}", archive.display());
        let objects = Objects::open(&Place { url, options: Vec::new() }).unwrap();
        gate.use_archive(Arc::new(Archive::new(objects)));
        Self { _folder: folder, archive, clock, store, gate }
    }

    fn day(&self, day: i64) -> Timestamp {
        self.clock.0.store(at(day * DAY).0, Ordering::Relaxed);
        at(day * DAY)
    }

    /// Posts something, with an answer of its own, on day 0.
    async fn post(&self, id: &str) -> Serial {
        settle(&*self.store, vec![intake(id, &book(), at(0))], at(0)).await;
        let work = receive(&*self.store, "book", 30, at(0)).await.remove(0);
        let body = format!("{{ \"of\":\t\"{id}\" }}").into();
        let answer = Answer { status: 201, content_type: Some("application/json".to_owned()), body };
        let report = Report {
            receipt: Receipt { delivery_id: work.delivery_id, fence: work.fence },
            ending: Ending::Completed {
                answer: Some(answer),
                reference: Some(format!("JE-{id}")),
                note: None,
            },
            retry: Retry::At(at(0)),
            kept_at: vec!["acme/bot:book".into()],
            on_record: false,
        };
        self.store.finish(&queue("book"), vec![report], "acme/bot", at(1)).await.unwrap();
        work.delivery_id
    }

    async fn claim(&self, id: &str) -> StoredClaim {
        self.store.claims_of(&key(id), self.clock.now()).await.unwrap().remove(0)
    }

    /// What a replay would be answered.
    async fn answer(&self, id: &str) -> Result<Option<Answer>, ArchiveTrouble> {
        let claim = self.claim(id).await;
        let delivery = claim.claim.progress.as_ref().unwrap().delivery;
        self.gate.answer_of(&claim, delivery).await
    }

    async fn body(&self, id: &str) -> String {
        String::from_utf8(self.answer(id).await.unwrap().unwrap().body.to_vec()).unwrap()
    }

    /// What becomes of an id that comes again, with this content.
    async fn again(&self, id: &str, what: u8) -> Outcome {
        let mut intake = intake(id, &book(), self.clock.now());
        intake.message.domain_hash = DomainHash([what; 32]);
        settle(&*self.store, vec![intake], self.clock.now()).await[0].outcomes[0]
    }

    async fn messages(&self) -> usize {
        self.store.messages("acme", Serial(0), 100).await.unwrap().len()
    }

    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.archive, &mut found);
        found
    }

    async fn audited(&self, action: &str) -> usize {
        let entries = self.store.audit(Serial(0), 1000).await.unwrap();
        entries.iter().filter(|it| it.action == action).count()
    }

    fn act(&self) -> Act {
        Act { who: "operator".to_owned(), why: "asked for".to_owned(), at: self.clock.now() }
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found.push(path) }
    }
}

fn book() -> Arc<BoundRoute> {
    let mut route = route("book", ClaimPolicy::ledger()).route.clone();
    route.processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(route))
}

fn key(id: &str) -> IdKey {
    IdKey { id: MessageId::stored(id), tenant: TenantName::new("acme").unwrap() }
}

fn moved(moved: usize) -> ArchiveRound {
    ArchiveRound { moved, ..ArchiveRound::default() }
}

fn is_replay(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Seen { status: Status::Completed, .. })
}

fn is_conflict(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Conflict { .. })
}

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

/// CLM-18: a crash after the object was written, and after it was pointed to.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_point_loses_and_doubles_nothing() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    // An archiver that died between writing and pointing: all of it but the last step.
    let cooled = books.store.cooled(None, books.clock.now()).await.unwrap().records;
    let segment = snavio_model::archive::segment::write(&cooled).unwrap();
    let new = snavio_store::NewSegment {
        object: segment.key.clone(),
        records: 1,
        expires_at: cooled[0].claims[0].expires_at,
    };
    assert!(books.store.begin_segment(new, books.clock.now()).await.unwrap());
    let file = books.archive.join(&segment.key);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "half of it").unwrap();
    assert_eq!(books.gate.archive_once().await, moved(1), "the next one writes the same object");
    assert_eq!(books.objects(), [file]);
    assert_eq!(books.body("a").await, "{ \"of\":\t\"a\" }");

    // One that died after it had pointed elsewhere, and before it deleted the old object.
    let act = books.act();
    let rewritten = books.gate.erase(&key("a"), act).await.unwrap();
    assert!(matches!(rewritten, Erasure::Erased { before: false, .. }));
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
    assert!(books.gate.erase(&key("a"), books.act()).await.is_err(), "nor is it written again");
    assert!(is_replay(books.again("a", 9).await));
    std::fs::remove_file(&object).unwrap();
    let missing = books.answer("a").await;
    assert!(matches!(missing, Err(ArchiveTrouble::Missing { .. })), "{missing:?}");
    books.gate.stop().await;
}

/// CLM-15, CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn after_its_time_rows_and_objects_are_deleted_on_the_record_unless_they_are_held() {
    let books = Books::open().await;
    books.post("a").await;
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(1));
    let new = NewHold { tenant: key("a").tenant, held: Held::Id(MessageId::stored("a")) };
    let hold = books.store.set_hold(new, books.act()).await.unwrap();
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

/// CLM-18
#[tokio::test(flavor = "multi_thread")]
async fn what_is_erased_is_gone_from_the_archive_and_still_known() {
    let books = Books::open().await;
    for id in ["a", "b"] {
        books.post(id).await;
    }
    books.day(401);
    assert_eq!(books.gate.archive_once().await, moved(2));
    let old = books.objects();
    let erased_at = books.day(402);
    let erase = async || books.gate.erase(&key("a"), books.act()).await.unwrap();
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: false });
    books.day(403);
    assert_eq!(erase().await, Erasure::Erased { at: erased_at, before: true });
    assert_ne!(books.objects(), old, "the segment was written again");
    assert_eq!(books.objects().len(), 1, "and the old object is gone");
    let answer = books.answer("a").await.unwrap().unwrap();
    assert_eq!((answer.status, answer.body.len()), (201, 0));
    let claim = books.claim("a").await;
    assert_eq!((claim.erased_at, claim.hash), (Some(erased_at), Some(DomainHash([9; 32]))));
    assert_eq!(claim.claim.progress.unwrap().reference.as_deref(), Some("JE-a"));
    assert!(is_replay(books.again("a", 9).await) && is_conflict(books.again("a", 7).await));
    assert_eq!(books.body("b").await, "{ \"of\":\t\"b\" }", "its neighbour is as it was");
    assert_eq!(books.audited("claim.erase").await, 1);
    books.gate.stop().await;
}

/// CLM-17: nothing is moved by a node that was not told where to.
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
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(store.messages("acme", Serial(0), 10).await.unwrap().len(), 1);
    gate.stop().await;
}
