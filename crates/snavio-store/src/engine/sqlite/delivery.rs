//! Deliveries that wait or are in flight: table `delivery`, numbered by serial. Who holds one is known in memory
//! (`index.rs`), and kept only of those that a claim waits for (`lease.rs`); the others are handed out again after a
//! restart.

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, params};
use snavio_model::delivery::{Delivery, Tracking};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, Lane, NumberKind};
use snavio_model::time::Timestamp;

use super::writer::sql;
use super::{check, lease};
use crate::StoreError;
use crate::record::lease::KeptLease;

const COLUMNS: &str = "id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, tracking, \
     lane, lane_number, lane_kind, lane_parks, waits";

/// Enqueues deliveries.
pub(super) struct Insert<'a>(CachedStatement<'a>);

impl<'a> Insert<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        const INSERT: &str = "INSERT INTO delivery \
             (id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, tracking, \
             lane, lane_number, lane_kind, lane_parks, waits) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
        connection.prepare_cached(INSERT).map(Self)
    }

    pub(super) fn run(&mut self, delivery: &Delivery) -> rusqlite::Result<()> {
        let lane = delivery.lane.as_deref();
        let values = params![
            delivery.id.0,
            delivery.message.0,
            delivery.destination,
            delivery.queue.as_str(),
            delivery.dead_letter_queue.as_str(),
            delivery.queued_at.0,
            delivery.receives,
            delivery.receives_max,
            delivery.tracking.number(),
            lane.map(|it| it.key.to_text()),
            lane.map(|it| it.number),
            lane.map(|it| it.kind.number()),
            lane.and_then(Lane::parks_seconds),
            lane.is_some_and(|it| it.waits),
        ];
        self.0.execute(values).map(|_| ())
    }
}

/// The destinations of those in a queue.
pub(super) fn destinations(connection: &Connection, queue: &QueueKey) -> rusqlite::Result<BTreeSet<String>> {
    const DESTINATIONS: &str = "SELECT DISTINCT destination FROM delivery WHERE queue = ?1";
    connection.prepare_cached(DESTINATIONS)?.query_map([queue.as_str()], |row| row.get(0))?.collect()
}

pub(super) fn delete(connection: &Connection, id: Serial) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached("DELETE FROM delivery WHERE id = ?1")?;
    Ok(statement.execute([id.0])? == 1)
}

pub(super) fn find(connection: &Connection, id: Serial) -> Result<Option<Delivery>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM delivery WHERE id = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([id.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(read).transpose()
}

/// Whom one is for, and nothing else of it: this is asked for everything that is handed out.
pub(super) fn destination(connection: &Connection, id: Serial) -> Result<Option<Arc<str>>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT destination FROM delivery WHERE id = ?1").map_err(sql)?;
    let mut rows = statement.query([id.0]).map_err(sql)?;
    let read = |row: &Row<'_>| Ok(row.get_ref(0)?.as_str()?.into());
    let found = rows.next().map_err(sql)?.map(read).transpose();
    found.map_err(|error| check::unreadable(error, "delivery", id))
}

/// Lets those of a lane with this number be handed out that waited, and says which.
pub(super) fn release(
    connection: &Connection,
    key: &EntityKey,
    number: i64,
) -> rusqlite::Result<Option<Arc<str>>> {
    // One by one: for RETURNING, and for several rows at once, SQLite builds a temporary table.
    const WAITING: &str =
        "SELECT id, destination FROM delivery WHERE lane = ?1 AND lane_number = ?2 AND waits = 1";
    const RELEASE: &str = "UPDATE delivery SET waits = 0 WHERE id = ?1";
    let mut waiting = connection.prepare_cached(WAITING)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get_ref(1)?.as_str()?.into()));
    let waiting: Vec<(i64, Arc<str>)> =
        waiting.query_map(params![key.to_text(), number], read)?.collect::<Result<_, _>>()?;
    let mut release = connection.prepare_cached(RELEASE)?;
    for (id, _) in &waiting {
        release.execute([id])?;
    }
    Ok(waiting.into_iter().last().map(|(_, destination)| destination))
}

