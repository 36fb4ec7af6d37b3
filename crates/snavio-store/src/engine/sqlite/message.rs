//! The message log: table `message`, append-only, numbered by serial, with an index by tenant.
//!
//! `check_value` is the CRC-32 of every other column in order, each preceded by its length, so that a damaged
//! row is noticed when it is read (QUA-1).

use std::ops::ControlFlow;

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, Row, ToSql, params};
use snavio_model::bounds;
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::{CorrelationId, Traceparent};
use snavio_model::message::{Message, MessageKind, Path};
use snavio_model::name::{CommandName, ServiceName, TenantName};
use snavio_model::time::Timestamp;

use super::check::{self, unreadable, usable};
use super::writer::sql;
use crate::record::check_value::{event, key_version};
use crate::{LoggedMessage, StoreError, Use};

const COLUMNS: &str = "seq, tenant, id, source, target, name, signed_target, sent_at, key_version, signature, \
     correlation_id, traceparent, received_at, registry_version, hash_version, domain_hash, path, \
     settled_at, payload, check_value, event";

/// What the store adds to a message.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) number: Serial,
    pub(super) path: Path,
    pub(super) settled_at: Timestamp,
}

/// Appends messages in one transaction.
pub(super) struct Insert<'a>(CachedStatement<'a>);

impl<'a> Insert<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        const INSERT: &str = "INSERT INTO message (seq, tenant, id, source, target, name, signed_target, sent_at, \
             key_version, signature, correlation_id, traceparent, received_at, registry_version, hash_version, \
             domain_hash, path, settled_at, payload, check_value, event) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";
        connection.prepare_cached(INSERT).map(Self)
    }

    pub(super) fn run(&mut self, head: Head, message: &Message) -> rusqlite::Result<()> {
        let values: &[&dyn ToSql] = params![
            head.number.0,
            message.tenant.as_str(),
            message.id.as_str(),
            message.source.as_str(),
            message.target.as_str(),
            message.name.as_str(),
            message.signed_target,
            message.sent_at,
            message.key_text(),
            message.signature,
            message.correlation.as_str(),
            message.traceparent.as_str(),
            message.received_at.0,
            message.registry_version,
            HASH_VERSION,
            &message.domain_hash.0[..],
            head.path.as_str(),
            head.settled_at.0,
            &message.payload[..],
            check_value(head, HASH_VERSION, message),
            message.event.as_ref().map(|event| event.to_text()),
        ];
        self.0.execute(values).map(|_| ())
    }
}

