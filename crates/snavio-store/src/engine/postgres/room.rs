//! How much each queue still takes. Counting rows for every batch would cost more than the batch, and a counter in
//! the store would make all nodes wait for one row; so a queue is counted now and then, and what this node adds is
//! added up in between. The bound is met to within what all nodes take in between two counts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use snavio_model::bounds;
use snavio_model::name::QueueKey;
use tokio::time::Instant;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;

/// A count stays good for this long at least,
const GOOD_FOR: Duration = Duration::from_secs(1);
/// longer for a long queue, in which counting takes longer and a second's worth matters less,
const COUNTED_PER_SECOND: usize = 200_000;
/// and for as long as it would take to fill the queue at more a second than a database commits,
const TAKEN_PER_SECOND: usize = 400_000;
/// but then not for longer than this.
const GOOD_FOR_MAX: Duration = Duration::from_secs(30);

/// Deliveries that are counted one by one; a batch waits for it.
const COUNTED_MAX: usize = 100_000;

pub(super) struct Rooms {
    depth_max: usize,
    depths: Counts,
    leased: Counts,
}

impl Rooms {
    pub(super) fn new(depth_max: usize) -> Self {
        Self { depth_max, depths: Counts::default(), leased: Counts::default() }
    }

    /// How many more deliveries each of these queues takes.
    pub(super) async fn of<'a>(
        &self,
        client: &impl GenericClient,
        queues: impl Iterator<Item = &'a QueueKey>,
    ) -> Result<HashMap<QueueKey, usize>, StoreError> {
        let mut rooms = HashMap::new();
        for queue in queues {
            if !rooms.contains_key(queue) {
                let depth = self.depth(client, queue).await?;
                rooms.insert(queue.clone(), self.depth_max.saturating_sub(depth));
            }
        }
        Ok(rooms)
    }

    /// Whether as much of the queue is in flight as may be.
    pub(super) async fn is_full_in_flight(
        &self,
        client: &impl GenericClient,
        queue: &QueueKey,
    ) -> Result<bool, StoreError> {
        const MOST: usize = bounds::QUEUE_IN_FLIGHT_MAX;
        // Those behind others in their lanes are not looked at: they are visible at no time.
        const LEASED: &str = "SELECT count(*) FROM ( \
             SELECT FROM delivery WHERE queue = $1 AND held = 'leased' \
                 AND visible_at > (extract(epoch FROM statement_timestamp()) * 1000)::bigint \
                 AND visible_at < 9223372036854775807 \
             ORDER BY visible_at, id LIMIT $2) AS first";
        let leased = match self.leased.known(queue) {
            Some(leased) => leased,
            None => self.leased.learn(queue, count(client, LEASED, queue, MOST).await?, GOOD_FOR),
        };
        Ok(leased >= MOST)
    }

    /// Counts what this node has just added.
    pub(super) fn took(&self, queue: &QueueKey, count: usize) {
        if let Some(counted) = self.depths.lock().get_mut(queue) {
            counted.count = counted.count.saturating_add(count);
        }
    }

    /// Counts a queue again when it is next asked for.
    pub(super) fn forget(&self, queue: &QueueKey) {
        self.depths.lock().remove(queue);
    }

    async fn depth(&self, client: &impl GenericClient, queue: &QueueKey) -> Result<usize, StoreError> {
        // In the order of the queue's index: by it alone, an empty queue is counted without a look at the others.
        const DEPTH: &str = "SELECT count(*) FROM ( \
             SELECT FROM delivery WHERE queue = $1 ORDER BY visible_at, id LIMIT $2) AS first";
        if let Some(depth) = self.depths.known(queue) {
            return Ok(depth);
        }
        let depth = count(client, DEPTH, queue, self.depth_max.min(COUNTED_MAX)).await?;
        let depth = if depth == COUNTED_MAX { self.estimate(client, queue, depth).await? } else { depth };
        Ok(self.depths.learn(queue, depth, good_for(depth, self.depth_max)))
    }
}

impl Rooms {
    /// How long a queue is that nobody wants to count to its end: all deliveries, by the planner's estimate, which a
    /// vacuum keeps, less what other queues are known to hold. At least what was counted.
    async fn estimate(
        &self,
        client: &impl GenericClient,
        queue: &QueueKey,
        counted: usize,
    ) -> Result<usize, StoreError> {
        const ALL: &str =
            "SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'delivery'::regclass";
        let statement = client.prepare_cached(ALL).await.map_err(sql)?;
        let all: i64 = client.query_one(&statement, &[]).await.and_then(|row| row.try_get(0)).map_err(sql)?;
        let others: usize =
            self.depths.lock().iter().filter(|(other, _)| *other != queue).map(|(_, it)| it.count).sum();
        Ok(usize::try_from(all).unwrap_or(0).saturating_sub(others).max(counted))
    }
}

/// How long a depth that was counted stays good.
fn good_for(depth: usize, depth_max: usize) -> Duration {
    let seconds = |count: usize, per_second: usize| Duration::from_secs((count / per_second) as u64);
    let not_full = seconds(depth_max.saturating_sub(depth), TAKEN_PER_SECOND).min(GOOD_FOR_MAX);
    not_full.max(seconds(depth, COUNTED_PER_SECOND)).max(GOOD_FOR)
}

async fn count(
    client: &impl GenericClient,
    query: &str,
    queue: &QueueKey,
    most: usize,
) -> Result<usize, StoreError> {
    let statement = client.prepare_cached(query).await.map_err(sql)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let row = client.query_one(&statement, &[&queue.as_str(), &most]).await.map_err(sql)?;
    row.try_get::<_, i64>(0).map(|count| usize::try_from(count).unwrap_or(0)).map_err(sql)
}

/// What was counted, by queue.
#[derive(Default)]
struct Counts(Mutex<HashMap<QueueKey, Counted>>);

#[derive(Debug, Clone, Copy)]
struct Counted {
    count: usize,
    good_until: Instant,
}

impl Counts {
    /// The count, while it is good. Who finds that it no longer is counts again; others go by the old one meanwhile.
    fn known(&self, queue: &QueueKey) -> Option<usize> {
        let now = Instant::now();
        let mut counts = self.lock();
        let counted = counts.get_mut(queue)?;
        if now >= counted.good_until {
            counted.good_until = now + GOOD_FOR;
            return None;
        }
        Some(counted.count)
    }

    fn learn(&self, queue: &QueueKey, count: usize, good_for: Duration) -> usize {
        let now = Instant::now();
        let mut counts = self.lock();
        // Those that nobody asks for any more are let go before their number grows past that of queues in use.
        if counts.len() >= bounds::METRIC_SERIES_MAX {
            counts.retain(|_, it| now < it.good_until);
        }
        counts.insert(queue.clone(), Counted { count, good_until: now + good_for });
        count
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<QueueKey, Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_counted_seldom_while_it_cannot_be_full() {
        let seconds = |depth, depth_max| good_for(depth, depth_max).as_secs();
        assert_eq!(seconds(0, 3), 1, "the least");
        assert_eq!(seconds(0, 10_000_000), 25, "far from full");
        assert_eq!(seconds(0, 1_000_000_000), 30, "the most");
        assert_eq!(seconds(9_800_000, 10_000_000), 49, "counting takes long");
        assert_eq!(seconds(100_000, 200_000), 1, "nearly full");
    }
}
