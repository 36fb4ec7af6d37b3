//! Conflicts: table `conflict`, listed by owner. The first of a message has its number, and shares it with those of other
//! tenants.
//!
//! `check_value` is the CRC-32 of every other column but `count` and `last_seen_at` (QUA-1).

use std::collections::BTreeMap;

use async_trait::async_trait;
use foldhash::HashMap;
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::delivery::DeadLetter;
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::settle::{self, Delta, Intake, Known, NewConflict, Recorded};
use snavio_model::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::client::GenericClient;
use super::pool::{Trouble, sql};
use super::{PostgresStore, audit, dead_letter, message, telemetry};
use crate::record::check_value::{of_conflict, opened, usable};
use crate::{Act, ClaimLookUp, Conflicts, Deed, StoreError, StoredConflict};

const COLUMNS: &str = "seq, place, tenant, owner, event_id, destination, source, original, original_hash, hash, \
     dead_letter, flagged_at, last_seen_at, count, state, notes, compensating, check_value";

#[async_trait]
impl Conflicts for PostgresStore {
    async fn conflicts(
        &self,
        owner: Option<&str>,
        state: Option<ConflictState>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Conflict>, StoreError> {
        let work = async {
            let client = self.client().await?;
            let up_to = self.inner.horizon.look(&client).await?;
            page(&client, owner, state, after, up_to, limit).await
        };
        self.within(work).await
    }

    async fn conflict(&self, id: Serial) -> Result<Option<StoredConflict>, StoreError> {
        self.within(async { stored(&self.client().await?, id).await }).await
    }

    async fn conflicts_of(&self, id: &IdKey, owner: Option<&str>) -> Result<Vec<Conflict>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM conflict WHERE event_id = $1 AND tenant = $2 \
             AND ($3::text IS NULL OR owner = $3) ORDER BY place LIMIT {}",
            bounds::PAGE_MAX
        );
        let work = async {
            let client = self.client().await?;
            let statement = client.prepare_cached(&query).await.map_err(sql)?;
            let values: [&(dyn ToSql + Sync); 3] = [&id.id.as_str(), &id.tenant.as_str(), &owner];
            let rows = client.query(&statement, &values).await.map_err(sql)?;
            let mut found = Vec::with_capacity(rows.len());
            for row in &rows {
                found.extend(usable(read(row))?);
            }
            Ok(found)
        };
        self.within(work).await
    }

    async fn conflicts_under(&self, asked: &ClaimLookUp) -> Result<Vec<Conflict>, StoreError> {
        let query = format!(
            "SELECT {COLUMNS} FROM conflict WHERE event_id = $1 AND tenant = ANY ($2) \
             AND NOT EXISTS (SELECT FROM unnest($3::text[]) AS party (name) \
                 WHERE conflict.tenant <> party.name AND conflict.owner <> party.name) \
             ORDER BY tenant, place LIMIT {}",
            bounds::PAGE_MAX
        );
        let senders: Vec<_> = asked.senders.iter().map(TenantName::as_str).collect();
        let work = async {
            let client = self.client().await?;
            let statement = client.prepare_cached(&query).await.map_err(sql)?;
            let values: [&(dyn ToSql + Sync); 3] = [&asked.id.as_str(), &senders, &asked.parties];
            let rows = client.query(&statement, &values).await.map_err(sql)?;
            let mut found = Vec::with_capacity(rows.len());
            for row in &rows {
                found.extend(usable(read(row))?);
            }
            Ok(found)
        };
        self.within(work).await
    }

    async fn move_conflict(
        &self,
        id: Serial,
        to: Move,
        act: Act,
    ) -> Result<Option<Result<Conflict, Immovable>>, StoreError> {
        let work = async {
            let mut client = self.client().await?;
            let transaction = client.transaction().await.map_err(sql)?;
            let Some(conflict) = find(&transaction, id, "FOR UPDATE").await? else { return Ok(None) };
            let moved = match conflict.moved(&to, &act.who, act.at) {
                Ok(moved) => moved,
                Err(immovable) => return Ok(Some(Err(immovable))),
            };
            if let Some(other) = named_by(&transaction, &moved).await? {
                return Ok(Some(Err(Immovable::Named(other))));
            }
            const UPDATE: &str = "UPDATE conflict SET state = $2, notes = $3, compensating = $4, check_value = $5 WHERE seq = $1";
            let (state, check) = (moved.state.as_str(), of_conflict(&moved));
            let compensating = moved.compensating.as_ref().map(MessageId::as_str);
            let values: [&(dyn ToSql + Sync); 5] = [&id.0, &state, &moved.notes, &compensating, &check];
            transaction.execute(UPDATE, &values).await.map_err(sql)?;
            let deed = Deed { action: "conflict.move", object: id.to_string(), outcome: state.to_owned() };
            audit::append(&transaction, &act, &[deed]).await?;
            transaction.commit().await.map_err(sql)?;
            Ok(Some(Ok(moved)))
        };
        self.within(work).await
    }

    async fn open_conflicts(&self) -> Result<u64, StoreError> {
        const OPEN: &str = "SELECT count(*) FROM conflict WHERE state IN ('OPEN', 'TRIAGED')";
        let work = async {
            let row = self.client().await?.query_one(OPEN, &[]).await.map_err(sql)?;
            Ok(row.try_get::<_, i64>(0).map_err(sql)?.unsigned_abs())
        };
        self.within(work).await
    }
}

