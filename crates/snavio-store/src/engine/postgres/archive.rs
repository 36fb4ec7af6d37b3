//! Moving what has cooled to the archive, over the tables `claim`, `message`, `answer` and `segment`.

use async_trait::async_trait;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use snavio_model::archive::cooling::{Needed, stays};
use snavio_model::archive::hold::Hold;
use snavio_model::archive::{ArchivedClaim, ClaimPointer, Pointer, Record};
use snavio_model::bounds;
use snavio_model::claim::{Claim, IdKey};
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::pool::sql;
use super::{PostgresStore, answer, audit, claim, erase, hold, message, original, segment};
use crate::api::archive::{
    Archive, Aside, Cooled, CooledUpTo, DESTINATIONS_MAX, Erasure, LOOKED_AT_MAX, NewHold, NewSegment,
    deleted_segment, objects_of,
};
use crate::record::check_value::usable;
use crate::{Act, LoggedMessage, StoreError};

/// Messages that are read at once: a page of them must fit in memory.
const AT_ONCE: usize = 50;

#[async_trait]
impl Archive for PostgresStore {
    async fn cooled(&self, after: Option<CooledUpTo>, now: Timestamp) -> Result<Cooled, StoreError> {
        self.within(async { cooled(&self.client().await?, after, now).await }).await
    }

    async fn begin_segment(&self, segment: NewSegment, now: Timestamp) -> Result<bool, StoreError> {
        self.within(async { segment::begin(&self.client().await?, &segment, now).await }).await
    }

    async fn moved(&self, records: Vec<(Record, Pointer)>, now: Timestamp) -> Result<usize, StoreError> {
        let mut moved = 0;
        for some in records.chunks(AT_ONCE) {
            moved += self.within(async { point(&mut self.client().await?, some, now).await }).await?;
        }
        for object in objects_of(records.iter().map(|(_, pointer)| pointer)) {
            self.settle_segment(object, now).await?;
        }
        Ok(moved)
    }

    async fn archive_backlog(&self, now: Timestamp) -> Result<u64, StoreError> {
        const BACKLOG: &str = "SELECT count(*) FROM claim WHERE hot_until IS NOT NULL AND archived_at IS NULL \
             AND hot_until <= $1 AND status IN (1, 3)";
        let work = async {
            let row = self.client().await?.query_one(BACKLOG, &[&now.0]).await.map_err(sql)?;
            Ok(row.try_get::<_, i64>(0).map_err(sql)?.unsigned_abs())
        };
        self.within(work).await
    }

    async fn loose_segments(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.within(async { segment::loose(&mut self.client().await?, after, limit).await }).await
    }

    async fn settle_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError> {
        self.within(async { segment::settle_written(&mut self.client().await?, object, now).await }).await
    }

    async fn pointed(&self, object: &str) -> Result<Vec<Pointer>, StoreError> {
        let work = async { segment::pointed(&self.client().await?, object).await };
        Ok(self.within(work).await?.into_iter().collect())
    }

    async fn repoint(&self, rewritten: Vec<(Pointer, Pointer)>) -> Result<bool, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            let objects: Vec<_> =
                objects_of(rewritten.iter().flat_map(|(old, new)| [old, new])).into_iter().collect();
            segment::lock(&transaction, &objects).await?;
            if !segment::repoint(&transaction, &rewritten).await? {
                return Ok(false);
            }
            transaction.commit().await.map(|()| true).map_err(sql)
        };
        self.within(work).await
    }

    async fn is_ending(&self, object: &str) -> Result<bool, StoreError> {
        self.within(async { segment::is_ending(&self.client().await?, object).await }).await
    }

    async fn unsettled_segments(&self) -> Result<u64, StoreError> {
        self.within(async { segment::unsettled(&self.client().await?).await }).await
    }

    async fn spent_segments(
        &self,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        self.within(async { segment::spent(&self.client().await?, after, limit, now).await }).await
    }

    async fn forget_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            if !segment::forget(&transaction, object).await? {
                return Ok(());
            }
            let (act, deed) = deleted_segment(object, now);
            audit::append(&transaction, &act, &[deed]).await?;
            transaction.commit().await.map_err(sql)
        };
        self.within(work).await
    }

    async fn erase(
        &self,
        id: &IdKey,
        rewritten: Vec<(Pointer, Pointer)>,
        decides_for: Option<&str>,
        act: Act,
    ) -> Result<Erasure, StoreError> {
        let mut told = Vec::new();
        let work = async {
            erase::erase(&mut self.client().await?, id, &rewritten, decides_for, &act, &mut told).await
        };
        let erasure = self.within(work).await?;
        self.inner.written.wake(told.iter().map(|record| record.tenant.as_str()));
        Ok(erasure)
    }

    async fn set_hold(&self, hold: NewHold, act: Act) -> Result<Option<Hold>, StoreError> {
        self.within(async { hold::set(&mut self.client().await?, hold, &act).await }).await
    }

    async fn holds(
        &self,
        tenant: Option<&str>,
        lifted_too: bool,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Hold>, StoreError> {
        self.within(async { hold::page(&self.client().await?, tenant, lifted_too, after, limit).await }).await
    }

    async fn hold(&self, id: Serial) -> Result<Option<Hold>, StoreError> {
        self.within(async { hold::find(&self.client().await?, id, "").await }).await
    }

    async fn lift_hold(&self, id: Serial, act: Act) -> Result<Option<Hold>, StoreError> {
        self.within(async { hold::lift(&mut self.client().await?, id, &act).await }).await
    }
}

