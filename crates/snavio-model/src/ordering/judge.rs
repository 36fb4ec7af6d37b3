//! The judgement of one message by the state of its entity (ORD-3 to ORD-5).

use super::config::{Mode, Rules};
use super::gaps::Gaps;
use super::position::NumberKind;
use super::state::{EntityState, Released, Waiting};
use crate::id::MessageId;
use crate::refusal::Reason;
use crate::time::Timestamp;

/// A message that is to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Its id.
    pub id: &'a MessageId,
    /// Its number.
    pub number: i64,
    /// What the number counts.
    pub kind: NumberKind,
    /// Whether its type closes the entity.
    pub completes: bool,
    /// Whether it was applied before, as its claim says: then it is a duplicate and never out of order.
    pub applied: bool,
    /// Its destination, where that is not the only one that counts its entity: an id says nothing without it then, since each
    /// has its own claim under an id (CLM-1).
    pub among: Option<&'a str>,
}

/// How a message stands to those before it (ORD-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is known of its entity.
    First,
    /// The next one.
    InOrder,
    /// Ahead, with so many missing before it.
    Gap {
        /// How many.
        size: u64,
    },
    /// It was processed, or waits already.
    Duplicate,
    /// Below the last, or as high under another id.
    Late {
        /// The highest number that was processed.
        last: i64,
        /// Whether it was known to be missing.
        was_missing: bool,
    },
    /// Its number is that of another message, the last one or one that waits.
    SequenceConflict {
        /// The highest number that was processed.
        last: i64,
    },
    /// Ahead of a gap, and waiting.
    Waits {
        /// Until when.
        until: Timestamp,
    },
    /// Its number counts something else than those of its entity: it passes unordered.
    Unordered,
}

impl Verdict {
    /// How far from the last number a late one is, or one whose number another has.
    pub fn distance(&self, number: i64) -> u64 {
        match self {
            Self::Late { last, .. } | Self::SequenceConflict { last } => last.abs_diff(number),
            _ => 0,
        }
    }

    /// Whether it is a violation of the order, which is counted and warned of (ORD-8).
    pub fn is_violation(&self) -> bool {
        matches!(self, Self::Late { .. } | Self::SequenceConflict { .. })
    }
}

/// What is to be done with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Hand it over.
    Deliver,
    /// Take it and keep it back until it is released.
    Hold,
    /// Record it and do not deliver it.
    Skip,
    /// Nothing: it is there already.
    Duplicate,
    /// Refuse it; nothing is written.
    Refuse(Reason),
}

/// What came of judging a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// How it stands.
    pub verdict: Verdict,
    /// What is to be done with it.
    pub action: Action,
    /// Messages that are to be handed over before it.
    pub before: Vec<Released>,
    /// Messages that are to be handed over after it.
    pub after: Vec<Released>,
    /// Whether its entity was closed.
    pub closes: bool,
    /// The state after it, to be written with it. Of a message that is refused or a duplicate it differs from the one
    /// before only by what was released; there is none of an entity of which nothing is known.
    pub state: Option<EntityState>,
}

/// Judges a message by the state of its entity, if there is one.
pub fn judge(state: Option<EntityState>, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let Some(mut state) = state.filter(|it| it.is_live(now)) else { return first(arrival, rules, now) };
    let before = state.end_waits(rules, now);
    let judged = judge_known(state, arrival, rules, now);
    Judged { before: [before, judged.before].concat(), ..judged }
}

/// Ends what has waited long enough: those messages are to be handed over in order, without those before them.
pub fn end_waits(mut state: EntityState, rules: &Rules, now: Timestamp) -> (EntityState, Vec<Released>) {
    let released = state.end_waits(rules, now);
    (state, released)
}

fn first(arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    if arrival.applied {
        // Its entity was forgotten since; that it was applied does not bring it back.
        return decided(None, Verdict::Duplicate, Action::Duplicate);
    }
    let state =
        EntityState::begin(arrival.number, (arrival.id, arrival.among), arrival.kind, now.plus(rules.ttl));
    let state = EntityState { closed: arrival.completes, ..state };
    Judged { closes: arrival.completes, ..decided(state, Verdict::First, Action::Deliver) }
}

fn judge_known(state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    if arrival.applied {
        return decided(state, Verdict::Duplicate, Action::Duplicate);
    }
    if state.kind != arrival.kind {
        return decided(state, Verdict::Unordered, Action::Deliver);
    }
    if state.remembers(arrival) {
        return decided(state, Verdict::Duplicate, Action::Duplicate);
    }
    if arrival.number <= state.last {
        return late(state, arrival, rules);
    }
    if state.last.checked_add(1) == Some(arrival.number) || rules.mode != Mode::Reorder {
        return ahead(state, arrival, rules, now);
    }
    wait(state, arrival, rules, now)
}

/// Not above the last one. Only an advance renews the time to live, and "last" never falls (ORD-2).
fn late(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules) -> Judged {
    let is_conflict = arrival.number == state.last;
    if rules.mode.is_one_at_a_time() {
        if state.closed {
            let verdict = Verdict::Late { last: state.last, was_missing: false };
            return decided(state, verdict, Action::Refuse(Reason::EntityClosed));
        }
        let was_missing = state.gaps.open().iter().any(|it| (it.from..=it.to).contains(&arrival.number));
        let last = state.last;
        return if is_conflict {
            decided(state, Verdict::SequenceConflict { last }, Action::Refuse(Reason::SequenceConflict))
        } else {
            decided(state, Verdict::Late { last, was_missing }, Action::Refuse(Reason::OutOfOrder))
        };
    }
    let verdict = Verdict::Late { last: state.last, was_missing: state.gaps.close(arrival.number) };
    if rules.mode == Mode::Skip {
        return decided(state, verdict, Action::Skip);
    }
    let closes = arrival.completes && !state.closed;
    if arrival.completes {
        state.close();
    }
    Judged { closes, ..decided(state, verdict, Action::Deliver) }
}

