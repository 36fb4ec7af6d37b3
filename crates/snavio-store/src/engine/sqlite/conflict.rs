//! Conflicts: table `conflict`, listed by owner. The first of a message has its number, and shares it with those of other
//! tenants.
//!
//! `check_value` covers every other column but `count` and `last_seen_at`.

use std::collections::HashSet;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::claim::conflict::{Conflict, ConflictState, Immovable, Move};
use snavio_model::hash::DomainHash;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::{ServiceName, TenantName};
use snavio_model::settle::{NewConflict, Recorded};
use snavio_model::time::Timestamp;

use super::check::{self, unreadable};
use super::writer::{Transaction, Urgency, sql};
use super::{EmbeddedStore, audit, dead_letter, message, telemetry};
use crate::record::check_value::{of_conflict, opened, usable};
use crate::{Act, ClaimLookUp, Conflicts, StoreError, StoredConflict};

const COLUMNS: &str = "seq, place, tenant, owner, event_id, destination, source, original, original_hash, hash, \
     dead_letter, flagged_at, last_seen_at, count, state, notes, compensating, check_value";

#[async_trait]
impl Conflicts for EmbeddedStore {
    async fn conflicts(
        &self,
        owner: Option<&str>,
        state: Option<ConflictState>,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Conflict>, StoreError> {
        let owner = owner.map(str::to_owned);
        self.readers.run(move |connection| page(connection, owner.as_deref(), state, after, limit)).await
    }

    async fn conflict(&self, id: Serial) -> Result<Option<StoredConflict>, StoreError> {
        self.readers.run(move |connection| stored(connection, id)).await
    }

    async fn conflicts_of(&self, id: &IdKey, owner: Option<&str>) -> Result<Vec<Conflict>, StoreError> {
        let (key, owner) = (id.clone(), owner.map(str::to_owned));
        let find = move |connection: &Connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM conflict WHERE event_id = ?1 AND tenant = ?2 \
                 AND (?3 IS NULL OR owner = ?3) ORDER BY place"
            );
            let mut statement = connection.prepare_cached(&query).map_err(sql)?;
            let mut rows = statement.query((key.id.as_str(), key.tenant.as_str(), owner)).map_err(sql)?;
            check::page(&mut rows, bounds::PAGE_MAX, read)
        };
        self.readers.run(find).await
    }

    async fn conflicts_under(&self, asked: &ClaimLookUp) -> Result<Vec<Conflict>, StoreError> {
        let asked = asked.clone();
        let find = move |connection: &Connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM conflict WHERE event_id = ?1 ORDER BY event_id, tenant, place"
            );
            let mut statement = connection.prepare_cached(&query).map_err(sql)?;
            let mut rows = statement.query([asked.id.as_str()]).map_err(sql)?;
            let senders: HashSet<_> = asked.senders.iter().collect();
            let mut found = Vec::new();
            while found.len() < bounds::PAGE_MAX
                && let Some(row) = rows.next().map_err(sql)?
            {
                let conflict = usable(read(row))?;
                found.extend(conflict.filter(|it| senders.contains(&it.tenant) && asked.has_party_in(it)));
            }
            Ok(found)
        };
        self.readers.run(find).await
    }

    async fn move_conflict(
        &self,
        id: Serial,
        to: Move,
        act: Act,
    ) -> Result<Option<Result<Conflict, Immovable>>, StoreError> {
        let change = move |transaction: &mut Transaction<'_>| {
            let Some(conflict) = find(transaction.connection, id)? else { return Ok(None) };
            let moved = match conflict.moved(&to, &act.who, act.at) {
                Ok(moved) => moved,
                Err(immovable) => return Ok(Some(Err(immovable))),
            };
            if let Some(other) = named_by(transaction.connection, &moved)? {
                return Ok(Some(Err(Immovable::Named(other))));
            }
            update(transaction.connection, &moved).map_err(sql)?;
            audit::append(transaction, "conflict.move", &id.to_string(), &act, moved.state.as_str())?;
            Ok(Some(Ok(moved)))
        };
        self.writer.run(Urgency::Ordinary, change).await
    }

    async fn open_conflicts(&self) -> Result<u64, StoreError> {
        const OPEN: &str = "SELECT count(*) FROM conflict WHERE state IN ('OPEN', 'TRIAGED')";
        let count = |connection: &Connection| {
            connection.query_row(OPEN, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs).map_err(sql)
        };
        self.readers.run(count).await
    }
}

