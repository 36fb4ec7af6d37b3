//! How a message is taken at each of its destinations: claimed where the route claims, and queued, left out or buried.

use std::time::Duration;

use super::{Delta, Intake, Ordered, Outcome, Working, check_claim, claim_key, ordering};
use crate::claim::{Claim, Progress};
use crate::delivery::{DeadLetter, DeadReason, Delivery};
use crate::id::Serial;
use crate::ordering::{Action, Judged, Lane, Place, Placed, Verdict};
use crate::refusal::Reason;
use crate::time::Timestamp;

/// What is to be done with a message at one destination, before it is known whether there is room.
pub(super) enum Way<'a> {
    /// It is known there, or refused everywhere.
    Ends(Outcome),
    /// It is new, and nobody orders it.
    New,
    /// It is new, and this is how it stands in its entity.
    Ordered(&'a Place, Box<Judged>),
    /// It is new, and its place there cannot be read.
    Unreadable,
}

/// Finds the way of a message at one of its destinations.
pub(super) fn way<'a>(
    working: &Working,
    intake: &'a Intake,
    at: usize,
    now: Timestamp,
    delta: &Delta,
) -> Way<'a> {
    // The very same message, captured and sent again, comes to nobody twice, whatever it is to the others.
    if intake.known.get(at) == Some(&true) {
        return Way::Ends(Outcome::Duplicate { first_seen_at: intake.message.received_at });
    }
    if let Some(seen) = check_claim(working, intake, &intake.destinations[at], now, delta) {
        return Way::Ends(seen);
    }
    let place = match intake.places.get(at) {
        None | Some(Placed::Unordered | Placed::Unmarked) => return Way::New,
        Some(Placed::Unreadable) => return Way::Unreadable,
        Some(Placed::At(place)) => place,
    };
    match ordering::stand(working, intake, place, &intake.destinations[at].destination, now) {
        Ok(judged) => Way::Ordered(place, Box::new(judged)),
        Err(outcome) => Way::Ends(outcome),
    }
}

impl Way<'_> {
    /// What refuses the message at all of its destinations.
    pub(super) fn refusal(&self) -> Option<Outcome> {
        match self {
            Self::Ends(outcome) => Some(*outcome).filter(Outcome::is_refusal),
            Self::New | Self::Ordered(..) | Self::Unreadable => None,
        }
    }

    /// Where it stands, if it is late there and late ones are refused.
    pub(super) fn late(&self) -> Option<(&Place, &Judged, Reason)> {
        match self {
            Self::Ordered(place, judged) => match judged.action {
                Action::Refuse(reason) => Some((place, judged, reason)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Where it stands, if it is ordered there.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Ordered(place, _) => Some(place),
            Self::Ends(_) | Self::New | Self::Unreadable => None,
        }
    }

    fn action(&self) -> Option<Action> {
        match self {
            Self::Ends(_) | Self::Unreadable => None,
            Self::New => Some(Action::Deliver),
            Self::Ordered(_, judged) => Some(judged.action),
        }
    }

    /// Whether it was taken there before.
    pub(super) fn is_seen(&self) -> bool {
        let is_known = matches!(self, Self::Ends(outcome) if !outcome.is_refusal());
        is_known || self.action() == Some(Action::Duplicate)
    }

    pub(super) fn wants_room(&self) -> bool {
        matches!(self.action(), Some(Action::Deliver | Action::Hold))
    }

    pub(super) fn is_skipped(&self) -> bool {
        self.action() == Some(Action::Skip)
    }

    /// Whether the message is recorded because of it.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::Unreadable) || !matches!(self.action(), None | Some(Action::Duplicate))
    }
}

/// A message on its way through its destinations.
pub(super) struct Taking<'a> {
    pub(super) intake: &'a Intake,
    /// Its number, if any of them takes it.
    pub(super) message: Option<Serial>,
    /// For how long the longest of those that take it compares.
    pub(super) meant_for: Option<Duration>,
    pub(super) now: Timestamp,
    /// How it stood at those that order.
    pub(super) ordered: Vec<Ordered>,
}

/// How a destination takes a message.
enum Taken {
    Queued(Option<Box<Lane>>),
    Buried(DeadReason, Option<Box<Lane>>),
    Skipped,
}

