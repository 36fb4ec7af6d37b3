//! Deliveries that wait or are in flight: table `delivery`. A lease is in the row, so that every node sees it and it
//! outlives the node that gave it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use snavio_model::bounds;
use snavio_model::delivery::{
    DeadLetter, DeadReason, Delivery, QueueAttributes, Receipt, ReceiptOutcome, Tracking,
};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, Lane, NumberKind};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::lane::{self, BEHIND};
use super::pool::{Trouble, sql};
use super::{audit, finish, message, park, telemetry};
use crate::record::check_value::usable;
use crate::record::lease::{Held, KeptLease};
use crate::{Act, Deed, Purged, Received, StoreError};

/// The columns that [`read`] reads; dead letters begin with the same ones.
pub(super) const COLUMNS: &str = "id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, \
     tracking, lane, lane_number, lane_kind, lane_parks, waits";
/// How many there are.
pub(super) const WIDTH: usize = 14;
/// Where those of the lane begin.
const LANE: usize = 9;

/// Deliveries as columns, to be written by one statement.
#[derive(Default)]
pub(super) struct Columns<'a> {
    id: Vec<i64>,
    message: Vec<i64>,
    destination: Vec<&'a str>,
    queue: Vec<&'a str>,
    dead_letter_queue: Vec<&'a str>,
    queued_at: Vec<i64>,
    receives: Vec<i32>,
    receives_max: Vec<i32>,
    tracking: Vec<i16>,
    lane: Vec<Option<String>>,
    lane_number: Vec<Option<i64>>,
    lane_kind: Vec<Option<i16>>,
    lane_parks: Vec<Option<i64>>,
    waits: Vec<bool>,
}

impl<'a> Columns<'a> {
    pub(super) fn push(&mut self, delivery: &'a Delivery) {
        self.id.push(delivery.id.0);
        self.message.push(delivery.message.0);
        self.destination.push(&delivery.destination);
        self.queue.push(delivery.queue.as_str());
        self.dead_letter_queue.push(delivery.dead_letter_queue.as_str());
        self.queued_at.push(delivery.queued_at.0);
        self.receives.push(count(delivery.receives));
        self.receives_max.push(count(delivery.receives_max));
        self.tracking.push(delivery.tracking.number());
        let lane = delivery.lane.as_deref();
        self.lane.push(lane.map(|it| it.key.to_text()));
        self.lane_number.push(lane.map(|it| it.number));
        self.lane_kind.push(lane.map(|it| it.kind.number()));
        self.lane_parks.push(lane.and_then(Lane::parks_seconds));
        self.waits.push(lane.is_some_and(|it| it.waits));
    }

    /// In the order of the statement's parameters.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); WIDTH] {
        [
            &self.id,
            &self.message,
            &self.destination,
            &self.queue,
            &self.dead_letter_queue,
            &self.queued_at,
            &self.receives,
            &self.receives_max,
            &self.tracking,
            &self.lane,
            &self.lane_number,
            &self.lane_kind,
            &self.lane_parks,
            &self.waits,
        ]
    }
}

/// The statement that enqueues deliveries whose numbers count from a block's `base`, with parameters from this one on. Those
/// that are in a lane stand behind until turns are passed on.
pub(super) fn insertion(first: usize) -> String {
    const TYPES: [&str; WIDTH] = [
        "bigint", "bigint", "text", "text", "text", "bigint", "integer", "integer", "smallint", "text",
        "bigint", "smallint", "bigint", "boolean",
    ];
    let values = TYPES.iter().zip(first..).map(|(kind, place)| format!("${place}::{kind}[]"));
    format!(
        "INSERT INTO delivery (id, message, destination, queue, dead_letter_queue, queued_at, receives, \
             receives_max, tracking, lane, lane_number, lane_kind, lane_parks, waits, visible_at) \
         SELECT base + id, base + message, destination, queue, dead_letter_queue, queued_at, receives, \
             receives_max, tracking, lane, lane_number, lane_kind, lane_parks, waits, \
             CASE WHEN lane IS NULL THEN queued_at ELSE {BEHIND} END \
         FROM block, unnest({}) AS new ({COLUMNS})",
        values.collect::<Vec<_>>().join(", ")
    )
}

