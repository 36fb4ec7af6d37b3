//! The end of what is kept for an audit: claims with `hot_until` whose time is over go with their message and their
//! answer, on the record, and not while a hold is on them (CLM-18).

use snavio_model::claim::ClaimKey;
use snavio_model::limits;
use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::audit;
use super::client::{Client, GenericClient};
use super::hold::HELD;
use super::horizon::BLOCK;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::archive::{DESTINATIONS_MAX, Expired, used_again};

/// Of a message `old` under an id: whether anything but claims needs it.
fn is_needed() -> String {
    format!(
        "EXISTS (SELECT FROM delivery WHERE id > old.message AND id <= old.message + {DESTINATIONS_MAX} \
             AND delivery.message = old.message) \
         OR EXISTS (SELECT FROM dead_letter WHERE id > old.message AND id <= old.message + {DESTINATIONS_MAX} \
             AND dead_letter.message = old.message) \
         OR EXISTS (SELECT FROM conflict WHERE event_id = old.id AND conflict.tenant = old.tenant \
             AND original = old.message AND state IN ('OPEN', 'TRIAGED'))"
    )
}

/// Deletes up to `limit` claims. One whose message is in the archive stays while nobody has decided what its id means:
/// without it the message would not be found.
pub(super) async fn sweep(client: &mut Client, now: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let select = format!(
        "SELECT id, tenant, destination, message, delivery, archived_at IS NOT NULL FROM claim \
         WHERE hot_until IS NOT NULL AND expires_at <= $1 AND status NOT IN (0, 2) AND NOT {HELD} \
         AND (archived_at IS NULL OR NOT EXISTS (SELECT FROM conflict WHERE event_id = claim.id \
             AND conflict.tenant = claim.tenant AND original = claim.message AND state IN ('OPEN', 'TRIAGED'))) \
         ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED"
    );
    const CLAIMS: &str = "DELETE FROM claim USING unnest($1::text[], $2::text[], $3::text[]) \
             AS old (id, tenant, destination) \
         WHERE claim.id = old.id AND claim.tenant = old.tenant AND claim.destination = old.destination";
    const ANSWERS: &str = "DELETE FROM answer WHERE delivery = ANY ($1)";
    let messages_of = format!(
        "DELETE FROM message USING unnest($1::bigint[], $2::text[], $3::text[]) AS old (message, id, tenant) \
         WHERE message.seq = old.message AND message.id = old.id AND message.tenant = old.tenant \
         AND NOT EXISTS (SELECT FROM claim WHERE claim.id = old.id AND claim.tenant = old.tenant \
             AND claim.message = old.message) \
         AND NOT ({})",
        is_needed()
    );
    let transaction = client.transaction().await.map_err(sql)?;
    // Not at the very end: a batch that was judged before it may still be on its way (CLM-20).
    let before = now.minus(limits::CLAIM_KEEP_SLACK);
    let statement = transaction.prepare_cached(&select).await.map_err(sql)?;
    let rows = transaction.query(&statement, &[&before.0, &(limit as i64)]).await.map_err(sql)?;
    if rows.is_empty() {
        return Ok(0);
    }
    let mut expired = Expired::default();
    let (mut ids, mut tenants, mut destinations, mut answers) = (vec![], vec![], vec![], vec![]);
    let (mut messages, mut message_ids, mut message_tenants) = (vec![], vec![], vec![]);
    for row in &rows {
        let text = |column: usize| row.try_get::<_, &str>(column).map_err(sql);
        let (id, tenant, destination) = (text(0)?, text(1)?, text(2)?);
        expired.add(id, tenant, destination);
        ids.push(id);
        tenants.push(tenant);
        destinations.push(destination);
        answers.extend(row.try_get::<_, Option<i64>>(4).map_err(sql)?);
        if !row.try_get::<_, bool>(5).map_err(sql)? {
            messages.push(row.try_get::<_, i64>(3).map_err(sql)?);
            message_ids.push(id);
            message_tenants.push(tenant);
        }
    }
    let gone = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    transaction.execute(CLAIMS, &[&ids, &tenants, &destinations]).await.map_err(sql)?;
    expired.answers = gone(transaction.execute(ANSWERS, &[&answers]).await.map_err(sql)?);
    let values: [&(dyn ToSql + Sync); 3] = [&messages, &message_ids, &message_tenants];
    expired.messages = gone(transaction.execute(&messages_of, &values).await.map_err(sql)?);
    if let Some((act, deed)) = expired.deed(now) {
        audit::append(&transaction, &act, &[deed]).await?;
    }
    transaction.commit().await.map_err(sql)?;
    Ok(expired.claims)
}

/// Deletes a claim whose time is over and whose id is used again, by one statement. False if a hold is on it.
pub(super) async fn make_way(
    client: &impl GenericClient,
    key: &ClaimKey,
    now: Timestamp,
) -> Result<bool, Trouble> {
    let expire = format!(
        "WITH old AS (DELETE FROM claim WHERE id = $1 AND tenant = $2 AND destination = $3 \
                 AND hot_until IS NOT NULL AND expires_at <= $4 AND status NOT IN (0, 2) AND NOT {HELD} \
             RETURNING id, tenant, destination, message, delivery, archived_at), \
         answers AS (DELETE FROM answer USING old WHERE answer.delivery = old.delivery), \
         messages AS (DELETE FROM message USING old WHERE message.seq = old.message AND old.archived_at IS NULL \
             AND NOT EXISTS (SELECT FROM claim WHERE claim.id = old.id AND claim.tenant = old.tenant \
                 AND claim.message = old.message AND claim.destination <> old.destination) \
             AND NOT ({needed})), \
         block AS MATERIALIZED ({BLOCK} FROM old) \
         INSERT INTO audit (seq, at, who, why, action, object, outcome, check_value) \
         SELECT base + 1, $4, $5, $6, $7, $8, $9, $10 + base + 1 FROM block",
        needed = is_needed()
    );
    let (act, deed) = used_again(key, now);
    let check = audit::check_value(&act, deed.action, &deed.object, &deed.outcome);
    let (id, tenant, destination) = (key.id.as_str(), key.tenant.as_str(), &*key.destination);
    let values: [&(dyn ToSql + Sync); 10] = [
        &id,
        &tenant,
        &destination,
        &now.0,
        &act.who,
        &act.why,
        &deed.action,
        &deed.object,
        &deed.outcome,
        &check,
    ];
    let statement = client.prepare_cached(&expire).await.map_err(Trouble::of)?;
    if client.execute(&statement, &values).await.map_err(Trouble::of)? == 1 {
        return Ok(true);
    }
    let held = format!(
        "SELECT EXISTS (SELECT FROM claim WHERE id = $1 AND tenant = $2 AND destination = $3 AND {HELD})"
    );
    let row = client.query_one(&held, &[&id, &tenant, &destination]).await.map_err(Trouble::of)?;
    Ok(!row.try_get::<_, bool>(0).map_err(Trouble::of)?)
}
