//! The end of claims: not while a hold is on them (CLM-18). Those that are kept for an audit go with their message and
//! their answer, on the record.

use rusqlite::{Connection, OptionalExtension, params};
use snavio_model::archive::hold::InForce;
use snavio_model::claim::ClaimKey;
use snavio_model::time::Timestamp;

use super::check::usable;
use super::writer::{Transaction, sql};
use super::{audit, claim, erase, hold, known, original};
use crate::StoreError;
use crate::api::archive::{DESTINATIONS_MAX, Expired};
use crate::engine::expiry::{AUDITED, ById, EXPIRES, Looked, Walk, Walks, needs_claim, needs_original};

const BY_ID: ById = ById {
    claims: "other.number IN (SELECT known_id.number FROM known_id \
         WHERE digest = snavio_digest(claim.id, claim.tenant) AND kind = 0) AND",
    originals: "original.number IN (SELECT known_id.number FROM known_id \
         WHERE digest = snavio_digest(claim.id, claim.tenant) AND kind = 1) AND",
};

/// A claim whose time is over, as far as deleting it must know it.
struct Over {
    id: String,
    tenant: String,
    destination: String,
    message: i64,
    delivery: Option<i64>,
    is_archived: bool,
    expires_at: i64,
    is_audited: bool,
    is_needed: bool,
}

/// Deletes up to `limit` claims and meanings whose time is over; nothing where what is held cannot be known.
pub(super) fn sweep(
    transaction: &mut Transaction<'_>,
    walks: &mut Walks,
    now: Timestamp,
    limit: usize,
) -> Result<Looked, StoreError> {
    let connection = transaction.connection;
    let Some(holds) = usable(hold::in_force(connection))? else { return Ok(Looked::default()) };
    let short = if holds.is_empty() { claim::sweep(connection, now, limit).map_err(sql)? } else { 0 };
    // Behind many of the short-lived ones, those that are kept for an audit are not looked for.
    let is_behind = short >= limit;
    let claims = if is_behind { 0 } else { sweep_on(transaction, &mut walks.claims, &holds, now, limit)? };
    let originals = original::sweep(connection, &mut walks.originals, &holds, now, limit).map_err(sql)?;
    transaction.dirty |= short + claims + originals > 0;
    let deleted = short.max(claims).max(originals);
    Ok(Looked { deleted, is_behind: short >= limit || !walks.are_at_end() })
}

/// Looks at up to `limit` claims whose time is over, where it was before: all of them where something is held, and those
/// that are kept for an audit where nothing is.
fn sweep_on(
    transaction: &mut Transaction<'_>,
    walk: &mut Walk,
    holds: &InForce,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let which = format!(
        "expires_at >= ?2 AND expires_at <= ?1 AND {EXPIRES} AND {} ORDER BY expires_at LIMIT ?3 OFFSET ?4",
        if holds.is_empty() { AUDITED } else { "true" }
    );
    let (from, behind) = walk.from(holds, now);
    let values = params![now.0, from, limit as i64, behind];
    let mut over = select(transaction.connection, &which, values).map_err(sql)?;
    let stays = |it: &Over| it.is_needed || holds.on(&it.id, &it.tenant, &it.destination).is_some();
    walk.passed(over.iter().map(|it| (it.expires_at, stays(it))), limit);
    over.retain(|it| !stays(it));
    expire(transaction, &over, now)?;
    Ok(over.len())
}

/// Whether a claim whose time is over must stay all the same.
pub(super) fn is_needed(connection: &Connection, key: &ClaimKey, now: Timestamp) -> rusqlite::Result<bool> {
    let query = format!("SELECT {} FROM claim WHERE {}", needs_claim("?5", &BY_ID), claim::KEY);
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![known::digest(id, tenant), id, tenant, key.destination, now.0];
    let found = connection.prepare_cached(&query)?.query_row(values, |row| row.get(0)).optional()?;
    Ok(found.unwrap_or(false))
}

/// Deletes a claim whose id is used again, before another takes its place.
pub(super) fn make_way(
    transaction: &mut Transaction<'_>,
    key: &ClaimKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let which = "number = (SELECT found.number FROM known_id CROSS JOIN claim AS found ON found.number = known_id.number \
         WHERE digest = ?5 AND kind = 0 AND found.id = ?2 AND found.tenant = ?3 AND found.destination = ?4)";
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![now.0, id, tenant, key.destination, known::digest(id, tenant)];
    let over = select(transaction.connection, which, values).map_err(sql)?;
    expire(transaction, &over, now)
}