/// Above the last one, and processed at once. What waited behind it comes after.
fn ahead(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let size = state.advance(arrival.number, (arrival.id, arrival.among), arrival.completes);
    let closes = state.closed;
    let after = state.release_run();
    state.expires_at = now.plus(rules.ttl);
    let verdict = if size == 0 { Verdict::InOrder } else { Verdict::Gap { size } };
    Judged { after, closes, ..decided(state, verdict, Action::Deliver) }
}

/// Ahead of a gap where that is worth a wait. When too many wait, the lowest do so no more.
fn wait(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let place = match state.waiting.binary_search_by_key(&arrival.number, |it| it.number) {
        Ok(_) => {
            let verdict = Verdict::SequenceConflict { last: state.last };
            return decided(state, verdict, Action::Refuse(Reason::SequenceConflict));
        }
        Err(place) => place,
    };
    let until = now.plus(rules.wait);
    let among = arrival.among.map(Into::into);
    let (id, completes) = (arrival.id.clone(), arrival.completes);
    let own = Waiting { number: arrival.number, id, among, until, completes };
    state.waiting.insert(place, own);
    let mut released = Vec::new();
    while state.waiting.len() > rules.waiting_max.clamp(1, crate::bounds::ORDER_WAITING_MAX) {
        let lowest = state.waiting[0].number;
        released.extend(state.release_to(lowest));
        state.expires_at = now.plus(rules.ttl);
    }
    let Some(own) = released.iter().position(|it| it.number == arrival.number) else {
        return Judged { before: released, ..decided(state, Verdict::Waits { until }, Action::Hold) };
    };
    let after = released.split_off(own + 1);
    let size = released.pop().map_or(0, |own| own.gap);
    let verdict = if size == 0 { Verdict::InOrder } else { Verdict::Gap { size } };
    let closes = arrival.completes;
    Judged { before: released, after, closes, ..decided(state, verdict, Action::Deliver) }
}

fn decided(state: impl Into<Option<EntityState>>, verdict: Verdict, action: Action) -> Judged {
    Judged { verdict, action, before: Vec::new(), after: Vec::new(), closes: false, state: state.into() }
}

impl EntityState {
    /// An entity with its first message.
    pub(super) fn begin(
        number: i64,
        (id, among): (&MessageId, Option<&str>),
        kind: NumberKind,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            last: number,
            last_id: id.clone(),
            last_among: among.map(Into::into),
            kind,
            gaps: Gaps::default(),
            waiting: Vec::new(),
            closed: false,
            failed: Vec::new(),
            expires_at,
        }
    }

    /// Whether it is the last one or one that waits, though its claim has ended. Under another number, or of another
    /// destination, the same id is another message: to call that a duplicate would be to lose it (ORD-4).
    fn remembers(&self, arrival: &Arrival<'_>) -> bool {
        let is_it = |number: i64, id: &MessageId, among: Option<&str>| {
            (number, id, among) == (arrival.number, arrival.id, arrival.among)
        };
        let waits = || self.waiting.iter().any(|it| is_it(it.number, &it.id, it.among.as_deref()));
        is_it(self.last, &self.last_id, self.last_among.as_deref()) || waits()
    }

    /// Goes on to a higher number and says how many are missing before it.
    fn advance(&mut self, number: i64, (id, among): (&MessageId, Option<&str>), completes: bool) -> u64 {
        let size = self.gaps.open_above(self.last, number);
        (self.last, self.last_id, self.closed) = (number, id.clone(), false);
        self.last_among = among.map(Into::into);
        if completes {
            self.close();
        }
        size
    }

    /// Only the mark stays, that a late message does not begin the entity anew (ORD-5).
    fn close(&mut self) {
        self.closed = true;
        self.gaps = Gaps::default();
    }

    /// Releases what waits up to a number and, without a gap, behind it.
    fn release_to(&mut self, number: i64) -> Vec<Released> {
        let count = self.waiting.partition_point(|it| it.number <= number);
        let up_to: Vec<_> = self.waiting.drain(..count).collect();
        let mut released: Vec<_> = up_to.into_iter().map(|it| self.release(it)).collect();
        released.extend(self.release_run());
        released
    }

    /// Releases what comes right behind the last number.
    fn release_run(&mut self) -> Vec<Released> {
        let mut released = Vec::new();
        while self.waiting.first().is_some_and(|it| Some(it.number) == self.last.checked_add(1)) {
            let next = self.waiting.remove(0);
            released.push(self.release(next));
        }
        released
    }

    fn release(&mut self, it: Waiting) -> Released {
        let gap = self.advance(it.number, (&it.id, it.among.as_deref()), it.completes);
        Released { number: it.number, id: it.id, gap }
    }

    /// Releases those whose wait is over, with all that is below them; all, where the route waits no more.
    fn end_waits(&mut self, rules: &Rules, now: Timestamp) -> Vec<Released> {
        let is_over = |it: &&Waiting| it.until <= now || rules.mode != Mode::Reorder;
        let Some(highest) = self.waiting.iter().filter(is_over).map(|it| it.number).max() else {
            return Vec::new();
        };
        self.expires_at = now.plus(rules.ttl);
        self.release_to(highest)
    }
}
