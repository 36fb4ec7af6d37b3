//! Moving what has cooled to the archive, over the tables `claim`, `message`, `answer` and `segment`.

use std::collections::HashSet;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use snavio_model::archive::cooling::{Needed, stays};
use snavio_model::archive::hold::Hold;
use snavio_model::archive::{ArchivedClaim, ClaimPointer, Pointer, Record};
use snavio_model::bounds;
use snavio_model::claim::IdKey;
use snavio_model::id::{MessageId, Serial};
use snavio_model::name::TenantName;
use snavio_model::time::Timestamp;

use super::check::usable;
use super::erase::Aftermath;
use super::queue::Queues;
use super::writer::{Transaction, Urgency, sql};
use super::{EmbeddedStore, answer, audit, claim, erase, hold, known, message, original, segment};
use crate::api::archive::{
    Archive, Cooled, CooledUpTo, DESTINATIONS_MAX, Erasure, LOOKED_AT_MAX, NewHold, NewSegment,
    deleted_segment, objects_of,
};
use crate::{Act, StoreError};

/// Records that move in one commit.
const AT_ONCE: usize = 50;

#[async_trait]
impl Archive for EmbeddedStore {
    async fn cooled(&self, after: Option<CooledUpTo>, now: Timestamp) -> Result<Cooled, StoreError> {
        self.readers.run(move |connection| cooled(connection, after, now)).await
    }