/// Enqueues deliveries that have their numbers already.
pub(super) async fn insert(client: &impl GenericClient, deliveries: &[Delivery]) -> Result<(), StoreError> {
    let insert = format!("WITH block (base) AS (VALUES (0::bigint)) {}", insertion(1));
    let mut columns = Columns::default();
    deliveries.iter().for_each(|delivery| columns.push(delivery));
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    client.execute(&statement, &columns.values()).await.map(|_| ()).map_err(sql)
}

/// Leases of deliveries from another store: whoever holds them there holds them here. Where it was not noted until when,
/// that is over, and goes on the record: a receipt from then cannot be told from others.
pub(super) async fn put_leases(client: &impl GenericClient, leases: &[KeptLease]) -> Result<(), StoreError> {
    const PUT: &str = "UPDATE delivery SET visible_at = coalesce(new.visible_at, delivery.visible_at), \
             held = new.held, fence = new.fence \
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS new (id, visible_at, held, fence) \
         WHERE delivery.id = new.id";
    let ids: Vec<_> = leases.iter().map(|it| it.delivery.0).collect();
    let times: Vec<_> = leases.iter().map(|it| it.visible_at.map(|at| at.0)).collect();
    let held: Vec<_> = leases.iter().map(|it| it.held.map(Held::as_str)).collect();
    let fences: Vec<_> = leases.iter().map(|it| it.fence.map(|fence| fence.0)).collect();
    let statement = client.prepare_cached(PUT).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&ids, &times, &held, &fences];
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// Reads a delivery from the row's beginning.
pub(super) fn read(row: &Row) -> Result<Delivery, tokio_postgres::Error> {
    let count = |column: usize| row.try_get::<_, i32>(column).map(i32::unsigned_abs);
    Ok(Delivery {
        id: Serial(row.try_get(0)?),
        message: Serial(row.try_get(1)?),
        destination: row.try_get::<_, &str>(2)?.into(),
        queue: QueueKey::stored(row.try_get(3)?),
        dead_letter_queue: QueueKey::stored(row.try_get(4)?),
        queued_at: Timestamp(row.try_get(5)?),
        receives: count(6)?,
        receives_max: count(7)?,
        tracking: Tracking::stored(row.try_get(8)?),
        lane: lane(row)?,
    })
}

/// The lane of a delivery; nothing of a text that no store has written.
fn lane(row: &Row) -> Result<Option<Box<Lane>>, tokio_postgres::Error> {
    let key = row.try_get::<_, Option<&str>>(LANE)?.and_then(EntityKey::stored);
    let Some(key) = key else { return Ok(None) };
    Ok(Some(Box::new(Lane {
        key,
        number: row.try_get(LANE + 1)?,
        kind: NumberKind::stored(row.try_get(LANE + 2)?).unwrap_or(NumberKind::Sequence),
        parks: Lane::stored_parks(row.try_get(LANE + 3)?),
        waits: row.try_get(LANE + 4)?,
    })))
}

/// A delivery that waited and may be handed out.
pub(super) struct Released {
    /// Its lane, as text.
    pub(super) lane: String,
    pub(super) number: i64,
    pub(super) destination: Arc<str>,
}

/// Lets deliveries be handed out that waited.
pub(super) const RELEASE: &str = "UPDATE delivery SET waits = false FROM unnest($1::text[], $2::bigint[]) AS go (lane, number) \
     WHERE delivery.lane = go.lane AND delivery.lane_number = go.number AND delivery.waits \
     RETURNING delivery.lane, delivery.lane_number, delivery.destination";

