//! Order within settling: a message without an existing claim is judged by its entity's state before anything
//! of it is written (ORD-2). A message that is not written does not advance the entity.

use super::taking::Plan;
use super::{Delta, Intake, Outcome, Settlement, Working};
use crate::ordering::{
    Action, AfterFailure, Arrival, EntityKey, EntityRecord, EntityState, Judged, Place, Released, Verdict,
    end_waits, judge,
};
use crate::refusal::{Numbers, Reason};
use crate::time::Timestamp;

/// The position of a message at a destination that orders, for metrics and telemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// Index of the destination among the message's destinations.
    pub destination: usize,
    /// The verdict; `None` if the entity did not take the message, for lack of room.
    pub verdict: Option<Verdict>,
    /// The count of missing numbers, for each gap found.
    pub gaps: Vec<u64>,
}

/// Judges a message by the state of its entity, without a change of state.
pub(super) fn judge_order(
    working: &Working,
    intake: &Intake,
    place: &Place,
    destination: &str,
    now: Timestamp,
) -> Result<Judged, Outcome> {
    if working.unreadable_entities.contains(&place.key) {
        return Err(Outcome::Unreadable);
    }
    let known = working.entities.get(&place.key).map(|record| record.state.clone());
    let arrival = Arrival {
        id: &intake.message.id,
        number: place.number,
        kind: place.kind,
        completes: place.completes,
        // A message with a claim was answered before this judgement.
        applied: false,
        among: Some(destination).filter(|destination| *place.key.scope != **destination),
    };
    Ok(judge(known, &arrival, &place.rules, now))
}

/// Refuses a message that no destination accepts now or accepted before (PIP-13). The outcome is lack of room
/// if any destination would have accepted it with room, because the message may succeed later; otherwise it
/// is lateness. Nothing of the message is written, but messages with an expired wait are released.
pub(super) fn refuse_unaccepted(
    plans: &[Plan<'_>],
    rooms: &[bool],
    now: Timestamp,
    working: &mut Working,
    delta: &mut Delta,
) -> Option<Settlement> {
    let is_accepted = |(plan, has_room): (&Plan<'_>, &bool)| *has_room || plan.is_skipped() || plan.is_seen();
    if plans.iter().zip(rooms).any(is_accepted) {
        return None;
    }
    if plans.iter().any(Plan::wants_room) {
        return Some(refuse_full(plans, now, working, delta));
    }
    refuse_late(plans, working, delta)
}

fn refuse_full(plans: &[Plan<'_>], now: Timestamp, working: &mut Working, delta: &mut Delta) -> Settlement {
    let mut refused = Settlement::unordered(None, vec![Outcome::QueueFull; plans.len()]);
    for (at, place) in plans.iter().enumerate().filter_map(|(at, plan)| plan.place().map(|place| (at, place)))
    {
        let gaps = end_expired_waits(place, now, working, delta);
        refused.ordered.push(Ordered { destination: at, verdict: None, gaps });
    }
    refused
}

/// Refuses a message that is late at some of its destinations and unreadable at the others. All get the same
/// outcome.
fn refuse_late(plans: &[Plan<'_>], working: &mut Working, delta: &mut Delta) -> Option<Settlement> {
    let everywhere = plans.iter().all(|plan| plan.late().is_some());
    let outcome = |(place, judged, reason): (&Place, &Judged, Reason)| {
        let last = judged.state.as_ref().map_or(place.number, |state| state.last);
        Outcome::OutOfOrder { reason, numbers: Numbers { number: place.number, last }, everywhere }
    };
    let first = outcome(plans.iter().find_map(Plan::late)?);
    let mut refused = Settlement::unordered(None, Vec::new());
    for (at, plan) in plans.iter().enumerate() {
        refused.outcomes.push(plan.late().map_or(first, outcome));
        if let Some((place, judged, _)) = plan.late() {
            refused.ordered.push(describe(at, judged));
            write_judgement(place, judged, working, delta);
        }
    }
    Some(refused)
}

/// The verdict and gaps of a judgement, for metrics and telemetry.
pub(super) fn describe(destination: usize, judged: &Judged) -> Ordered {
    let own = if let Verdict::Gap { size } = judged.verdict { size } else { 0 };
    let gaps = released(judged).map(|message| message.gap).chain([own]).filter(|gap| *gap > 0).collect();
    Ordered { destination, verdict: Some(judged.verdict), gaps }
}

fn released(judged: &Judged) -> impl Iterator<Item = &Released> {
    judged.before.iter().chain(&judged.after)
}

/// Writes the new state of the entity, and releases the messages that waited for it. A refused or duplicate
/// message writes the state only if it released messages with an expired wait.
pub(super) fn write_judgement(place: &Place, judged: &Judged, working: &mut Working, delta: &mut Delta) {
    let is_unchanged = matches!(judged.action, Action::Refuse(_) | Action::Duplicate);
    if is_unchanged && released(judged).next().is_none() {
        return;
    }
    let Some(state) = &judged.state else { return };
    write_state(place, state.clone(), working, delta);
    released(judged).for_each(|message| release(&place.key, message, delta));
}

/// Releases messages with an expired wait, although the message that triggers this is not accepted. Returns
/// the count of missing numbers for each gap.
pub(super) fn end_expired_waits(
    place: &Place,
    now: Timestamp,
    working: &mut Working,
    delta: &mut Delta,
) -> Vec<u64> {
    let known = working.entities.get(&place.key).filter(|record| record.state.is_live(now));
    let Some(known) = known else { return Vec::new() };
    let (state, released) = end_waits(known.state.clone(), &place.rules, now);
    if !released.is_empty() {
        write_state(place, state, working, delta);
        released.iter().for_each(|message| release(&place.key, message, delta));
    }
    released.iter().map(|message| message.gap).filter(|gap| *gap > 0).collect()
}

fn write_state(place: &Place, state: EntityState, working: &mut Working, delta: &mut Delta) {
    let record = EntityRecord { state, rules: place.rules };
    working.entities.insert(place.key.clone(), record.clone());
    delta.entities.insert(place.key.clone(), record);
}

/// Parks the entity of a message that failed for good before any consumer received it, if its route parks
/// (ORD-7).
pub(super) fn park_entity(
    intake: &Intake,
    place: &Place,
    now: Timestamp,
    working: &mut Working,
    delta: &mut Delta,
) {
    let state = working.entities.get(&place.key).map(|record| record.state.clone());
    let id = &intake.message.id;
    let (state, after) = EntityState::failed(state, place.number, place.kind, id, &place.rules, now);
    let Some(state) = state.filter(|_| after == AfterFailure::Parks) else { return };
    write_state(place, state, working, delta);
}

/// Releases a waiting delivery. One of the same batch is not yet written, so it loses its waiting mark
/// instead.
fn release(key: &EntityKey, released: &Released, delta: &mut Delta) {
    let mut lanes = delta.deliveries.iter_mut().filter_map(|delivery| delivery.lane.as_mut());
    let lane = lanes.find(|lane| lane.waits && lane.number == released.number && lane.key == *key);
    match lane {
        Some(lane) => lane.waits = false,
        None => delta.released.push((key.clone(), released.number)),
    }
}

#[cfg(test)]
mod tests;