async fn cooled(
    client: &impl GenericClient,
    after: Option<CooledUpTo>,
    now: Timestamp,
) -> Result<Cooled, StoreError> {
    const NEXT: &str = "SELECT hot_until, message, id, tenant FROM claim \
         WHERE hot_until IS NOT NULL AND archived_at IS NULL AND hot_until <= $1 AND (hot_until, message) > ($2, $3) \
         ORDER BY hot_until, message LIMIT $4";
    let (hot_until, number) = after.map_or((i64::MIN, 0), |it| (it.hot_until.0, it.message.0));
    let statement = client.prepare_cached(NEXT).await.map_err(sql)?;
    let values: [&(dyn ToSql + Sync); 4] = [&now.0, &hot_until, &number, &(LOOKED_AT_MAX as i64)];
    let rows = client.query(&statement, &values).await.map_err(sql)?;
    let (mut found, mut seen, mut bytes) = (Cooled::default(), HashSet::new(), 0);
    for some in rows.chunks(AT_ONCE) {
        let mut asked = Vec::new();
        for row in some {
            let number = Serial(row.try_get(1).map_err(sql)?);
            found.next =
                Some(CooledUpTo { hot_until: Timestamp(row.try_get(0).map_err(sql)?), message: number });
            let (id, tenant): (&str, &str) = (row.try_get(2).map_err(sql)?, row.try_get(3).map_err(sql)?);
            let Ok(tenant) = TenantName::new(tenant) else { continue };
            if seen.insert(number) {
                asked.push((number, IdKey { id: MessageId::stored(id), tenant }));
            }
        }
        let records = movable(client, &asked, now, "").await?;
        bytes += records.iter().map(Record::bytes).sum::<usize>();
        found.records.extend(records);
        let is_full = found.records.len() + AT_ONCE > bounds::ARCHIVE_RECORDS_MAX;
        if is_full || bytes >= bounds::ARCHIVE_SEGMENT_BYTES {
            return Ok(found);
        }
    }
    if rows.len() < LOOKED_AT_MAX {
        found.next = None;
    }
    Ok(found)
}

/// Messages as records, those that may be moved now.
async fn movable(
    client: &impl GenericClient,
    asked: &[(Serial, IdKey)],
    now: Timestamp,
    locking: &str,
) -> Result<Vec<Record>, StoreError> {
    let ids: Vec<_> = asked.iter().map(|(_, id)| id.clone()).collect();
    let mut claims: HashMap<Serial, Vec<(Claim, Aside)>> = HashMap::new();
    for read in claim::of_ids(client, &ids, locking).await? {
        let Some((claim, aside)) = usable(read)? else { continue };
        if aside.archived_at.is_none() {
            claims.entry(claim.message).or_default().push((claim, aside));
        }
    }
    let numbers: Vec<_> = asked.iter().map(|(number, _)| *number).collect();
    let messages = message::find_all(client, &numbers).await?;
    let needed = needed(client, asked).await?;
    let meanings = original::of_ids(client, &ids).await?;
    let progress = claims.values().flatten().filter_map(|(claim, _)| claim.progress.as_ref());
    let deliveries: Vec<_> = progress.map(|it| it.delivery).collect();
    let answers = answer::find_all(client, &deliveries).await?;
    let mut records = Vec::with_capacity(messages.len());
    for (logged, hash_version) in messages {
        let id = IdKey { id: logged.message.id.clone(), tenant: logged.message.tenant.clone() };
        let mut needed = needed.get(&logged.number).copied().unwrap_or_default();
        let of_message = claims.remove(&logged.number).unwrap_or_default();
        let kept = of_message.iter().filter(|(claim, _)| claim.hot_until.is_some());
        let longest = kept.map(|(claim, _)| claim.expires_at).max();
        let meaning = meanings.get(&id).filter(|it| it.hash == logged.message.domain_hash);
        needed.by_its_hash = meaning.is_none_or(|it| Some(it.expires_at) < longest);
        let judged: Vec<_> = of_message.iter().map(|(claim, _)| claim.clone()).collect();
        if stays(logged.message.received_at, &judged, needed, now).is_none() {
            records.extend(record(logged, hash_version, of_message, &answers));
        }
    }
    Ok(records)
}