async fn page(
    client: &impl GenericClient,
    owner: Option<&str>,
    state: Option<ConflictState>,
    after: Serial,
    up_to: i64,
    limit: usize,
) -> Result<Vec<Conflict>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM conflict WHERE seq > $1 AND seq <= $2 AND ($3::text IS NULL OR owner = $3) \
         AND ($4::text IS NULL OR state = $4) ORDER BY seq LIMIT $5"
    );
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let (mut after, state, mut found) = (after.0, state.map(ConflictState::as_str), Vec::new());
    while found.len() < limit {
        let most = (limit - found.len()) as i64;
        let values: [&(dyn ToSql + Sync); 5] = [&after, &up_to, &owner, &state, &most];
        let rows = client.query(&statement, &values).await.map_err(sql)?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0).map_err(sql)?;
        for row in &rows {
            found.extend(usable(read(row))?);
        }
        if (rows.len() as i64) < most {
            break;
        }
    }
    Ok(found)
}

async fn find(
    client: &impl GenericClient,
    id: Serial,
    locking: &str,
) -> Result<Option<Conflict>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM conflict WHERE seq = $1 {locking}");
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let row = client.query_opt(&statement, &[&id.0]).await.map_err(sql)?;
    row.as_ref().map(read).transpose()
}

/// Another conflict of the owner that names the same reversal, whoever has sent it (CLM-13). Whoever names it at the same time
/// waits until the transaction ends. Those that were accepted are as many as people have decided, and no more.
async fn named_by(client: &impl GenericClient, moved: &Conflict) -> Result<Option<Serial>, StoreError> {
    const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('reversal ' || $1 || ' ' || $2, 0))";
    const NAMED: &str =
        "SELECT seq FROM conflict WHERE owner = $1 AND compensating = $2 AND seq <> $3 ORDER BY seq LIMIT 1";
    let Some(reversal) = &moved.compensating else { return Ok(None) };
    let (owner, reversal) = (moved.owner.as_str(), reversal.as_str());
    client.execute(LOCK, &[&owner, &reversal]).await.map_err(sql)?;
    // Each statement sees what was committed before it: here, by whoever had the lock before.
    let row = client.query_opt(NAMED, &[&owner, &reversal, &moved.id.0]).await.map_err(sql)?;
    row.map(|row| row.try_get(0).map(Serial).map_err(sql)).transpose()
}

async fn stored(client: &impl GenericClient, id: Serial) -> Result<Option<StoredConflict>, StoreError> {
    const OF_SOURCE: &str =
        "SELECT coalesce(sum(count), 0)::bigint FROM conflict WHERE source = $1 AND owner = $2";
    let Some(conflict) = find(client, id, "").await? else { return Ok(None) };
    let said_by = dead_letter::message_of(client, conflict.dead_letter).await?.unwrap_or(conflict.id);
    let values: [&(dyn ToSql + Sync); 2] = [&conflict.source.as_str(), &conflict.owner.as_str()];
    let row = client.query_one(OF_SOURCE, &values).await.map_err(sql)?;
    Ok(Some(StoredConflict {
        original: message::find(client, conflict.original).await?,
        conflicting: message::find(client, said_by).await?,
        of_source: row.try_get::<_, i64>(0).map_err(sql)?.unsigned_abs(),
        conflict,
    }))
}

