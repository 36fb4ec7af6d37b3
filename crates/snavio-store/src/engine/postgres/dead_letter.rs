//! Dead letters: table `dead_letter`, keyed by the id of the delivery that ended, owned by the target's tenant.

use std::sync::Arc;

use snavio_model::bounds;
use snavio_model::delivery::{DeadLetter, Delivery};
use snavio_model::id::Serial;
use snavio_model::message::Message;
use snavio_model::name::QueueKey;
use snavio_model::telemetry::{Record, dead_lettered};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::lane::{self, BEHIND};
use super::pool::sql;
use super::{delivery, finish, message, park, telemetry};
use crate::engine::expiry::{DEAD_LETTERS_IN_DOUBT, REDRIVABLE};
use crate::record::check_value::usable;
use crate::{DeadLetterOrigin, ListedDeadLetter, StoreError, StoredDeadLetter};

/// The columns that [`read`] reads.
const COLUMNS: &str = "dead_letter.id, dead_letter.message, dead_letter.destination, dead_letter.queue, \
     dead_letter.dead_letter_queue, dead_letter.queued_at, dead_letter.receives, dead_letter.receives_max, \
     dead_letter.tracking, dead_letter.lane, dead_letter.lane_number, dead_letter.lane_kind, dead_letter.lane_parks, \
     false, dead_letter.reason, dead_letter.dead_at";
/// How many there are.
const COLUMNS_COUNT: usize = delivery::WIDTH + 2;

fn read(row: &Row) -> Result<DeadLetter, StoreError> {
    let delivery = delivery::read(row).map_err(sql)?;
    let damaged = || StoreError::Damaged { what: "dead letter", key: delivery.id.to_string() };
    let reason = DeadLetter::stored_reason(row.try_get(delivery::WIDTH).map_err(sql)?);
    let (reason, error) = reason.ok_or_else(damaged)?;
    for count in [6, 7] {
        if row.try_get::<_, i32>(count).map_err(sql)? < 0 {
            return Err(damaged());
        }
    }
    let dead_at = Timestamp(row.try_get(delivery::WIDTH + 1).map_err(sql)?);
    Ok(DeadLetter { reason, error, dead_at, delivery })
}

/// Makes dead letters of up to `limit` deliveries that must not be handed out again, and says how many, and what
/// their senders are told. In commits of their own: entities are not kept from others meanwhile.
pub(super) async fn bury(
    client: &mut Client,
    now: Timestamp,
    limit: usize,
) -> Result<(usize, Vec<Record>), StoreError> {
    let (mut buried, mut records) = (0, Vec::new());
    while buried < limit {
        let most = MESSAGES_AT_ONCE.min(limit - buried);
        let transaction = client.transaction().await.map_err(sql)?;
        let (some, told) = bury_some(&transaction, now, most).await?;
        telemetry::append(&transaction, &told).await?;
        transaction.commit().await.map_err(sql)?;
        buried += some;
        records.extend(told);
        if some < most {
            break;
        }
    }
    Ok((buried, records))
}

/// Messages that are read at once where only a part of each is kept: so many fit in memory whatever their size.
const MESSAGES_AT_ONCE: usize = 16;

