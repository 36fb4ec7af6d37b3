//! Waiting senders over a real store: no wait leaves an entry behind, no matter how it ends (CLM-7).

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
/// A timeout that no step here reaches.
const AMPLE: Duration = Duration::from_secs(30);

/// A clock that always returns the same time.
struct FixedClock;

impl Clock for FixedClock {
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

struct Stage {
    _folder: tempfile::TempDir,
    gate: Arc<Gate>,
    deliveries: Vec<Received>,
}

impl Stage {
    /// A gate with leased deliveries.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(folder.path().join("data"));
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&options).unwrap());
        let gate =
            Gate::start(Settings::default(), Arc::clone(&store), Arc::new(FixedClock), Arc::new(NoKeys));
        let mut book = route("book", ClaimPolicy::ledger()).route.clone();
        book.processing = Processing::of(ProcessingKind::Tracked);
        let book = Arc::new(BoundRoute::new(book));
        let batch = (0..WORKS).map(|id| intake(&format!("id-{id}"), &book, at(0))).collect();
        settle(&*store, batch, at(0)).await;
        let mut deliveries = Vec::new();
        while deliveries.len() < WORKS {
            deliveries.extend(receive(&*store, "book", 3600, at(0)).await);
        }
        Self { _folder: folder, gate: gate.await.unwrap(), deliveries }
    }

    /// Starts many senders that wait for each delivery, for a time.
    fn start_waiters(&self, wait: Duration) -> Vec<tokio::task::JoinHandle<Status>> {
        let one = |received: &Received| {
            let (gate, delivery) = (Arc::clone(&self.gate), received.delivery_id);
            let id = IdKey {
                id: MessageId::stored(received.message.id.as_str()),
                tenant: received.message.tenant.clone(),
            };
            tokio::spawn(async move {
                let found = gate.outcome_of(&id, "acme/bot:book", delivery, wait, true).await.unwrap();
                found.unwrap().claim.status()
            })
        };
        (0..WAITERS_EACH).flat_map(|_| self.deliveries.iter().map(one)).collect()
    }

    fn waiters(&self) -> usize {
        lock(&self.gate.following.waiting).values().map(|awaited| awaited.waiters).sum()
    }

    async fn wait_for_all(&self) {
        let all_waiting = async {
            while self.waiters() < WORKS * WAITERS_EACH {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(AMPLE, all_waiting).await.expect("all senders wait");
        assert_eq!(lock(&self.gate.following.waiting).len(), WORKS, "one entry for each work");
    }

    fn assert_no_waiters(&self) {
        assert_eq!(lock(&self.gate.following.waiting).len(), 0);
        assert_eq!(self.gate.following.places.available_permits(), bounds::FOLLOWERS_MAX);
    }
}

/// CLM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_that_times_out_leaves_no_entry() {
    let stage = Stage::new().await;
    let patient = stage.start_waiters(Duration::from_secs(1));
    stage.wait_for_all().await;
    for waiter in patient {
        assert_eq!(waiter.await.unwrap(), Status::Processing, "no report came");
    }
    stage.assert_no_waiters();

    // A sender that disconnects does not see the end.
    let gone = stage.start_waiters(AMPLE);
    stage.wait_for_all().await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    for waiter in gone {
        assert!(waiter.await.unwrap_err().is_cancelled());
    }
    stage.assert_no_waiters();
    stage.gate.stop().await;
}

/// CLM-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn woken_wait_leaves_no_entry() {
    let stage = Stage::new().await;
    let began = Instant::now();
    let patient = stage.start_waiters(2 * AMPLE);
    stage.wait_for_all().await;
    let reports = stage.deliveries.iter().map(|delivery| Report::done(receipt(delivery))).collect();
    stage.gate.finish(&queue("book"), reports, "acme/bot").await.unwrap();
    for waiter in patient {
        assert_eq!(waiter.await.unwrap(), Status::Completed);
    }
    assert!(began.elapsed() < AMPLE, "the report woke them before their timeout");
    stage.assert_no_waiters();
    stage.gate.stop().await;
}

/// CLM-5: a sender that waits for one delivery does not get the outcome of another delivery with the same id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sender_does_not_see_outcome_of_another_delivery() {
    let stage = Stage::new().await;
    let delivery = &stage.deliveries[0];
    let id = IdKey { id: delivery.message.id.clone(), tenant: delivery.message.tenant.clone() };
    for (delivery, is_found) in [(delivery.delivery_id, true), (stage.deliveries[1].delivery_id, false)] {
        let found = stage.gate.outcome_of(&id, "acme/bot:book", delivery, Duration::ZERO, true).await;
        assert_eq!(found.unwrap().is_some(), is_found, "{delivery}");
    }
    stage.gate.stop().await;
}

/// CLM-7: the last two senders leave at the same time, and exactly one of them removes the entry.
#[test]
fn concurrent_ends_of_two_waits_leave_no_entry() {
    const ROUNDS: i64 = 50_000;
    let (following, together) = (Following::default(), std::sync::Barrier::new(2));
    let wait_and_leave = || {
        for delivery in (0..ROUNDS).map(Serial) {
            let waiter = following.wait_for(delivery);
            together.wait();
            drop(waiter);
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(wait_and_leave);
        threads.spawn(wait_and_leave);
    });
    assert_eq!(lock(&following.waiting).len(), 0);
}
