//! Reading segments back for those who want something of them. Many who come together mostly want the same one: each is
//! fetched and verified once for all of them, few at a time, and remembered for a moment.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use snavio_model::archive::segment::Verified;
use snavio_model::archive::{Pointer, Record};
use snavio_model::bounds;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{Trouble, apart};

/// How long things take at most.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Fetching a segment, once it is its turn.
    fetching: Duration,
    /// Waiting for one, turns of others included.
    waiting: Duration,
    /// Remembering one: what is erased should not stay in memory either.
    remembering: Duration,
}

const PACE: Pace = Pace {
    fetching: Duration::from_secs(5),
    waiting: Duration::from_secs(30),
    remembering: Duration::from_secs(60),
};

type Fetched = Result<Arc<Verified>, Arc<Trouble>>;
type Fetching = BoxFuture<'static, Fetched>;

/// Segments that are being fetched, and those that were a short while ago.
pub(super) struct Reading {
    pace: Pace,
    places: Semaphore,
    /// To find something in one takes a thread: not one for each of many who come together.
    finding: Semaphore,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    under_way: HashMap<String, WeakShared<Fetching>>,
    /// Oldest first.
    remembered: VecDeque<Remembered>,
}

struct Remembered {
    object: String,
    since: Instant,
    segment: Arc<Verified>,
}

impl Default for Reading {
    fn default() -> Self {
        Self::at(PACE)
    }
}

impl Reading {
    fn at(pace: Pace) -> Self {
        let places = || Semaphore::new(bounds::ARCHIVE_READS_AT_ONCE);
        Self { pace, places: places(), finding: places(), known: Mutex::default() }
    }

