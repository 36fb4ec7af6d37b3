//! Claims: table `claim`, in the order in which they were made, with an index by expiry. Id, tenant and destination are
//! their key: they are found through their id's digest (`known.rs`), and the one writer sees to it that there is one of each.
//!
//! `check_value` covers every other column, as in the message log, but for how often an id came again, where it is
//! in the archive and when it was erased.

use rusqlite::{CachedStatement, Connection, Row, params};
use snavio_model::claim::{Claim, ClaimKey, IdKey, Progress, Status};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::time::Timestamp;

use super::check::{self, Check, unreadable, usable};
use super::writer::sql;
use super::{known, message, original};
use crate::api::archive::Aside;
use crate::engine::expiry::{AUDITED, EXPIRES};
use crate::{StoreError, StoredClaim};

/// The columns that [`read`] and [`whole`] read.
const COLUMNS: &str = "source, message, first_seen_at, expires_at, check_value, hot_until, delivery, status, fence, \
     attempts, ended_at, reference, error, id, tenant, destination";

/// Claims that are looked through in one reading: a long one would keep the log from starting over.
pub(super) const CLAIMS_READ_AT_ONCE: usize = 50_000;

/// What a row has besides, behind them.
const ASIDE: &str = "repeats, last_seen_at, archived_at, archive, erased_at";

/// The claim of a key, whose parameters are the digest, the id, the tenant and the destination. There is at most one. A
/// scalar subquery, since for `IN` SQLite builds a temporary table at each run.
pub(super) const KEY: &str = "number = (SELECT found.number FROM known_id \
     CROSS JOIN claim AS found ON found.number = known_id.number \
     WHERE digest = ?1 AND kind = 0 AND found.id = ?2 AND found.tenant = ?3 AND found.destination = ?4)";

/// Looks claims up.
pub(super) struct Find<'a>(CachedStatement<'a>);

impl<'a> Find<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        // A join, and not `IN`: for that SQLite makes a table of its own each time.
        let query = format!(
            "SELECT {COLUMNS} FROM known_id CROSS JOIN claim ON claim.number = known_id.number \
             WHERE digest = ?1 AND kind = 0 AND id = ?2 AND tenant = ?3 AND destination = ?4"
        );
        connection.prepare_cached(&query).map(Self)
    }

    pub(super) fn run(&mut self, key: &ClaimKey) -> Result<Option<Claim>, StoreError> {
        let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
        let values = params![known::digest(id, tenant), id, tenant, key.destination];
        let mut rows = self.0.query(values).map_err(sql)?;
        rows.next().map_err(sql)?.map(|row| read(row, key)).transpose()
    }
}

/// Hands out all claims in the order in which they were made.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<(ClaimKey, Claim), StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let all = format!("SELECT {COLUMNS} FROM claim ORDER BY number");
    check::each(connection, &all, whole, take)
}

/// The claim that waits for a delivery.
pub(super) fn of_delivery(
    connection: &Connection,
    delivery: Serial,
) -> Result<Option<(ClaimKey, Claim)>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM claim WHERE delivery = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([delivery.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(whole).transpose()
}

/// A claim with its key.
fn whole(row: &Row<'_>) -> Result<(ClaimKey, Claim), StoreError> {
    let id = row.get_ref(13).map_err(sql)?;
    let id = String::from_utf8_lossy(id.as_bytes().unwrap_or_default()).into_owned();
    let key = stored_key(row).map_err(|error| unreadable(error, "claim", &id))?;
    let key = key.ok_or(StoreError::Damaged { what: "claim", key: id })?;
    let claim = read(row, &key)?;
    Ok((key, claim))
}

/// Claims with what their lists show.
pub(super) fn listed(
    connection: &Connection,
    which: &str,
    values: &[&dyn rusqlite::ToSql],
    limit: usize,
) -> Result<Vec<StoredClaim>, StoreError> {
    let query = format!("SELECT {COLUMNS}, {ASIDE} FROM claim WHERE {which}");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query(values).map_err(sql)?;
    check::page(&mut rows, limit, |row| {
        let (key, claim) = whole(row)?;
        stored(connection, row, key, claim)
    })
}

/// Claims that are wanted, in the order of their messages, and the message after which to go on: one reading looks through a
/// bounded number of them, and ends between two messages.
pub(super) fn some_listed(
    connection: &Connection,
    which: &str,
    values: &[&dyn rusqlite::ToSql],
    limit: usize,
    wanted: impl Fn(&ClaimKey, &Claim) -> bool,
) -> Result<(Vec<StoredClaim>, Option<Serial>), StoreError> {
    let query = format!("SELECT {COLUMNS}, {ASIDE} FROM claim WHERE {which}");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query(values).map_err(sql)?;
    let (mut found, mut looked_at, mut last) = (Vec::new(), 0, None);
    while found.len() < limit
        && let Some(row) = rows.next().map_err(sql)?
    {
        let Some((key, claim)) = usable(whole(row))? else { continue };
        if looked_at >= CLAIMS_READ_AT_ONCE && last != Some(claim.message) {
            return Ok((found, last));
        }
        looked_at += 1;
        last = Some(claim.message);
        if wanted(&key, &claim) {
            found.extend(usable(stored(connection, row, key, claim))?);
        }
    }
    Ok((found, None))
}

/// A claim of [`listed`], with the rest of its row and what its message says.
fn stored(
    connection: &Connection,
    row: &Row<'_>,
    key: ClaimKey,
    claim: Claim,
) -> Result<StoredClaim, StoreError> {
    let of_row = |row: &Row<'_>| {
        Ok((
            row.get::<_, i64>(16)?.unsigned_abs(),
            row.get::<_, Option<i64>>(17)?.map(Timestamp),
            row.get::<_, Option<i64>>(18)?.map(Timestamp),
            row.get(19)?,
            row.get::<_, Option<i64>>(20)?.map(Timestamp),
        ))
    };
    let (repeats, last_seen_at, archived_at, archive, erased_at) =
        of_row(row).map_err(|error| unreadable(error, "claim", &key.id))?;
    let message = message::find_usable(connection, claim.message)?;
    let (hash, correlation) =
        message.map(|logged| (logged.message.domain_hash, logged.message.correlation)).unzip();
    let hash = hash.map_or_else(|| archived_hash(connection, &key), |hash| Ok(Some(hash)))?;
    Ok(StoredClaim {
        key,
        claim,
        hash,
        correlation,
        repeats,
        last_seen_at,
        archived_at,
        archive,
        erased_at,
        held: None,
    })
}

