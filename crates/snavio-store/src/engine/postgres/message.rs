//! The message log: table `message`, append-only.
//!
//! `check_value` is the CRC-32 of every other column but the number, plus the number: the number is given by the
//! statement that writes the row (QUA-1).

use bytes::Bytes;
use snavio_model::bounds;
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, ServiceName, TenantName};
use snavio_model::settle::Intake;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::sql;
use crate::record::check_value::{Check, event, key_version, usable};
use crate::{LoggedMessage, StoreError, Use};

/// The columns that [`read`] reads.
pub(super) const COLUMNS: &str = "message.seq, message.tenant, message.id, message.source, message.target, \
     message.name, message.signed_target, message.sent_at, message.key_version, message.signature, \
     message.correlation_id, message.traceparent, message.received_at, message.registry_version, \
     message.hash_version, message.domain_hash, message.path, message.settled_at, message.payload, \
     message.check_value, message.event";
/// How many they are.
pub(super) const COLUMN_COUNT: usize = 21;

/// Messages as columns, to be written by one statement, with numbers counted from a base that only the statement
/// knows.
#[derive(Default)]
pub(super) struct Columns<'a> {
    number: Vec<i64>,
    tenant: Vec<&'a str>,
    id: Vec<&'a str>,
    source: Vec<&'a str>,
    target: Vec<&'a str>,
    name: Vec<&'a str>,
    signed_target: Vec<&'a str>,
    sent_at: Vec<&'a str>,
    key_version: Vec<&'a str>,
    signature: Vec<&'a str>,
    correlation: Vec<&'a str>,
    traceparent: Vec<&'a str>,
    received_at: Vec<i64>,
    settled_at: Vec<i64>,
    registry_version: Vec<i64>,
    hash_version: Vec<i32>,
    domain_hash: Vec<&'a [u8]>,
    path: Vec<&'a str>,
    payload: Vec<&'a [u8]>,
    check: Vec<i64>,
    event: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    pub(super) fn push(&mut self, number: Serial, intake: &'a Intake, path: Path, settled_at: Timestamp) {
        self.put(number, &intake.message, path, settled_at, HASH_VERSION);
    }

    fn put(
        &mut self,
        number: Serial,
        message: &'a Message,
        path: Path,
        settled_at: Timestamp,
        hash_version: u16,
    ) {
        self.number.push(number.0);
        self.tenant.push(message.tenant.as_str());
        self.id.push(message.id.as_str());
        self.source.push(message.source.as_str());
        self.target.push(message.target.as_str());
        self.name.push(message.name.as_str());
        self.signed_target.push(&message.signed_target);
        self.sent_at.push(&message.sent_at);
        self.key_version.push(message.key_text());
        self.signature.push(&message.signature);
        self.correlation.push(message.correlation.as_str());
        self.traceparent.push(message.traceparent.as_str());
        self.received_at.push(message.received_at.0);
        self.settled_at.push(settled_at.0);
        self.registry_version.push(message.registry_version);
        self.hash_version.push(i32::from(hash_version));
        self.domain_hash.push(&message.domain_hash.0);
        self.path.push(path.as_str());
        self.payload.push(&message.payload);
        self.check.push(check_value(message, path, settled_at, hash_version));
        self.event.push(message.event.as_ref().map(|event| event.to_text()));
    }

    /// What events have besides: the last of a statement's parameters.
    pub(super) fn events(&self) -> &(dyn ToSql + Sync) {
        &self.event
    }

    /// The rest, in the order of the statement's parameters.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); COLUMN_COUNT - 1] {
        [
            &self.number,
            &self.tenant,
            &self.id,
            &self.source,
            &self.target,
            &self.name,
            &self.signed_target,
            &self.sent_at,
            &self.key_version,
            &self.signature,
            &self.correlation,
            &self.traceparent,
            &self.received_at,
            &self.settled_at,
            &self.registry_version,
            &self.hash_version,
            &self.domain_hash,
            &self.path,
            &self.payload,
            &self.check,
        ]
    }
}

/// Writes messages that have their numbers already, each with the version of its hash.
pub(super) async fn insert(
    client: &impl GenericClient,
    messages: &[(LoggedMessage, u16)],
) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO message (seq, tenant, id, source, target, name, signed_target, sent_at, \
             key_version, signature, correlation_id, traceparent, received_at, settled_at, registry_version, \
             hash_version, domain_hash, path, payload, check_value, event) \
         SELECT number, tenant, id, source, target, name, signed_target, sent_at, key_version, signature, \
             correlation_id, traceparent, received_at, settled_at, registry_version, hash_version, domain_hash, \
             path, payload, check_value + number, event \
         FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], \
             $15::bigint[], $16::integer[], $17::bytea[], $18::text[], $19::bytea[], $20::bigint[], \
             $21::text[]) \
             AS old (number, tenant, id, source, target, name, signed_target, sent_at, key_version, signature, \
             correlation_id, traceparent, received_at, settled_at, registry_version, hash_version, domain_hash, \
             path, payload, check_value, event)";
    let mut columns = Columns::default();
    for (logged, hash_version) in messages {
        columns.put(logged.number, &logged.message, logged.path, logged.settled_at, *hash_version);
    }
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    let mut values = columns.values().to_vec();
    values.push(columns.events());
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// The message with this number, if it can be used; a damaged one is told of and left out.
pub(super) async fn find(
    client: &impl GenericClient,
    number: Serial,
) -> Result<Option<LoggedMessage>, StoreError> {
    usable(find_intact(client, number).await).map(Option::flatten)
}