/// The conflicts that are recorded under disputed ids of a batch about what they mean, and the last one of each.
pub(super) async fn recorded(
    client: &impl GenericClient,
    batch: &[Intake],
    originals: &HashMap<IdKey, Option<Known>>,
) -> Result<HashMap<IdKey, Vec<Recorded>>, StoreError> {
    let disputed = settle::disputed(batch, originals);
    let mut asked: HashMap<_, _> = disputed.into_iter().map(|key| (key, Vec::new())).collect();
    if asked.is_empty() {
        return Ok(asked);
    }
    let query = format!(
        "SELECT {COLUMNS} FROM conflict \
             JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS key (event_id, tenant, first) \
             USING (event_id, tenant) \
         WHERE original = key.first OR place = (SELECT max(other.place) FROM conflict AS other \
             WHERE other.event_id = conflict.event_id AND other.tenant = conflict.tenant) ORDER BY place"
    );
    let keys: Vec<_> = asked.keys().cloned().collect();
    let (ids, tenants): (Vec<_>, Vec<_>) = keys.iter().map(|it| (it.id.as_str(), it.tenant.as_str())).unzip();
    let meant = |key| originals.get(key).and_then(Option::as_ref).map(|it: &Known| it.original.message.0);
    let firsts: Vec<_> = keys.iter().map(meant).collect();
    let statement = client.prepare_cached(&query).await.map_err(sql)?;
    let rows = client.query(&statement, &[&ids, &tenants, &firsts]).await.map_err(sql)?;
    for row in &rows {
        let (id, tenant): (&str, &str) = (row.try_get(4).map_err(sql)?, row.try_get(2).map_err(sql)?);
        let Ok(tenant) = TenantName::new(tenant) else { continue };
        let Some(recorded) = asked.get_mut(&IdKey { id: MessageId::stored(id), tenant }) else { continue };
        // One that is damaged keeps its place, and is met by no content.
        let dispute = usable(read(row))?.map(|it| it.dispute());
        let place = row.try_get::<_, i32>(1).map_err(sql)?.unsigned_abs();
        recorded.push(Recorded { conflict: Serial(row.try_get(0).map_err(sql)?), place, dispute, new: None });
    }
    Ok(asked)
}

/// Records conflicts that were judged with numbers from `base`, and counts those that were met again (CLM-8). Within the
/// transaction of their batch.
pub(super) async fn record(
    client: &impl GenericClient,
    delta: &Delta,
    base: i64,
    now: Timestamp,
) -> Result<(), Trouble> {
    let numbered = delta.conflicts.iter().map(|new| numbered(new, base));
    let (mut conflicts, letters): (Vec<_>, Vec<_>) = numbered.unzip();
    // In the order of the key, as all do: batches wait for each other and never in a circle.
    conflicts.sort_by(|one, other| key_of(one).cmp(&key_of(other)));
    insert(client, &conflicts).await.map_err(Trouble::of)?;
    // Whatever goes wrong here, the batch is asked about before it is said to have failed.
    dead_letter::insert(client, &letters).await.map_err(Trouble::Lost)?;
    if let Some((act, ..)) = conflicts.first().map(opened) {
        let (deeds, records): (Vec<_>, Vec<_>) =
            conflicts.iter().map(opened).map(|(_, deed, record)| (deed, record)).unzip();
        audit::append(client, &act, &deeds).await.map_err(Trouble::Lost)?;
        telemetry::append(client, &records).await.map_err(Trouble::Lost)?;
    }
    // An event may be for a thousand tenants: in one statement, and locked in the order of their numbers.
    const AGAIN: &str = "WITH again AS (SELECT conflict.seq, met.times FROM conflict \
             JOIN unnest($1::bigint[], $2::bigint[]) AS met (seq, times) ON met.seq = conflict.seq \
             ORDER BY conflict.seq FOR UPDATE OF conflict) \
         UPDATE conflict SET count = conflict.count + again.times, last_seen_at = $3 FROM again \
         WHERE conflict.seq = again.seq";
    if delta.repeats.is_empty() {
        return Ok(());
    }
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    delta.repeats.iter().for_each(|it| *counts.entry(it.0).or_default() += 1);
    let statement = client.prepare_cached(AGAIN).await.map_err(Trouble::of)?;
    let (conflicts, times): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
    client.execute(&statement, &[&conflicts, &times, &now.0]).await.map(|_| ()).map_err(Trouble::of)
}

/// A conflict and its dead letter, with the numbers that they were given.
pub(super) fn numbered(new: &NewConflict, base: i64) -> (Conflict, DeadLetter) {
    let given = |number: Serial| Serial(base + number.0);
    let (mut conflict, mut letter) = (new.conflict.clone(), new.letter.clone());
    conflict.id = given(conflict.id);
    conflict.dead_letter = given(conflict.dead_letter);
    if new.is_original_new {
        conflict.original = given(conflict.original);
    }
    letter.delivery.id = conflict.dead_letter;
    letter.delivery.message = given(letter.delivery.message);
    (conflict, letter)
}