/// Lets all of a lane be handed out that waited, and says their numbers.
pub(super) fn release_all(connection: &Connection, key: &EntityKey) -> rusqlite::Result<Vec<i64>> {
    const RELEASE: &str = "UPDATE delivery SET waits = 0 WHERE lane = ?1 AND waits = 1 RETURNING lane_number";
    let mut statement = connection.prepare_cached(RELEASE)?;
    statement.query_map([key.to_text()], |row| row.get(0))?.collect()
}

/// How often one was handed out that no claim waits for. Two counts may come in either order.
pub(super) fn count_receives(connection: &Connection, id: Serial, receives: u32) -> rusqlite::Result<()> {
    const COUNT: &str = "UPDATE delivery SET receives = max(receives, ?2) WHERE id = ?1";
    connection.prepare_cached(COUNT)?.execute((id.0, receives)).map(|_| ())
}

/// The same of one that was taken back. Its count came before: nobody takes back what he was not handed.
pub(super) fn count_back(connection: &Connection, id: Serial, receives: u32) -> rusqlite::Result<()> {
    const COUNT: &str = "UPDATE delivery SET receives = ?2 WHERE id = ?1";
    connection.prepare_cached(COUNT)?.execute((id.0, receives)).map(|_| ())
}

/// Hands out all deliveries with their leases, in the order of their numbers.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(Delivery, KeptLease), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let query = format!("SELECT {COLUMNS}, {} FROM delivery ORDER BY id", lease::COLUMNS);
    check::each(connection, &query, with_lease, take)
}

/// The same, but for damaged ones: they are told of and left out, so that none keeps the store from opening.
pub(super) fn all(
    connection: &Connection,
    mut take: impl FnMut(Delivery, KeptLease),
) -> Result<(), StoreError> {
    each(connection, |read| {
        check::usable(read)?.into_iter().for_each(|(delivery, lease)| take(delivery, lease));
        Ok(())
    })
}

fn with_lease(row: &Row<'_>) -> Result<(Delivery, KeptLease), StoreError> {
    let delivery = read(row)?;
    let lease = lease::read(row, LANE + 5, &delivery);
    let id = delivery.id;
    lease.map(|it| (delivery, it)).map_err(|error| check::unreadable(error, "delivery", id))
}

fn read(row: &Row<'_>) -> Result<Delivery, StoreError> {
    let id = Serial(row.get(0).map_err(sql)?);
    fields(row).map_err(|error| check::unreadable(error, "delivery", id))
}

/// Reads the columns of a delivery from the row's beginning; dead letters begin with the same ones.
pub(super) fn fields(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: Serial(row.get(0)?),
        message: Serial(row.get(1)?),
        destination: row.get_ref(2)?.as_str()?.into(),
        queue: QueueKey::stored(row.get_ref(3)?.as_str()?),
        dead_letter_queue: QueueKey::stored(row.get_ref(4)?.as_str()?),
        queued_at: Timestamp(row.get(5)?),
        receives: row.get(6)?,
        receives_max: row.get(7)?,
        tracking: Tracking::stored(row.get(8)?),
        lane: lane(row)?,
    })
}

/// Where the columns of the lane begin.
const LANE: usize = 9;

fn lane(row: &Row<'_>) -> rusqlite::Result<Option<Box<Lane>>> {
    let Some(text) = row.get_ref(LANE)?.as_str_or_null()? else { return Ok(None) };
    let unknown = |column: usize| rusqlite::Error::InvalidColumnType(column, "lane".to_owned(), Type::Text);
    Ok(Some(Box::new(Lane {
        key: EntityKey::stored(text).ok_or_else(|| unknown(LANE))?,
        number: row.get(LANE + 1)?,
        kind: NumberKind::stored(row.get(LANE + 2)?).ok_or_else(|| unknown(LANE + 2))?,
        parks: Lane::stored_parks(row.get(LANE + 3)?),
        waits: row.get(LANE + 4)?,
    })))
}