/// The message with this number. A damaged one is an error.
pub(super) fn find(connection: &Connection, number: Serial) -> Result<Option<LoggedMessage>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM message WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([number.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(read).transpose()
}

/// The message with this number and the version of its hash. A damaged one is an error.
pub(super) fn find_versioned(
    connection: &Connection,
    number: Serial,
) -> Result<Option<(LoggedMessage, u16)>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM message WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([number.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(read_versioned).transpose()
}

/// Writes a message that is there without what it said (CLM-18).
pub(super) fn erase(
    connection: &Connection,
    logged: LoggedMessage,
    hash_version: u16,
) -> rusqlite::Result<()> {
    const ERASE: &str = "UPDATE message SET payload = x'', event = ?2, check_value = ?3 WHERE seq = ?1";
    let head = Head { number: logged.number, path: logged.path, settled_at: logged.settled_at };
    let message = logged.message.erased();
    let event = message.event.as_ref().map(|event| event.to_text());
    let values = params![head.number.0, event, check_value(head, hash_version, &message)];
    connection.prepare_cached(ERASE)?.execute(values).map(|_| ())
}

/// The message with this number, if it can be used; a damaged one is told of and left out.
pub(super) fn find_usable(
    connection: &Connection,
    number: Serial,
) -> Result<Option<LoggedMessage>, StoreError> {
    usable(find(connection, number)).map(Option::flatten)
}

/// A tenant's messages after a number, up to `limit` and a page's worth of payload.
pub(super) fn of_tenant(
    connection: &Connection,
    tenant: &str,
    after: Serial,
    limit: usize,
) -> Result<Vec<LoggedMessage>, StoreError> {
    let mut room = bounds::PAGE_BYTES_MAX;
    let mut found: Vec<LoggedMessage> = Vec::new();
    each_of_tenant(connection, tenant, after, |logged| {
        let bytes = logged.message.content_bytes();
        if found.len() == limit || (bytes > room && !found.is_empty()) {
            return ControlFlow::Break(());
        }
        room = room.saturating_sub(bytes);
        found.push(logged);
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// What a tenant's services sent before a number, newest first.
pub(super) fn uses(
    connection: &Connection,
    tenant: &str,
    before: Serial,
    limit: usize,
) -> Result<Vec<Use>, StoreError> {
    const USES: &str = "SELECT seq, id, source, target, name, key_version, correlation_id, registry_version, settled_at, \
         event IS NOT NULL FROM message WHERE tenant = ?1 AND seq < ?2 AND path <> 'conflict' ORDER BY seq DESC LIMIT ?3";
    let mut statement = connection.prepare_cached(USES).map_err(sql)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![tenant, before.0, limit], read_use).map_err(sql)?;
    rows.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(sql)
}

/// Nothing of a row whose names are none.
fn read_use(row: &Row<'_>) -> rusqlite::Result<Option<Use>> {
    let text = |column| row.get::<_, String>(column);
    let names = (text(2)?.parse(), text(3)?.parse(), text(4)?.parse(), key_version(&text(5)?));
    let (Ok(source), Ok(target), Ok(name), Ok(key_version)) = names else { return Ok(None) };
    let Some(correlation) = CorrelationId::new(&text(6)?) else { return Ok(None) };
    Ok(Some(Use {
        number: Serial(row.get(0)?),
        kind: if row.get(9)? { MessageKind::Event } else { MessageKind::Command },
        id: MessageId::stored(&text(1)?),
        source,
        target,
        name,
        key_version,
        correlation,
        registry_version: row.get(7)?,
        settled_at: Timestamp(row.get(8)?),
    }))
}

/// Hands out a tenant's messages after a number one by one, so that none is held that is not wanted, until told
/// to stop; damaged ones are told of and left out.
pub(super) fn each_of_tenant(
    connection: &Connection,
    tenant: &str,
    after: Serial,
    mut each: impl FnMut(LoggedMessage) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM message WHERE tenant = ?1 AND seq > ?2 \
         AND path <> 'conflict' ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query(params![tenant, after.0]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        if let Some(logged) = usable(read(row))?
            && each(logged).is_break()
        {
            break;
        }
    }
    Ok(())
}

/// Hands out all messages in the order of their numbers, each with the version of its hash.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(LoggedMessage, u16), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    check::each(connection, &format!("SELECT {COLUMNS} FROM message ORDER BY seq"), read_versioned, take)
}

/// When the newest message was received.
pub(super) fn newest_at(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let query = "SELECT received_at FROM message ORDER BY seq DESC LIMIT 1";
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query([])?;
    rows.next()?.map(|row| row.get(0).map(Timestamp)).transpose()
}

fn read(row: &Row<'_>) -> Result<LoggedMessage, StoreError> {
    read_versioned(row).map(|(logged, _)| logged)
}

fn read_versioned(row: &Row<'_>) -> Result<(LoggedMessage, u16), StoreError> {
    let number = Serial(row.get(0).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "message", key: number.to_string() };
    let fields = fields(row).map_err(|error| unreadable(error, "message", number))?;
    let (logged, hash_version, check) = fields.ok_or_else(damaged)?;
    let head = Head { number: logged.number, path: logged.path, settled_at: logged.settled_at };
    if check != check_value(head, hash_version, &logged.message) {
        return Err(damaged());
    }
    Ok((logged, hash_version))
}

/// Reads a row's columns; nothing if one of them is not what only this store could have written.
fn fields(row: &Row<'_>) -> rusqlite::Result<Option<(LoggedMessage, u16, i64)>> {
    let text = |column: usize| text(row, column);
    let hash: Option<[u8; 32]> = row.get_ref(15)?.as_blob()?.try_into().ok();
    let names = (
        TenantName::new(text(1)?),
        ServiceName::new(text(3)?),
        ServiceName::new(text(4)?),
        CommandName::new(text(5)?),
        key_version(text(8)?),
    );
    let traces = (CorrelationId::new(text(10)?), Traceparent::parse(text(11)?));
    let (Some(hash), (Ok(tenant), Ok(source), Ok(target), Ok(name), Ok(key_version))) = (hash, names) else {
        return Ok(None);
    };
    let (Some(correlation), Some(traceparent)) = traces else { return Ok(None) };
    let Some(event) = event(row.get_ref(20)?.as_str_or_null()?) else { return Ok(None) };
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
        received_at: Timestamp(row.get(12)?),
        registry_version: row.get(13)?,
        domain_hash: DomainHash(hash),
        payload: Bytes::copy_from_slice(row.get_ref(18)?.as_blob()?),
        event,
    };
    let logged = LoggedMessage {
        number: Serial(row.get(0)?),
        path: Path::stored(text(16)?),
        settled_at: Timestamp(row.get(17)?),
        message,
    };
    Ok(Some((logged, row.get(14)?, row.get(19)?)))
}

fn text<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r str> {
    Ok(row.get_ref(column)?.as_str()?)
}

fn check_value(head: Head, hash_version: u16, message: &Message) -> i64 {
    let mut check = super::check::Check::default();
    check.number(head.number.0);
    check.message(message, head.path, head.settled_at, hash_version);
    check.value()
}