async fn bury_some(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<(usize, Vec<Record>), StoreError> {
    // Each of the two ends is found by an index of its own; together they would be looked for in every row.
    let found = format!(
        "(SELECT id FROM delivery WHERE visible_at <= $1 AND receives >= receives_max \
              AND (tracking = 0 OR held IS DISTINCT FROM 'leased') \
          ORDER BY visible_at LIMIT $3) \
         UNION \
         (SELECT id FROM delivery WHERE (visible_at <= $1 OR visible_at = {BEHIND}) AND queued_at <= $2 \
          ORDER BY queued_at LIMIT $3)"
    );
    let due = format!(
        "SELECT due.id, due.message, due.destination, due.queue, due.dead_letter_queue, due.queued_at, \
             due.receives, due.receives_max, due.tracking, due.lane, due.lane_number, due.lane_kind, due.lane_parks, \
             due.waits, message.seq IS NOT NULL, {} \
         FROM (SELECT {} FROM delivery \
               WHERE id = ANY ($4) \
                   AND (visible_at <= $1 OR visible_at = {BEHIND}) AND (receives >= receives_max OR queued_at <= $2) \
                   AND (tracking = 0 OR held IS DISTINCT FROM 'leased') \
               LIMIT $3 FOR UPDATE SKIP LOCKED) AS due \
         LEFT JOIN message ON message.seq = due.message ORDER BY due.id",
        message::COLUMNS,
        delivery::COLUMNS
    );
    let oldest = now.minus(bounds::QUEUE_RETENTION);
    let limit = limit as i64;
    let statement = client.prepare_cached(&found).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0, &oldest.0, &limit]).await.map_err(sql)?;
    let found = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>().map_err(sql)?;
    if found.is_empty() {
        return Ok((0, Vec::new()));
    }
    lane::lock(client, &found.iter().copied().map(Serial).collect::<Vec<_>>()).await?;
    let statement = client.prepare_cached(&due).await.map_err(sql)?;
    let rows = client.query(&statement, &[&now.0, &oldest.0, &limit, &found]).await.map_err(sql)?;
    let mut letters = Vec::with_capacity(rows.len());
    let mut records = Vec::new();
    for row in &rows {
        let delivery = delivery::read(row).map_err(sql)?;
        let ended = Delivery::end_of(delivery.receives, delivery.receives_max, delivery.queued_at, now);
        let Some(reason) = ended else { continue };
        let letter = DeadLetter::new(delivery, reason, now);
        if row.try_get(delivery::WIDTH).map_err(sql)? {
            let message = usable(message::read(row, delivery::WIDTH + 1))?;
            records.extend(message.map(|logged| dead_lettered(&logged.message, &letter)));
        }
        letters.push(letter);
    }
    if !letters.is_empty() {
        move_here(client, &letters).await?;
        finish::buried(client, letters.iter().map(|it| (&it.delivery, it.reason)), now).await?;
        park::ended(client, &[], &letters, now).await?;
    }
    Ok((letters.len(), records))
}

/// Makes dead letters of deliveries that are locked.
pub(super) async fn move_here(client: &impl GenericClient, letters: &[DeadLetter]) -> Result<(), StoreError> {
    const MOVE: &str = "WITH ended AS ( \
             DELETE FROM delivery USING unnest($1::bigint[], $2::text[], $3::text[]) AS ended (id, tenant, reason) \
             WHERE delivery.id = ended.id \
             RETURNING delivery.*, ended.tenant, ended.reason) \
         INSERT INTO dead_letter (id, tenant, message, destination, queue, dead_letter_queue, queued_at, receives, \
             receives_max, tracking, lane, lane_number, lane_kind, lane_parks, reason, dead_at) \
         SELECT id, tenant, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, \
             tracking, lane, lane_number, lane_kind, lane_parks, reason, $4 \
         FROM ended";
    let ids: Vec<_> = letters.iter().map(|it| it.delivery.id.0).collect();
    let tenants: Vec<_> = letters.iter().map(|it| it.delivery.queue.tenant()).collect();
    let reasons: Vec<_> = letters.iter().map(DeadLetter::reason_text).collect();
    let dead_at = letters.first().map_or(0, |it| it.dead_at.0);
    let statement = client.prepare_cached(MOVE).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&ids, &tenants, &reasons, &dead_at];
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// Writes dead letters as they are.
pub(super) async fn insert(client: &impl GenericClient, letters: &[DeadLetter]) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO dead_letter (id, message, destination, queue, dead_letter_queue, queued_at, \
             receives, receives_max, tracking, lane, lane_number, lane_kind, lane_parks, tenant, reason, dead_at) \
         SELECT id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, tracking, lane, \
             lane_number, lane_kind, lane_parks, tenant, reason, dead_at \
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], \
             $7::integer[], $8::integer[], $9::smallint[], $10::text[], $11::bigint[], $12::smallint[], $13::bigint[], \
             $14::boolean[], $15::text[], $16::text[], $17::bigint[]) \
             AS new (id, message, destination, queue, dead_letter_queue, queued_at, receives, receives_max, tracking, \
             lane, lane_number, lane_kind, lane_parks, waits, tenant, reason, dead_at)";
    let mut columns = delivery::Columns::default();
    letters.iter().for_each(|letter| columns.push(&letter.delivery));
    let tenants: Vec<_> = letters.iter().map(|it| it.delivery.queue.tenant()).collect();
    let reasons: Vec<_> = letters.iter().map(DeadLetter::reason_text).collect();
    let times: Vec<_> = letters.iter().map(|it| it.dead_at.0).collect();
    let mut values = columns.values().to_vec();
    values.extend([&tenants as &(dyn ToSql + Sync), &reasons, &times]);
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// The dead letters of a tenant with these ids, in the order of the ids, kept from others until the transaction ends.
pub(super) async fn lock(
    client: &impl GenericClient,
    tenant: &str,
    ids: &[Serial],
) -> Result<Vec<DeadLetter>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS} FROM dead_letter WHERE id = ANY ($1) AND tenant = $2 ORDER BY id FOR UPDATE"
    );
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    let rows = client.query(&statement, &[&ids, &tenant]).await.map_err(sql)?;
    let mut letters = Vec::with_capacity(rows.len());
    for row in &rows {
        letters.extend(usable(read(row))?);
    }
    Ok(letters)
}

