//! The end of what is kept for an audit: claims with `hot_until` whose time is over go with their message and their
//! answer, on the record, and not while a hold is on them (CLM-18).

use rusqlite::{Connection, params};
use snavio_model::claim::ClaimKey;
use snavio_model::time::Timestamp;

use super::hold::HELD;
use super::writer::{Transaction, sql};
use super::{audit, claim, erase, known};
use crate::StoreError;
use crate::archive::{DESTINATIONS_MAX, Expired};

/// A claim whose time is over, as far as deleting it must know it.
struct Over {
    id: String,
    tenant: String,
    destination: String,
    message: i64,
    delivery: Option<i64>,
    is_archived: bool,
}

/// Deletes up to `limit` claims. One whose message is in the archive stays while nobody has decided what its id means:
/// without it the message would not be found.
pub(super) fn sweep(
    transaction: &mut Transaction<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let which = format!(
        "hot_until IS NOT NULL AND expires_at <= ?1 AND status NOT IN (0, 2) AND NOT {HELD} \
         AND (archived_at IS NULL OR NOT EXISTS (SELECT 1 FROM conflict WHERE event_id = claim.id \
             AND conflict.tenant = claim.tenant AND original = claim.message AND state IN ('OPEN', 'TRIAGED'))) \
         ORDER BY expires_at LIMIT ?2"
    );
    let over = select(transaction.connection, &which, params![now.0, limit as i64]).map_err(sql)?;
    expire(transaction, &over, now)
}

/// Deletes a claim whose id is used again, before another takes its place.
pub(super) fn make_way(
    transaction: &mut Transaction<'_>,
    key: &ClaimKey,
    now: Timestamp,
) -> Result<(), StoreError> {
    let which = format!("{} AND hot_until IS NOT NULL", claim::KEY);
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![known::digest(id, tenant), id, tenant, key.destination];
    let over = select(transaction.connection, &which, values).map_err(sql)?;
    expire(transaction, &over, now).map(|_| ())
}

/// Whether a hold is on a claim that is there.
pub(super) fn is_held(connection: &Connection, key: &ClaimKey) -> rusqlite::Result<bool> {
    let query = format!("SELECT EXISTS (SELECT 1 FROM claim WHERE {} AND {HELD})", claim::KEY);
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![known::digest(id, tenant), id, tenant, key.destination];
    connection.prepare_cached(&query)?.query_row(values, |row| row.get(0))
}

fn select(
    connection: &Connection,
    which: &str,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<Vec<Over>> {
    let query = format!(
        "SELECT id, tenant, destination, message, delivery, archived_at IS NOT NULL FROM claim WHERE {which}"
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
        })
    })?;
    rows.collect()
}

/// Deletes claims and what goes with them, in one entry of the record.
fn expire(transaction: &mut Transaction<'_>, over: &[Over], now: Timestamp) -> Result<usize, StoreError> {
    let mut expired = Expired::default();
    if !over.is_empty() {
        let connection = transaction.connection;
        let delete = |it| delete(connection, it, &mut expired).map_err(sql);
        erase::overwriting(connection, || over.iter().try_for_each(delete))?;
    }
    if let Some((act, deed)) = expired.deed(now) {
        audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
    }
    Ok(expired.claims)
}

fn delete(connection: &Connection, over: &Over, expired: &mut Expired) -> rusqlite::Result<()> {
    let claim = format!("DELETE FROM claim WHERE {} RETURNING id, tenant, number", claim::KEY);
    const ANSWER: &str = "DELETE FROM answer WHERE delivery = ?1";
    let Over { id, tenant, destination, message, delivery, is_archived } = over;
    let values = params![known::digest(id, tenant), id, tenant, destination];
    known::delete(connection, known::Kind::Claim, &claim, values)?;
    expired.add(id, tenant, destination);
    if let Some(delivery) = delivery {
        expired.answers += connection.prepare_cached(ANSWER)?.execute([delivery])?;
    }
    if !is_archived {
        expired.messages += delete_message(connection, *message, id, tenant)?;
    }
    Ok(())
}

/// Deletes a message that nothing needs any more: no other claim, no delivery, no dead letter, no open conflict.
fn delete_message(connection: &Connection, message: i64, id: &str, tenant: &str) -> rusqlite::Result<usize> {
    let delete = format!(
        "DELETE FROM message WHERE seq = ?1 AND id = ?2 AND tenant = ?3 \
         AND NOT EXISTS (SELECT 1 FROM claim WHERE number IN \
             (SELECT number FROM known_id WHERE digest = ?4 AND kind = 0) AND id = ?2 AND tenant = ?3 AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM delivery WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM dead_letter WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1) \
         AND NOT EXISTS (SELECT 1 FROM conflict WHERE event_id = ?2 AND tenant = ?3 AND original = ?1 \
             AND state IN ('OPEN', 'TRIAGED'))"
    );
    connection.prepare_cached(&delete)?.execute(params![message, id, tenant, known::digest(id, tenant)])
}