/// What the message of a claim says that is in the archive: that stays.
fn archived_hash(connection: &Connection, key: &ClaimKey) -> Result<Option<DomainHash>, StoreError> {
    let id = IdKey { id: key.id.clone(), tenant: key.tenant.clone() };
    let known = usable(original::find(connection, &id))?.flatten();
    Ok(known.map(|it| it.hash))
}

/// All claims under an id, whether their time is over or not, with what they have besides. A damaged one is an error.
pub(super) fn of_id(connection: &Connection, id: &IdKey) -> Result<Vec<(Claim, Aside)>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS}, {ASIDE} FROM known_id CROSS JOIN claim ON claim.number = known_id.number \
             WHERE digest = ?1 AND kind = 0 AND id = ?2 AND tenant = ?3 ORDER BY destination"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let (id, tenant) = (id.id.as_str(), id.tenant.as_str());
    let mut rows = statement.query((known::digest(id, tenant), id, tenant)).map_err(sql)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        let (key, claim) = whole(row)?;
        found.push((claim, aside(row, key)?));
    }
    Ok(found)
}

/// Hands out what claims have besides themselves, of those that have anything.
pub(super) fn each_aside(
    connection: &Connection,
    take: impl FnMut(Result<Aside, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let all = format!(
        "SELECT {COLUMNS}, {ASIDE} FROM claim WHERE repeats > 0 OR archived_at IS NOT NULL \
             OR erased_at IS NOT NULL ORDER BY number"
    );
    check::each(connection, &all, |row| whole(row).and_then(|(key, _)| aside(row, key)), take)
}

fn aside(row: &Row<'_>, key: ClaimKey) -> Result<Aside, StoreError> {
    let fields = |row: &Row<'_>, key: ClaimKey| {
        Ok(Aside {
            key,
            message: Serial(row.get(1)?),
            repeats: row.get(16)?,
            last_seen_at: row.get(17)?,
            archived_at: row.get(18)?,
            archive: row.get(19)?,
            erased_at: row.get(20)?,
        })
    };
    let id = key.id.clone();
    fields(row, key).map_err(|error| unreadable(error, "claim", id))
}

fn stored_key(row: &Row<'_>) -> rusqlite::Result<Option<ClaimKey>> {
    let tenant = TenantName::new(row.get_ref(14)?.as_str()?).ok();
    let (id, destination) = (row.get_ref(13)?.as_str()?, row.get_ref(15)?.as_str()?);
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
        hot_until: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        progress: match row.get::<_, Option<i64>>(6)? {
            None => None,
            Some(delivery) => {
                let Some(status) = Status::stored(row.get(7)?) else { return Ok(None) };
                let progress = Progress {
                    status,
                    fence: row.get::<_, Option<i64>>(8)?.map(Serial),
                    attempts: row.get(9)?,
                    ended_at: row.get::<_, Option<i64>>(10)?.map(Timestamp),
                    reference: row.get(11)?,
                    ..Progress::new(Serial(delivery))
                };
                Some(Box::new(progress.with_error_text(row.get(12)?)))
            }
        },
    };
    Ok(Some((claim, row.get(4)?)))
}

