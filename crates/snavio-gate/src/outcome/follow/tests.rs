//! Who waits, over a real store: nothing is left of them, however their waiting ends (CLM-7).

use snavio_model::claim::ClaimPolicy;
use snavio_model::delivery::processing::{Processing, ProcessingKind};
use snavio_model::id::MessageId;
use snavio_model::registry::{BoundRoute, Sealed, Unseal};
use snavio_model::signature::signing::Secret;
use snavio_model::time::Clock;
use snavio_store::conformance::samples::{at, intake, queue, receipt, receive, route, settle};
use snavio_store::engine::sqlite::{EmbeddedStore, Options};
use snavio_store::{Received, Store};

use super::*;
use crate::Settings;

const WORKS: usize = 30;
const WAITERS_EACH: usize = 10;
/// More than anything here takes.
const AMPLE: Duration = Duration::from_secs(30);

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        at(0)
    }
}

struct NoKeys;

impl Unseal for NoKeys {
    fn unseal(&self, _: &Sealed) -> Option<Secret> {
        None
    }
}

struct Waiting {
    _folder: tempfile::TempDir,
    gate: Arc<Gate>,
    works: Vec<Received>,
}

impl Waiting {
    /// A gate with work that somebody is at.
    async fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("data"));
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&options).unwrap());
        let gate = Gate::start(Settings::default(), Arc::clone(&store), Arc::new(Still), Arc::new(NoKeys));
        let mut book = route("book", ClaimPolicy::ledger()).route.clone();
        book.processing = Processing::of(ProcessingKind::Tracked);
        let book = Arc::new(BoundRoute::new(book));
        let batch = (0..WORKS).map(|id| intake(&format!("id-{id}"), &book, at(0))).collect();
        settle(&*store, batch, at(0)).await;
        let mut works = Vec::new();
        while works.len() < WORKS {
            works.extend(receive(&*store, "book", 3600, at(0)).await);
        }
        Self { _folder: folder, gate: gate.await.unwrap(), works }
    }

    /// Many who wait for each of the works, for a time.
    fn begin(&self, wait: Duration) -> Vec<tokio::task::JoinHandle<Status>> {
        let one = |work: &Received| {
            let (gate, delivery) = (Arc::clone(&self.gate), work.delivery_id);
            let id = IdKey {
                id: MessageId::stored(work.message.id.as_str()),
                tenant: work.message.tenant.clone(),
            };
            tokio::spawn(async move {
                let found = gate.outcome_of(&id, "acme/bot:book", delivery, wait, true).await.unwrap();
                found.unwrap().claim.status()
            })
        };
        (0..WAITERS_EACH).flat_map(|_| self.works.iter().map(one)).collect()
    }

    fn waiters(&self) -> usize {
        lock(&self.gate.following.waiting).values().map(|it| it.waiters).sum()
    }

    async fn all_wait(&self) {
        let waiting = async {
            while self.waiters() < WORKS * WAITERS_EACH {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(AMPLE, waiting).await.expect("they come to wait");
        assert_eq!(lock(&self.gate.following.waiting).len(), WORKS, "one entry for each work");
    }

    fn nobody_is_left(&self) {
        assert_eq!(lock(&self.gate.following.waiting).len(), 0);
        assert_eq!(self.gate.following.places.available_permits(), bounds::FOLLOWERS_MAX);
    }
}

/// CLM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_those_who_gave_up() {
    let waiting = Waiting::set().await;
    let patient = waiting.begin(Duration::from_secs(1));
    waiting.all_wait().await;
    for waiter in patient {
        assert_eq!(waiter.await.unwrap(), Status::Processing, "nobody reported");
    }
    waiting.nobody_is_left();

    // Whoever hangs up is not there for the end of it.
    let gone = waiting.begin(AMPLE);
    waiting.all_wait().await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    for waiter in gone {
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    waiting.nobody_is_left();
    waiting.gate.stop().await;
}

/// CLM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_those_who_were_woken() {
    let waiting = Waiting::set().await;
    let began = Instant::now();
    let patient = waiting.begin(2 * AMPLE);
    waiting.all_wait().await;
    let reports = waiting.works.iter().map(|work| Report::done(receipt(work))).collect();
    waiting.gate.finish(&queue("book"), reports, "acme/bot").await.unwrap();
    for waiter in patient {
        assert_eq!(waiter.await.unwrap(), Status::Completed);
    }
    assert!(began.elapsed() < AMPLE, "they were told before their time was up");
    waiting.nobody_is_left();
    waiting.gate.stop().await;
}

/// CLM-5: whoever follows a message is not told what became of another that has its id by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_what_became_of_another_delivery() {
    let waiting = Waiting::set().await;
    let work = &waiting.works[0];
    let id = IdKey { id: work.message.id.clone(), tenant: work.message.tenant.clone() };
    for (delivery, is_found) in [(work.delivery_id, true), (waiting.works[1].delivery_id, false)] {
        let found = waiting.gate.outcome_of(&id, "acme/bot:book", delivery, Duration::ZERO, true).await;
        assert_eq!(found.unwrap().is_some(), is_found, "{delivery}");
    }
    waiting.gate.stop().await;
}

/// CLM-7: the last two go at the same time, and one of them turns off the light.
#[test]
fn nothing_is_left_of_two_who_go_at_once() {
    const ROUNDS: i64 = 50_000;
    let (following, together) = (Following::default(), std::sync::Barrier::new(2));
    let come_and_go = || {
        for delivery in (0..ROUNDS).map(Serial) {
            let waiter = following.wait_for(delivery);
            together.wait();
            drop(waiter);
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(come_and_go);
        threads.spawn(come_and_go);
    });
    assert_eq!(lock(&following.waiting).len(), 0);
}
