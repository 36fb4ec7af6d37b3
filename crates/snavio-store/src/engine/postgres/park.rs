//! Entities that are parked behind a message that failed for good, and go on again (ORD-7). Within a transaction that has
//! locked the entities already.

use snavio_model::delivery::DeadLetter;
use snavio_model::id::MessageId;
use snavio_model::name::QueueKey;
use snavio_model::ordering::{EntityKey, EntityRecord, EntityState, Lane};
use snavio_model::time::Timestamp;

use super::client::GenericClient;
use super::pool::Trouble;
use super::{entity, lane, message};
use crate::StoreError;
use crate::record::check_value::usable;

/// Messages failed for good: where their route parks, their entities stay behind them.
pub(super) async fn failed(
    client: &impl GenericClient,
    letters: &[DeadLetter],
    now: Timestamp,
) -> Result<(), StoreError> {
    let parking = |letter: &'_ DeadLetter| letter.delivery.lane.clone().filter(|it| it.parks.is_some());
    let parking: Vec<_> = letters.iter().filter_map(|it| Some((it.delivery.message, parking(it)?))).collect();
    for (number, lane) in parking {
        let Some(rules) = lane.parking_rules() else { continue };
        let Some(found) = usable(entity::find_one(client, &lane.key).await)? else {
            // What cannot be read is not written over: it says more than is known here. Those behind it stay, until
            // somebody begins the entity anew.
            entity::park_unread(client, &lane.key, lane.number).await?;
            continue;
        };
        let (state, of) = found.map(|it| (it.state, it.rules)).unzip();
        let message = usable(message::find(client, number).await)?.flatten();
        let id = message.map_or_else(|| MessageId::stored(""), |it| it.message.id);
        let (state, _) = EntityState::failed(state, lane.number, lane.kind, &id, &rules, now);
        let Some(state) = state else { continue };
        let record = EntityRecord { state, rules: of.unwrap_or(rules) };
        entity::put(client, [(&lane.key, &record)].into_iter()).await.map_err(Trouble::into_error)?;
    }
    Ok(())
}

/// Messages were processed after all, or are none any more: what is parked behind them goes on.
pub(super) async fn done(
    client: &impl GenericClient,
    ended: &[(EntityKey, i64)],
    now: Timestamp,
) -> Result<(), StoreError> {
    for (key, number) in ended {
        let Some(record) = usable(entity::find_one(client, key).await)?.flatten() else { continue };
        let Ok(state) = record.state.unparked(*number, &record.rules, now) else { continue };
        let record = EntityRecord { state, ..record };
        entity::put(client, [(key, &record)].into_iter()).await.map_err(Trouble::into_error)?;
    }
    Ok(())
}

/// Messages have ended, well or for good: what was behind them goes on, as far as it may. Says in which queues.
pub(super) async fn ended(
    client: &impl GenericClient,
    done: &[Lane],
    letters: &[DeadLetter],
    now: Timestamp,
) -> Result<Vec<QueueKey>, StoreError> {
    self::done(client, &parking(done.iter()), now).await?;
    failed(client, letters, now).await?;
    let letters = letters.iter().filter_map(|it| it.delivery.lane.as_deref());
    lane::pass_on(client, letters.chain(done).map(|it| &it.key)).await.map_err(Trouble::into_error)
}

/// Those that an entity may be parked behind.
fn parking<'a>(lanes: impl Iterator<Item = &'a Lane>) -> Vec<(EntityKey, i64)> {
    lanes.filter(|it| it.parks.is_some()).map(|it| (it.key.clone(), it.number)).collect()
}