/// A message with what moves with it; nothing if an answer is damaged.
fn record(
    logged: LoggedMessage,
    hash_version: u16,
    claims: Vec<(Claim, Aside)>,
    answers: &HashMap<Serial, Option<snavio_model::delivery::processing::Answer>>,
) -> Option<Record> {
    let erased_at = claims.iter().filter_map(|(_, aside)| aside.erased_at).max().map(Timestamp);
    let mut archived = Vec::new();
    for (claim, aside) in claims.into_iter().filter(|(claim, _)| claim.hot_until.is_some()) {
        let delivery = claim.progress.map(|it| it.delivery);
        let answer = match delivery.and_then(|it| answers.get(&it)) {
            Some(answer) => Some(answer.clone()?),
            None => None,
        };
        let (destination, expires_at) = (aside.key.destination, claim.expires_at);
        archived.push(ArchivedClaim { destination, expires_at, delivery, answer });
    }
    let LoggedMessage { number, path, settled_at, message } = logged;
    Some(Record { number, path, settled_at, hash_version, message, claims: archived, erased_at })
}

async fn needed(
    client: &impl GenericClient,
    asked: &[(Serial, IdKey)],
) -> Result<HashMap<Serial, Needed>, StoreError> {
    let query = format!(
        "SELECT asked.message, \
             EXISTS (SELECT FROM delivery WHERE id > asked.message AND id <= asked.message + {DESTINATIONS_MAX} \
                 AND delivery.message = asked.message), \
             EXISTS (SELECT FROM dead_letter WHERE id > asked.message AND id <= asked.message + {DESTINATIONS_MAX} \
                 AND dead_letter.message = asked.message), \
             EXISTS (SELECT FROM conflict WHERE event_id = asked.id AND conflict.tenant = asked.tenant \
                 AND original = asked.message AND state IN ('OPEN', 'TRIAGED')) \
         FROM unnest($1::bigint[], $2::text[], $3::text[]) AS asked (message, id, tenant)"
    );
    let numbers: Vec<_> = asked.iter().map(|(number, _)| number.0).collect();
    let ids: Vec<_> = asked.iter().map(|(_, id)| id.id.as_str()).collect();
    let tenants: Vec<_> = asked.iter().map(|(_, id)| id.tenant.as_str()).collect();
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let rows = client.query(&statement, &[&numbers, &ids, &tenants]).await.map_err(sql)?;
    let read = |row: &tokio_postgres::Row| {
        let needed = Needed {
            by_delivery: row.try_get(1)?,
            by_dead_letter: row.try_get(2)?,
            by_conflict: row.try_get(3)?,
            by_its_hash: false,
        };
        Ok((Serial(row.try_get(0)?), needed))
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// Points the claims of records to them and deletes what moved, of those that are still what was written there.
async fn point(
    client: &mut Client,
    records: &[(Record, Pointer)],
    now: Timestamp,
) -> Result<usize, StoreError> {
    const POINT: &str = "UPDATE claim SET archived_at = $4, archive = $5 \
         WHERE id = $1 AND tenant = $2 AND destination = $3";
    let transaction = client.transaction().await.map_err(sql)?;
    let id = |it: &Record| IdKey { id: it.message.id.clone(), tenant: it.message.tenant.clone() };
    let asked: Vec<_> = records.iter().map(|(it, _)| (it.number, id(it))).collect();
    // The segment's row first: whoever deletes its object asks for it.
    let objects: HashSet<_> = records.iter().map(|(_, pointer)| pointer.object.as_str()).collect();
    for object in objects {
        if !segment::keep(&transaction, object).await? {
            return Ok(0);
        }
    }
    let there = movable(&transaction, &asked, now, "FOR UPDATE OF claim").await?;
    let there: HashMap<_, _> = there.into_iter().map(|it| (it.number, it)).collect();
    let same: Vec<_> = records.iter().filter(|(it, _)| there.get(&it.number) == Some(it)).collect();
    let statement = transaction.prepare_cached(POINT).await.map_err(sql)?;
    for (record, pointer) in &same {
        let (id, tenant) = (record.message.id.as_str(), record.message.tenant.as_str());
        for claim in &record.claims {
            let pointer = ClaimPointer::new(pointer.clone(), claim.answer.as_ref()).to_string();
            let values: [&(dyn ToSql + Sync); 5] = [&id, &tenant, &&*claim.destination, &now.0, &pointer];
            transaction.execute(&statement, &values).await.map_err(sql)?;
        }
    }
    let of_claims = same.iter().flat_map(|(it, _)| &it.claims);
    let answers: Vec<_> = of_claims.filter_map(|it| it.delivery).map(|it| it.0).collect();
    let messages: Vec<_> = same.iter().map(|(it, _)| it.number.0).collect();
    transaction.execute("DELETE FROM answer WHERE delivery = ANY ($1)", &[&answers]).await.map_err(sql)?;
    transaction.execute("DELETE FROM message WHERE seq = ANY ($1)", &[&messages]).await.map_err(sql)?;
    transaction.commit().await.map_err(sql)?;
    Ok(same.len())
}
