//! Claims: table `claim`, keyed by id, tenant and destination.
//!
//! `check_value` is the CRC-32 of every other column but the numbers of the message and the delivery, how often the id
//! came again, where it is in the archive and when it was erased, plus those numbers (QUA-1).

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use snavio_model::bounds;
use snavio_model::claim::{Claim, ClaimKey, IdKey, Progress, Status};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::message::trace::CorrelationId;
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::settle::{self, Intake};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::lane::BEHIND;
use super::pool::{Trouble, sql};
use super::{hold, retention};
use crate::api::archive::Aside;
use crate::engine::expiry::{AUDITED, KEEPS_CLAIM, is_held};
use crate::record::check_value::{Check, alert, usable};
use crate::{HeldDelivery, StoreError, StoredClaim};

/// New claims as columns, to be written by one statement.
#[derive(Default)]
pub(super) struct Columns<'a> {
    id: Vec<&'a str>,
    tenant: Vec<&'a str>,
    destination: Vec<&'a str>,
    source: Vec<&'a str>,
    message: Vec<i64>,
    first_seen_at: Vec<i64>,
    expires_at: Vec<i64>,
    check: Vec<i64>,
    hot_until: Vec<Option<i64>>,
    delivery: Vec<Option<i64>>,
    status: Vec<i16>,
}

impl<'a> Columns<'a> {
    pub(super) fn push(&mut self, key: &'a ClaimKey, claim: &'a Claim) {
        self.id.push(key.id.as_str());
        self.tenant.push(key.tenant.as_str());
        self.destination.push(&key.destination);
        self.source.push(claim.source.as_str());
        self.message.push(claim.message.0);
        self.first_seen_at.push(claim.first_seen_at.0);
        self.expires_at.push(claim.expires_at.0);
        self.check.push(check_value(key, claim));
        self.hot_until.push(claim.hot_until.map(|it| it.0));
        self.delivery.push(claim.progress.as_ref().map(|it| it.delivery.0));
        self.status.push(claim.status().number());
    }

    /// In the order of the statement's parameters.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.id,
            &self.tenant,
            &self.destination,
            &self.source,
            &self.message,
            &self.first_seen_at,
            &self.expires_at,
            &self.check,
            &self.hot_until,
            &self.delivery,
            &self.status,
        ]
    }
}

/// The statement that writes claims whose numbers count from a block's `base`, with parameters from this one on.
pub(super) fn insertion(first: usize) -> String {
    const TYPES: [&str; 11] = [
        "text", "text", "text", "text", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint",
        "smallint",
    ];
    let values = TYPES.iter().zip(first..).map(|(kind, place)| format!("${place}::{kind}[]"));
    format!(
        "INSERT INTO claim (id, tenant, destination, source, message, first_seen_at, expires_at, check_value, \
             hot_until, delivery, status) \
         SELECT id, tenant, destination, source, base + message, first_seen_at, expires_at, \
             check_value + base + message + coalesce(base + delivery, 0), hot_until, base + delivery, status \
         FROM block, unnest({}) \
             AS new (id, tenant, destination, source, message, first_seen_at, expires_at, check_value, hot_until, \
             delivery, status) \
         ORDER BY id COLLATE \"C\", tenant COLLATE \"C\", destination COLLATE \"C\"",
        values.collect::<Vec<_>>().join(", ")
    )
}

/// Writes claims whose messages have their numbers already.
pub(super) async fn insert(
    client: &impl GenericClient,
    claims: &[(ClaimKey, Claim)],
) -> Result<(), StoreError> {
    let insert = format!("WITH block (base) AS (VALUES (0::bigint)) {}", insertion(1));
    let mut columns = Columns::default();
    claims.iter().for_each(|(key, claim)| columns.push(key, claim));
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    client.execute(&statement, &columns.values()).await.map_err(sql)?;
    let moved: Vec<_> = claims.iter().filter(|(_, claim)| claim.progress.is_some()).cloned().collect();
    update(client, &moved).await
}

