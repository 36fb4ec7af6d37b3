//! Accepts a message at each of its destinations: claims the id if the route claims, and queues, skips or
//! buries it.

use std::time::Duration;

use super::{Delta, Intake, Ordered, Outcome, Working, check_claim, claim_key, ordering};
use crate::claim::{Claim, Progress};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::id::Serial;
use crate::ordering::{Action, Judged, Lane, Place, Placed, Verdict};
use crate::refusal::Reason;
use crate::time::Timestamp;

/// The plan for a message at one destination, made before the room in the queue is known.
pub(super) enum Plan<'a> {
    /// The outcome is certain: the destination has seen the message, or the message is refused everywhere.
    Decided(Outcome),
    /// New and without order.
    New,
    /// New, with its position in the entity and the judgement.
    Ordered(&'a Place, Box<Judged>),
    /// New, with an unreadable position.
    Unreadable,
}

/// Plans a message at one of its destinations.
pub(super) fn plan_destination<'a>(
    working: &Working,
    intake: &'a Intake,
    at: usize,
    now: Timestamp,
    delta: &Delta,
) -> Plan<'a> {
    // A captured copy of a message is a duplicate at each destination that accepted it, independently of the
    // others.
    if intake.known.get(at) == Some(&true) {
        return Plan::Decided(Outcome::Duplicate { first_seen_at: intake.message.received_at });
    }
    if let Some(seen) = check_claim(working, intake, &intake.destinations[at], now, delta) {
        return Plan::Decided(seen);
    }
    let place = match intake.places.get(at) {
        None | Some(Placed::Unordered | Placed::Unmarked) => return Plan::New,
        Some(Placed::Unreadable) => return Plan::Unreadable,
        Some(Placed::At(place)) => place,
    };
    match ordering::judge_order(working, intake, place, &intake.destinations[at].destination, now) {
        Ok(judged) => Plan::Ordered(place, Box::new(judged)),
        Err(outcome) => Plan::Decided(outcome),
    }
}

impl Plan<'_> {
    /// The outcome that refuses the message at all of its destinations.
    pub(super) fn refusal(&self) -> Option<Outcome> {
        match self {
            Self::Decided(outcome) => Some(*outcome).filter(Outcome::is_refusal),
            Self::New | Self::Ordered(..) | Self::Unreadable => None,
        }
    }

    /// Position, judgement and reason, if the message is late on a route that refuses late messages.
    pub(super) fn late(&self) -> Option<(&Place, &Judged, Reason)> {
        match self {
            Self::Ordered(place, judged) => match judged.action {
                Action::Refuse(reason) => Some((place, judged, reason)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The position, if the destination orders.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Ordered(place, _) => Some(place),
            Self::Decided(_) | Self::New | Self::Unreadable => None,
        }
    }

    fn action(&self) -> Option<Action> {
        match self {
            Self::Decided(_) | Self::Unreadable => None,
            Self::New => Some(Action::Deliver),
            Self::Ordered(_, judged) => Some(judged.action),
        }
    }

    /// Whether the destination accepted the message before.
    pub(super) fn is_seen(&self) -> bool {
        let is_known = matches!(self, Self::Decided(outcome) if !outcome.is_refusal());
        is_known || self.action() == Some(Action::Duplicate)
    }

    pub(super) fn wants_room(&self) -> bool {
        matches!(self.action(), Some(Action::Deliver | Action::Hold))
    }

    pub(super) fn is_skipped(&self) -> bool {
        self.action() == Some(Action::Skip)
    }

    /// Whether this plan makes the gateway record the message.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::Unreadable) || !matches!(self.action(), None | Some(Action::Duplicate))
    }
}

/// The acceptance of one message at its destinations.
pub(super) struct Acceptance<'a> {
    pub(super) intake: &'a Intake,
    /// The number of the message, if any destination accepts it.
    pub(super) message: Option<Serial>,
    /// The longest retention of the id record among the accepting destinations.
    pub(super) compared_for: Option<Duration>,
    pub(super) now: Timestamp,
    /// The position at the destinations that order.
    pub(super) ordered: Vec<Ordered>,
}

/// The way in which a destination accepts a message.
enum Disposition {
    Queued(Option<Box<Lane>>),
    Buried(DeadReason, Option<Box<Lane>>),
    Skipped,
}

