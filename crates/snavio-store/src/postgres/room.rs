//! How much each queue still takes. Counting rows for every batch would cost more than the batch, and a counter in
//! the store would make all nodes wait for one row; so a queue is counted now and then, and what this node adds is
//! added up in between. The bound is met to within what all nodes take in between two counts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::{HashMap, HashMapExt};
use snavio_model::limits;
use snavio_model::name::QueueKey;
use tokio::time::Instant;

use super::client::GenericClient;
use super::pool::sql;
use crate::StoreError;

/// A count stays good for this long at least,
const GOOD_FOR: Duration = Duration::from_secs(1);
/// and longer for a long queue, in which counting takes longer and a second's worth matters less.
const COUNTED_PER_SECOND: usize = 200_000;

pub(super) struct Rooms {
    depth_max: usize,
    queues: Mutex<HashMap<QueueKey, Counted>>,
}

#[derive(Debug, Clone, Copy)]
struct Counted {
    depth: usize,
    leased: usize,
    good_until: Instant,
}

impl Rooms {
    pub(super) fn new(depth_max: usize) -> Self {
        Self { depth_max, queues: Mutex::new(HashMap::new()) }
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
                let depth = self.counted(client, queue).await?.depth;
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
        Ok(self.counted(client, queue).await?.leased >= limits::QUEUE_IN_FLIGHT_MAX)
    }

    /// Counts what this node has just added.
    pub(super) fn took(&self, queue: &QueueKey, count: usize) {
        if let Some(counted) = self.lock().get_mut(queue) {
            counted.depth = counted.depth.saturating_add(count);
        }
    }

    /// Counts a queue again when it is next asked for.
    pub(super) fn forget(&self, queue: &QueueKey) {
        self.lock().remove(queue);
    }

    async fn counted(&self, client: &impl GenericClient, queue: &QueueKey) -> Result<Counted, StoreError> {
        const COUNT: &str = "SELECT count(*), \
                 count(*) FILTER (WHERE held = 'leased' AND visible_at > (extract(epoch FROM now()) * 1000)::bigint) \
             FROM (SELECT held, visible_at FROM delivery WHERE queue = $1 LIMIT $2) AS first";
        let now = Instant::now();
        if let Some(counted) = self.lock().get(queue).filter(|it| now < it.good_until) {
            return Ok(*counted);
        }
        let statement = client.prepare_cached(COUNT).await.map_err(sql)?;
        let most = i64::try_from(self.depth_max).unwrap_or(i64::MAX);
        let row = client.query_one(&statement, &[&queue.as_str(), &most]).await.map_err(sql)?;
        let column = |place: usize| -> Result<usize, StoreError> {
            row.try_get::<_, i64>(place).map(|count| usize::try_from(count).unwrap_or(0)).map_err(sql)
        };
        let (depth, leased) = (column(0)?, column(1)?);
        let seconds = u32::try_from(depth / COUNTED_PER_SECOND).unwrap_or(u32::MAX);
        let counted = Counted { depth, leased, good_until: now + GOOD_FOR * seconds.max(1) };
        let mut queues = self.lock();
        // Those that nobody asks for any more are let go before their number grows past that of queues in use.
        if queues.len() >= limits::METRIC_SERIES_MAX {
            queues.retain(|_, it| now < it.good_until);
        }
        queues.insert(queue.clone(), counted);
        Ok(counted)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<QueueKey, Counted>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