/// Writes claims under ids that are free, and says how many. Within a transaction.
pub(super) async fn take_over(
    client: &impl GenericClient,
    claims: &[(ClaimKey, Claim)],
    now: Timestamp,
) -> Result<usize, StoreError> {
    let holds = usable(hold::in_force_to_the_end(client).await)?;
    let free = claims.iter().map(|(key, _)| key).filter(|key| !is_held(holds.as_ref(), key));
    clear(client, free, now).await.map_err(Trouble::into_error)?;
    let insert = format!("WITH block (base) AS (VALUES (0::bigint)) {} ON CONFLICT DO NOTHING", insertion(1));
    let mut columns = Columns::default();
    claims.iter().for_each(|(key, claim)| columns.push(key, claim));
    let statement = client.prepare_cached(&insert).await.map_err(sql)?;
    let written = client.execute(&statement, &columns.values()).await.map_err(sql)?;
    Ok(usize::try_from(written).unwrap_or(usize::MAX))
}

/// Writes what became of claims that are there.
pub(super) async fn update(
    client: &impl GenericClient,
    claims: &[(ClaimKey, Claim)],
) -> Result<(), StoreError> {
    const UPDATE: &str = "UPDATE claim SET check_value = new.check_value, status = new.status, fence = new.fence, \
             attempts = new.attempts, ended_at = new.ended_at, reference = new.reference, error = new.error, \
             expires_at = new.expires_at \
         FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::integer[], $6::bigint[], \
             $7::text[], $8::text[], $9::bigint[]) \
             AS new (delivery, check_value, status, fence, attempts, ended_at, reference, error, expires_at) \
         WHERE claim.delivery = new.delivery";
    if claims.is_empty() {
        return Ok(());
    }
    let progress = || claims.iter().filter_map(|(_, claim)| claim.progress.as_deref());
    let deliveries: Vec<_> = progress().map(|it| it.delivery.0).collect();
    let checks: Vec<_> = claims.iter().map(|(key, claim)| stored_check(key, claim)).collect();
    let statuses: Vec<_> = progress().map(|it| it.status.number()).collect();
    let fences: Vec<_> = progress().map(|it| it.fence.map(|it| it.0)).collect();
    let attempts: Vec<_> = progress().map(|it| i32::try_from(it.attempts).unwrap_or(i32::MAX)).collect();
    let times: Vec<_> = progress().map(|it| it.ended_at.map(|it| it.0)).collect();
    let references: Vec<_> = progress().map(|it| it.reference.as_deref()).collect();
    let errors: Vec<_> = progress().map(Progress::error_text).collect();
    let ends: Vec<_> = claims.iter().map(|(_, claim)| claim.expires_at.0).collect();
    let values: [&(dyn ToSql + Sync); 9] =
        [&deliveries, &checks, &statuses, &fences, &attempts, &times, &references, &errors, &ends];
    let statement = client.prepare_cached(UPDATE).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// The claims that wait for deliveries, of one owner or of any, kept from others until the transaction ends; damaged ones are told of and left
/// out.
pub(super) async fn lock_of_deliveries(
    client: &impl GenericClient,
    deliveries: &[Serial],
    owner: Option<&str>,
) -> Result<Vec<(ClaimKey, Claim)>, StoreError> {
    let text = format!(
        "SELECT 0::bigint, {COLUMNS}, id, tenant, destination FROM claim WHERE delivery = ANY ($1) \
             AND ($2::text IS NULL OR starts_with(destination, $2 || '/')) \
         ORDER BY id, tenant, destination FOR UPDATE"
    );
    let ids: Vec<_> = deliveries.iter().map(|it| it.0).collect();
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&ids, &owner]).await.map_err(sql)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        found.extend(usable(whole(row))?);
    }
    Ok(found)
}

