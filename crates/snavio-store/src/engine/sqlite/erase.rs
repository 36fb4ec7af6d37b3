//! Destroying what an id says, in the rows that are here, and in the archive by pointing to what was written again
//! without it (CLM-18).

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use snavio_model::archive::Pointer;
use snavio_model::claim::{Claim, ClaimKey, IdKey};
use snavio_model::id::Serial;
use snavio_model::telemetry::Record;
use snavio_model::time::Timestamp;

use super::park::{self, Parked};
use super::writer::{Transaction, sql};
use super::{answer, audit, claim, dead_letter, hold, known, message, original, segment, telemetry};
use crate::api::archive::{
    Aside, DESTINATIONS_MAX, Dispute, Erasure, count_of, disputed, erased, told_of_erasure,
};
use crate::{Act, LoggedMessage, StoreError};

/// What erasing leaves to be done once it is durable.
#[derive(Default)]
pub(super) struct Aftermath {
    /// Whom to tell.
    pub(super) told: Vec<Record>,
    /// Where entities are parked from then on.
    pub(super) parked: Vec<Parked>,
}

/// Erases, and overwrites what is freed by that.
pub(super) fn erase(
    transaction: &mut Transaction<'_>,
    id: &IdKey,
    rewritten: &[(Pointer, Pointer)],
    decides_for: Option<&str>,
    act: &Act,
) -> Result<(Erasure, Aftermath), StoreError> {
    let mut after = Aftermath::default();
    let connection = transaction.connection;
    let erased =
        overwriting(connection, || erase_rows(transaction, id, rewritten, decides_for, act, &mut after))?;
    Ok((erased, after))
}

/// Has SQLite overwrite what is freed meanwhile: pages that are merely free would still say it.
pub(super) fn overwriting<T>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let overwrite = |whether: bool| connection.pragma_update(None, "secure_delete", whether).map_err(sql);
    overwrite(true)?;
    let done = work();
    overwrite(false)?;
    done
}

fn erase_rows(
    transaction: &mut Transaction<'_>,
    id: &IdKey,
    rewritten: &[(Pointer, Pointer)],
    decides_for: Option<&str>,
    act: &Act,
    after: &mut Aftermath,
) -> Result<Erasure, StoreError> {
    let connection = transaction.connection;
    let claims = claim::of_id(connection, id)?;
    let conflicts = conflicts(connection, id).map_err(sql)?;
    let messages = messages(connection, id, &claims, &conflicts)?;
    if claims.is_empty() && messages.is_empty() {
        return Ok(Erasure::Unknown);
    }
    if let Some(hold) = held(connection, id, &claims, &conflicts)? {
        return Ok(Erasure::Held(hold));
    }
    let left: Vec<_> = messages.into_iter().filter(|(it, _)| !it.message.is_erased()).collect();
    let is_left = |aside: &Aside| aside.erased_at.is_none();
    if left.is_empty() && !claims.iter().any(|(_, aside)| is_left(aside)) {
        let at = claims.iter().filter_map(|(_, aside)| aside.erased_at).max();
        return Ok(Erasure::Erased { at: at.map_or(act.at, Timestamp), before: true });
    }
    if let Some(conflict) = disputed(&conflicts, decides_for) {
        return Ok(Erasure::Disputed(conflict));
    }
    for (logged, _) in &left {
        if is_on_its_way(connection, logged.number).map_err(sql)? {
            return Ok(Erasure::Busy);
        }
    }
    let elsewhere = |aside: &Aside| is_left(aside) && aside.is_elsewhere(rewritten);
    if claims.iter().any(|(_, aside)| elsewhere(aside)) || !segment::repoint(connection, rewritten)? {
        return Ok(Erasure::Moved);
    }
    let archived = count_of(claims.iter().filter_map(|(_, aside)| aside.archive.clone()).collect());
    let erased_messages = left.len();
    for (logged, hash_version) in left {
        let number = logged.number;
        message::erase(connection, logged, hash_version).map_err(sql)?;
        after.parked.extend(forget_dead_letters(transaction, number, act.at)?);
    }
    let destinations = claims.iter().map(|(_, aside)| &*aside.key.destination);
    let destinations = destinations.chain(conflicts.iter().map(|it| it.destination.as_str()));
    after.told.extend(told_of_erasure(id, destinations, act.at));
    telemetry::append(transaction, &after.told)?;
    let mut answers = 0;
    for (claim, aside) in claims {
        answers += usize::from(erase_claim(connection, claim, &aside.key, act.at)?);
    }
    let deed = erased(id, erased_messages, answers, archived);
    audit::append(transaction, deed.action, &deed.object, act, &deed.outcome)?;
    Ok(Erasure::Erased { at: act.at, before: false })
}