fn page(
    connection: &Connection,
    owner: Option<&str>,
    state: Option<ConflictState>,
    after: Serial,
    limit: usize,
) -> Result<Vec<Conflict>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM conflict WHERE seq > ?1 AND (?2 IS NULL OR owner = ?2) \
         AND (?3 IS NULL OR state = ?3) ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let values = params![after.0, owner, state.map(ConflictState::as_str)];
    let mut rows = statement.query(values).map_err(sql)?;
    check::page(&mut rows, limit, read)
}

fn find(connection: &Connection, id: Serial) -> Result<Option<Conflict>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM conflict WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let mut rows = statement.query([id.0]).map_err(sql)?;
    rows.next().map_err(sql)?.map(read).transpose()
}

/// Another conflict of the owner that names the same reversal, whoever has sent it (CLM-13). Those that were accepted are as
/// many as people have decided, and no more.
fn named_by(connection: &Connection, moved: &Conflict) -> Result<Option<Serial>, StoreError> {
    const NAMED: &str =
        "SELECT seq FROM conflict WHERE owner = ?1 AND compensating = ?2 AND seq <> ?3 ORDER BY seq LIMIT 1";
    let Some(reversal) = &moved.compensating else { return Ok(None) };
    let values = params![moved.owner.as_str(), reversal.as_str(), moved.id.0];
    let found = connection.query_row(NAMED, values, |row| row.get(0).map(Serial));
    found.optional().map_err(sql)
}

fn stored(connection: &Connection, id: Serial) -> Result<Option<StoredConflict>, StoreError> {
    let Some(conflict) = find(connection, id)? else { return Ok(None) };
    const OF_SOURCE: &str = "SELECT sum(count) FROM conflict WHERE source = ?1 AND owner = ?2";
    let of_source = connection
        .query_row(OF_SOURCE, [conflict.source.as_str(), conflict.owner.as_str()], |row| {
            row.get::<_, Option<i64>>(0)
        })
        .optional()
        .map_err(sql)?;
    let said_by = dead_letter::message_of(connection, conflict.dead_letter).map_err(sql)?;
    Ok(Some(StoredConflict {
        original: message::find_usable(connection, conflict.original)?,
        conflicting: message::find_usable(connection, said_by.unwrap_or(conflict.id))?,
        of_source: of_source.flatten().unwrap_or(0).unsigned_abs(),
        conflict,
    }))
}

/// The conflicts that are recorded under an id about what it means, in their order, and the last one.
pub(super) fn recorded(
    connection: &Connection,
    key: &IdKey,
    original: Option<Serial>,
) -> Result<Vec<Recorded>, StoreError> {
    let query = format!(
        "SELECT {COLUMNS} FROM conflict WHERE event_id = ?1 AND tenant = ?2 AND (original = ?3 \
             OR place = (SELECT max(place) FROM conflict WHERE event_id = ?1 AND tenant = ?2)) ORDER BY place"
    );
    let mut statement = connection.prepare_cached(&query).map_err(sql)?;
    let values = params![key.id.as_str(), key.tenant.as_str(), original.map(|it| it.0)];
    let mut rows = statement.query(values).map_err(sql)?;
    let mut recorded = Vec::new();
    while let Some(row) = rows.next().map_err(sql)? {
        // One that is damaged keeps its place, and is met by no content.
        let found = usable(read(row))?;
        let (conflict, place) = (Serial(row.get(0).map_err(sql)?), row.get(1).map_err(sql)?);
        recorded.push(Recorded { conflict, place, dispute: found.map(|it| it.dispute()), new: None });
    }
    Ok(recorded)
}

