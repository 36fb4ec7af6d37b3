//! Order within settling: a message is judged by its entity's state once its claim does not know it, and before anything
//! of it is written (ORD-2). What is not written has not moved the entity on.

use super::taking::Way;
use super::{Delta, Intake, Outcome, Settlement, Working};
use crate::delivery::Delivery;
use crate::ordering::{
    Action, AfterFailure, Arrival, EntityKey, EntityRecord, EntityState, Judged, Place, Released, Verdict,
    end_waits, judge,
};
use crate::refusal::{Numbers, Reason};
use crate::time::Timestamp;

/// How a message stood at a destination that orders, for those who count and tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The place of the destination among the message's.
    pub destination: usize,
    /// How it stood; nothing where it has not come, for want of room.
    pub verdict: Option<Verdict>,
    /// How many numbers were missing, for each gap that was met.
    pub gaps: Vec<u64>,
}

/// Judges a message by its entity. Nothing is changed by that yet.
pub(super) fn stand(
    working: &Working,
    intake: &Intake,
    place: &Place,
    destination: &str,
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
        among: Some(destination).filter(|it| *place.key.scope != **it),
    };
    Ok(judge(known, &arrival, &place.rules, now))
}

/// Refuses what none of its destinations takes now or took before (PIP-13): for want of room if any of them would have had
/// it, since it may come again; else as late. Nothing of it is written, but what had waited long enough goes out.
pub(super) fn refuse(
    ways: &[Way<'_>],
    rooms: &[bool],
    now: Timestamp,
    working: &mut Working,
    delta: &mut Delta,
) -> Option<Settlement> {
    let is_taken = |(way, has_room): (&Way<'_>, &bool)| *has_room || way.is_skipped() || way.is_seen();
    if ways.iter().zip(rooms).any(is_taken) {
        return None;
    }
    if ways.iter().any(Way::wants_room) {
        return Some(refuse_full(ways, now, working, delta));
    }
    refuse_late(ways, working, delta)
}

fn refuse_full(ways: &[Way<'_>], now: Timestamp, working: &mut Working, delta: &mut Delta) -> Settlement {
    let mut refused = Settlement::unordered(None, vec![Outcome::QueueFull; ways.len()]);
    for (at, place) in ways.iter().enumerate().filter_map(|(at, way)| way.place().map(|it| (at, it))) {
        let gaps = let_go(place, now, working, delta);
        refused.ordered.push(Ordered { destination: at, verdict: None, gaps });
    }
    refused
}

/// Late at some of its destinations, and at the others nobody can say. They are told the same.
fn refuse_late(ways: &[Way<'_>], working: &mut Working, delta: &mut Delta) -> Option<Settlement> {
    let everywhere = ways.iter().all(|way| way.late().is_some());
    let outcome = |(place, judged, reason): (&Place, &Judged, Reason)| {
        let last = judged.state.as_ref().map_or(place.number, |it| it.last);
        Outcome::OutOfOrder { reason, numbers: Numbers { number: place.number, last }, everywhere }
    };
    let first = outcome(ways.iter().find_map(Way::late)?);
    let mut refused = Settlement::unordered(None, Vec::new());
    for (at, way) in ways.iter().enumerate() {
        refused.outcomes.push(way.late().map_or(first, outcome));
        if let Some((place, judged, _)) = way.late() {
            refused.ordered.push(note(at, judged));
            keep(place, judged, working, delta);
        }
    }
    Some(refused)
}

/// What is told of it.
pub(super) fn note(destination: usize, judged: &Judged) -> Ordered {
    let own = if let Verdict::Gap { size } = judged.verdict { size } else { 0 };
    let gaps = released(judged).map(|it| it.gap).chain([own]).filter(|gap| *gap > 0).collect();
    Ordered { destination, verdict: Some(judged.verdict), gaps }
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
    write(place, state.clone(), working, delta);
    released(judged).for_each(|it| release(&place.key, it, delta));
}

/// What has waited long enough goes out, though the message that found it has not come: says what was missing.
pub(super) fn let_go(place: &Place, now: Timestamp, working: &mut Working, delta: &mut Delta) -> Vec<u64> {
    let known = working.entities.get(&place.key).filter(|it| it.state.is_live(now));
    let Some(known) = known else { return Vec::new() };
    let (state, released) = end_waits(known.state.clone(), &place.rules, now);
    if !released.is_empty() {
        write(place, state, working, delta);
        released.iter().for_each(|it| release(&place.key, it, delta));
    }
    released.iter().map(|it| it.gap).filter(|gap| *gap > 0).collect()
}

fn write(place: &Place, state: EntityState, working: &mut Working, delta: &mut Delta) {
    let record = EntityRecord { state, rules: place.rules };
    working.entities.insert(place.key.clone(), record.clone());
    delta.entities.insert(place.key.clone(), record);
}

/// A message has failed for good before anybody got it: where its route parks, later ones queue behind it (ORD-7).
pub(super) fn park(intake: &Intake, place: &Place, now: Timestamp, working: &mut Working, delta: &mut Delta) {
    let state = working.entities.get(&place.key).map(|it| it.state.clone());
    let id = &intake.message.id;
    let (state, after) = EntityState::failed(state, place.number, place.kind, id, &place.rules, now);
    let Some(state) = state.filter(|_| after == AfterFailure::Parks) else { return };
    write(place, state, working, delta);
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
