//! Dead letters: table `dead_letter`, keyed by the id of the delivery that ended, owned by the target's tenant.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use snavio_model::delivery::DeadLetter;
use snavio_model::id::Serial;
use snavio_model::message::Message;
use snavio_model::name::QueueKey;
use snavio_model::ordering::Lane;
use snavio_model::time::Timestamp;

use super::writer::sql;
use super::{check, delivery, message};
use crate::api::archive::DESTINATIONS_MAX;
use crate::engine::expiry::{DEAD_LETTERS_IN_DOUBT, REDRIVABLE};
use crate::{DeadLetterOrigin, ListedDeadLetter, StoreError, StoredDeadLetter};

const COLUMNS: &str = "id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, \
     tracking, lane, lane_number, lane_kind, lane_parks, 0, reason, dead_at";

pub(super) fn insert(connection: &Connection, letter: &DeadLetter) -> rusqlite::Result<()> {
    const INSERT: &str = "INSERT INTO dead_letter (id, tenant, message, destination, queue, dead_letter_queue, \
         queued_at, receives, receives_max, reason, dead_at, tracking, lane, lane_number, lane_kind, lane_parks) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let delivery = &letter.delivery;
    let lane = delivery.lane.as_deref();
    let values = params![
        delivery.id.0,
        delivery.queue.tenant(),
        delivery.message.0,
        delivery.destination,
        delivery.queue.as_str(),
        delivery.dead_letter_queue.as_str(),
        delivery.queued_at.0,
        delivery.receives,
        delivery.receives_max,
        letter.reason_text(),
        letter.dead_at.0,
        delivery.tracking.number(),
        lane.map(|it| it.key.to_text()),
        lane.map(|it| it.number),
        lane.map(|it| it.kind.number()),
        lane.and_then(Lane::parks_seconds),
    ];
    connection.prepare_cached(INSERT)?.execute(values).map(|_| ())
}

pub(super) fn delete(connection: &Connection, id: Serial) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM dead_letter WHERE id = ?1")?.execute([id.0]).map(|_| ())
}

/// The number of the message that one carries.
pub(super) fn message_of(connection: &Connection, id: Serial) -> rusqlite::Result<Option<Serial>> {
    let mut statement = connection.prepare_cached("SELECT message FROM dead_letter WHERE id = ?1")?;
    statement.query_row([id.0], |row| row.get(0).map(Serial)).optional()
}

pub(super) fn find(
    connection: &Connection,
    tenant: &str,
    id: Serial,
) -> Result<Option<DeadLetter>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM dead_letter WHERE id = ?1 AND tenant = ?2");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query((id.0, tenant)).map_err(sql)?;
    rows.next().map_err(sql)?.map(read).transpose()
}

/// Those of one message that are no evidence of a conflict; damaged ones are told of and left out.
pub(super) fn of_message(connection: &Connection, message: Serial) -> Result<Vec<DeadLetter>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM dead_letter WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1 \
         AND reason <> 'conflict' ORDER BY id"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([message.0]).map_err(sql)?;
    check::page(&mut rows, usize::MAX, read)
}

/// A page of a tenant's dead letters; those that are damaged or whose message is are told of and left out.
pub(super) fn page(
    connection: &Connection,
    tenant: &str,
    queue: Option<&QueueKey>,
    after: Serial,
    limit: usize,
) -> Result<Vec<ListedDeadLetter>, StoreError> {
    // The plus keeps SQLite from walking the whole tenant for the sake of one queue.
    let which = match queue {
        Some(_) => "+tenant = ?1 AND dead_letter_queue = ?3",
        None => "tenant = ?1 AND ?3 IS NULL",
    };
    let query = format!("SELECT {COLUMNS} FROM dead_letter WHERE {which} AND id > ?2 ORDER BY id");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let values = params![tenant, after.0, queue.map(QueueKey::as_str)];
    let mut rows = statement.query(values).map_err(sql)?;
    check::page(&mut rows, limit, |row| listed(connection, read(row)?))
}

