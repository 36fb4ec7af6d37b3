//! Test fixture: a gate with its store and its archive in one folder. The test sets the clock.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use snavio_gate::{Archive, ArchiveRound, ArchiveTrouble, Gate, Settings};
use snavio_model::archive::{Pointer, Record, segment};
use snavio_model::claim::{ClaimPolicy, IdKey, Status};
use snavio_model::delivery::Receipt;
use snavio_model::delivery::processing::{Answer, Ending, Processing, ProcessingKind, Retry};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::registry::{BoundRoute, Sealed, Unseal};
use snavio_model::settle::Outcome;
use snavio_model::signature::signing::Secret;
use snavio_model::time::{Clock, Timestamp};
use snavio_store::conformance::samples::{at, intake, queue, receive, route, settle};
use snavio_store::engine::sqlite;
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::objects::{Objects, Place};
use snavio_store::{Act, NewSegment, OnRecord, Report, Store, StoredClaim};

pub(crate) const DAY: i64 = 86_400;

pub(crate) struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) archive: PathBuf,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Arc<Gate>,
}

impl Fixture {
    pub(crate) async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(&Options::new(folder.path().join("data"))).unwrap();
        Self::of(folder, Arc::new(store)).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>) -> Self {
        Self::of(tempfile::tempdir().unwrap(), store).await
    }

    async fn of(folder: tempfile::TempDir, store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock(AtomicI64::new(at(0).0)));
        let archive = folder.path().join("archive");
        let gate = start(&store, &clock, &archive, "the first").await;
        Self { folder, archive, clock, store, gate }
    }

    /// Starts another node over the same store, with an archive in a folder of this name.
    pub(crate) async fn start_node_with_archive(&self, archive: &str) -> Arc<Gate> {
        start(&self.store, &self.clock, &self.folder.path().join(archive), "another").await
    }

    /// Takes a backup now, restores it into a folder of its own, and opens it.
    pub(crate) fn restore_backup(&self, takes_over_archive: bool) -> Arc<dyn Store> {
        let [data, backup, copy] = ["data", "backup.db", "copy"].map(|name| self.folder.path().join(name));
        sqlite::backup(&data, &backup).unwrap();
        sqlite::restore(&backup, &copy, takes_over_archive, self.clock.now()).unwrap();
        Arc::new(EmbeddedStore::open(&Options::new(copy)).unwrap())
    }

    /// Starts a node over another store, with the same archive.
    pub(crate) async fn start_node(&self, store: &Arc<dyn Store>) -> Arc<Gate> {
        start(store, &self.clock, &self.archive, "another").await
    }

    pub(crate) async fn cooled(&self) -> Vec<Record> {
        self.store.cooled(None, self.clock.now()).await.unwrap().records
    }

    /// Does everything that an archiver does before it points claims to a segment.
    pub(crate) async fn write(&self, records: &[Record]) -> Vec<(Record, Pointer)> {
        let written = segment::write(records).unwrap();
        let expires_at = records[0].claims[0].expires_at;
        let new = NewSegment { object: written.key.clone(), records: records.len(), expires_at };
        assert!(self.store.begin_segment(new, self.clock.now()).await.unwrap());
        let file = self.archive.join(&written.key);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, zstd::encode_all(&written.text[..], 3).unwrap()).unwrap();
        records.iter().cloned().zip(written.pointers).collect()
    }

    pub(crate) async fn pointer(&self, id: &str) -> Pointer {
        self.claim(id).await.pointer().unwrap().unwrap().record
    }

    pub(crate) fn set_day(&self, day: i64) -> Timestamp {
        self.clock.0.store(at(day * DAY).0, Ordering::Relaxed);
        at(day * DAY)
    }

    /// Posts a message on day 0. Its stored response contains its id.
    pub(crate) async fn post(&self, id: &str) -> Serial {
        self.post_with(id, Some(format!("{{ \"of\":\t\"{id}\" }}"))).await
    }

    /// Posts a message on day 0 with this stored response, or without one.
    pub(crate) async fn post_with(&self, id: &str, body: Option<String>) -> Serial {
        settle(&*self.store, vec![intake(id, &book(), at(0))], at(0)).await;
        let work = receive(&*self.store, "book", 30, at(0)).await.remove(0);
        let content_type = Some("application/json".to_owned());
        let answer = body.map(|body| Answer { status: 201, content_type, body: body.into() });
        let report = Report {
            receipt: Receipt { delivery_id: work.delivery_id, fence: work.fence },
            ending: Ending::Completed { answer, reference: Some(format!("JE-{id}")), note: None },
            retry: Retry::At(at(0)),
            kept_at: vec!["acme/bot:book".into()],
            on_record: OnRecord::default(),
        };
        self.store.finish(&queue("book"), vec![report], "acme/bot", at(1)).await.unwrap();
        work.delivery_id
    }

    pub(crate) async fn claim(&self, id: &str) -> StoredClaim {
        self.store.claims_of(&key(id), self.clock.now()).await.unwrap().remove(0)
    }

    /// Returns the stored response that a replay would get.
    pub(crate) async fn answer(&self, id: &str) -> Result<Option<Answer>, ArchiveTrouble> {
        let claim = self.claim(id).await;
        let delivery = claim.claim.progress.as_ref().unwrap().delivery;
        self.gate.answer_of(&claim, delivery).await
    }

    pub(crate) async fn body(&self, id: &str) -> String {
        String::from_utf8(self.answer(id).await.unwrap().unwrap().body.to_vec()).unwrap()
    }

    /// Sends an id again, with content of this hash.
    pub(crate) async fn resend(&self, id: &str, content: u8) -> Outcome {
        let mut intake = intake(id, &book(), self.clock.now());
        intake.message.domain_hash = DomainHash([content; 32]);
        settle(&*self.store, vec![intake], self.clock.now()).await[0].outcomes[0]
    }

    pub(crate) async fn messages(&self) -> usize {
        self.store.messages("acme", Serial(0), 100).await.unwrap().len()
    }

    /// Returns the paths of all segments in the archive.
    pub(crate) fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect_files(&self.archive, &mut found);
        found.retain(|path| path.extension().is_some_and(|extension| extension == "zst"));
        found
    }

    pub(crate) async fn count_audited(&self, action: &str) -> usize {
        let entries = self.store.audit(Serial(0), 1000).await.unwrap();
        entries.iter().filter(|entry| entry.action == action).count()
    }

    pub(crate) fn act(&self) -> Act {
        Act { who: "operator".to_owned(), why: "asked for".to_owned(), at: self.clock.now() }
    }
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect_files(&path, files) } else { files.push(path) }
    }
}