    async fn begin_segment(&self, segment: NewSegment, now: Timestamp) -> Result<bool, StoreError> {
        let begin = move |transaction: &mut Transaction<'_>| {
            transaction.dirty = true;
            segment::begin(transaction.connection, &segment, now).map_err(sql)
        };
        self.writer.run(Urgency::Ordinary, begin).await
    }

    async fn moved(&self, records: Vec<(Record, Pointer)>, now: Timestamp) -> Result<usize, StoreError> {
        let mut moved = 0;
        // In commits of their own: intake rides between them.
        for some in records.chunks(AT_ONCE).map(<[_]>::to_vec) {
            let point = move |transaction: &mut Transaction<'_>| {
                transaction.dirty = true;
                let connection = transaction.connection;
                // What moves may be erased later on, and must then not be here either.
                erase::overwriting(connection, || {
                    some.iter().try_fold(0, |moved, (record, pointer)| {
                        Ok(moved + usize::from(point(connection, record, pointer, now)?))
                    })
                })
            };
            moved += self.writer.run(Urgency::Ordinary, point).await?;
        }
        let settle = move |transaction: &mut Transaction<'_>| {
            transaction.dirty = true;
            for object in objects_of(records.iter().map(|(_, pointer)| pointer)) {
                segment::settle_written(transaction.connection, object, now).map_err(sql)?;
            }
            Ok(moved)
        };
        self.writer.run(Urgency::Ordinary, settle).await
    }

    async fn archive_backlog(&self, now: Timestamp) -> Result<u64, StoreError> {
        const BACKLOG: &str = "SELECT count(*) FROM claim WHERE hot_until IS NOT NULL AND archived_at IS NULL \
             AND hot_until <= ?1 AND status IN (1, 3)";
        let count = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(BACKLOG).map_err(sql)?;
            statement.query_row([now.0], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs).map_err(sql)
        };
        self.readers.run(count).await
    }

    async fn loose_segments(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let after = after.to_owned();
        let loose = move |transaction: &mut Transaction<'_>| {
            transaction.dirty = true;
            segment::loose(transaction.connection, &after, limit).map_err(sql)
        };
        self.writer.run(Urgency::Ordinary, loose).await
    }

    async fn settle_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError> {
        let object = object.to_owned();
        let settle = move |transaction: &mut Transaction<'_>| {
            transaction.dirty = true;
            segment::settle_written(transaction.connection, &object, now).map_err(sql)
        };
        self.writer.run(Urgency::Ordinary, settle).await
    }

    async fn pointed(&self, object: &str) -> Result<Vec<Pointer>, StoreError> {
        let object = object.to_owned();
        let pointed = move |connection: &Connection| segment::pointed(connection, &object);
        Ok(self.readers.run(pointed).await?.into_iter().collect())
    }

    async fn repoint(&self, rewritten: Vec<(Pointer, Pointer)>) -> Result<bool, StoreError> {
        let repoint = move |transaction: &mut Transaction<'_>| {
            transaction.dirty = true;
            segment::repoint(transaction.connection, &rewritten)
        };
        self.writer.run(Urgency::Ordinary, repoint).await
    }

    async fn is_ending(&self, object: &str) -> Result<bool, StoreError> {
        let object = object.to_owned();
        let ask = move |connection: &Connection| segment::is_ending(connection, &object).map_err(sql);
        self.readers.run(ask).await
    }

    async fn unsettled_segments(&self) -> Result<u64, StoreError> {
        self.readers.run(move |connection| segment::unsettled(connection).map_err(sql)).await
    }

    async fn spent_segments(
        &self,
        after: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let after = after.to_owned();
        let end = move |transaction: &mut Transaction<'_>| {
            let (ended, objects) = segment::spent(transaction.connection, &after, limit, now).map_err(sql)?;
            transaction.dirty |= ended > 0;
            Ok(objects)
        };
        self.writer.run(Urgency::Ordinary, end).await
    }

    async fn forget_segment(&self, object: &str, now: Timestamp) -> Result<(), StoreError> {
        let object = object.to_owned();
        let forget = move |transaction: &mut Transaction<'_>| {
            if !segment::forget(transaction.connection, &object).map_err(sql)? {
                return Ok(());
            }
            let (act, deed) = deleted_segment(&object, now);
            audit::append(transaction, deed.action, &deed.object, &act, &deed.outcome)
        };
        self.writer.run(Urgency::Ordinary, forget).await
    }

    async fn erase(
        &self,
        id: &IdKey,
        rewritten: Vec<(Pointer, Pointer)>,
        decides_for: Option<&str>,
        act: Act,
    ) -> Result<Erasure, StoreError> {
        let (id, decides_for) = (id.clone(), decides_for.map(str::to_owned));
        let erase = move |transaction: &mut Transaction<'_>| {
            erase::erase(transaction, &id, &rewritten, decides_for.as_deref(), &act)
        };
        // The lanes in memory follow before anybody else's commit does.
        let parks = |queues: &mut Queues, (_, after): &(Erasure, Aftermath)| {
            after.parked.iter().for_each(|(key, at)| queues.park(key, *at));
        };
        let erase = move |transaction: &mut Transaction<'_>| Ok((erase(transaction)?, Vec::new()));
        let (erasure, after) = self.change_lanes(erase, parks).await?;
        self.written.wake(after.told.iter().map(|record| record.tenant.as_str()));
        Ok(erasure)
    }

    async fn set_hold(&self, hold: NewHold, act: Act) -> Result<Option<Hold>, StoreError> {
        let set = move |transaction: &mut Transaction<'_>| hold::set(transaction, hold.clone(), &act);
        self.writer.run(Urgency::Ordinary, set).await
    }

    async fn holds(
        &self,
        tenant: Option<&str>,
        lifted_too: bool,
        after: Serial,
        limit: usize,
    ) -> Result<Vec<Hold>, StoreError> {
        let tenant = tenant.map(str::to_owned);
        let page = move |connection: &Connection| {
            hold::page(connection, tenant.as_deref(), lifted_too, after, limit)
        };
        self.readers.run(page).await
    }

    async fn hold(&self, id: Serial) -> Result<Option<Hold>, StoreError> {
        self.readers.run(move |connection| hold::find(connection, id)).await
    }

    async fn lift_hold(&self, id: Serial, act: Act) -> Result<Option<Hold>, StoreError> {
        let lift = move |transaction: &mut Transaction<'_>| hold::lift(transaction, id, &act);
        self.writer.run(Urgency::Ordinary, lift).await
    }
}

fn cooled(connection: &Connection, after: Option<CooledUpTo>, now: Timestamp) -> Result<Cooled, StoreError> {
    const NEXT: &str = "SELECT hot_until, message, id, tenant FROM claim \
         WHERE hot_until IS NOT NULL AND archived_at IS NULL AND hot_until <= ?1 AND (hot_until, message) > (?2, ?3) \
         ORDER BY hot_until, message LIMIT ?4";
    let (hot_until, number) = after.map_or((i64::MIN, 0), |it| (it.hot_until.0, it.message.0));
    let mut statement = connection.prepare_cached(NEXT).map_err(sql)?;
    let values = params![now.0, hot_until, number, LOOKED_AT_MAX as i64];
    let mut rows = statement.query(values).map_err(sql)?;
    let (mut found, mut seen, mut bytes, mut looked_at) = (Cooled::default(), HashSet::new(), 0, 0);
    while let Some(row) = rows.next().map_err(sql)? {
        looked_at += 1;
        let up_to = CooledUpTo {
            hot_until: Timestamp(row.get(0).map_err(sql)?),
            message: Serial(row.get(1).map_err(sql)?),
        };
        found.next = Some(up_to);
        let (id, tenant): (String, String) = (row.get(2).map_err(sql)?, row.get(3).map_err(sql)?);
        let Ok(tenant) = TenantName::new(&tenant) else { continue };
        if !seen.insert(up_to.message) {
            continue;
        }
        let id = IdKey { id: MessageId::stored(&id), tenant };
        let Some(record) = usable(movable(connection, &id, up_to.message, now))?.flatten() else { continue };
        bytes += record.bytes();
        found.records.push(record);
        if found.records.len() >= bounds::ARCHIVE_RECORDS_MAX || bytes >= bounds::ARCHIVE_SEGMENT_BYTES {
            return Ok(found);
        }
    }
    if looked_at < LOOKED_AT_MAX {
        found.next = None;
    }
    Ok(found)
}