/// Lets deliveries be handed out that waited, by their lane and number, and says which those were.
pub(super) async fn release(
    client: &impl GenericClient,
    released: &[(EntityKey, i64)],
) -> Result<Vec<Released>, Trouble> {
    if released.is_empty() {
        return Ok(Vec::new());
    }
    let lanes: Vec<_> = released.iter().map(|(key, _)| key.to_text()).collect();
    let numbers: Vec<_> = released.iter().map(|(_, number)| *number).collect();
    let statement = client.prepare_cached(RELEASE).await.map_err(Trouble::of)?;
    let values: [&(dyn ToSql + Sync); 2] = [&lanes, &numbers];
    let rows = client.query(&statement, &values).await.map_err(Trouble::of)?;
    let read = |row: &Row| {
        let destination = row.try_get::<_, &str>(2)?.into();
        Ok(Released { lane: row.try_get(0)?, number: row.try_get(1)?, destination })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(Trouble::of)
}

/// Lets all of a lane go that waited.
pub(super) async fn release_all(client: &impl GenericClient, key: &EntityKey) -> Result<(), StoreError> {
    const RELEASE: &str = "UPDATE delivery SET waits = false WHERE lane IS NOT NULL AND lane = $1 AND waits";
    client.execute(RELEASE, &[&key.to_text()]).await.map(|_| ()).map_err(sql)
}

/// How many are in a lane.
pub(super) async fn in_lane(client: &impl GenericClient, key: &EntityKey) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM delivery WHERE lane IS NOT NULL AND lane = $1";
    let row = client.query_one(COUNT, &[&key.to_text()]).await.map_err(sql)?;
    row.try_get::<_, i64>(0).map(i64::unsigned_abs).map_err(sql)
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Which deliveries are to be handed out.
#[derive(Clone, Copy)]
pub(super) enum Which {
    /// Up to so many of those that are due.
    Next(usize),
    /// This one, if it is due.
    One(Serial),
}

/// Leases deliveries that are due, the longest visible first, and reads their messages. Who is at the
/// same queue at the same time gets others.
pub(super) async fn receive(
    client: &impl GenericClient,
    queue: &QueueKey,
    which: Which,
    visibility: Duration,
    now: Timestamp,
) -> Result<Vec<Received>, StoreError> {
    let (only, max) = match which {
        Which::Next(max) => (None, max),
        Which::One(id) => (Some(id.0), 1),
    };
    // One that a claim waits for, and whose lease is over, is handed out once that is on record.
    let receive = format!(
        "WITH due AS ( \
             SELECT id FROM delivery WHERE queue = $1 AND visible_at <= $2 AND receives < receives_max \
                 AND queued_at > $3 AND (tracking = 0 OR held IS DISTINCT FROM 'leased') \
                 AND ($6::bigint IS NULL OR id = $6) \
             ORDER BY visible_at, id LIMIT $4 FOR UPDATE SKIP LOCKED \
         ), leased AS ( \
             UPDATE delivery SET receives = receives + 1, fence = nextval('fence'), visible_at = $5, \
                 held = 'leased' \
             FROM due WHERE delivery.id = due.id \
             RETURNING delivery.id, delivery.message, delivery.fence, delivery.receives, delivery.queued_at, \
                 delivery.destination, delivery.receives_max, delivery.tracking \
         ) \
         SELECT leased.id, leased.fence, leased.receives, leased.queued_at, leased.destination, \
             leased.receives_max, leased.tracking, {} \
         FROM leased JOIN message ON message.seq = leased.message ORDER BY leased.id",
        message::COLUMNS
    );
    let visible_at = now.plus(visibility);
    let oldest = now.minus(bounds::QUEUE_RETENTION);
    let statement = client.prepare_cached(&receive).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 6] =
        [&queue.as_str(), &now.0, &oldest.0, &(max as i64), &visible_at.0, &only];
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let mut received = Vec::with_capacity(rows.len());
    for row in &rows {
        // One whose message is damaged is not handed out; it ends as a dead letter after its receives.
        let Some(logged) = usable(message::read(row, 7))? else { continue };
        received.push(Received {
            delivery_id: Serial(row.try_get(0).map_err(sql)?),
            fence: Serial(row.try_get(1).map_err(sql)?),
            attempt: row.try_get::<_, i32>(2).map_err(sql)?.unsigned_abs(),
            attempts_max: row.try_get::<_, i32>(5).map_err(sql)?.unsigned_abs(),
            tracking: Tracking::stored(row.try_get(6).map_err(sql)?),
            queued_at: Timestamp(row.try_get(3).map_err(sql)?),
            visible_at,
            destination: row.try_get::<_, Option<&str>>(4).map_err(sql)?.map(Into::into),
            message: Arc::new(logged.message),
        });
    }
    Ok(received)
}

