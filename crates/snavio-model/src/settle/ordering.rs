//! Order within settling: a message is judged by its entity's state once its claim does not know it, and before anything
//! of it is written (ORD-2). What is not written has not moved the entity on.

use super::taking::Way;
use super::{Delta, Intake, Outcome, Settlement, Working};
use crate::delivery::Delivery;
use crate::order::{
    Action, AfterFailure, Arrival, EntityKey, EntityRecord, EntityState, Judged, Place, Released, Verdict,
    judge,
};
use crate::refusal::Numbers;
use crate::time::Timestamp;

/// How a message stood at a destination that orders, for those who count and tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The place of the destination among the message's.
    pub destination: usize,
    /// How it stood.
    pub verdict: Verdict,
    /// How many numbers were missing, for each gap that was met.
    pub gaps: Vec<u64>,
}

/// Judges a message by its entity. Nothing is changed by that yet.
pub(super) fn stand(
    working: &Working,
    intake: &Intake,
    place: &Place,
    now: Timestamp,
) -> Result<Judged, Outcome> {
    if working.unreadable_entities.contains(&place.key) {
        return Err(Outcome::Unreadable);
    }
    let known = working.entities.get(&place.key).map(|it| it.state.clone());
    let arrival = Arrival {
        id: &intake.message.id,
        number: place.number,
        kind: place.kind,
        completes: place.completes,
        // What its claim knows was answered before.
        applied: false,
    };
    Ok(judge(known, &arrival, &place.rules, now))
}

/// Refuses what every one of its destinations refuses as late (ORD-3). Nothing of it is written, but what had waited long
/// enough goes out.
pub(super) fn refuse_late(ways: &[Way<'_>], working: &mut Working, delta: &mut Delta) -> Option<Settlement> {
    let refusals: Vec<_> = ways.iter().map_while(Way::late).collect();
    if refusals.is_empty() || refusals.len() < ways.len() {
        return None;
    }
    let mut refused = Settlement::unordered(None, Vec::new());
    for (at, (place, judged, reason)) in refusals.into_iter().enumerate() {
        let last = judged.state.as_ref().map_or(place.number, |it| it.last);
        refused
            .outcomes
            .push(Outcome::OutOfOrder { reason, numbers: Numbers { number: place.number, last } });
        refused.ordered.push(note(at, judged));
        keep(place, judged, working, delta);
    }
    Some(refused)
}

/// What is told of it.
pub(super) fn note(destination: usize, judged: &Judged) -> Ordered {
    let own = if let Verdict::Gap { size } = judged.verdict { size } else { 0 };
    let gaps = released(judged).map(|it| it.gap).chain([own]).filter(|gap| *gap > 0).collect();
    Ordered { destination, verdict: judged.verdict, gaps }
}

fn released(judged: &Judged) -> impl Iterator<Item = &Released> {
    judged.before.iter().chain(&judged.after)
}

/// The entity goes on, and what waited for that does too. What was refused has only let go what waited long enough.
pub(super) fn keep(place: &Place, judged: &Judged, working: &mut Working, delta: &mut Delta) {
    let is_as_before = matches!(judged.action, Action::Refuse(_) | Action::Duplicate);
    if is_as_before && released(judged).next().is_none() {
        return;
    }
    let Some(state) = &judged.state else { return };
    let record = EntityRecord { state: state.clone(), rules: place.rules };
    working.entities.insert(place.key.clone(), record.clone());
    delta.entities.insert(place.key.clone(), record);
    released(judged).for_each(|it| release(&place.key, it, delta));
}

/// A message has failed for good before anybody got it: where its route parks, later ones queue behind it (ORD-7).
pub(super) fn park(intake: &Intake, place: &Place, now: Timestamp, working: &mut Working, delta: &mut Delta) {
    let state = working.entities.get(&place.key).map(|it| it.state.clone());
    let id = &intake.message.id;
    let (state, after) = EntityState::failed(state, place.number, place.kind, id, &place.rules, now);
    let Some(state) = state.filter(|_| after == AfterFailure::Parks) else { return };
    let record = EntityRecord { state, rules: place.rules };
    working.entities.insert(place.key.clone(), record.clone());
    delta.entities.insert(place.key.clone(), record);
}

/// A delivery of this very batch is not written as one that waits.
fn release(key: &EntityKey, released: &Released, delta: &mut Delta) {
    let is_it = |it: &&mut Delivery| {
        it.lane.as_ref().is_some_and(|lane| lane.waits && lane.number == released.number && lane.key == *key)
    };
    match delta.deliveries.iter_mut().find(is_it).and_then(|it| it.lane.as_mut()) {
        Some(lane) => lane.waits = false,
        None => delta.released.push((key.clone(), released.number)),
    }
}

#[cfg(test)]
mod tests;