/// The message with this number. A damaged one is an error.
pub(super) async fn find_intact(
    client: &impl GenericClient,
    number: Serial,
) -> Result<Option<LoggedMessage>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM message WHERE seq = $1");
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let row = client.query_opt(&statement, &[&number.0]).await.map_err(sql)?;
    row.map(|row| read(&row, 0)).transpose()
}

/// The messages with these numbers, each with the version of its hash; damaged ones are told of and left out.
pub(super) async fn find_all(
    client: &impl GenericClient,
    numbers: &[Serial],
) -> Result<Vec<(LoggedMessage, u16)>, StoreError> {
    let mut found = Vec::new();
    for read in read_all(client, numbers).await? {
        found.extend(usable(read)?);
    }
    Ok(found)
}

/// The messages with these numbers, each with the version of its hash. A damaged one is an error.
pub(super) async fn find_all_intact(
    client: &impl GenericClient,
    numbers: &[Serial],
) -> Result<Vec<(LoggedMessage, u16)>, StoreError> {
    read_all(client, numbers).await?.into_iter().collect()
}

async fn read_all(
    client: &impl GenericClient,
    numbers: &[Serial],
) -> Result<Vec<Result<(LoggedMessage, u16), StoreError>>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM message WHERE seq = ANY ($1) ORDER BY seq");
    let numbers: Vec<_> = numbers.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let rows = client.query(&statement, &[&numbers]).await.map_err(sql)?;
    Ok(rows.iter().map(|row| read_versioned(row, 0)).collect())
}

/// Writes a message that is there without what it said (CLM-18).
pub(super) async fn erase(
    client: &impl GenericClient,
    logged: LoggedMessage,
    hash_version: u16,
) -> Result<(), StoreError> {
    const ERASE: &str = "UPDATE message SET payload = ''::bytea, event = $2, check_value = $3 WHERE seq = $1";
    let LoggedMessage { number, path, settled_at, message } = logged;
    let message = message.erased();
    let event = message.event.as_ref().map(|event| event.to_text());
    let check = check_value(&message, path, settled_at, hash_version).wrapping_add(number.0);
    client.execute(ERASE, &[&number.0, &event, &check]).await.map(|_| ()).map_err(sql)
}

/// What a tenant's services sent before a number, newest first.
pub(super) async fn uses(
    client: &impl GenericClient,
    tenant: &str,
    before: Serial,
    limit: usize,
) -> Result<Vec<Use>, StoreError> {
    const USES: &str = "SELECT seq, id, source, target, name, key_version, correlation_id, registry_version, settled_at, \
         event IS NOT NULL FROM message WHERE tenant = $1 AND seq < $2 AND path <> 'conflict' ORDER BY seq DESC LIMIT $3";
    let statement = client.prepare_cached(USES).await.map_err(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = client.query(&statement, &[&tenant, &before.0, &limit]).await.map_err(sql)?;
    rows.iter().filter_map(|row| read_use(row).transpose()).collect::<Result<_, _>>().map_err(sql)
}

/// Nothing of a row whose names are none.
fn read_use(row: &Row) -> Result<Option<Use>, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, &str>(column);
    let names = (text(2)?.parse(), text(3)?.parse(), text(4)?.parse(), key_version(text(5)?));
    let (Ok(source), Ok(target), Ok(name), Ok(key_version)) = names else { return Ok(None) };
    let Some(correlation) = CorrelationId::new(text(6)?) else { return Ok(None) };
    Ok(Some(Use {
        number: Serial(row.try_get(0)?),
        kind: if row.try_get(9)? { MessageKind::Event } else { MessageKind::Command },
        id: MessageId::stored(text(1)?),
        source,
        target,
        name,
        key_version,
        correlation,
        registry_version: row.try_get(7)?,
        settled_at: Timestamp(row.try_get(8)?),
    }))
}

/// Reads a message from a row, whose columns begin at a place.
pub(super) fn read(row: &Row, first: usize) -> Result<LoggedMessage, StoreError> {
    read_versioned(row, first).map(|(logged, _)| logged)
}