/// Locks the deliveries of a queue for which receipts of the newest lease are shown, in the order of their numbers: two
/// who show the same ones wait for each other, and not in a circle.
const SHOWN: &str = "WITH shown AS MATERIALIZED ( \
     SELECT delivery.id FROM delivery JOIN unnest($2::bigint[], $3::bigint[]) AS shown (id, fence) \
         ON delivery.id = shown.id AND delivery.fence = shown.fence \
     WHERE delivery.queue = $1 ORDER BY delivery.id FOR UPDATE OF delivery)";

/// Takes back what was leased for somebody who has gone, or for an attempt that was not made, and hides it until then: it has
/// cost the deliveries nothing. What is not leased any more was taken back before.
pub(super) async fn take_back(
    client: &impl GenericClient,
    queue: &QueueKey,
    leased: &[Receipt],
    until: Timestamp,
) -> Result<(), StoreError> {
    let take_back = format!(
        "{SHOWN} UPDATE delivery SET receives = receives - 1, visible_at = $4, held = 'delayed' \
         FROM shown WHERE delivery.id = shown.id AND delivery.held = 'leased'"
    );
    let ids: Vec<_> = leased.iter().map(|it| it.delivery_id.0).collect();
    let fences: Vec<_> = leased.iter().map(|it| it.fence.0).collect();
    let statement = client.prepare_cached(&take_back).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&queue.as_str(), &ids, &fences, &until.0];
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// What a receipt asks for.
#[derive(Clone, Copy)]
pub(super) enum Ask {
    /// The end of one that no claim waits for.
    End,
    /// To stay hidden until.
    Extend(Timestamp),
}

/// Does what receipts of the newest lease ask for, and says what became of each.
pub(super) async fn present(
    client: &impl GenericClient,
    queue: &QueueKey,
    receipts: &[Receipt],
    ask: Ask,
) -> Result<Vec<ReceiptOutcome>, StoreError> {
    let ids: Vec<_> = receipts.iter().map(|it| it.delivery_id.0).collect();
    let fences: Vec<_> = receipts.iter().map(|it| it.fence.0).collect();
    let queue = queue.as_str();
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&queue, &ids, &fences];
    let (act, until) = match ask {
        Ask::End => ("DELETE FROM delivery USING shown", None),
        Ask::Extend(until) => {
            ("UPDATE delivery SET visible_at = $4, held = 'leased' FROM shown", Some(until.0))
        }
    };
    values.extend(until.as_ref().map(|until| until as &(dyn ToSql + Sync)));
    // What a claim waits for does not just end, nor what others stand behind.
    let which = match ask {
        Ask::End => "AND delivery.tracking = 0 AND delivery.lane IS NULL",
        Ask::Extend(_) => "",
    };
    let text =
        format!("{SHOWN} {act} WHERE delivery.id = shown.id {which} RETURNING delivery.id, delivery.fence");
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let done = client.query(&statement, &values).await.map_err(sql)?;
    let shown = |row: &Row| Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?));
    let mut done = done.iter().map(shown).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    let there = if done.len() == receipts.len() { Vec::new() } else { there(client, queue, &ids).await? };
    let ends = matches!(ask, Ask::End);
    let outcome = |receipt: &Receipt| {
        let id = receipt.delivery_id.0;
        match done.iter().position(|it| *it == (id, receipt.fence.0)) {
            Some(place) => {
                if ends {
                    done.swap_remove(place);
                }
                ReceiptOutcome::Done
            }
            None if there.contains(&id) => ReceiptOutcome::Fenced,
            None => ReceiptOutcome::Gone,
        }
    };
    Ok(receipts.iter().map(outcome).collect())
}

