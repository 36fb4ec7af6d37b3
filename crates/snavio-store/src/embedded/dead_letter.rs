//! Dead letters: table `dead_letter`, keyed by the id of the delivery that ended, owned by the target's tenant.

use rusqlite::{Connection, Row, params};
use snavio_model::delivery::{DeadLetter, DeadReason};
use snavio_model::id::Serial;
use snavio_model::name::QueueKey;
use snavio_model::time::Timestamp;

use super::{delivery, message, writer::sql};
use crate::{StoreError, StoredDeadLetter};

const COLUMNS: &str = "id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, \
     reason, dead_at";

pub(super) fn insert(connection: &Connection, letter: &DeadLetter) -> rusqlite::Result<()> {
    const INSERT: &str = "INSERT INTO dead_letter (id, tenant, message, destination, queue, dead_letter_queue, \
         queued_at, receives, receives_max, reason, dead_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let delivery = &letter.delivery;
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
        letter.reason.as_str(),
        letter.dead_at.0,
    ];
    connection.prepare_cached(INSERT)?.execute(values).map(|_| ())
}

pub(super) fn delete(connection: &Connection, id: Serial) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM dead_letter WHERE id = ?1")?.execute([id.0]).map(|_| ())
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

/// A page of a tenant's dead letters, with their messages; those whose message is damaged are told of and left
/// out, so that they do not hide the others.
pub(super) fn page(
    connection: &Connection,
    tenant: &str,
    queue: Option<&QueueKey>,
    after: Serial,
    limit: usize,
) -> Result<Vec<StoredDeadLetter>, StoreError> {
    let (index, key) = match queue {
        Some(queue) => ("dead_letter_queue", queue.as_str()),
        None => ("tenant", tenant),
    };
    let query =
        format!("SELECT {COLUMNS} FROM dead_letter WHERE {index} = ?1 AND id > ?2 ORDER BY id LIMIT ?3");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query(params![key, after.0, limit as i64]).map_err(sql)?;
    let mut letters = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        letters.push(read(row)?);
    }
    let usable = |letter| message::usable(with_message(connection, letter)).transpose();
    letters.into_iter().filter_map(usable).collect()
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

fn read(row: &Row<'_>) -> Result<DeadLetter, StoreError> {
    let delivery = delivery::read(row).map_err(sql)?;
    let reason: String = row.get(8).map_err(sql)?;
    let damaged = || StoreError::Damaged { what: "dead letter", key: delivery.id.to_string() };
    let reason = DeadReason::stored(&reason).ok_or_else(damaged)?;
    Ok(DeadLetter { reason, dead_at: Timestamp(row.get(9).map_err(sql)?), delivery })
}