fn key_of(conflict: &Conflict) -> (&str, &str, u32) {
    (conflict.event_id.as_str(), conflict.tenant.as_str(), conflict.place)
}

/// Writes conflicts that have their numbers.
pub(super) async fn insert(
    client: &impl GenericClient,
    conflicts: &[Conflict],
) -> Result<(), tokio_postgres::Error> {
    if conflicts.is_empty() {
        return Ok(());
    }
    let insert = format!(
        "INSERT INTO conflict ({COLUMNS}) SELECT * FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[], \
             $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bytea[], $10::bytea[], $11::bigint[], \
             $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::text[], $18::bigint[])"
    );
    let numbers = |of: fn(&Conflict) -> i64| conflicts.iter().map(of).collect::<Vec<_>>();
    fn texts(conflicts: &[Conflict], of: fn(&Conflict) -> &str) -> Vec<&str> {
        conflicts.iter().map(of).collect()
    }
    let places: Vec<_> = conflicts.iter().map(|it| i32::try_from(it.place).unwrap_or(i32::MAX)).collect();
    let original_hashes: Vec<_> = conflicts.iter().map(|it| &it.original_hash.0[..]).collect();
    let hashes: Vec<_> = conflicts.iter().map(|it| &it.hash.0[..]).collect();
    let compensating: Vec<_> =
        conflicts.iter().map(|it| it.compensating.as_ref().map(MessageId::as_str)).collect();
    let values: [&(dyn ToSql + Sync); 18] = [
        &numbers(|it| it.id.0),
        &places,
        &texts(conflicts, |it| it.tenant.as_str()),
        &texts(conflicts, |it| it.owner.as_str()),
        &texts(conflicts, |it| it.event_id.as_str()),
        &texts(conflicts, |it| &it.destination),
        &texts(conflicts, |it| it.source.as_str()),
        &numbers(|it| it.original.0),
        &original_hashes,
        &hashes,
        &numbers(|it| it.dead_letter.0),
        &numbers(|it| it.flagged_at.0),
        &numbers(|it| it.last_seen_at.0),
        &numbers(|it| i64::try_from(it.count).unwrap_or(i64::MAX)),
        &texts(conflicts, |it| it.state.as_str()),
        &texts(conflicts, |it| &it.notes),
        &compensating,
        &numbers(of_conflict),
    ];
    let statement = client.prepare_cached(&insert).await?;
    client.execute(&statement, &values).await.map(|_| ())
}

fn read(row: &Row) -> Result<Conflict, StoreError> {
    let number = Serial(row.try_get(0).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "conflict", key: number.to_string() };
    let (conflict, check) = fields(row, number).map_err(sql)?.ok_or_else(damaged)?;
    if check != of_conflict(&conflict) {
        return Err(damaged());
    }
    Ok(conflict)
}

fn fields(row: &Row, id: Serial) -> Result<Option<(Conflict, i64)>, tokio_postgres::Error> {
    let text = |column: usize| row.try_get::<_, &str>(column);
    let number = |column: usize| row.try_get::<_, i64>(column);
    let hash = |column: usize| row.try_get::<_, &[u8]>(column).map(|it| it.try_into().ok().map(DomainHash));
    let (Ok(tenant), Ok(owner)) = (TenantName::new(text(2)?), TenantName::new(text(3)?)) else {
        return Ok(None);
    };
    let (Ok(source), Some(state)) = (ServiceName::new(text(6)?), ConflictState::stored(text(14)?)) else {
        return Ok(None);
    };
    let (Some(original_hash), Some(hash)) = (hash(8)?, hash(9)?) else { return Ok(None) };
    let conflict = Conflict {
        id,
        place: row.try_get::<_, i32>(1)?.unsigned_abs(),
        tenant,
        owner,
        event_id: MessageId::stored(text(4)?),
        destination: text(5)?.into(),
        source,
        original: Serial(number(7)?),
        original_hash,
        hash,
        dead_letter: Serial(number(10)?),
        flagged_at: Timestamp(number(11)?),
        last_seen_at: Timestamp(number(12)?),
        count: number(13)?.unsigned_abs(),
        state,
        notes: text(15)?.to_owned(),
        compensating: row.try_get::<_, Option<&str>>(16)?.map(MessageId::stored),
    };
    Ok(Some((conflict, number(17)?)))
}