impl Taking<'_> {
    /// Goes the way of one destination.
    pub(super) fn go(
        &mut self,
        at: usize,
        way: Way<'_>,
        has_room: bool,
        working: &mut Working,
        delta: &mut Delta,
    ) -> Outcome {
        match way {
            Way::Ends(outcome) => outcome,
            Way::New if has_room => self.take(at, Taken::Queued(None), working, delta),
            Way::New => self.take(at, Taken::Buried(DeadReason::QueueFull, None), working, delta),
            // Nor is its producer to blame for where each destination looks for its number.
            Way::Unreadable => {
                self.take(at, Taken::Buried(DeadReason::OrderUnreadable, None), working, delta)
            }
            Way::Ordered(place, judged) => self.go_in_order(at, place, &judged, has_room, working, delta),
        }
    }

    fn go_in_order(
        &mut self,
        at: usize,
        place: &Place,
        judged: &Judged,
        has_room: bool,
        working: &mut Working,
        delta: &mut Delta,
    ) -> Outcome {
        let waits = judged.action == Action::Hold;
        let is_behind = judged.state.as_ref().is_some_and(|it| it.holds_back(place.number));
        let lane = |waits| if judged.verdict == Verdict::Unordered { None } else { place.lane(waits) };
        let taken = match judged.action {
            // Its claim has ended, and its entity remembers it.
            Action::Duplicate => {
                ordering::keep(place, judged, working, delta);
                self.ordered.push(ordering::note(at, judged));
                return Outcome::Duplicate { first_seen_at: self.now };
            }
            Action::Deliver | Action::Hold if has_room => Taken::Queued(lane(waits)),
            // It has not come, as far as its entity is concerned, and has failed for good.
            Action::Deliver | Action::Hold => {
                let lane = lane(false);
                let gaps = ordering::let_go(place, self.now, working, delta);
                let verdict = Some(judged.verdict).filter(Verdict::is_violation);
                self.ordered.push(Ordered { destination: at, verdict, gaps });
                if lane.is_some() {
                    ordering::park(self.intake, place, self.now, working, delta);
                }
                return self.take(at, Taken::Buried(DeadReason::QueueFull, lane), working, delta);
            }
            Action::Skip => Taken::Skipped,
            // Its producer is not to blame for how each destination counts: it is refused at this one only. Nothing queues
            // behind it, now or once it is put back, and what is parked at its number is parked behind another (ORD-7):
            // later ones have passed it already.
            Action::Refuse(_) => {
                let lane = lane(false).map(|it| Box::new(Lane { parks: None, ..*it }));
                Taken::Buried(DeadReason::OutOfOrder, lane)
            }
        };
        let is_parked = is_behind && matches!(taken, Taken::Queued(Some(_)));
        let outcome = self.take(at, taken, working, delta);
        ordering::keep(place, judged, working, delta);
        self.ordered.push(ordering::note(at, judged));
        match outcome {
            Outcome::Queued { delivery } if waits => Outcome::Held { delivery },
            Outcome::Queued { delivery } if is_parked => Outcome::Parked { delivery },
            outcome => outcome,
        }
    }

    /// Where the queue has no room it is a dead letter at once: the producer of an event knows nothing of who is
    /// subscribed, and the others have it (PIP-13).
    fn take(&mut self, at: usize, taken: Taken, working: &mut Working, delta: &mut Delta) -> Outcome {
        let route = &self.intake.destinations[at];
        let Some(message) = self.message else { return Outcome::Unreadable };
        let number = if matches!(taken, Taken::Skipped) { message } else { working.number() };
        self.claim(at, message, number, &taken, working, delta);
        let delivery = |lane| Delivery { lane, ..Delivery::new(number, message, route, self.now) };
        match taken {
            Taken::Skipped => Outcome::Skipped,
            Taken::Queued(lane) => {
                delta.deliveries.push(delivery(lane));
                Outcome::Queued { delivery: number }
            }
            Taken::Buried(reason, lane) => {
                delta.letters.push(DeadLetter::new(delivery(lane), reason, self.now));
                Outcome::Buried { delivery: number, reason }
            }
        }
    }

    /// Claims the id at a destination, where its route claims.
    fn claim(
        &mut self,
        at: usize,
        message: Serial,
        number: Serial,
        taken: &Taken,
        working: &mut Working,
        delta: &mut Delta,
    ) {
        let (route, now) = (&self.intake.destinations[at], self.now);
        self.meant_for = self.meant_for.max(route.route.claim.compares());
        let Some(keep) = route.route.claim.keep() else { return };
        // What was applied is a duplicate and never late, for as long as its entity is remembered (ORD-4).
        let place = self.intake.places.get(at).and_then(Placed::place);
        let keep = place.map_or(keep, |it| keep.max(it.rules.ttl));
        // What is left out is complete: nobody will report on it.
        let is_tracked = route.route.processing.is_tracked() && !matches!(taken, Taken::Skipped);
        let mut claim = Claim {
            source: self.intake.message.source.clone(),
            message,
            first_seen_at: now,
            expires_at: now.plus(keep),
            hot_until: route.route.claim.hot().map(|hot| now.plus(hot)),
            progress: is_tracked.then(|| Box::new(Progress::new(number))),
        };
        if let Taken::Buried(reason, _) = taken {
            claim.buried(*reason, 0, now);
        }
        let key = claim_key(&self.intake.message, route);
        working.claims.insert(key.clone(), claim.clone());
        delta.claims.push((key, claim));
    }
}