pub(crate) fn book() -> Arc<BoundRoute> {
    let mut route = route("book", ClaimPolicy::ledger()).route.clone();
    route.processing = Processing::of(ProcessingKind::Tracked);
    Arc::new(BoundRoute::new(route))
}

pub(crate) fn key(id: &str) -> IdKey {
    IdKey { id: MessageId::stored(id), tenant: TenantName::new("acme").unwrap() }
}

pub(crate) fn moved_round(moved: usize) -> ArchiveRound {
    ArchiveRound { moved, ..ArchiveRound::default() }
}

pub(crate) fn is_replay(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Seen { status: Status::Completed, .. })
}

pub(crate) fn is_conflict(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Conflict { .. })
}

async fn start(store: &Arc<dyn Store>, clock: &Arc<ManualClock>, archive: &Path, name: &str) -> Arc<Gate> {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let gate = Gate::start(Settings::default(), Arc::clone(store), clock, Arc::new(NoKeys)).await.unwrap();
    // Only the test runs the expiry sweep.
    gate.hold_sweeps(true);
    let url = format!("file://{}", archive.display());
    let objects = Objects::open(&Place { url, options: Vec::new() }).unwrap();
    gate.use_archive(Arc::new(Archive::new(objects, name.to_owned())));
    gate
}