/// A message as a record, if it may be moved now.
fn movable(
    connection: &Connection,
    id: &IdKey,
    number: Serial,
    now: Timestamp,
) -> Result<Option<Record>, StoreError> {
    let Some((logged, hash_version)) = message::find_versioned(connection, number)? else { return Ok(None) };
    let mut of_message = claim::of_id(connection, id)?;
    of_message.retain(|(claim, aside)| claim.message == number && aside.archived_at.is_none());
    let claims: Vec<_> = of_message.iter().map(|(claim, _)| claim.clone()).collect();
    let mut needed = needed(connection, id, number).map_err(sql)?;
    let longest = claims.iter().filter(|it| it.hot_until.is_some()).map(|it| it.expires_at).max();
    let meaning = original::find(connection, id)?.filter(|it| it.hash == logged.message.domain_hash);
    needed.by_its_hash = meaning.is_none_or(|it| Some(it.expires_at) < longest);
    if stays(logged.message.received_at, &claims, needed, now).is_some() {
        return Ok(None);
    }
    let erased_at = of_message.iter().filter_map(|(_, aside)| aside.erased_at).max().map(Timestamp);
    let mut archived = Vec::new();
    for (claim, aside) in of_message.into_iter().filter(|(claim, _)| claim.hot_until.is_some()) {
        let delivery = claim.progress.map(|it| it.delivery);
        let answer = delivery.map(|it| answer::find(connection, it)).transpose()?.flatten();
        let (destination, expires_at) = (aside.key.destination, claim.expires_at);
        archived.push(ArchivedClaim { destination, expires_at, delivery, answer });
    }
    let (path, settled_at, message) = (logged.path, logged.settled_at, logged.message);
    Ok(Some(Record { number, path, settled_at, hash_version, message, claims: archived, erased_at }))
}

fn needed(connection: &Connection, id: &IdKey, number: Serial) -> rusqlite::Result<Needed> {
    let query = format!(
        "SELECT EXISTS (SELECT 1 FROM delivery WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1), \
             EXISTS (SELECT 1 FROM dead_letter WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1), \
             EXISTS (SELECT 1 FROM conflict WHERE event_id = ?2 AND tenant = ?3 AND original = ?1 \
                 AND state IN ('OPEN', 'TRIAGED'))"
    );
    let values = params![number.0, id.id.as_str(), id.tenant.as_str()];
    connection.prepare_cached(&query)?.query_row(values, |row| {
        Ok(Needed {
            by_delivery: row.get(0)?,
            by_dead_letter: row.get(1)?,
            by_conflict: row.get(2)?,
            by_its_hash: false,
        })
    })
}

/// Points the claims of a record to it and deletes what moved, if it is still what was written there.
fn point(
    connection: &Connection,
    record: &Record,
    pointer: &Pointer,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let point = format!("UPDATE claim SET archived_at = ?5, archive = ?6 WHERE {}", claim::KEY);
    let message = &record.message;
    let id = IdKey { id: message.id.clone(), tenant: message.tenant.clone() };
    let is_same = usable(movable(connection, &id, record.number, now))?.flatten().as_ref() == Some(record);
    if !is_same || !segment::keep(connection, &pointer.object).map_err(sql)? {
        return Ok(false);
    }
    let write = || {
        for claim in &record.claims {
            let pointer = ClaimPointer::new(pointer.clone(), claim.answer.as_ref()).to_string();
            let (id, tenant) = (message.id.as_str(), message.tenant.as_str());
            let values = params![known::digest(id, tenant), id, tenant, claim.destination, now.0, pointer];
            connection.prepare_cached(&point)?.execute(values)?;
            if let Some(delivery) = claim.delivery {
                connection.prepare_cached("DELETE FROM answer WHERE delivery = ?1")?.execute([delivery.0])?;
            }
        }
        connection.prepare_cached("DELETE FROM message WHERE seq = ?1")?.execute([record.number.0])
    };
    write().map(|_| true).map_err(sql)
}