fn read_versioned(row: &Row, first: usize) -> Result<(LoggedMessage, u16), StoreError> {
    let number = Serial(row.try_get(first).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "message", key: number.to_string() };
    let (logged, hash_version, check) = fields(row, first).map_err(sql)?.ok_or_else(damaged)?;
    let computed = check_value(&logged.message, logged.path, logged.settled_at, hash_version);
    if check != computed.wrapping_add(number.0) {
        return Err(damaged());
    }
    Ok((logged, hash_version))
}

/// Reads a row's columns; nothing if one of them is not what only this store could have written.
fn fields(row: &Row, first: usize) -> Result<Option<(LoggedMessage, u16, i64)>, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, &str>(first + column);
    let number = |column: usize| row.try_get::<_, i64>(first + column);
    let bytes = |column: usize| row.try_get::<_, &[u8]>(first + column);
    let hash: Option<[u8; 32]> = bytes(15)?.try_into().ok();
    let hash_version = u16::try_from(row.try_get::<_, i32>(first + 14)?).ok();
    let names = (
        TenantName::new(text(1)?),
        ServiceName::new(text(3)?),
        ServiceName::new(text(4)?),
        CommandName::new(text(5)?),
        key_version(text(8)?),
    );
    let traces = (CorrelationId::new(text(10)?), Traceparent::parse(text(11)?));
    let (Some(hash), Some(hash_version)) = (hash, hash_version) else { return Ok(None) };
    let (Ok(tenant), Ok(source), Ok(target), Ok(name), Ok(key_version)) = names else { return Ok(None) };
    let (Some(correlation), Some(traceparent)) = traces else { return Ok(None) };
    let Some(event) = event(row.try_get(first + 20)?) else { return Ok(None) };
    let message = Message {
        tenant,
        id: MessageId::stored(text(2)?),
        source,
        target,
        name,
        signed_target: text(6)?.into(),
        sent_at: text(7)?.into(),
        key_version,
        signature: text(9)?.into(),
        correlation,
        traceparent,
        received_at: Timestamp(number(12)?),
        registry_version: number(13)?,
        domain_hash: DomainHash(hash),
        payload: Bytes::copy_from_slice(bytes(18)?),
        event,
    };
    let logged = LoggedMessage {
        number: Serial(number(0)?),
        path: Path::stored(text(16)?),
        settled_at: Timestamp(number(17)?),
        message,
    };
    Ok(Some((logged, hash_version, number(19)?)))
}

fn check_value(message: &Message, path: Path, settled_at: Timestamp, hash_version: u16) -> i64 {
    let mut check = Check::default();
    check.message(message, path, settled_at, hash_version);
    check.value()
}

/// A page of a tenant's messages: those that can be used, and the number up to which there are no others.
pub(super) struct Page {
    pub(super) messages: Vec<LoggedMessage>,
    pub(super) complete_to: i64,
}

/// A tenant's messages after a number and up to another, up to `limit` and a page's worth of payload. Pages of which
/// nothing can be used are passed over.
pub(super) async fn page(
    client: &impl GenericClient,
    tenant: &str,
    after: Serial,
    up_to: i64,
    limit: usize,
) -> Result<Page, StoreError> {
    // The sizes are read without the payloads; the first message comes whatever its size.
    let query = format!(
        "SELECT {COLUMNS}, fit.places FROM message JOIN ( \
             SELECT seq, sum(octet_length(payload) + coalesce(octet_length(event), 0)) \
                     OVER (ORDER BY seq) AS bytes, \
                 row_number() OVER (ORDER BY seq) AS place, count(*) OVER () AS places \
             FROM (SELECT seq, payload, event FROM message WHERE tenant = $1 AND seq > $2 AND seq <= $3 \
                       AND path <> 'conflict' \
                   ORDER BY seq LIMIT $4) AS next \
         ) AS fit USING (seq) WHERE fit.bytes <= $5 OR fit.place = 1 ORDER BY message.seq"
    );
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let bytes = bounds::PAGE_BYTES_MAX as i64;
    let mut page = Page { messages: Vec::new(), complete_to: after.0 };
    while page.messages.is_empty() && page.complete_to < up_to {
        let values: [&(dyn ToSql + Sync); 5] = [&tenant, &page.complete_to, &up_to, &(limit as i64), &bytes];
        let rows = client.query(&statement, &values).await.map_err(sql)?;
        page.complete_to = complete_to(&rows, up_to, limit).map_err(sql)?;
        for row in &rows {
            page.messages.extend(usable(read(row, 0))?);
        }
    }
    Ok(page)
}

/// Up to which number these rows are all there is: the last one's, where there are more than fitted.
fn complete_to(rows: &[Row], up_to: i64, limit: usize) -> Result<i64, tokio_postgres::Error> {
    let Some(last) = rows.last() else { return Ok(up_to) };
    let places: i64 = last.try_get(COLUMN_COUNT)?;
    let all = rows.len() < limit && places == rows.len() as i64;
    if all { Ok(up_to) } else { last.try_get(0) }
}
