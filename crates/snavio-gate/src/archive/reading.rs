//! Reads segments for callers. Many concurrent callers mostly want the same segment. Each segment is fetched
//! and verified once for all of them, a few at a time, and cached for a moment.

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

use super::{Trouble, run_blocking};

/// Time limits.
#[derive(Debug, Clone, Copy)]
struct ReadLimits {
    /// The limit for fetching a segment, after it has got a place.
    fetching: Duration,
    /// The limit for the whole wait, including the wait for a place.
    waiting: Duration,
    /// The time that a segment is cached. It is short, because erased content should not stay in memory
    /// either.
    remembering: Duration,
}

const READ_LIMITS: ReadLimits = ReadLimits {
    fetching: Duration::from_secs(5),
    waiting: Duration::from_secs(30),
    remembering: Duration::from_secs(60),
};

type FetchResult = Result<Arc<Verified>, Arc<Trouble>>;
type Fetch = BoxFuture<'static, FetchResult>;

/// Segments in flight and cached segments.
pub(super) struct SegmentReader {
    time_limits: ReadLimits,
    places: Semaphore,
    /// Bounds the blocking threads that search segments, so that many callers do not take one each.
    finding: Semaphore,
    cache: Mutex<SegmentCache>,
}

#[derive(Default)]
struct SegmentCache {
    in_flight: HashMap<String, WeakShared<Fetch>>,
    /// Oldest first.
    cached: VecDeque<CachedSegment>,
}

struct CachedSegment {
    object: String,
    since: Instant,
    segment: Arc<Verified>,
}

impl Default for SegmentReader {
    fn default() -> Self {
        Self::with_limits(READ_LIMITS)
    }
}

impl SegmentReader {
    fn with_limits(time_limits: ReadLimits) -> Self {
        let (places, finding) = (bounds::ARCHIVE_READS_AT_ONCE, bounds::ARCHIVE_READS_AT_ONCE);
        let (places, finding) = (Semaphore::new(places), Semaphore::new(finding));
        Self { time_limits, places, finding, cache: Mutex::default() }
    }

    /// Returns a segment from the cache, or fetches it once for all callers that wait for it.
    pub(super) async fn segment<F>(
        self: &Arc<Self>,
        object: &str,
        fetch: impl FnOnce() -> F,
    ) -> Result<Arc<Verified>, Trouble>
    where
        F: Future<Output = Result<Verified, Trouble>> + Send + 'static,
    {
        let fetching = {
            let mut cache = self.cache();
            cache.evict_old(self.time_limits.remembering);
            if let Some(segment) = cache.get(object) {
                return Ok(segment);
            }
            match cache.in_flight.get(object).and_then(WeakShared::upgrade) {
                Some(fetching) => fetching,
                None => self.begin(&mut cache, object, fetch()),
            }
        };
        let fetched = timeout(self.time_limits.waiting, fetching).await.map_err(|_| Trouble::Slow)?;
        fetched.map_err(Trouble::Read)
    }

    fn begin(
        self: &Arc<Self>,
        cache: &mut SegmentCache,
        object: &str,
        fetch: impl Future<Output = Result<Verified, Trouble>> + Send + 'static,
    ) -> Shared<Fetch> {
        let (reader, key) = (Arc::clone(self), object.to_owned());
        let fetching: Fetch = async move {
            let fetched = reader.with_place(fetch).await.map(Arc::new).map_err(Arc::new);
            let mut cache = reader.cache();
            cache.in_flight.remove(&key);
            if let Ok(segment) = &fetched {
                cache.insert(key, Arc::clone(segment));
            }
            fetched
        }
        .boxed();
        let fetching = fetching.shared();
        // Remove fetches that no caller waits for.
        cache.in_flight.retain(|_, fetch| fetch.upgrade().is_some());
        cache.in_flight.extend(fetching.downgrade().map(|fetch| (object.to_owned(), fetch)));
        fetching
    }

    /// The time limit begins when the fetch gets a place, so that every one of many concurrent fetches gets
    /// its full time.
    async fn with_place<T>(&self, fetch: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let _place = self.places.acquire().await.map_err(|_| Trouble::Unfinished)?;
        timeout(self.time_limits.fetching, fetch).await.unwrap_or(Err(Trouble::Slow))
    }

    /// The record at a pointer in a segment.
    pub(super) async fn find(&self, segment: Arc<Verified>, pointer: Pointer) -> Result<Record, Trouble> {
        let _place = self.finding.acquire().await.map_err(|_| Trouble::Unfinished)?;
        run_blocking(move || segment.find(&pointer)).await?.map_err(Trouble::from)
    }

    /// Removes cached segments that are too old.
    pub(super) fn evict_old(&self) {
        self.cache().evict_old(self.time_limits.remembering);
    }

    /// Removes a segment from the cache after its object was deleted.
    pub(super) fn evict(&self, object: &str) {
        self.cache().cached.retain(|segment| segment.object != object);
    }