fn conflicts(connection: &Connection, id: &IdKey) -> rusqlite::Result<Vec<Dispute>> {
    const OF_ID: &str = "SELECT seq, original, destination, owner, state IN ('OPEN', 'TRIAGED') FROM conflict \
         WHERE event_id = ?1 AND tenant = ?2 ORDER BY seq";
    let mut statement = connection.prepare_cached(OF_ID)?;
    let rows = statement.query_map((id.id.as_str(), id.tenant.as_str()), |row| {
        Ok(Dispute {
            number: Serial(row.get(0)?),
            original: Serial(row.get(1)?),
            destination: row.get(2)?,
            owner: row.get(3)?,
            is_open: row.get(4)?,
        })
    })?;
    rows.collect()
}

/// The messages under an id that claims, conflicts or its meaning lead to, each with the version of its hash.
fn messages(
    connection: &Connection,
    id: &IdKey,
    claims: &[(Claim, Aside)],
    conflicts: &[Dispute],
) -> Result<Vec<(LoggedMessage, u16)>, StoreError> {
    let mut numbers: BTreeSet<_> = claims.iter().map(|(claim, _)| claim.message).collect();
    numbers.extend(conflicts.iter().flat_map(|it| [it.number, it.original]));
    numbers.extend(original::find(connection, id)?.map(|it| it.message));
    let mut found = Vec::new();
    for number in numbers {
        found.extend(message::find_versioned(connection, number)?);
    }
    found.retain(|(it, _)| it.message.id == id.id && it.message.tenant == id.tenant);
    Ok(found)
}

fn held(
    connection: &Connection,
    id: &IdKey,
    claims: &[(Claim, Aside)],
    conflicts: &[Dispute],
) -> Result<Option<Serial>, StoreError> {
    let destinations = claims.iter().map(|(_, aside)| &*aside.key.destination);
    let destinations = destinations.chain(conflicts.iter().map(|it| it.destination.as_str())).chain([""]);
    let key = |it: &str| ClaimKey { id: id.id.clone(), tenant: id.tenant.clone(), destination: it.into() };
    let keys: Vec<_> = destinations.map(key).collect();
    let holds = hold::in_force(connection)?;
    Ok(keys.iter().find_map(|key| holds.on_claim(key)))
}

fn is_on_its_way(connection: &Connection, message: Serial) -> rusqlite::Result<bool> {
    let query = format!(
        "SELECT EXISTS (SELECT 1 FROM delivery WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1)"
    );
    connection.prepare_cached(&query)?.query_row([message.0], |row| row.get(0))
}

/// Nobody puts back what says nothing, so what is parked behind it goes on; what is evidence of a conflict stays.
fn forget_dead_letters(
    transaction: &Transaction<'_>,
    message: Serial,
    now: Timestamp,
) -> Result<Vec<Parked>, StoreError> {
    let mut parked = Vec::new();
    for letter in dead_letter::of_message(transaction.connection, message)? {
        parked.extend(park::done(transaction, letter.delivery.lane.as_deref(), now)?);
    }
    let delete = format!(
        "DELETE FROM dead_letter WHERE id > ?1 AND id <= ?1 + {DESTINATIONS_MAX} AND message = ?1 \
         AND reason <> 'conflict'"
    );
    let deleted = transaction.connection.prepare_cached(&delete).and_then(|mut it| it.execute([message.0]));
    deleted.map(|_| parked).map_err(sql)
}

/// Whether there was an answer.
fn erase_claim(
    connection: &Connection,
    mut claim: Claim,
    key: &ClaimKey,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let erased = format!("UPDATE claim SET erased_at = coalesce(erased_at, ?5) WHERE {}", claim::KEY);
    let delivery = claim.progress.as_ref().map(|it| it.delivery);
    if let Some(error) = claim.progress.as_mut().and_then(|it| it.error.as_mut()) {
        // It may repeat what was sent.
        "erased".clone_into(error);
        claim::update(connection, key, &claim).map_err(sql)?;
    }
    let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
    let values = params![known::digest(id, tenant), id, tenant, key.destination, at.0];
    connection.prepare_cached(&erased).and_then(|mut it| it.execute(values)).map_err(sql)?;
    let Some(delivery) = delivery else { return Ok(false) };
    let found = answer::find(connection, delivery)?;
    let is_there = found.is_some();
    if let Some(answer) = found {
        answer::put(connection, delivery, &answer.erased()).map_err(sql)?;
    }
    Ok(is_there)
}