/// A dead-letter queue's dead letters, each with the queue it came from; damaged ones are told of and left out, their
/// messages not asked.
pub(super) fn origins(
    connection: &Connection,
    queue: &QueueKey,
    after: Serial,
    limit: usize,
) -> Result<Vec<DeadLetterOrigin>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM dead_letter WHERE dead_letter_queue = ?1 AND id > ?2 \
         AND {REDRIVABLE} ORDER BY id"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query((queue.as_str(), after.0)).map_err(sql)?;
    check::page(&mut rows, limit, |row| {
        let delivery = read(row)?.delivery;
        Ok(DeadLetterOrigin { id: delivery.id, queue: delivery.queue, destination: delivery.destination })
    })
}

/// How many of a dead-letter queue's dead letters have claims that are in doubt, by destination.
pub(super) fn in_doubt(
    connection: &Connection,
    queue: &QueueKey,
) -> Result<Vec<(Arc<str>, usize)>, StoreError> {
    let mut statement = connection.prepare_cached(DEAD_LETTERS_IN_DOUBT).map_err(sql)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, usize::try_from(row.get::<_, i64>(1)?).unwrap_or_default()));
    statement.query_map([queue.as_str()], read).and_then(Iterator::collect).map_err(sql)
}

/// Hands out all dead letters in the order of their numbers.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<DeadLetter, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    check::each(connection, &format!("SELECT {COLUMNS} FROM dead_letter ORDER BY id"), read, take)
}

/// Only what a list shows is kept of the message: a page must not hold every payload.
fn listed(connection: &Connection, letter: DeadLetter) -> Result<ListedDeadLetter, StoreError> {
    let StoredDeadLetter { letter, message } = with_message(connection, letter)?;
    let Message { id, source, correlation, .. } = message;
    Ok(ListedDeadLetter { letter, message_id: id, source, correlation })
}

pub(super) fn with_message(
    connection: &Connection,
    letter: DeadLetter,
) -> Result<StoredDeadLetter, StoreError> {
    let number = letter.delivery.message;
    let found = message::find(connection, number)?;
    let missing = || StoreError::Damaged { what: "message", key: number.to_string() };
    Ok(StoredDeadLetter { letter, message: found.ok_or_else(missing)?.message })
}

pub(super) fn count(connection: &Connection, queue: &QueueKey) -> rusqlite::Result<u64> {
    const COUNT: &str = "SELECT count(*) FROM dead_letter WHERE dead_letter_queue = ?1";
    connection
        .prepare_cached(COUNT)?
        .query_row([queue.as_str()], |row| row.get::<_, i64>(0))
        .map(i64::unsigned_abs)
}

pub(super) fn any(connection: &Connection, queue: &QueueKey) -> rusqlite::Result<bool> {
    const ANY: &str = "SELECT EXISTS (SELECT 1 FROM dead_letter WHERE dead_letter_queue = ?1)";
    connection.prepare_cached(ANY)?.query_row([queue.as_str()], |row| row.get(0))
}

/// How many there are in each queue that has any; what has no readable name is told of and left out.
pub(super) fn counts(connection: &Connection) -> Result<Vec<(QueueKey, u64)>, StoreError> {
    const COUNTS: &str = "SELECT dead_letter_queue, count(*) FROM dead_letter GROUP BY dead_letter_queue";
    let mut statement = connection.prepare_cached(COUNTS).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    check::page(&mut rows, usize::MAX, |row| {
        let counted = row
            .get_ref(0)
            .and_then(|name| Ok((QueueKey::stored(name.as_str()?), row.get::<_, i64>(1)?.unsigned_abs())));
        counted.map_err(|error| check::unreadable(error, "dead-letter queue", "without a name"))
    })
}

fn read(row: &Row<'_>) -> Result<DeadLetter, StoreError> {
    let id = Serial(row.get(0).map_err(sql)?);
    let fields = fields(row).map_err(|error| check::unreadable(error, "dead letter", id))?;
    fields.ok_or_else(|| StoreError::Damaged { what: "dead letter", key: id.to_string() })
}

/// Reads a row's columns; nothing if its reason is none that this store could have written.
fn fields(row: &Row<'_>) -> rusqlite::Result<Option<DeadLetter>> {
    let (delivery, dead_at) = (delivery::fields(row)?, Timestamp(row.get(15)?));
    let reason = DeadLetter::stored_reason(row.get_ref(14)?.as_str()?);
    Ok(reason.map(|(reason, error)| DeadLetter { delivery, reason, error, dead_at }))
}
