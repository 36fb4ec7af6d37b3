//! Claims: table `claim`, keyed by id, tenant and destination.
//!
//! `check_value` is the CRC-32 of every other column but the message's number, plus that number (QUA-1).

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use snavio_model::claim::{Claim, ClaimKey};
use snavio_model::id::Serial;
use snavio_model::limits;
use snavio_model::name::ServiceName;
use snavio_model::settle::{self, Intake};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use crate::StoreError;
use crate::evidence::{Check, alert};

/// Claims as columns, to be written by one statement.
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
    }

    /// In the order of the statement's parameters.
    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.id,
            &self.tenant,
            &self.destination,
            &self.source,
            &self.message,
            &self.first_seen_at,
            &self.expires_at,
            &self.check,
        ]
    }
}

/// Writes claims whose messages have their numbers already.
pub(super) async fn insert(
    client: &impl GenericClient,
    claims: &[(ClaimKey, Claim)],
) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO claim (id, tenant, destination, source, message, first_seen_at, expires_at, \
             check_value) \
         SELECT id, tenant, destination, source, message, first_seen_at, expires_at, check_value + message \
         FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], \
             $8::bigint[]) AS old (id, tenant, destination, source, message, first_seen_at, expires_at, check_value)";
    let mut columns = Columns::default();
    claims.iter().for_each(|(key, claim)| columns.push(key, claim));
    let statement = client.prepare_cached(INSERT).await.map_err(sql)?;
    client.execute(&statement, &columns.values()).await.map(|_| ()).map_err(sql)
}

fn check_value(key: &ClaimKey, claim: &Claim) -> i64 {
    let mut check = Check::default();
    for text in [key.id.as_str(), key.tenant.as_str(), &key.destination, claim.source.as_str()] {
        check.bytes(text.as_bytes());
    }
    check.number(claim.first_seen_at.0);
    check.number(claim.expires_at.0);
    check.value()
}

/// What is there under the keys of a batch.
pub(super) struct Found {
    pub(super) claims: HashMap<ClaimKey, Claim>,
    pub(super) unreadable: HashSet<ClaimKey>,
}

impl Default for Found {
    fn default() -> Self {
        Self { claims: HashMap::new(), unreadable: HashSet::new() }
    }
}

/// Reads the claims of a batch that still count, and clears away those that do not, so that they are in nobody's way.
pub(super) async fn find(
    client: &impl GenericClient,
    batch: &[Intake],
    now: Timestamp,
) -> Result<Found, Trouble> {
    const FIND: &str = "SELECT key.place, source, message, first_seen_at, expires_at, check_value \
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS key (id, tenant, destination, place) \
         JOIN claim USING (id, tenant, destination)";
    let keys: Vec<ClaimKey> = batch.iter().flat_map(settle::keys).collect();
    let (ids, tenants, destinations) = columns(&keys);
    let statement = client.prepare_cached(FIND).await.map_err(Trouble::of)?;
    let rows = client.query(&statement, &[&ids, &tenants, &destinations]).await.map_err(Trouble::of)?;
    let mut found = Found::default();
    let mut over = Vec::new();
    for row in &rows {
        let place: i64 = row.try_get(0).map_err(Trouble::of)?;
        let Some(key) = usize::try_from(place - 1).ok().and_then(|place| keys.get(place)) else { continue };
        match read(row, key).map_err(Trouble::of)? {
            Some(claim) if claim.expires_at <= now => over.push(key),
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
    if !over.is_empty() {
        clear(client, over, now).await?;
    }
    Ok(found)
}

/// Deletes claims whose time is over; those that somebody is at are cleared by them.
async fn clear(
    client: &impl GenericClient,
    over: impl IntoIterator<Item = &ClaimKey>,
    now: Timestamp,
) -> Result<(), Trouble> {
    const CLEAR: &str = "DELETE FROM claim WHERE ctid = ANY (ARRAY( \
         SELECT claim.ctid FROM claim JOIN unnest($1::text[], $2::text[], $3::text[]) \
             AS key (id, tenant, destination) USING (id, tenant, destination) \
         WHERE claim.expires_at <= $4 FOR UPDATE OF claim SKIP LOCKED))";
    let (ids, tenants, destinations) = columns(over);
    let statement = client.prepare_cached(CLEAR).await.map_err(Trouble::of)?;
    let cleared = client.execute(&statement, &[&ids, &tenants, &destinations, &now.0]).await;
    cleared.map(|_| ()).map_err(Trouble::of)
}

fn columns<'a>(keys: impl IntoIterator<Item = &'a ClaimKey>) -> (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>) {
    let column = |key: &'a ClaimKey| (key.id.as_str(), (key.tenant.as_str(), &*key.destination));
    let (ids, (tenants, destinations)) = keys.into_iter().map(column).unzip();
    (ids, tenants, destinations)
}

/// Reads a row's columns; no claim if it is not as it was written.
fn read(row: &Row, key: &ClaimKey) -> Result<Option<Claim>, tokio_postgres::Error> {
    let Ok(source) = ServiceName::new(row.try_get(1)?) else { return Ok(None) };
    let claim = Claim {
        source,
        message: Serial(row.try_get(2)?),
        first_seen_at: Timestamp(row.try_get(3)?),
        expires_at: Timestamp(row.try_get(4)?),
    };
    let check = check_value(key, &claim).wrapping_add(claim.message.0);
    Ok((check == row.try_get::<_, i64>(5)?).then_some(claim))
}

/// Deletes up to `limit` claims whose time is over; those that somebody is at are left for the next time.
pub(super) async fn sweep(
    client: &impl GenericClient,
    now: Timestamp,
    limit: usize,
) -> Result<usize, StoreError> {
    const SWEEP: &str = "DELETE FROM claim WHERE ctid = ANY (ARRAY( \
         SELECT ctid FROM claim WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
    let statement = client.prepare_cached(SWEEP).await.map_err(sql)?;
    // Not at the very end: a batch that was judged before it may still be on its way (CLM-20).
    let before = now.minus(limits::CLAIM_KEEP_SLACK);
    let swept = client.execute(&statement, &[&before.0, &(limit as i64)]).await.map_err(sql)?;
    Ok(usize::try_from(swept).unwrap_or(usize::MAX))
}
