//! What ids mean: table `original`, in the order in which they were given, with an index by expiry. Id and tenant are the
//! key: they are found through their digest (`known.rs`).

use rusqlite::{Connection, Row, params};
use snavio_model::claim::{IdKey, Original};
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::time::Timestamp;

use super::check::{self, unreadable};
use super::known;
use super::writer::sql;
use crate::StoreError;
use crate::evidence::of_original;

const COLUMNS: &str = "source, message, hash, expires_at, check_value, hash_version, id, tenant";

/// The meaning of an id, whose parameters are the digest, the id and the tenant.
const KEY: &str =
    "number IN (SELECT number FROM known_id WHERE digest = ?1 AND kind = 1) AND id = ?2 AND tenant = ?3";

pub(super) fn find(connection: &Connection, key: &IdKey) -> Result<Option<Original>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM original WHERE {KEY}");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let mut rows = statement.query((known::digest(id, tenant), id, tenant)).map_err(sql)?;
    rows.next().map_err(sql)?.map(|row| read(row, key)).transpose()
}

/// Hands out all of them in the order in which they were given.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(IdKey, Original), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let whole = |row: &Row<'_>| {
        let id = row.get_ref(6).map_err(sql)?;
        let id = String::from_utf8_lossy(id.as_bytes().unwrap_or_default()).into_owned();
        let tenant = row.get_ref(7).map_err(sql)?.as_str().ok().and_then(|it| TenantName::new(it).ok());
        let tenant = tenant.ok_or_else(|| StoreError::Damaged { what: "original", key: id.clone() })?;
        let key = IdKey { id: MessageId::stored(&id), tenant };
        let original = read(row, &key)?;
        Ok((key, original))
    };
    check::each(connection, &format!("SELECT {COLUMNS} FROM original ORDER BY number"), whole, take)
}

fn read(row: &Row<'_>, key: &IdKey) -> Result<Original, StoreError> {
    let damaged = || StoreError::Damaged { what: "original", key: key.id.to_string() };
    let fields = fields(row).map_err(|error| unreadable(error, "original", &key.id))?;
    let (original, check) = fields.ok_or_else(damaged)?;
    if check != of_original(key, &original).wrapping_add(original.message.0) {
        return Err(damaged());
    }
    Ok(original)
}

fn fields(row: &Row<'_>) -> rusqlite::Result<Option<(Original, i64)>> {
    let Ok(source) = ServiceName::new(row.get_ref(0)?.as_str()?) else { return Ok(None) };
    let (hash, version): (Vec<u8>, u16) = (row.get(2)?, row.get(5)?);
    let Some(hash) = hash.try_into().ok().filter(|_| version == HASH_VERSION) else { return Ok(None) };
    let (message, expires_at) = (Serial(row.get(1)?), Timestamp(row.get(3)?));
    Ok(Some((Original { source, message, hash: DomainHash(hash), expires_at }, row.get(4)?)))
}

/// Writes what an id means; what it meant before is replaced.
pub(super) fn put(connection: &Connection, key: &IdKey, original: &Original) -> rusqlite::Result<()> {
    const PUT: &str = "INSERT INTO original \
         (id, tenant, source, message, hash_version, hash, expires_at, check_value) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let old = format!("DELETE FROM original WHERE {KEY} RETURNING id, tenant, number");
    let values = params![known::digest(id, tenant), id, tenant];
    known::delete(connection, known::Kind::Original, &old, values)?;
    let values = params![
        id,
        tenant,
        original.source.as_str(),
        original.message.0,
        HASH_VERSION,
        &original.hash.0[..],
        original.expires_at.0,
        of_original(key, original).wrapping_add(original.message.0),
    ];
    connection.prepare_cached(PUT)?.execute(values)?;
    known::note(connection, known::Kind::Original, (id, tenant), connection.last_insert_rowid())
}

/// Deletes up to `limit` whose time is over; not while a claim is there that is kept for an audit.
pub(super) fn sweep(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<usize> {
    const SWEEP: &str = "DELETE FROM original WHERE number IN \
         (SELECT number FROM original WHERE expires_at <= ?1 AND NOT EXISTS \
             (SELECT 1 FROM claim WHERE claim.number IN (SELECT known_id.number FROM known_id \
                  WHERE digest = snavio_digest(original.id, original.tenant) AND kind = 0) \
              AND claim.id = original.id AND claim.tenant = original.tenant AND claim.hot_until IS NOT NULL) \
          ORDER BY expires_at LIMIT ?2) RETURNING id, tenant, number";
    known::delete(connection, known::Kind::Original, SWEEP, params![now.0, limit as i64])
}