/// Writes new claims. One whose place they take was deleted before (`retention.rs`).
pub(super) struct Put<'a> {
    connection: &'a Connection,
    insert: CachedStatement<'a>,
}

impl<'a> Put<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        const INSERT: &str = "INSERT INTO claim \
             (id, tenant, destination, source, message, first_seen_at, expires_at, check_value, hot_until, delivery, \
             status, fence, attempts, ended_at, reference, error) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
        connection.prepare_cached(INSERT).map(|insert| Self { connection, insert })
    }

    pub(super) fn run(&mut self, key: &ClaimKey, claim: &Claim) -> rusqlite::Result<()> {
        let progress = claim.progress.as_deref();
        let values = params![
            key.id.as_str(),
            key.tenant.as_str(),
            key.destination,
            claim.source.as_str(),
            claim.message.0,
            claim.first_seen_at.0,
            claim.expires_at.0,
            check_value(key, claim),
            claim.hot_until.map(|it| it.0),
            progress.map(|it| it.delivery.0),
            claim.status().number(),
            progress.and_then(|it| it.fence).map(|it| it.0),
            progress.map_or(0, |it| it.attempts),
            progress.and_then(|it| it.ended_at).map(|it| it.0),
            progress.and_then(|it| it.reference.as_deref()),
            progress.and_then(Progress::error_text),
        ];
        self.insert.execute(values)?;
        let id = (key.id.as_str(), key.tenant.as_str());
        known::note(self.connection, known::Kind::Claim, id, self.connection.last_insert_rowid())
    }
}

/// Writes what became of a claim that is there.
pub(super) fn update(connection: &Connection, key: &ClaimKey, claim: &Claim) -> rusqlite::Result<()> {
    let update = format!(
        "UPDATE claim SET check_value = ?5, status = ?6, fence = ?7, attempts = ?8, ended_at = ?9, \
         reference = ?10, error = ?11, expires_at = ?12 WHERE {KEY}"
    );
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let progress = claim.progress.as_deref();
    let values = params![
        known::digest(id, tenant),
        id,
        tenant,
        key.destination,
        check_value(key, claim),
        claim.status().number(),
        progress.and_then(|it| it.fence).map(|it| it.0),
        progress.map_or(0, |it| it.attempts),
        progress.and_then(|it| it.ended_at).map(|it| it.0),
        progress.and_then(|it| it.reference.as_deref()),
        progress.and_then(Progress::error_text),
        claim.expires_at.0,
    ];
    connection.prepare_cached(&update)?.execute(values).map(|_| ())
}

/// Counts that an id came again.
pub(super) fn seen_again(
    connection: &Connection,
    key: &ClaimKey,
    repeats: u64,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let again = format!(
        "UPDATE claim SET repeats = repeats + ?5, last_seen_at = max(coalesce(last_seen_at, 0), ?6) WHERE {KEY}"
    );
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![known::digest(id, tenant), id, tenant, key.destination, repeats as i64, at.0];
    connection.prepare_cached(&again)?.execute(values).map(|_| ())
}

/// Deletes up to `limit` claims whose time is over, with their answers, where nothing is held. Those that are kept for an
/// audit go on the record (`retention.rs`).
pub(super) fn sweep(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<usize> {
    let over = format!(
        "FROM claim WHERE expires_at <= ?1 AND {EXPIRES} AND NOT {AUDITED} ORDER BY expires_at LIMIT ?2"
    );
    let answers = format!(
        "DELETE FROM answer WHERE delivery IN (SELECT delivery FROM (SELECT delivery {over}) WHERE delivery IS NOT NULL)"
    );
    let sweep =
        format!("DELETE FROM claim WHERE number IN (SELECT number {over}) RETURNING id, tenant, number");
    connection.prepare_cached(&answers)?.execute((now.0, limit as i64))?;
    known::delete(connection, known::Kind::Claim, &sweep, params![now.0, limit as i64])
}

fn check_value(key: &ClaimKey, claim: &Claim) -> i64 {
    let mut check = Check::default();
    for text in [key.id.as_str(), key.tenant.as_str(), &key.destination, claim.source.as_str()] {
        check.bytes(text.as_bytes());
    }
    for number in [claim.message.0, claim.first_seen_at.0, claim.expires_at.0] {
        check.number(number);
    }
    if let Some(progress) = &claim.progress {
        check.number(progress.delivery.0);
    }
    check.progress(claim);
    check.value()
}
