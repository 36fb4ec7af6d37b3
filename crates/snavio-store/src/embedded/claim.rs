//! Claims: table `claim`, keyed by id, tenant and destination, with an index by expiry.
//!
//! `check_value` covers every other column, as in the message log.

use rusqlite::{CachedStatement, Connection, params};
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::Serial;
use snavio_model::name::ServiceName;
use snavio_model::time::Timestamp;

use super::check::Check;
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
        let Some(row) = rows.next().map_err(sql)? else { return Ok(None) };
        let damaged = || StoreError::Damaged { what: "claim", key: key.id.to_string() };
        let source = row.get_ref(0).map_err(sql)?;
        let claim = Claim {
            source: source.as_str().ok().and_then(|it| ServiceName::new(it).ok()).ok_or_else(damaged)?,
            message: Serial(row.get(1).map_err(sql)?),
            first_seen_at: Timestamp(row.get(2).map_err(sql)?),
            expires_at: Timestamp(row.get(3).map_err(sql)?),
        };
        let check: i64 = row.get(4).map_err(sql)?;
        if check != check_value(key, &claim) {
            return Err(damaged());
        }
        Ok(Some(claim))
    }
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