/// A claim with its key, which stands behind its columns.
fn whole(row: &Row) -> Result<(ClaimKey, Claim), StoreError> {
    let id: &str = row.try_get(AFTER).map_err(sql)?;
    let damaged = || StoreError::Damaged { what: "claim", key: id.to_owned() };
    let tenant = TenantName::new(row.try_get(AFTER + 1).map_err(sql)?).map_err(|_| damaged())?;
    let destination: &str = row.try_get(AFTER + 2).map_err(sql)?;
    let key = ClaimKey { id: MessageId::stored(id), tenant, destination: destination.into() };
    let claim = read(row, &key).map_err(sql)?.ok_or_else(damaged)?;
    Ok((key, claim))
}

/// Claims with all that is known of them; damaged ones are told of and left out.
pub(super) async fn listed(
    client: &impl GenericClient,
    which: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<StoredClaim>, StoreError> {
    let text = format!(
        "SELECT 0::bigint, {}, claim.id, claim.tenant, claim.destination, claim.repeats, claim.last_seen_at, \
             claim.archived_at, claim.archive, claim.erased_at, delivery.held, \
             coalesce(nullif(delivery.visible_at, {BEHIND}), delivery.queued_at), delivery.fence, \
             delivery.receives, coalesce(message.domain_hash, original.hash), message.correlation_id \
         FROM claim LEFT JOIN delivery ON delivery.id = claim.delivery \
             LEFT JOIN message ON message.seq = claim.message \
             LEFT JOIN original ON original.id = claim.id AND original.tenant = claim.tenant \
         WHERE {which}",
        COLUMNS.split(", ").map(|it| format!("claim.{it}")).collect::<Vec<_>>().join(", ")
    );
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, values).await.map_err(sql)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let Some((key, claim)) = usable(whole(row))? else { continue };
        found.push(stored(row, key, claim).map_err(sql)?);
    }
    Ok(found)
}

fn stored(row: &Row, key: ClaimKey, claim: Claim) -> Result<StoredClaim, tokio_postgres::Error> {
    const REST: usize = AFTER + 3;
    let time = |column: usize| row.try_get::<_, Option<i64>>(column).map(|it| it.map(Timestamp));
    let held: Option<&str> = row.try_get(REST + 5)?;
    let (fence, receives): (Option<i64>, Option<i32>) = (row.try_get(REST + 7)?, row.try_get(REST + 8)?);
    let lease = fence.zip(receives).filter(|_| held == Some("leased"));
    let held = time(REST + 6)?.map(|at| match lease {
        Some((fence, receives)) => {
            HeldDelivery::Leased { fence: Serial(fence), attempt: receives.unsigned_abs(), until: at }
        }
        None => HeldDelivery::Due(at),
    });
    let hash: Option<&[u8]> = row.try_get(REST + 9)?;
    let correlation: Option<&str> = row.try_get(REST + 10)?;
    Ok(StoredClaim {
        key,
        claim,
        hash: hash.and_then(|it| it.try_into().ok()).map(DomainHash),
        correlation: correlation.and_then(CorrelationId::new),
        repeats: row.try_get::<_, i64>(REST)?.unsigned_abs(),
        last_seen_at: time(REST + 1)?,
        archived_at: time(REST + 2)?,
        archive: row.try_get(REST + 3)?,
        erased_at: time(REST + 4)?,
        held,
    })
}

/// All claims under ids, whether their time is over or not, with what they have besides; `locking` may keep them from
/// others. Each is there once, however often its id is named: messages to several targets may share one. Damaged ones are
/// errors.
pub(super) async fn of_ids(
    client: &impl GenericClient,
    ids: &[IdKey],
    locking: &str,
) -> Result<Vec<Result<(Claim, Aside), StoreError>>, StoreError> {
    let text = format!(
        "SELECT 0::bigint, {}, claim.id, claim.tenant, claim.destination, claim.repeats, claim.last_seen_at, \
             claim.archived_at, claim.archive, claim.erased_at \
         FROM claim JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[]) AS named (id, tenant)) AS key \
             USING (id, tenant) \
         ORDER BY claim.id, claim.tenant, claim.destination {locking}",
        COLUMNS.split(", ").map(|it| format!("claim.{it}")).collect::<Vec<_>>().join(", ")
    );
    let (names, tenants): (Vec<_>, Vec<_>) =
        ids.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let statement = client.prepare_cached(&text).await.map_err(sql)?;
    let rows = client.query(&statement, &[&names, &tenants]).await.map_err(sql)?;
    let read = |row: &Row| {
        let (key, claim) = whole(row)?;
        let aside = aside(row, key, claim.message).map_err(sql)?;
        Ok((claim, aside))
    };
    Ok(rows.iter().map(read).collect())
}

