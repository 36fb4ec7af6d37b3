//! The end of claims: not while a hold is on them (CLM-18). Those that are kept for an audit go with their message and
//! their answer, on the record.

use foldhash::{HashSet, HashSetExt};
use snavio_model::archive::hold::InForce;
use snavio_model::bounds;
use snavio_model::claim::ClaimKey;
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::pool::{Trouble, sql};
use super::{audit, claim, hold, original};
use crate::StoreError;
use crate::api::archive::{DESTINATIONS_MAX, Expired};
use crate::engine::expiry::{AUDITED, ById, KEEPS_CLAIM, Looked, Walk, Walks, needs_claim, needs_original};
use crate::record::check_value::usable;

const BY_ID: ById = ById { claims: "", originals: "" };

/// Of a message `old` under an id: whether anything but claims needs it, at a time that is this parameter.
fn is_needed(now: &str) -> String {
    format!(
        "EXISTS (SELECT FROM delivery WHERE id > old.message AND id <= old.message + {DESTINATIONS_MAX} \
             AND delivery.message = old.message) \
         OR EXISTS (SELECT FROM dead_letter WHERE id > old.message AND id <= old.message + {DESTINATIONS_MAX} \
             AND dead_letter.message = old.message) \
         OR EXISTS (SELECT FROM conflict WHERE event_id = old.id AND conflict.tenant = old.tenant \
             AND original = old.message AND {})",
        needs_original(now)
    )
}

/// Deletes up to `limit` claims and meanings whose time is over; nothing where what is held cannot be known.
pub(super) async fn sweep(
    client: &mut Client,
    walks: &mut Walks,
    now: Timestamp,
    limit: usize,
) -> Result<Looked, StoreError> {
    let transaction = client.transaction().await.map_err(sql)?;
    let Some(holds) = usable(hold::in_force_to_the_end(&transaction).await)? else {
        return Ok(Looked::default());
    };
    let short = if holds.is_empty() { claim::sweep(&transaction, now, limit).await? } else { 0 };
    // Behind many of the short-lived ones, those that are kept for an audit are not looked for.
    let claims = match short >= limit {
        true => 0,
        false => sweep_on(&transaction, &mut walks.claims, &holds, now, limit).await?,
    };
    let originals = original::sweep(&transaction, &mut walks.originals, &holds, now, limit).await?;
    transaction.commit().await.map_err(sql)?;
    let deleted = short.max(claims).max(originals);
    Ok(Looked { deleted, is_behind: short >= limit || !walks.are_at_end() })
}

/// Looks at up to `limit` claims whose time is over, where it was before: all of them where something is held, and those
/// that are kept for an audit where nothing is. Within a transaction.
async fn sweep_on(
    client: &impl GenericClient,
    walk: &mut Walk,
    holds: &InForce,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let which = format!(
        "WHERE expires_at >= $2 AND expires_at <= $1 AND NOT {KEEPS_CLAIM} AND {} \
         ORDER BY expires_at LIMIT $3 OFFSET $4 FOR UPDATE SKIP LOCKED",
        if holds.is_empty() { AUDITED } else { "true" }
    );
    // Not at the very end: a batch that was judged before it may still be on its way (CLM-20).
    let before = now.minus(bounds::CLAIM_KEEP_SLACK);
    let (from, behind) = walk.from(holds, now);
    let values: [&(dyn ToSql + Sync); 4] = [&before.0, &from, &(limit as i64), &behind];
    let rows = select(client, &which, &values).await?;
    let over = rows.iter().map(Over::read).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    let stays = |it: &Over<'_>| it.is_needed || holds.on(it.id, it.tenant, it.destination).is_some();
    walk.passed(over.iter().map(|it| (it.expires_at, stays(it))), limit);
    let over: Vec<_> = over.into_iter().filter(|it| !stays(it)).collect();
    if !over.is_empty() {
        expire(client, &over, now).await?;
    }
    Ok(over.len())
}

/// A claim whose time is over, as far as deleting it must know it.
struct Over<'a> {
    id: &'a str,
    tenant: &'a str,
    destination: &'a str,
    message: i64,
    delivery: Option<i64>,
    is_archived: bool,
    expires_at: i64,
    is_audited: bool,
    is_needed: bool,
}

impl<'a> Over<'a> {
    fn read(row: &'a Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            tenant: row.try_get(1)?,
            destination: row.try_get(2)?,
            message: row.try_get(3)?,
            delivery: row.try_get(4)?,
            is_archived: row.try_get(5)?,
            expires_at: row.try_get(6)?,
            is_audited: row.try_get(7)?,
            is_needed: row.try_get(8)?,
        })
    }
}

