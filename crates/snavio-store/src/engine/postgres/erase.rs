//! Destroying what an id says, in the rows that are here, and in the archive by pointing to what was written again
//! without it (CLM-18).

use std::collections::BTreeSet;

use snavio_model::archive::Pointer;
use snavio_model::archive::hold::InForce;
use snavio_model::claim::{Claim, ClaimKey, IdKey};
use snavio_model::id::Serial;
use snavio_model::ordering::EntityKey;
use snavio_model::telemetry::Record;
use snavio_model::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::client::{Client, GenericClient};
use super::pool::{Trouble, sql};
use super::{answer, audit, claim, entity, hold, lane, message, original, park, segment, telemetry};
use crate::api::archive::{
    Aside, DESTINATIONS_MAX, Dispute, Erasure, count_of, disputed, erased, objects_of, told_of_erasure,
};
use crate::{Act, LoggedMessage, StoreError};

/// Also says whom to tell.
pub(super) async fn erase(
    client: &mut Client,
    id: &IdKey,
    rewritten: &[(Pointer, Pointer)],
    decides_for: Option<&str>,
    act: &Act,
    told: &mut Vec<Record>,
) -> Result<Erasure, StoreError> {
    let transaction = client.transaction().await.map_err(sql)?;
    // Entities first, as all do: lanes go on when the dead letters go that park them.
    lane::lock_letters_of(&transaction, id).await?;
    let holds = hold::in_force_to_the_end(&transaction).await?;
    // Segments before claims, as whoever moves does.
    let objects = objects_of(rewritten.iter().flat_map(|(old, new)| [old, new]));
    segment::lock(&transaction, &objects.into_iter().collect::<Vec<_>>()).await?;
    let claims = claim::of_ids(&transaction, std::slice::from_ref(id), "FOR UPDATE OF claim").await?;
    let claims: Vec<_> = claims.into_iter().collect::<Result<_, _>>()?;
    let conflicts = conflicts(&transaction, id).await?;
    let messages = messages(&transaction, id, &claims, &conflicts).await?;
    if claims.is_empty() && messages.is_empty() {
        return Ok(Erasure::Unknown);
    }
    if let Some(hold) = held(&holds, id, &claims, &conflicts) {
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
        if is_on_its_way(&transaction, logged.number).await? {
            return Ok(Erasure::Busy);
        }
    }
    let elsewhere = |aside: &Aside| is_left(aside) && aside.is_elsewhere(rewritten);
    if claims.iter().any(|(_, aside)| elsewhere(aside)) || !segment::repoint(&transaction, rewritten).await? {
        return Ok(Erasure::Moved);
    }
    let archived = count_of(claims.iter().filter_map(|(_, aside)| aside.archive.clone()).collect());
    let erased_messages = left.len();
    for (logged, hash_version) in left {
        let number = logged.number;
        message::erase(&transaction, logged, hash_version).await?;
        forget_dead_letters(&transaction, number, act.at).await?;
    }
    let destinations = claims.iter().map(|(_, aside)| &*aside.key.destination);
    let destinations = destinations.chain(conflicts.iter().map(|it| it.destination.as_str()));
    told.extend(told_of_erasure(id, destinations, act.at));
    telemetry::append(&transaction, told).await?;
    let answers = erase_claims(&transaction, claims, act.at).await?;
    audit::append(&transaction, act, &[erased(id, erased_messages, answers, archived)]).await?;
    transaction.commit().await.map_err(sql)?;
    Ok(Erasure::Erased { at: act.at, before: false })
}

/// The conflicts under an id, kept from whoever would resolve them meanwhile.
async fn conflicts(client: &impl GenericClient, id: &IdKey) -> Result<Vec<Dispute>, StoreError> {
    const OF_ID: &str = "SELECT seq, original, destination, owner, state IN ('OPEN', 'TRIAGED') FROM conflict \
         WHERE event_id = $1 AND tenant = $2 ORDER BY seq FOR SHARE";
    let rows = client.query(OF_ID, &[&id.id.as_str(), &id.tenant.as_str()]).await.map_err(sql)?;
    let read = |row: &tokio_postgres::Row| {
        Ok(Dispute {
            number: Serial(row.try_get(0)?),
            original: Serial(row.try_get(1)?),
            destination: row.try_get(2)?,
            owner: row.try_get(3)?,
            is_open: row.try_get(4)?,
        })
    };
    rows.iter().map(read).collect::<Result<_, _>>().map_err(sql)
}