fn aside(row: &Row, key: ClaimKey, message: Serial) -> Result<Aside, tokio_postgres::Error> {
    const REST: usize = AFTER + 3;
    Ok(Aside {
        key,
        message,
        repeats: row.try_get(REST)?,
        last_seen_at: row.try_get(REST + 1)?,
        archived_at: row.try_get(REST + 2)?,
        archive: row.try_get(REST + 3)?,
        erased_at: row.try_get(REST + 4)?,
    })
}

/// Writes what claims of another store have besides.
pub(super) async fn put_asides(client: &impl GenericClient, asides: &[Aside]) -> Result<(), StoreError> {
    const PUT: &str = "UPDATE claim SET repeats = new.repeats, last_seen_at = new.last_seen_at, \
             archived_at = new.archived_at, archive = new.archive, erased_at = new.erased_at \
         FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], \
             $8::bigint[]) \
             AS new (id, tenant, destination, repeats, last_seen_at, archived_at, archive, erased_at) \
         WHERE claim.id = new.id AND claim.tenant = new.tenant AND claim.destination = new.destination";
    let (ids, tenants, destinations) = columns(asides.iter().map(|it| &it.key));
    let repeats: Vec<_> = asides.iter().map(|it| it.repeats).collect();
    let seen: Vec<_> = asides.iter().map(|it| it.last_seen_at).collect();
    let archived: Vec<_> = asides.iter().map(|it| it.archived_at).collect();
    let archives: Vec<_> = asides.iter().map(|it| it.archive.as_deref()).collect();
    let erased: Vec<_> = asides.iter().map(|it| it.erased_at).collect();
    let values: [&(dyn ToSql + Sync); 8] =
        [&ids, &tenants, &destinations, &repeats, &seen, &archived, &archives, &erased];
    let statement = client.prepare_cached(PUT).await.map_err(sql)?;
    client.execute(&statement, &values).await.map(|_| ()).map_err(sql)
}

/// Counts that ids came again. Gives back those whose claim somebody else is at, uncounted, rather than wait: two that
/// wait may wait for each other.
pub(super) async fn seen_again(
    client: &impl GenericClient,
    mut seen: Vec<(ClaimKey, u64, Timestamp)>,
) -> Result<Vec<(ClaimKey, u64, Timestamp)>, StoreError> {
    const AGAIN: &str = "WITH new AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[]) \
             WITH ORDINALITY AS new (id, tenant, destination, repeats, at, place)), \
         free AS MATERIALIZED (SELECT place FROM claim JOIN new USING (id, tenant, destination) \
             FOR UPDATE OF claim SKIP LOCKED), \
         counted AS (UPDATE claim SET repeats = claim.repeats + new.repeats, \
             last_seen_at = greatest(claim.last_seen_at, new.at) \
             FROM new JOIN free USING (place) \
             WHERE claim.id = new.id AND claim.tenant = new.tenant AND claim.destination = new.destination) \
         SELECT place FROM new JOIN claim USING (id, tenant, destination) \
         WHERE place NOT IN (SELECT place FROM free)";
    let (ids, tenants, destinations) = columns(seen.iter().map(|(key, ..)| key));
    let repeats: Vec<_> = seen.iter().map(|(_, repeats, _)| *repeats as i64).collect();
    let times: Vec<_> = seen.iter().map(|(.., at)| at.0).collect();
    let values: [&(dyn ToSql + Sync); 5] = [&ids, &tenants, &destinations, &repeats, &times];
    let statement = client.prepare_cached(AGAIN).await.map_err(sql)?;
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let places = rows.iter().map(|row| row.try_get::<_, i64>(0)).collect::<Result<HashSet<_>, _>>();
    let places = places.map_err(sql)?;
    // They are counted from one.
    let mut place = 0;
    seen.retain(|_| {
        place += 1;
        places.contains(&place)
    });
    Ok(seen)
}