/// Records conflicts, and counts those that were met again (CLM-8).
pub(super) fn record(
    transaction: &mut Transaction<'_>,
    conflicts: &[NewConflict],
    repeats: &[Serial],
    now: Timestamp,
) -> Result<(), StoreError> {
    for NewConflict { conflict, letter, .. } in conflicts {
        insert(transaction.connection, conflict).map_err(sql)?;
        dead_letter::insert(transaction.connection, letter).map_err(sql)?;
        let (act, deed, record) = opened(conflict);
        audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)?;
        telemetry::append(transaction, &[record])?;
    }
    const AGAIN: &str = "UPDATE conflict SET count = count + 1, last_seen_at = ?2 WHERE seq = ?1";
    for conflict in repeats {
        transaction
            .connection
            .prepare_cached(AGAIN)
            .map_err(sql)?
            .execute((conflict.0, now.0))
            .map_err(sql)?;
    }
    Ok(())
}

fn insert(connection: &Connection, conflict: &Conflict) -> rusqlite::Result<()> {
    let insert = format!(
        "INSERT INTO conflict ({COLUMNS}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)"
    );
    let values = params![
        conflict.id.0,
        conflict.place,
        conflict.tenant.as_str(),
        conflict.owner.as_str(),
        conflict.event_id.as_str(),
        conflict.destination,
        conflict.source.as_str(),
        conflict.original.0,
        &conflict.original_hash.0[..],
        &conflict.hash.0[..],
        conflict.dead_letter.0,
        conflict.flagged_at.0,
        conflict.last_seen_at.0,
        i64::try_from(conflict.count).unwrap_or(i64::MAX),
        conflict.state.as_str(),
        conflict.notes,
        conflict.compensating.as_ref().map(MessageId::as_str),
        of_conflict(conflict),
    ];
    connection.prepare_cached(&insert)?.execute(values).map(|_| ())
}

fn update(connection: &Connection, conflict: &Conflict) -> rusqlite::Result<()> {
    const UPDATE: &str =
        "UPDATE conflict SET state = ?2, notes = ?3, compensating = ?4, check_value = ?5 WHERE seq = ?1";
    let values = params![
        conflict.id.0,
        conflict.state.as_str(),
        conflict.notes,
        conflict.compensating.as_ref().map(MessageId::as_str),
        of_conflict(conflict),
    ];
    connection.prepare_cached(UPDATE)?.execute(values).map(|_| ())
}

/// Hands out all conflicts in the order of their numbers.
pub(super) fn each(
    connection: &Connection,
    take: impl FnMut(Result<Conflict, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    check::each(connection, &format!("SELECT {COLUMNS} FROM conflict ORDER BY seq"), read, take)
}

fn read(row: &Row<'_>) -> Result<Conflict, StoreError> {
    let number = Serial(row.get(0).map_err(sql)?);
    let damaged = || StoreError::Damaged { what: "conflict", key: number.to_string() };
    let fields = fields(row).map_err(|error| unreadable(error, "conflict", number))?;
    let (conflict, check) = fields.ok_or_else(damaged)?;
    if check != of_conflict(&conflict) {
        return Err(damaged());
    }
    Ok(conflict)
}

fn fields(row: &Row<'_>) -> rusqlite::Result<Option<(Conflict, i64)>> {
    let text = |column: usize| row.get::<_, String>(column);
    let hash = |column: usize| row.get::<_, Vec<u8>>(column).map(|it| it.try_into().ok().map(DomainHash));
    let (Ok(tenant), Ok(owner)) = (TenantName::new(&text(2)?), TenantName::new(&text(3)?)) else {
        return Ok(None);
    };
    let (Ok(source), Some(state)) = (ServiceName::new(&text(6)?), ConflictState::stored(&text(14)?)) else {
        return Ok(None);
    };
    let (Some(original_hash), Some(hash)) = (hash(8)?, hash(9)?) else { return Ok(None) };
    let conflict = Conflict {
        id: Serial(row.get(0)?),
        place: row.get(1)?,
        tenant,
        owner,
        event_id: MessageId::stored(&text(4)?),
        destination: text(5)?.into(),
        source,
        original: Serial(row.get(7)?),
        original_hash,
        hash,
        dead_letter: Serial(row.get(10)?),
        flagged_at: Timestamp(row.get(11)?),
        last_seen_at: Timestamp(row.get(12)?),
        count: row.get::<_, i64>(13)?.unsigned_abs(),
        state,
        notes: text(15)?,
        compensating: row.get::<_, Option<String>>(16)?.map(|id| MessageId::stored(&id)),
    };
    Ok(Some((conflict, row.get(17)?)))
}