    fn cache(&self) -> MutexGuard<'_, SegmentCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SegmentCache {
    fn get(&self, object: &str) -> Option<Arc<Verified>> {
        self.cached.iter().find(|cached| cached.object == object).map(|cached| Arc::clone(&cached.segment))
    }

    fn insert(&mut self, object: String, segment: Arc<Verified>) {
        self.cached.push_back(CachedSegment { object, since: Instant::now(), segment });
        let mut bytes: usize = self.cached.iter().map(|cached| cached.segment.bytes()).sum();
        while bytes > bounds::ARCHIVE_REMEMBERED_BYTES_MAX
            && let Some(oldest) = self.cached.pop_front()
        {
            bytes -= oldest.segment.bytes();
        }
    }

    fn evict_old(&mut self, remembering: Duration) {
        self.cached.retain(|cached| cached.since.elapsed() < remembering);
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

    /// A segment of about this size.
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

    /// The number of fetches, in total and at the same time.
    #[derive(Default)]
    struct Fetches {
        all: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Fetches {
        fn count(&self) -> usize {
            self.all.load(Ordering::Relaxed)
        }
        async fn take(self: Arc<Self>, time: Duration) -> Result<Verified, Trouble> {
            self.all.fetch_add(1, Ordering::Relaxed);
            let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(time).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            Ok(verified(1))
        }
    }

    /// CLM-16: a batch of duplicates, all from one segment.
    #[tokio::test]
    async fn segment_is_fetched_once_for_all_callers() {
        let fetches = Arc::new(Fetches::default());
        let fetch = || Arc::clone(&fetches).take(Duration::from_millis(100));

        let reader = Arc::new(SegmentReader::default());
        let all = join_all((0..500).map(|_| reader.segment("one", fetch))).await;
        assert!(all.iter().all(Result::is_ok));
        assert!(reader.segment("one", fetch).await.is_ok());
        assert_eq!(fetches.count(), 1, "the segment is cached");
        reader.evict("one");
        assert!(reader.segment("one", fetch).await.is_ok());
        assert_eq!(fetches.count(), 2, "it is fetched again after its object was deleted");
        let forgetful =
            Arc::new(SegmentReader::with_limits(ReadLimits { remembering: Duration::ZERO, ..READ_LIMITS }));
        for _ in 0..2 {
            assert!(forgetful.segment("one", fetch).await.is_ok());
        }
        assert_eq!(fetches.count(), 4, "it is fetched again after its time in the cache");
    }

    /// CLM-16: a batch of duplicates, each from another segment: only a few are in memory at once, and all
    /// are served.
    #[tokio::test]
    async fn fetches_of_many_segments_are_bounded() {
        let fetches = Arc::new(Fetches::default());
        let reader = Arc::new(SegmentReader::with_limits(ReadLimits {
            fetching: Duration::from_secs(1),
            ..READ_LIMITS
        }));
        let wanted: Vec<_> = (0..60).map(|number| number.to_string()).collect();
        let fetch = || Arc::clone(&fetches).take(Duration::from_millis(100));
        let all = join_all(wanted.iter().map(|object| reader.segment(object, fetch))).await;
        assert!(all.iter().all(Result::is_ok), "the wait for a place does not count");
        assert_eq!(fetches.most.load(Ordering::Relaxed), bounds::ARCHIVE_READS_AT_ONCE);
    }

    /// CLM-17
    #[tokio::test]
    async fn archive_read_times_out() {
        fn never() -> std::future::Pending<Result<Verified, Trouble>> {
            std::future::pending()
        }
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
        let reader = Arc::new(SegmentReader::with_limits(ReadLimits {
            fetching: short,
            waiting: long,
            ..READ_LIMITS
        }));
        let both = tokio::join!(reader.segment("one", never), reader.segment("one", never));
        for slow in [both.0, both.1] {
            assert!(matches!(slow, Err(Trouble::Read(cause)) if matches!(*cause, Trouble::Slow)));
        }
        let reader = Arc::new(SegmentReader::with_limits(ReadLimits {
            fetching: long,
            waiting: short,
            ..READ_LIMITS
        }));
        assert!(matches!(reader.segment("one", never).await, Err(Trouble::Slow)));
        assert!(reader.segment("one", async || Ok(verified(1))).await.is_ok(), "the next fetch succeeds");
    }

    /// CLM-16
    #[tokio::test]
    async fn segment_cache_is_bounded() {
        let reader = Arc::new(SegmentReader::default());
        let bytes = bounds::ARCHIVE_REMEMBERED_BYTES_MAX / 4;
        for object in ["a", "b", "c", "d", "e"] {
            reader.segment(object, async move || Ok(verified(bytes))).await.unwrap();
        }
        let cached: Vec<_> = reader.cache().cached.iter().map(|cached| cached.object.clone()).collect();
        assert_eq!(cached, ["c", "d", "e"], "three segments with their overhead fit");
        reader.segment("large", async move || Ok(verified(5 * bytes))).await.unwrap();
        assert!(reader.cache().cached.is_empty(), "it is too large for the cache");
    }
}