/// The messages under an id that claims, conflicts or its meaning lead to, each with the version of its hash. A damaged
/// one is an error: what it says would stay.
async fn messages(
    client: &impl GenericClient,
    id: &IdKey,
    claims: &[(Claim, Aside)],
    conflicts: &[Dispute],
) -> Result<Vec<(LoggedMessage, u16)>, StoreError> {
    let mut numbers: BTreeSet<_> = claims.iter().map(|(claim, _)| claim.message).collect();
    numbers.extend(conflicts.iter().flat_map(|it| [it.number, it.original]));
    let meaning = original::of_ids(client, std::slice::from_ref(id)).await?;
    numbers.extend(meaning.values().map(|it| it.message));
    let numbers: Vec<_> = numbers.into_iter().collect();
    let mut found = message::find_all_intact(client, &numbers).await?;
    found.retain(|(it, _)| it.message.id == id.id && it.message.tenant == id.tenant);
    Ok(found)
}

fn held(holds: &InForce, id: &IdKey, claims: &[(Claim, Aside)], conflicts: &[Dispute]) -> Option<Serial> {
    let destinations = claims.iter().map(|(_, aside)| &*aside.key.destination);
    let destinations = destinations.chain(conflicts.iter().map(|it| it.destination.as_str())).chain([""]);
    let key = |it: &str| ClaimKey { id: id.id.clone(), tenant: id.tenant.clone(), destination: it.into() };
    destinations.map(key).find_map(|key| holds.on_claim(&key))
}

async fn is_on_its_way(client: &impl GenericClient, message: Serial) -> Result<bool, StoreError> {
    let query = format!(
        "SELECT EXISTS (SELECT FROM delivery WHERE id > $1 AND id <= $1 + {DESTINATIONS_MAX} AND message = $1)"
    );
    client.query_one(&query, &[&message.0]).await.and_then(|row| row.try_get(0)).map_err(sql)
}

/// Nobody puts back what says nothing, so what is parked behind it goes on; what is evidence of a conflict stays.
async fn forget_dead_letters(
    client: &impl GenericClient,
    message: Serial,
    now: Timestamp,
) -> Result<(), StoreError> {
    let delete = format!(
        "DELETE FROM dead_letter WHERE id > $1 AND id <= $1 + {DESTINATIONS_MAX} AND message = $1 \
         AND reason <> 'conflict' RETURNING lane, lane_number, lane_parks"
    );
    let mut ended = Vec::new();
    for row in client.query(&delete, &[&message.0]).await.map_err(sql)? {
        let parks: Option<i64> = row.try_get(2).map_err(sql)?;
        let key = row.try_get::<_, Option<&str>>(0).map_err(sql)?.and_then(EntityKey::stored);
        if let Some(key) = key.filter(|_| parks.is_some()) {
            ended.push((key, row.try_get(1).map_err(sql)?));
        }
    }
    let lanes = || ended.iter().map(|(key, _)| key);
    entity::lock(client, lanes()).await.map_err(Trouble::into_error)?;
    park::done(client, &ended, now).await?;
    lane::pass_on(client, lanes()).await.map(|_| ()).map_err(Trouble::into_error)
}

/// Says how many answers there were.
async fn erase_claims(
    client: &impl GenericClient,
    claims: Vec<(Claim, Aside)>,
    at: Timestamp,
) -> Result<usize, StoreError> {
    const ERASED: &str = "UPDATE claim SET erased_at = coalesce(erased_at, $4) \
         WHERE id = $1 AND tenant = $2 AND destination = $3";
    let (mut deliveries, mut changed) = (Vec::new(), Vec::new());
    for (mut claim, Aside { key, .. }) in claims {
        let (id, tenant) = (key.id.as_str(), key.tenant.as_str());
        let values: [&(dyn ToSql + Sync); 4] = [&id, &tenant, &&*key.destination, &at.0];
        client.execute(ERASED, &values).await.map_err(sql)?;
        deliveries.extend(claim.progress.as_ref().map(|it| it.delivery));
        if let Some(error) = claim.progress.as_mut().and_then(|it| it.error.as_mut()) {
            // It may repeat what was sent.
            "erased".clone_into(error);
            changed.push((key, claim));
        }
    }
    claim::update(client, &changed).await?;
    let mut answers = Vec::new();
    for delivery in deliveries {
        answers.extend(answer::find(client, delivery).await?.map(|it| (delivery, it.erased())));
    }
    answer::put(client, &answers).await?;
    Ok(answers.len())
}
