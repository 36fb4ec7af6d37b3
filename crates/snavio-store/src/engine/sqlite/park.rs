//! Entities that are parked behind a message that failed for good, and go on again (ORD-7).

use snavio_model::id::MessageId;
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, Lane};
use snavio_model::time::Timestamp;

use super::check::usable;
use super::entity;
use super::writer::{Transaction, sql};
use crate::StoreError;

/// Where an entity is parked from now on, if it is: for the lanes in memory, once that is durable.
pub(super) type Parked = (EntityKey, Option<i64>);

/// A message failed for good: where its route parks, its entity stays behind it.
pub(super) fn failed(
    transaction: &Transaction<'_>,
    lane: Option<&Lane>,
    id: Option<&MessageId>,
    now: Timestamp,
) -> Result<Option<Parked>, StoreError> {
    let Some((lane, rules)) = lane.and_then(|lane| Some((lane, lane.parking_rules()?))) else {
        return Ok(None);
    };
    let Some(found) = usable(entity::find(transaction.connection, &lane.key))? else {
        // What cannot be read is not written over: it says more than is known here. Those behind it stay, until somebody
        // begins the entity anew.
        let at = entity::park_unread(transaction.connection, &lane.key, lane.number).map_err(sql)?;
        return Ok(Some((lane.key.clone(), Some(at))));
    };
    let unknown = MessageId::stored("");
    let (state, of) = found.map(|it| (it.state, it.rules)).unzip();
    let (state, _) = EntityState::failed(state, lane.number, lane.kind, id.unwrap_or(&unknown), &rules, now);
    let Some(state) = state else { return Ok(None) };
    let parked_at = state.parked_at();
    let record = EntityRecord { state, rules: of.unwrap_or(rules) };
    entity::put(transaction.connection, &lane.key, &record).map_err(sql)?;
    Ok(Some((lane.key.clone(), parked_at)))
}

/// A message was processed after all, or is none any more: what is parked behind it goes on.
pub(super) fn done(
    transaction: &Transaction<'_>,
    lane: Option<&Lane>,
    now: Timestamp,
) -> Result<Option<Parked>, StoreError> {
    let Some(lane) = lane.filter(|it| it.parks.is_some()) else { return Ok(None) };
    let Some(record) = usable(entity::find(transaction.connection, &lane.key))?.flatten() else {
        return Ok(None);
    };
    let Ok(state) = record.state.unparked(lane.number, &record.rules, now) else { return Ok(None) };
    let record = EntityRecord { state, ..record };
    entity::put(transaction.connection, &lane.key, &record).map_err(sql)?;
    Ok(Some((lane.key.clone(), record.state.parked_at())))
}