/// Of every column but the numbers of the message and the delivery, which are added to it.
fn check_value(key: &ClaimKey, claim: &Claim) -> i64 {
    let mut check = Check::default();
    for text in [key.id.as_str(), key.tenant.as_str(), &key.destination, claim.source.as_str()] {
        check.bytes(text.as_bytes());
    }
    check.number(claim.first_seen_at.0);
    check.number(claim.expires_at.0);
    check.progress(claim);
    check.value()
}

/// With the numbers.
fn stored_check(key: &ClaimKey, claim: &Claim) -> i64 {
    let delivery = claim.progress.as_ref().map_or(0, |it| it.delivery.0);
    check_value(key, claim).wrapping_add(claim.message.0).wrapping_add(delivery)
}

/// What is there under the keys of a batch.
pub(super) struct Found {
    pub(super) claims: HashMap<ClaimKey, Claim>,
    pub(super) unreadable: HashSet<ClaimKey>,
    /// Claims that are over.
    pub(super) over: Vec<(ClaimKey, Claim)>,
}

impl Default for Found {
    fn default() -> Self {
        Self { claims: HashMap::new(), unreadable: HashSet::new(), over: Vec::new() }
    }
}

/// Reads claims by their keys.
pub(super) fn find_query() -> String {
    format!(
        "SELECT key.place, {COLUMNS} \
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS key (id, tenant, destination, place) \
         JOIN claim USING (id, tenant, destination)"
    )
}

/// Reads the claims of a batch: those that still count, and those that do not.
pub(super) async fn find(
    client: &impl GenericClient,
    batch: &[Intake],
    now: Timestamp,
) -> Result<Found, Trouble> {
    let keys: Vec<ClaimKey> = batch.iter().flat_map(settle::keys).collect();
    let (ids, tenants, destinations) = columns(&keys);
    let statement = client.prepare_cached(&find_query()).await.map_err(Trouble::of)?;
    let rows = client.query(&statement, &[&ids, &tenants, &destinations]).await.map_err(Trouble::of)?;
    let mut found = Found::default();
    for row in &rows {
        let place: i64 = row.try_get(0).map_err(Trouble::of)?;
        let Some(key) = usize::try_from(place - 1).ok().and_then(|place| keys.get(place)) else { continue };
        match read(row, key).map_err(Trouble::of)? {
            Some(claim) if !claim.is_live(now) => found.over.push((key.clone(), claim)),
            Some(claim) => {
                found.claims.insert(key.clone(), claim);
            }
            // Not even that its time is over can be believed of it.
            None => {
                alert(&StoreError::Damaged { what: "claim", key: key.id.to_string() });
                found.unreadable.insert(key.clone());
            }
        }
    }
    Ok(found)
}

/// Clears away claims that are over, for others to take their place. What was kept for an audit goes on the record.
pub(super) async fn make_way(
    client: &impl GenericClient,
    over: &[(ClaimKey, Claim)],
    now: Timestamp,
) -> Result<(), Trouble> {
    let (audited, short): (Vec<_>, Vec<_>) = over.iter().partition(|(_, claim)| claim.is_audited());
    let audited: Vec<_> = audited.into_iter().map(|(key, _)| key).collect();
    if !audited.is_empty() {
        retention::make_way(client, &audited, now).await.map_err(Trouble::Refused)?;
    }
    if short.is_empty() {
        return Ok(());
    }
    clear(client, short.into_iter().map(|(key, _)| key), now).await
}