/// Which of these are there, under whatever lease.
async fn there(client: &impl GenericClient, queue: &str, ids: &[i64]) -> Result<Vec<i64>, StoreError> {
    const THERE: &str = "SELECT id FROM delivery WHERE id = ANY ($2) AND queue = $1";
    let statement = client.prepare_cached(THERE).await.map_err(sql)?;
    let rows = client.query(&statement, &[&queue, &ids]).await.map_err(sql)?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(sql)
}

/// Deletes some of a queue, with a line on the record, and says what that came to and whether there may be more.
pub(super) async fn purge_some(
    client: &mut Client,
    queue: &QueueKey,
    up_to: Serial,
    act: &Act,
) -> Result<(Purged, bool), StoreError> {
    let transaction = client.transaction().await.map_err(sql)?;
    let (purged, is_partial) = purge(&transaction, queue, up_to, bounds::SWEEP_ROWS_MAX, act.at).await?;
    let deed = Deed { action: "queue.purge", object: queue.to_string(), outcome: purged.outcome() };
    audit::append(&transaction, act, &[deed]).await?;
    transaction.commit().await.map_err(sql)?;
    Ok((purged, is_partial))
}

/// Deletes up to `limit` of what a queue holds up to a number. What was tried, and a claim waits for, may be done: it becomes
/// a dead letter.
async fn purge(
    client: &impl GenericClient,
    queue: &QueueKey,
    up_to: Serial,
    limit: usize,
    now: Timestamp,
) -> Result<(Purged, bool), StoreError> {
    // Found by the queue's own index.
    const FOUND: &str = "SELECT id, lane FROM delivery WHERE queue = $1 AND id <= $2 \
         AND (tracking = 0 OR held IS DISTINCT FROM 'leased') ORDER BY visible_at, id LIMIT $3";
    const DELETE: &str = "DELETE FROM delivery WHERE id = ANY ($1)";
    let statement = client.prepare_cached(FOUND).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 3] = [&queue.as_str(), &up_to.0, &(limit as i64)];
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let (mut found, mut of_lanes) = (Vec::new(), HashSet::new());
    for row in &rows {
        of_lanes.extend(row.try_get::<_, Option<&str>>(1).map_err(sql)?);
        if of_lanes.len() > lane::LOCKED_MAX {
            break;
        }
        found.push(row.try_get::<_, i64>(0).map_err(sql)?);
    }
    lane::lock(client, &found.iter().copied().map(Serial).collect::<Vec<_>>()).await?;
    let ended = lock_free(client, &found).await?;
    let was_tried = finish::tried(client, &ended).await?;
    let (tried, others): (Vec<_>, Vec<_>) = ended.into_iter().partition(|it| was_tried.contains(&it.id));
    let in_doubt = tried.len();
    let letters: Vec<_> = tried.into_iter().map(|it| DeadLetter::new(it, DeadReason::Purged, now)).collect();
    let records = finish::bury_all(client, &letters, now).await?;
    telemetry::append(client, &records).await?;
    let ids: Vec<_> = others.iter().map(|it| it.id.0).collect();
    let statement = client.prepare_cached(DELETE).await.map_err(sql)?;
    client.execute(&statement, &[&ids]).await.map_err(sql)?;
    finish::buried(client, others.iter().map(|it| (it, DeadReason::Purged)), now).await?;
    let of_lanes = others.iter().filter_map(|it| it.lane.as_deref());
    // There is nothing to be mended of them any more.
    let parking = of_lanes.clone().filter(|it| it.parks.is_some());
    let mut parking: Vec<_> = parking.map(|it| (it.key.clone(), it.number)).collect();
    parking.sort_unstable();
    park::done(client, &parking, now).await?;
    let lanes: BTreeSet<_> = of_lanes.map(|it| it.key.clone()).collect();
    lane::pass_on(client, lanes.iter()).await.map_err(Trouble::into_error)?;
    let purged = Purged { deleted: ids.len() as u64, in_doubt: in_doubt as u64, in_progress: 0 };
    Ok((purged, rows.len() == limit || found.len() < rows.len()))
}