    /// A segment as it is remembered, or as it is fetched for all who wait for it.
    pub(super) async fn segment<F>(
        self: &Arc<Self>,
        object: &str,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<Verified>, Trouble>
    where
        F: Future<Output = Result<Verified, Trouble>> + Send + 'static,
    {
        let fetching = {
            let mut known = self.known();
            known.forget_old(self.pace.remembering);
            if let Some(segment) = known.recall(object) {
                return Ok(segment);
            }
            match known.under_way.get(object).and_then(WeakShared::upgrade) {
                Some(fetching) => fetching,
                None => self.begin(&mut known, object, fetch()),
            }
        };
        let fetched = timeout(self.pace.waiting, fetching).await.map_err(|_| Trouble::Slow)?;
        fetched.map_err(Trouble::Read)
    }

    fn begin(
        self: &Arc<Self>,
        known: &mut Known,
        object: &str,
        fetch: impl Future<Output = Result<Verified, Trouble>> + Send + 'static,
    ) -> Shared<Fetching> {
        let (reading, key) = (Arc::clone(self), object.to_owned());
        let fetching: Fetching = async move {
            let fetched = reading.in_turn(fetch).await.map(Arc::new).map_err(Arc::new);
            let mut known = reading.known();
            known.under_way.remove(&key);
            if let Ok(segment) = &fetched {
                known.remember(key, Arc::clone(segment));
            }
            fetched
        }
        .boxed();
        let fetching = fetching.shared();
        // Nobody waits any more for some of the others.
        known.under_way.retain(|_, it| it.upgrade().is_some());
        known.under_way.extend(fetching.downgrade().map(|it| (object.to_owned(), it)));
        fetching
    }

    /// The time it may take begins when it is its turn: however many come together, all of them get there.
    async fn in_turn<T>(&self, fetch: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let _place = self.places.acquire().await.map_err(|_| Trouble::Unfinished)?;
        timeout(self.pace.fetching, fetch).await.unwrap_or(Err(Trouble::Slow))
    }

    /// The record of a segment that a pointer names.
    pub(super) async fn find(&self, segment: Arc<Verified>, pointer: Pointer) -> Result<Record, Trouble> {
        let _place = self.finding.acquire().await.map_err(|_| Trouble::Unfinished)?;
        apart(move || segment.find(&pointer)).await?.map_err(Trouble::from)
    }

    /// Forgets what was remembered for long enough.
    pub(super) fn forget_old(&self) {
        self.known().forget_old(self.pace.remembering);
    }

    /// Forgets a segment whose object is gone.
    pub(super) fn forget(&self, object: &str) {
        self.known().remembered.retain(|it| it.object != object);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn recall(&self, object: &str) -> Option<Arc<Verified>> {
        self.remembered.iter().find(|it| it.object == object).map(|it| Arc::clone(&it.segment))
    }

    fn remember(&mut self, object: String, segment: Arc<Verified>) {
        self.remembered.push_back(Remembered { object, since: Instant::now(), segment });
        let mut bytes: usize = self.remembered.iter().map(|it| it.segment.bytes()).sum();
        while bytes > bounds::ARCHIVE_REMEMBERED_BYTES_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            bytes -= oldest.segment.bytes();
        }
    }

    fn forget_old(&mut self, remembering: Duration) {
        self.remembered.retain(|it| it.since.elapsed() < remembering);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use snavio_model::archive::segment;
    use snavio_model::id::Serial;
    use snavio_model::message::Path;
    use snavio_store::conformance::samples::{at, message};

    use super::*;

    /// A segment of about so many bytes.
    fn verified(bytes: usize) -> Verified {
        let mut message = message("acme/billing", "a", at(0));
        message.payload = vec![b'x'; bytes * 3 / 4].into();
        let (number, path, settled_at) = (Serial(1), Path::Slow, at(0));
        let record = Record {
            number,
            path,
            settled_at,
            hash_version: 1,
            message,
            claims: Vec::new(),
            erased_at: None,
        };
        let segment = segment::write(&[record]).unwrap();
        Verified::new(&segment.key, segment.text).unwrap()
    }

    /// How often something was fetched, and how many at once.
    #[derive(Default)]
    struct Fetches {
        all: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Fetches {
        async fn take(self: Arc<Self>, time: Duration) -> Result<Verified, Trouble> {
            self.all.fetch_add(1, Ordering::Relaxed);
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(time).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            Ok(verified(1))
        }
    }

    /// CLM-16: a batch of replays, all from one segment.
    #[tokio::test]
    async fn many_who_want_one_segment_have_it_fetched_once() {
        let fetches = Arc::new(Fetches::default());
        let fetch = || Arc::clone(&fetches).take(Duration::from_millis(100));
        let count = || fetches.all.load(Ordering::Relaxed);
        let reading = Arc::new(Reading::default());
        let all = join_all((0..500).map(|_| reading.segment("one", fetch))).await;
        assert!(all.iter().all(Result::is_ok));
        assert!(reading.segment("one", fetch).await.is_ok());
        assert_eq!(count(), 1, "and it is remembered");
        reading.forget("one");
        assert!(reading.segment("one", fetch).await.is_ok());
        assert_eq!(count(), 2, "until its object is gone");
        let forgetful = Arc::new(Reading::at(Pace { remembering: Duration::ZERO, ..PACE }));
        for _ in 0..2 {
            assert!(forgetful.segment("one", fetch).await.is_ok());
        }
        assert_eq!(count(), 4, "or its time is over");
    }

    /// CLM-16: a batch of replays, each from another segment: few are in memory at once, and all of them get there.
    #[tokio::test]
    async fn many_who_want_different_segments_wait_for_their_turns() {
        let fetches = Arc::new(Fetches::default());
        let reading = Arc::new(Reading::at(Pace { fetching: Duration::from_secs(1), ..PACE }));
        let wanted: Vec<_> = (0..60).map(|it| it.to_string()).collect();
        let fetch = || Arc::clone(&fetches).take(Duration::from_millis(100));
        let all = join_all(wanted.iter().map(|it| reading.segment(it, fetch))).await;
        assert!(all.iter().all(Result::is_ok), "waiting is not what takes too long");
        assert_eq!(fetches.most.load(Ordering::Relaxed), bounds::ARCHIVE_READS_AT_ONCE);
    }

    /// CLM-17
    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let never = || std::future::pending::<Result<Verified, Trouble>>();
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
        let reading = Arc::new(Reading::at(Pace { fetching: short, waiting: long, ..PACE }));
        let both = tokio::join!(reading.segment("one", never), reading.segment("one", never));
        for slow in [both.0, both.1] {
            assert!(matches!(slow, Err(Trouble::Read(it)) if matches!(*it, Trouble::Slow)));
        }
        let reading = Arc::new(Reading::at(Pace { fetching: long, waiting: short, ..PACE }));
        assert!(matches!(reading.segment("one", never).await, Err(Trouble::Slow)));
        assert!(reading.segment("one", async || Ok(verified(1))).await.is_ok(), "nor does the next one");
    }

    /// CLM-16
    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let reading = Arc::new(Reading::default());
        let bytes = bounds::ARCHIVE_REMEMBERED_BYTES_MAX / 4;
        for object in ["a", "b", "c", "d", "e"] {
            reading.segment(object, async move || Ok(verified(bytes))).await.unwrap();
        }
        let remembered: Vec<_> = reading.known().remembered.iter().map(|it| it.object.clone()).collect();
        assert_eq!(remembered, ["c", "d", "e"], "with what comes with each, three of them fit");
        reading.segment("large", async move || Ok(verified(5 * bytes))).await.unwrap();
        assert!(reading.known().remembered.is_empty(), "it is too large to be remembered");
    }
}