/// Deletes claims and what goes with them, and puts on record what was kept for an audit.
async fn expire(client: &impl GenericClient, over: &[Over<'_>], now: Timestamp) -> Result<(), StoreError> {
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
        is_needed("$4::bigint")
    );
    let gone = |rows: u64| usize::try_from(rows).unwrap_or(usize::MAX);
    let ids: Vec<_> = over.iter().map(|it| it.id).collect();
    let tenants: Vec<_> = over.iter().map(|it| it.tenant).collect();
    let destinations: Vec<_> = over.iter().map(|it| it.destination).collect();
    client.execute(CLAIMS, &[&ids, &tenants, &destinations]).await.map_err(sql)?;
    let (audited, short): (Vec<_>, Vec<_>) = over.iter().partition(|it| it.is_audited);
    let answers: Vec<_> = short.iter().filter_map(|it| it.delivery).collect();
    client.execute(ANSWERS, &[&answers]).await.map_err(sql)?;
    let mut expired = Expired::default();
    audited.iter().for_each(|it| expired.add(it.id, it.tenant, it.destination));
    let answers: Vec<_> = audited.iter().filter_map(|it| it.delivery).collect();
    expired.answers = gone(client.execute(ANSWERS, &[&answers]).await.map_err(sql)?);
    let here: Vec<_> = audited.iter().filter(|it| !it.is_archived).collect();
    let messages: Vec<_> = here.iter().map(|it| it.message).collect();
    let ids: Vec<_> = here.iter().map(|it| it.id).collect();
    let tenants: Vec<_> = here.iter().map(|it| it.tenant).collect();
    let values: [&(dyn ToSql + Sync); 4] = [&messages, &ids, &tenants, &now.0];
    expired.messages = gone(client.execute(&messages_of, &values).await.map_err(sql)?);
    let (act, deeds) = expired.deeds(now);
    if deeds.is_empty() { Ok(()) } else { audit::append(client, &act, &deeds).await }
}

/// Those of some claims whose time is over that must stay all the same.
pub(super) async fn needed(
    client: &impl GenericClient,
    over: &[&ClaimKey],
    now: Timestamp,
) -> Result<HashSet<ClaimKey>, Trouble> {
    if over.is_empty() {
        return Ok(HashSet::new());
    }
    let query = format!(
        "SELECT key.place FROM unnest($1::text[], $2::text[], $3::text[]) \
             WITH ORDINALITY AS key (id, tenant, destination, place) \
         JOIN claim USING (id, tenant, destination) WHERE {}",
        needs_claim("$4", &BY_ID)
    );
    let (ids, tenants, destinations) = claim::columns(over.iter().copied());
    let statement = client.prepare_cached(&query).await.map_err(Trouble::of)?;
    let rows = client.query(&statement, &[&ids, &tenants, &destinations, &now.0]).await;
    let mut needed = HashSet::new();
    for row in &rows.map_err(Trouble::of)? {
        let place: i64 = row.try_get(0).map_err(Trouble::of)?;
        let key = usize::try_from(place - 1).ok().and_then(|place| over.get(place));
        needed.extend(key.map(|key| ClaimKey::clone(key)));
    }
    Ok(needed)
}

/// Deletes claims that are kept for an audit, whose time is over and whose ids are used again. Within a transaction.
pub(super) async fn make_way(
    client: &impl GenericClient,
    keys: &[&ClaimKey],
    now: Timestamp,
) -> Result<(), StoreError> {
    let which = format!(
        "JOIN unnest($2::text[], $3::text[], $4::text[]) AS key (id, tenant, destination) \
             USING (id, tenant, destination) \
         WHERE {AUDITED} AND expires_at <= $1 AND NOT {KEEPS_CLAIM} FOR UPDATE OF claim SKIP LOCKED"
    );
    let (ids, tenants, destinations) = claim::columns(keys.iter().copied());
    let values: [&(dyn ToSql + Sync); 4] = [&now.0, &ids, &tenants, &destinations];
    let rows = select(client, &which, &values).await?;
    let over = rows.iter().map(Over::read).collect::<Result<Vec<_>, _>>().map_err(sql)?;
    let over: Vec<_> = over.into_iter().filter(|it| !it.is_needed).collect();
    if over.is_empty() { Ok(()) } else { expire(client, &over, now).await }
}

/// Claims as [`Over`] reads them, at a time that is the first parameter.
async fn select(
    client: &impl GenericClient,
    which: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    let select = format!(
        "SELECT id, tenant, destination, message, delivery, archived_at IS NOT NULL, expires_at, {AUDITED}, {} \
         FROM claim {which}",
        needs_claim("$1", &BY_ID)
    );
    let statement = client.prepare_cached(&select).await.map_err(sql)?;
    client.query(&statement, values).await.map_err(sql)
}