fn select(
    connection: &Connection,
    which: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Over>> {
    let query = format!(
        "SELECT id, tenant, destination, message, delivery, archived_at IS NOT NULL, expires_at, {AUDITED}, {} \
         FROM claim WHERE {which}",
        needs_claim("?1", &BY_ID)
    );
    let mut statement = connection.prepare_cached(&query)?;
    let rows = statement.query_map(values, |row| {
        Ok(Over {
            id: row.get(0)?,
            tenant: row.get(1)?,
            destination: row.get(2)?,
            message: row.get(3)?,
            delivery: row.get(4)?,
            is_archived: row.get(5)?,
            expires_at: row.get(6)?,
            is_audited: row.get(7)?,
            is_needed: row.get(8)?,
        })
    })?;
    rows.collect()
}

/// Deletes claims and what goes with them, and puts on record what was kept for an audit.
fn expire(transaction: &mut Transaction<'_>, over: &[Over], now: Timestamp) -> Result<(), StoreError> {
    let mut expired = Expired::default();
    if !over.is_empty() {
        let connection = transaction.connection;
        let delete = |it| delete(connection, it, now, &mut expired).map_err(sql);
        erase::overwriting(connection, || over.iter().try_for_each(delete))?;
    }
    let (act, deeds) = expired.deeds(now);
    for deed in deeds {
        audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
    }
    Ok(())
}

fn delete(
    connection: &Connection,
    over: &Over,
    now: Timestamp,
    expired: &mut Expired,
) -> rusqlite::Result<()> {
    const ANSWER: &str = "DELETE FROM answer WHERE delivery = ?1";
    let Over { id, tenant, destination, .. } = over;
    let claim = format!("DELETE FROM claim WHERE {} RETURNING id, tenant, number", claim::KEY);
    let values = params![known::digest(id, tenant), id, tenant, destination];
    known::delete(connection, known::Kind::Claim, &claim, values)?;
    let mut answers = 0;
    if let Some(delivery) = over.delivery {
        answers = connection.prepare_cached(ANSWER)?.execute([delivery])?;
    }
    if !over.is_audited {
        return Ok(());
    }
    expired.add(id, tenant, destination);
    expired.answers += answers;
    if !over.is_archived {
        expired.messages += delete_message(connection, over, now)?;
    }
    Ok(())
}

/// Deletes a message that nothing needs any more: no other claim, no delivery, no dead letter, no conflict.
fn delete_message(connection: &Connection, over: &Over, now: Timestamp) -> rusqlite::Result<usize> {
    let delete = format!(
        "DELETE FROM message WHERE seq = ?1 AND id = ?2 AND tenant = ?3 \
         AND NOT EXISTS (SELECT 1 FROM claim WHERE number IN \
             (SELECT number FROM known_id WHERE digest = ?5 AND kind = 0) AND id = ?2 AND tenant = ?3 AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM delivery WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM dead_letter WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM conflict WHERE event_id = ?2 AND tenant = ?3 AND original = ?1 AND {})",
        needs_original("?4")
    );
    let digest = known::digest(&over.id, &over.tenant);
    let values = params![over.message, over.id, over.tenant, now.0, digest];
    connection.prepare_cached(&delete)?.execute(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store as _;
    use crate::engine::sqlite::{EmbeddedStore, FILE, Options};

    /// CLM-19: a sweep finds what is over by its index, which leaves out what is not over at any time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_sweep_reads_through_what_stays() {
        let folder = tempfile::tempdir().unwrap();
        EmbeddedStore::open(&Options::new(folder.path())).unwrap().close().await;
        let connection = Connection::open(folder.path().join(FILE)).unwrap();
        for (from, which) in [("", format!("NOT {AUDITED}")), ("expires_at >= 0 AND", AUDITED.to_owned())] {
            let plan = format!(
                "EXPLAIN QUERY PLAN SELECT number FROM claim \
                 WHERE {from} expires_at <= 1 AND {EXPIRES} AND {which} ORDER BY expires_at LIMIT 9"
            );
            let detail: String = connection.prepare(&plan).unwrap().query_row([], |row| row.get(3)).unwrap();
            assert!(detail.contains("USING INDEX claim_by_expiry (expires_at"), "{detail}");
        }
    }
}