/// The number of the message that one carries.
pub(super) async fn message_of(
    client: &impl GenericClient,
    id: Serial,
) -> Result<Option<Serial>, StoreError> {
    let statement =
        client.prepare_cached("SELECT message FROM dead_letter WHERE id = $1").await.map_err(sql)?;
    let row = client.query_opt(&statement, &[&id.0]).await.map_err(sql)?;
    row.map(|row| row.try_get(0).map(Serial)).transpose().map_err(sql)
}

pub(super) async fn delete(client: &impl GenericClient, ids: &[Serial]) -> Result<(), StoreError> {
    let statement =
        client.prepare_cached("DELETE FROM dead_letter WHERE id = ANY ($1)").await.map_err(sql)?;
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    client.execute(&statement, &[&ids]).await.map(|_| ()).map_err(sql)
}

/// A page of a tenant's dead letters; those that are damaged or whose message is are told of and left out.
pub(super) async fn page(
    client: &impl GenericClient,
    tenant: &str,
    queue: Option<&QueueKey>,
    after: Serial,
    limit: usize,
) -> Result<Vec<ListedDeadLetter>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS}, {} FROM dead_letter JOIN message ON message.seq = dead_letter.message \
         WHERE dead_letter.tenant = $1 AND ($2::text IS NULL OR dead_letter.dead_letter_queue = $2) \
             AND dead_letter.id > $3 ORDER BY dead_letter.id LIMIT $4",
        message::COLUMNS
    );
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let queue = queue.map(QueueKey::as_str);
    let mut after = after.0;
    let mut found = Vec::new();
    while found.len() < limit {
        let most = MESSAGES_AT_ONCE.min(limit - found.len()) as i64;
        let rows = client.query(&statement, &[&tenant, &queue, &after, &most]).await.map_err(sql)?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0).map_err(sql)?;
        for row in &rows {
            found.extend(usable(listed(row))?);
        }
        if (rows.len() as i64) < most {
            break;
        }
    }
    Ok(found)
}

fn listed(row: &Row) -> Result<ListedDeadLetter, StoreError> {
    let (letter, logged) = (read(row)?, message::read(row, COLUMNS_COUNT)?);
    let Message { id, source, correlation, .. } = logged.message;
    Ok(ListedDeadLetter { letter, message_id: id, source, correlation })
}

