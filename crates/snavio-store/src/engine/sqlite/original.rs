//! What ids mean: table `original`, in the order in which they were given, with an index by expiry. Id and tenant are the
//! key: they are found through their digest (`known.rs`).

use rusqlite::{Connection, Row, params};
use snavio_model::archive::hold::InForce;
use snavio_model::claim::{IdKey, Original};
use snavio_model::hash::{DomainHash, HASH_VERSION};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::time::Timestamp;

use super::check::{self, unreadable};
use super::known;
use super::writer::sql;
use crate::StoreError;
use crate::engine::expiry::{Walk, keeps_meaning};
use crate::record::check_value::of_original;

const COLUMNS: &str = "source, message, hash, expires_at, check_value, hash_version, id, tenant";

/// The meaning of an id, whose parameters are the digest, the id and the tenant.
const KEY: &str = "number = (SELECT found.number FROM known_id CROSS JOIN original AS found ON found.number = known_id.number \
     WHERE digest = ?1 AND kind = 1 AND found.id = ?2 AND found.tenant = ?3)";

pub(super) fn find(connection: &Connection, key: &IdKey) -> Result<Option<Original>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM known_id CROSS JOIN original ON original.number = known_id.number \
         WHERE digest = ?1 AND kind = 1 AND id = ?2 AND tenant = ?3"
    );
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
    if known::is_there(connection, known::Kind::Original, (id, tenant))? {
        let old = format!("DELETE FROM original WHERE {KEY} RETURNING id, tenant, number");
        let values = params![known::digest(id, tenant), id, tenant];
        known::delete(connection, known::Kind::Original, &old, values)?;
    }
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

/// Looks at up to `limit` whose time is over, where it was before, and deletes them; not while a claim is there that needs
/// them or is held.
pub(super) fn sweep(
    connection: &Connection,
    walk: &mut Walk,
    holds: &InForce,
    now: Timestamp,
    limit: usize,
) -> rusqlite::Result<usize> {
    // Where something is held, every claim that is still there is.
    let keeps = match holds.is_empty() {
        true => keeps_meaning("?2"),
        false => "true".to_owned(),
    };
    let over = format!(
        "SELECT number, expires_at, EXISTS (SELECT 1 FROM claim WHERE claim.number IN \
                 (SELECT known_id.number FROM known_id \
                  WHERE digest = snavio_digest(original.id, original.tenant) AND kind = 0) \
             AND claim.id = original.id AND claim.tenant = original.tenant AND {keeps}) \
         FROM original WHERE expires_at >= ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3 OFFSET ?4"
    );
    let (from, behind) = walk.from(holds, now);
    let mut statement = connection.prepare_cached(&over)?;
    let rows = statement.query_map(params![from, now.0, limit as i64, behind], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let found = rows.collect::<Result<Vec<(i64, i64, bool)>, _>>()?;
    walk.passed(found.iter().map(|(_, expires_at, stays)| (*expires_at, *stays)), limit);
    const DELETE: &str = "DELETE FROM original WHERE number = ?1 RETURNING id, tenant, number";
    let mut deleted = 0;
    for (number, ..) in found.iter().filter(|(.., stays)| !stays) {
        deleted += known::delete(connection, known::Kind::Original, DELETE, params![number])?;
    }
    Ok(deleted)
}