impl Acceptance<'_> {
    /// Executes the plan of one destination.
    pub(super) fn execute(
        &mut self,
        at: usize,
        plan: Plan<'_>,
        has_room: bool,
        working: &mut Working,
        delta: &mut Delta,
    ) -> Outcome {
        match plan {
            Plan::Decided(outcome) => outcome,
            Plan::New if has_room => self.accept(at, Disposition::Queued(None), working, delta),
            Plan::New => self.accept(at, Disposition::Buried(DeadReason::QueueFull, None), working, delta),
            // The producer is not to blame for the pointer by which a destination looks for the number.
            Plan::Unreadable => {
                self.accept(at, Disposition::Buried(DeadReason::OrderUnreadable, None), working, delta)
            }
            Plan::Ordered(place, judged) => {
                self.execute_ordered(at, place, &judged, has_room, working, delta)
            }
        }
    }

    fn execute_ordered(
        &mut self,
        at: usize,
        place: &Place,
        judged: &Judged,
        has_room: bool,
        working: &mut Working,
        delta: &mut Delta,
    ) -> Outcome {
        let waits = judged.action == Action::Hold;
        let is_behind = judged.state.as_ref().is_some_and(|state| state.holds_back(place.number));
        let lane = |waits| if judged.verdict == Verdict::Unordered { None } else { place.lane(waits) };
        let disposition = match judged.action {
            // Its claim has expired, but its entity still remembers it.
            Action::Duplicate => {
                ordering::write_judgement(place, judged, working, delta);
                self.ordered.push(ordering::describe(at, judged));
                return Outcome::Duplicate { first_seen_at: self.now };
            }
            Action::Deliver | Action::Hold if has_room => Disposition::Queued(lane(waits)),
            // Without room the message does not advance its entity, and it has failed for good.
            Action::Deliver | Action::Hold => {
                let lane = lane(false);
                let gaps = ordering::end_expired_waits(place, self.now, working, delta);
                let verdict = Some(judged.verdict).filter(Verdict::is_violation);
                self.ordered.push(Ordered { destination: at, verdict, gaps });
                if lane.is_some() {
                    ordering::park_entity(self.intake, place, self.now, working, delta);
                }
                return self.accept(at, Disposition::Buried(DeadReason::QueueFull, lane), working, delta);
            }
            Action::Skip => Disposition::Skipped,
            // The producer is not to blame for the count of each destination, so only this one refuses. The
            // dead letter parks nothing, now or after a redrive, because later messages have already passed
            // it. If its number is parked, another message with that number is the cause (ORD-7).
            Action::Refuse(_) => {
                let lane = lane(false).map(|lane| Box::new(Lane { parks: None, ..*lane }));
                Disposition::Buried(DeadReason::OutOfOrder, lane)
            }
        };
        let is_parked = is_behind && matches!(disposition, Disposition::Queued(Some(_)));
        let outcome = self.accept(at, disposition, working, delta);
        ordering::write_judgement(place, judged, working, delta);
        self.ordered.push(ordering::describe(at, judged));
        match outcome {
            Outcome::Queued { delivery } if waits => Outcome::Held { delivery },
            Outcome::Queued { delivery } if is_parked => Outcome::Parked { delivery },
            outcome => outcome,
        }
    }

    /// Accepts the message at one destination. A full queue makes it a dead letter at once: the producer of
    /// an event does not know the subscribers, and other destinations have accepted the event (PIP-13).
    fn accept(
        &mut self,
        at: usize,
        disposition: Disposition,
        working: &mut Working,
        delta: &mut Delta,
    ) -> Outcome {
        let route = &self.intake.destinations[at];
        let Some(message) = self.message else { return Outcome::Unreadable };
        let number =
            if matches!(disposition, Disposition::Skipped) { message } else { working.next_number() };
        self.claim(at, message, number, &disposition, working, delta);
        let delivery = |lane| Delivery { lane, ..Delivery::new(number, message, route, self.now) };
        match disposition {
            Disposition::Skipped => Outcome::Skipped,
            Disposition::Queued(lane) => {
                delta.deliveries.push(delivery(lane));
                Outcome::Queued { delivery: number }
            }
            Disposition::Buried(reason, lane) => {
                delta.letters.push(DeadLetter::new(delivery(lane), reason, self.now));
                Outcome::Buried { delivery: number, reason }
            }
        }
    }

    /// Claims the id at a destination, if its route claims.
    fn claim(
        &mut self,
        at: usize,
        message: Serial,
        number: Serial,
        disposition: &Disposition,
        working: &mut Working,
        delta: &mut Delta,
    ) {
        let (route, now) = (&self.intake.destinations[at], self.now);
        self.compared_for = self.compared_for.max(route.route.claim.compares());
        let Some(keep) = route.route.claim.keep() else { return };
        // An applied message is a duplicate and never late, as long as its entity's state is kept (ORD-4).
        let place = self.intake.places.get(at).and_then(Placed::place);
        let keep = place.map_or(keep, |place| keep.max(place.rules.ttl));
        // A skipped message is complete, because no report will follow.
        let is_tracked = route.route.processing.is_tracked() && !matches!(disposition, Disposition::Skipped);
        let mut claim = Claim {
            source: self.intake.message.source.clone(),
            message,
            first_seen_at: now,
            expires_at: now.plus(keep),
            hot_until: route.route.claim.hot().map(|hot| now.plus(hot)),
            progress: is_tracked.then(|| Box::new(Progress::new(number))),
        };
        if let Disposition::Buried(reason, _) = disposition {
            claim.buried(*reason, 0, now);
        }
        let key = claim_key(&self.intake.message, route);
        working.claims.insert(key.clone(), claim.clone());
        delta.claims.push((key, claim));
    }
}