/// A dead-letter queue's dead letters, each with the queue it came from; their messages are not asked.
pub(super) async fn origins(
    client: &impl GenericClient,
    queue: &QueueKey,
    after: Serial,
    limit: usize,
) -> Result<Vec<DeadLetterOrigin>, StoreError> {
    let origins = format!(
        "SELECT id, queue, destination FROM dead_letter WHERE dead_letter_queue = $1 AND id > $2 \
         AND {REDRIVABLE} ORDER BY id LIMIT $3"
    );
    let statement = client.prepare_cached(&origins).await.map_err(sql)?;
    let rows = client.query(&statement, &[&queue.as_str(), &after.0, &(limit as i64)]).await.map_err(sql)?;
    let read = |row: &Row| {
        let (queue, destination) = (QueueKey::stored(row.try_get(1)?), row.try_get::<_, &str>(2)?.into());
        Ok(DeadLetterOrigin { id: Serial(row.try_get(0)?), queue, destination })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// How many of a dead-letter queue's dead letters have claims that are in doubt, by destination.
pub(super) async fn in_doubt(
    client: &impl GenericClient,
    queue: &QueueKey,
) -> Result<Vec<(Arc<str>, usize)>, StoreError> {
    let statement = client.prepare_cached(DEAD_LETTERS_IN_DOUBT).await.map_err(sql)?;
    let rows = client.query(&statement, &[&queue.as_str()]).await.map_err(sql)?;
    let read = |row: &Row| {
        let count = usize::try_from(row.try_get::<_, i64>(1)?).unwrap_or_default();
        Ok((row.try_get::<_, &str>(0)?.into(), count))
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// One dead letter of a tenant with its message.
pub(super) async fn find(
    client: &impl GenericClient,
    tenant: &str,
    id: Serial,
) -> Result<Option<StoredDeadLetter>, StoreError> {
    let text = format!(
        "SELECT {COLUMNS}, {} FROM dead_letter JOIN message ON message.seq = dead_letter.message \
         WHERE dead_letter.id = $1 AND dead_letter.tenant = $2",
        message::COLUMNS
    );
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let row = client.query_opt(&statement, &[&id.0, &tenant]).await.map_err(sql)?;
    let stored = |row: &Row| {
        Ok(StoredDeadLetter { letter: read(row)?, message: message::read(row, COLUMNS_COUNT)?.message })
    };
    row.as_ref().map(stored).transpose()
}

/// How many dead letters gathered in each of these queues.
pub(super) async fn counts(client: &impl GenericClient) -> Result<Vec<(QueueKey, u64)>, StoreError> {
    const COUNTS: &str = "SELECT dead_letter_queue, count(*) FROM dead_letter GROUP BY dead_letter_queue";
    let statement = client.prepare_cached(COUNTS).await.map_err(sql)?;
    let rows = client.query(&statement, &[]).await.map_err(sql)?;
    let read = |row: &Row| Ok((QueueKey::stored(row.try_get(0)?), row.try_get::<_, i64>(1)?.unsigned_abs()));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// Whether dead letters gathered in a queue.
pub(super) async fn any(client: &impl GenericClient, queue: &QueueKey) -> Result<bool, StoreError> {
    const ANY: &str = "SELECT EXISTS (SELECT FROM dead_letter WHERE dead_letter_queue = $1)";
    let statement = client.prepare_cached(ANY).await.map_err(sql)?;
    let row = client.query_one(&statement, &[&queue.as_str()]).await.map_err(sql)?;
    row.try_get(0).map_err(sql)
}

/// How many dead letters gathered in a queue.
pub(super) async fn count(client: &impl GenericClient, queue: &QueueKey) -> Result<u64, StoreError> {
    const COUNT: &str = "SELECT count(*) FROM dead_letter WHERE dead_letter_queue = $1";
    let statement = client.prepare_cached(COUNT).await.map_err(sql)?;
    let row = client.query_one(&statement, &[&queue.as_str()]).await.map_err(sql)?;
    row.try_get::<_, i64>(0).map(i64::unsigned_abs).map_err(sql)
}
