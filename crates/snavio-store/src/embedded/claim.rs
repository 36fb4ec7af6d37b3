//! Claims: table `claim`, keyed by id, tenant and destination, with an index by expiry.
//!
//! `check_value` covers every other column, as in the message log.

use rusqlite::{CachedStatement, Connection, Row, params};
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::time::Timestamp;

use super::check::{self, Check, unreadable};
use super::writer::sql;
use crate::StoreError;

/// Looks claims up.
pub(super) struct Find<'a>(CachedStatement<'a>);

impl<'a> Find<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        const FIND: &str = "SELECT source, message, first_seen_at, expires_at, check_value FROM claim \
             WHERE id = ?1 AND tenant = ?2 AND destination = ?3";
        connection.prepare_cached(FIND).map(Self)
    }

    pub(super) fn run(&mut self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let parameters = (key.id.as_str(), key.tenant.as_str(), &key.destination);
        let mut rows = self.0.query(parameters).map_err(sql)?;
        rows.next().map_err(sql)?.map(|row| read(row, key)).transpose()
    }
}

/// Hands out all claims in the order of their keys.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(ClaimKey, Claim), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    const ALL: &str = "SELECT source, message, first_seen_at, expires_at, check_value, id, tenant, destination \
         FROM claim ORDER BY id, tenant, destination";
    let whole = |row: &Row<'_>| {
        let id = row.get_ref(5).map_err(sql)?;
        let id = String::from_utf8_lossy(id.as_bytes().unwrap_or_default()).into_owned();
        let key = stored_key(row).map_err(|error| unreadable(error, "claim", &id))?;
        let key = key.ok_or(StoreError::Damaged { what: "claim", key: id })?;
        let claim = read(row, &key)?;
        Ok((key, claim))
    };
    check::each(connection, ALL, whole, take)
}

fn stored_key(row: &Row<'_>) -> rusqlite::Result<Option<ClaimKey>> {
    let tenant = TenantName::new(row.get_ref(6)?.as_str()?).ok();
    let (id, destination) = (row.get_ref(5)?.as_str()?, row.get_ref(7)?.as_str()?);
    Ok(tenant.map(|tenant| ClaimKey { tenant, id: MessageId::stored(id), destination: destination.into() }))
}

fn read(row: &Row<'_>, key: &ClaimKey) -> Result<Claim, StoreError> {
    let damaged = || StoreError::Damaged { what: "claim", key: key.id.to_string() };
    let fields = fields(row).map_err(|error| unreadable(error, "claim", &key.id))?;
    let (claim, check) = fields.ok_or_else(damaged)?;
    if check != check_value(key, &claim) {
        return Err(damaged());
    }
    Ok(claim)
}

/// Reads a row's columns; nothing if one of them is not what only this store could have written.
fn fields(row: &Row<'_>) -> rusqlite::Result<Option<(Claim, i64)>> {
    let Ok(source) = ServiceName::new(row.get_ref(0)?.as_str()?) else { return Ok(None) };
    let claim = Claim {
        source,
        message: Serial(row.get(1)?),
        first_seen_at: Timestamp(row.get(2)?),
        expires_at: Timestamp(row.get(3)?),
    };
    Ok(Some((claim, row.get(4)?)))
}

/// Writes claims; one that has expired is replaced.
pub(super) struct Put<'a>(CachedStatement<'a>);

impl<'a> Put<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        const PUT: &str = "INSERT OR REPLACE INTO claim \
             (id, tenant, destination, source, message, first_seen_at, expires_at, check_value) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        connection.prepare_cached(PUT).map(Self)
    }

    pub(super) fn run(&mut self, key: &ClaimKey, claim: &Claim) -> rusqlite::Result<()> {
        let values = params![
            key.id.as_str(),
            key.tenant.as_str(),
            key.destination,
            claim.source.as_str(),
            claim.message.0,
            claim.first_seen_at.0,
            claim.expires_at.0,
            check_value(key, claim),
        ];
        self.0.execute(values).map(|_| ())
    }
}

/// Deletes up to `limit` claims whose time is over.
pub(super) fn sweep(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<usize> {
    const SWEEP: &str = "DELETE FROM claim WHERE (id, tenant, destination) IN \
         (SELECT id, tenant, destination FROM claim WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    connection.prepare_cached(SWEEP)?.execute((now.0, limit as i64))
}

fn check_value(key: &ClaimKey, claim: &Claim) -> i64 {
    let mut check = Check::default();
    for text in [key.id.as_str(), key.tenant.as_str(), &key.destination, claim.source.as_str()] {
        check.bytes(text.as_bytes());
    }
    for number in [claim.message.0, claim.first_seen_at.0, claim.expires_at.0] {
        check.number(number);
    }
    check.value()
}