/// Deletes claims whose time is over, with their answers; those that somebody is at are cleared by them, and those that
/// are kept for an audit not without a word.
async fn clear(
    client: &impl GenericClient,
    over: impl IntoIterator<Item = &ClaimKey>,
    now: Timestamp,
) -> Result<(), Trouble> {
    let text = format!(
        "WITH gone AS (DELETE FROM claim WHERE ctid = ANY (ARRAY( \
             SELECT claim.ctid FROM claim JOIN unnest($1::text[], $2::text[], $3::text[]) \
                 AS key (id, tenant, destination) USING (id, tenant, destination) \
             WHERE claim.expires_at <= $4 AND NOT {KEEPS_CLAIM} AND NOT {AUDITED} \
             FOR UPDATE OF claim SKIP LOCKED)) RETURNING delivery) \
         DELETE FROM answer USING gone WHERE answer.delivery = gone.delivery"
    );
    let (ids, tenants, destinations) = columns(over);
    let statement = client.prepare_cached(&text).await.map_err(Trouble::of)?;
    let cleared = client.execute(&statement, &[&ids, &tenants, &destinations, &now.0]).await;
    cleared.map(|_| ()).map_err(Trouble::of)
}

pub(super) fn columns<'a>(
    keys: impl IntoIterator<Item = &'a ClaimKey>,
) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
    let column = |key: &'a ClaimKey| (key.id.as_str(), (key.tenant.as_str(), &*key.destination));
    let (ids, (tenants, destinations)) = keys.into_iter().map(column).unzip();
    (ids, tenants, destinations)
}

/// The columns that [`read`] reads, from the second on.
const COLUMNS: &str = "source, message, first_seen_at, expires_at, check_value, hot_until, delivery, status, fence, \
     attempts, ended_at, reference, error";
/// The first column behind them.
const AFTER: usize = 14;

/// Reads a row's columns; no claim if it is not as it was written.
fn read(row: &Row, key: &ClaimKey) -> Result<Option<Claim>, tokio_postgres::Error> {
    let Ok(source) = ServiceName::new(row.try_get(1)?) else { return Ok(None) };
    let time = |column: usize| row.try_get::<_, Option<i64>>(column).map(|it| it.map(Timestamp));
    let progress = match row.try_get::<_, Option<i64>>(7)? {
        None => None,
        Some(delivery) => {
            let Some(status) = Status::stored(row.try_get(8)?) else { return Ok(None) };
            let progress = Progress {
                status,
                fence: row.try_get::<_, Option<i64>>(9)?.map(Serial),
                attempts: row.try_get::<_, i32>(10)?.unsigned_abs(),
                ended_at: time(11)?,
                reference: row.try_get(12)?,
                ..Progress::new(Serial(delivery))
            };
            Some(Box::new(progress.with_error_text(row.try_get(13)?)))
        }
    };
    let claim = Claim {
        source,
        message: Serial(row.try_get(2)?),
        first_seen_at: Timestamp(row.try_get(3)?),
        expires_at: Timestamp(row.try_get(4)?),
        hot_until: time(6)?,
        progress,
    };
    Ok((stored_check(key, &claim) == row.try_get::<_, i64>(5)?).then_some(claim))
}

/// Deletes up to `limit` claims whose time is over, with their answers, where nothing is held; those that somebody is at are
/// left for the next time. Those that are kept for an audit go on the record (`retention.rs`).
pub(super) async fn sweep(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    let sweep = format!(
        "WITH gone AS (DELETE FROM claim WHERE ctid = ANY (ARRAY( \
             SELECT ctid FROM claim WHERE expires_at <= $1 AND NOT {KEEPS_CLAIM} AND NOT {AUDITED} \
             ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING delivery), \
         answers AS (DELETE FROM answer USING gone WHERE answer.delivery = gone.delivery) \
         SELECT count(*) FROM gone"
    );
    let statement = client.prepare_cached(&sweep).await.map_err(sql)?;
    // Not at the very end: a batch that was judged before it may still be on its way (CLM-20).
    let before = now.minus(bounds::CLAIM_KEEP_SLACK);
    let row = client.query_one(&statement, &[&before.0, &(limit as i64)]).await.map_err(sql)?;
    Ok(usize::try_from(row.try_get::<_, i64>(0).map_err(sql)?).unwrap_or(usize::MAX))
}