/// Those of some deliveries that nobody is at for whom a claim waits, locked in the order of their numbers, as by those who
/// present receipts.
async fn lock_free(client: &impl GenericClient, ids: &[i64]) -> Result<Vec<Delivery>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS} FROM delivery WHERE id = ANY ($1) \
         AND (tracking = 0 OR held IS DISTINCT FROM 'leased') ORDER BY id FOR UPDATE"
    );
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&ids]).await.map_err(sql)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// How many of a queue up to a number somebody is at, and a claim waits for what comes of that.
pub(super) async fn in_progress(
    client: &impl GenericClient,
    queue: &QueueKey,
    up_to: Serial,
) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM delivery \
         WHERE queue = $1 AND id <= $2 AND tracking > 0 AND held = 'leased'";
    let statement = client.prepare_cached(COUNT).await.map_err(sql)?;
    let row = client.query_one(&statement, &[&queue.as_str(), &up_to.0]).await.map_err(sql)?;
    row.try_get::<_, i64>(0).map(|it| u64::try_from(it).unwrap_or(0)).map_err(sql)
}

const ATTRIBUTES: &str = "count(*) FILTER (WHERE visible_at <= $1 OR held IS NULL), \
     count(*) FILTER (WHERE visible_at > $1 AND held = 'leased'), \
     count(*) FILTER (WHERE visible_at > $1 AND held = 'delayed'), min(queued_at)";

/// Depth, in flight, delayed and age of a queue; its dead letters are counted elsewhere.
pub(super) async fn attributes(
    client: &impl GenericClient,
    queue: &QueueKey,
    now: Timestamp,
) -> Result<QueueAttributes, StoreError> {
    let text = format!("SELECT {ATTRIBUTES} FROM delivery WHERE queue = $2");
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let row = client.query_one(&statement, &[&now.0, &queue.as_str()]).await.map_err(sql)?;
    read_attributes(&row, 0, now).map_err(sql)
}

/// Whether a queue holds deliveries.
pub(super) async fn any(client: &impl GenericClient, queue: &QueueKey) -> Result<bool, StoreError> {
    const ANY: &str = "SELECT EXISTS (SELECT FROM delivery WHERE queue = $1)";
    let statement = client.prepare_cached(ANY).await.map_err(sql)?;
    let row = client.query_one(&statement, &[&queue.as_str()]).await.map_err(sql)?;
    row.try_get(0).map_err(sql)
}

/// The destinations of the deliveries that a queue holds.
pub(super) async fn destinations(
    client: &impl GenericClient,
    queue: &QueueKey,
) -> Result<BTreeSet<String>, StoreError> {
    const DESTINATIONS: &str = "SELECT DISTINCT destination FROM delivery WHERE queue = $1";
    let statement = client.prepare_cached(DESTINATIONS).await.map_err(sql)?;
    let rows = client.query(&statement, &[&queue.as_str()]).await.map_err(sql)?;
    rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(sql)
}

/// Depth, in flight, delayed and age of every queue that holds anything.
pub(super) async fn all_attributes(
    client: &impl GenericClient,
    now: Timestamp,
) -> Result<Vec<(QueueKey, QueueAttributes)>, StoreError> {
    let text = format!("SELECT queue, {ATTRIBUTES} FROM delivery GROUP BY queue");
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0]).await.map_err(sql)?;
    let read = |row: &Row| Ok((QueueKey::stored(row.try_get(0)?), read_attributes(row, 1, now)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

fn read_attributes(
    row: &Row,
    first: usize,
    now: Timestamp,
) -> Result<QueueAttributes, tokio_postgres::Error> {
    let count = |column: usize| row.try_get::<_, i64>(first + column).map(i64::unsigned_abs);
    let oldest: Option<i64> = row.try_get(first + 3)?;
    Ok(QueueAttributes {
        depth: count(0)?,
        in_flight: count(1)?,
        delayed: count(2)?,
        oldest_age_seconds: oldest.map_or(0, |oldest| now.since(Timestamp(oldest)).as_secs()),
        dead_letters: 0,
    })
}
