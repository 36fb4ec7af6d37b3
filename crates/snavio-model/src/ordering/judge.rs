//! Judges one message by the state of its entity (ORD-3 to ORD-5).

use super::config::{Mode, Rules};
use super::gaps::Gaps;
use super::position::NumberKind;
use super::state::{EntityState, Released, Waiting};
use crate::id::MessageId;
use crate::refusal::Reason;
use crate::time::Timestamp;

/// A message to judge.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub id: &'a MessageId,
    pub number: i64,
    pub kind: NumberKind,
    /// Whether its type closes the entity.
    pub completes: bool,
    /// Whether its claim says that it was applied before. It is then a duplicate and never out of order.
    pub applied: bool,
    /// Its destination, if several destinations count the entity. Two messages with one id are then the same
    /// only if their destinations agree, because each destination has its own claim for an id (CLM-1).
    pub among: Option<&'a str>,
}

/// The relation of a message to the earlier ones of its entity (ORD-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The entity has no state.
    First,
    /// Its number follows the last one directly.
    InOrder,
    /// Ahead: numbers before it are missing.
    Gap {
        /// The count of missing numbers.
        size: u64,
    },
    /// It was processed, or waits already.
    Duplicate,
    /// Its number is below the last one, or equal to it under another id.
    Late {
        /// The highest number that was processed.
        last: i64,
        /// Whether its number was tracked as missing.
        was_missing: bool,
    },
    /// Another message has its number: the last one, or a waiting one.
    SequenceConflict {
        /// The highest number that was processed.
        last: i64,
    },
    /// Ahead of a gap, and waiting.
    Waits { until: Timestamp },
    /// Its number is of another kind than the entity's numbers: it passes unordered.
    Unordered,
}

impl Verdict {
    /// Distance from the last number, for a late message or one with a number that another message has.
    pub fn distance(&self, number: i64) -> u64 {
        match self {
            Self::Late { last, .. } | Self::SequenceConflict { last } => last.abs_diff(number),
            _ => 0,
        }
    }

    /// Whether it violates the order. Violations are counted and warned of (ORD-8).
    pub fn is_violation(&self) -> bool {
        matches!(self, Self::Late { .. } | Self::SequenceConflict { .. })
    }
}

/// The action that a verdict leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Deliver,
    /// Accept it and hold it back until it is released.
    Hold,
    /// Record it and do not deliver it.
    Skip,
    /// Do nothing: the message was accepted before.
    Duplicate,
    /// Refuse it and write nothing.
    Refuse(Reason),
}

/// The decision on one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub verdict: Verdict,
    pub action: Action,
    /// Waiting messages to deliver before it.
    pub before: Vec<Released>,
    /// Waiting messages to deliver after it.
    pub after: Vec<Released>,
    /// Whether the message closed its entity.
    pub closes: bool,
    /// The new state, to be written in the commit of the message. After a refusal or a duplicate it differs
    /// from the old state only by the released messages. `None` if the entity has no state.
    pub state: Option<EntityState>,
}

/// Judges a message by the state of its entity, if there is one. Ends expired waits first.
pub fn judge(state: Option<EntityState>, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let Some(mut state) = state.filter(|state| state.is_live(now)) else {
        return judge_first(arrival, rules, now);
    };
    let before = state.end_waits(rules, now);
    let judged = judge_known(state, arrival, rules, now);
    Judged { before: [before, judged.before].concat(), ..judged }
}

/// Ends the expired waits. The released messages are to be delivered in order, past the gaps below them.
pub fn end_waits(mut state: EntityState, rules: &Rules, now: Timestamp) -> (EntityState, Vec<Released>) {
    let released = state.end_waits(rules, now);
    (state, released)
}

fn judge_first(arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    if arrival.applied {
        // The gateway forgot the entity since. A message that was applied does not bring its state back.
        return decision(None, Verdict::Duplicate, Action::Duplicate);
    }
    let state =
        EntityState::begin(arrival.number, (arrival.id, arrival.among), arrival.kind, now.plus(rules.ttl));
    let state = EntityState { closed: arrival.completes, ..state };
    Judged { closes: arrival.completes, ..decision(state, Verdict::First, Action::Deliver) }
}

fn judge_known(state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    if arrival.applied {
        return decision(state, Verdict::Duplicate, Action::Duplicate);
    }
    if state.kind != arrival.kind {
        return decision(state, Verdict::Unordered, Action::Deliver);
    }
    if state.remembers(arrival) {
        return decision(state, Verdict::Duplicate, Action::Duplicate);
    }
    if arrival.number <= state.last {
        return judge_late(state, arrival, rules);
    }
    if state.last.checked_add(1) == Some(arrival.number) || rules.mode != Mode::Reorder {
        return judge_ahead(state, arrival, rules, now);
    }
    judge_beyond_gap(state, arrival, rules, now)
}

/// Judges a message that is not above the last one. Only an advance renews the state's lifetime, and `last`
/// never falls (ORD-2).
fn judge_late(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules) -> Judged {
    let is_conflict = arrival.number == state.last;
    if rules.mode.is_one_at_a_time() {
        if state.closed {
            let verdict = Verdict::Late { last: state.last, was_missing: false };
            return decision(state, verdict, Action::Refuse(Reason::EntityClosed));
        }
        let was_missing = state.gaps.open().iter().any(|gap| (gap.from..=gap.to).contains(&arrival.number));
        let last = state.last;
        return if is_conflict {
            decision(state, Verdict::SequenceConflict { last }, Action::Refuse(Reason::SequenceConflict))
        } else {
            decision(state, Verdict::Late { last, was_missing }, Action::Refuse(Reason::OutOfOrder))
        };
    }
    let verdict = Verdict::Late { last: state.last, was_missing: state.gaps.close(arrival.number) };
    if rules.mode == Mode::Skip {
        return decision(state, verdict, Action::Skip);
    }
    let closes = arrival.completes && !state.closed;
    if arrival.completes {
        state.close();
    }
    Judged { closes, ..decision(state, verdict, Action::Deliver) }
}

/// Advances the entity to a message above the last one. Messages that waited directly behind it follow.
fn judge_ahead(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let size = state.advance(arrival.number, (arrival.id, arrival.among), arrival.completes);
    let closes = state.closed;
    let after = state.release_run();
    state.expires_at = now.plus(rules.ttl);
    let verdict = if size == 0 { Verdict::InOrder } else { Verdict::Gap { size } };
    Judged { after, closes, ..decision(state, verdict, Action::Deliver) }
}

/// Lets a message wait for the gap before it to fill. If too many messages wait, the lowest are released.
fn judge_beyond_gap(mut state: EntityState, arrival: &Arrival<'_>, rules: &Rules, now: Timestamp) -> Judged {
    let index = match state.waiting.binary_search_by_key(&arrival.number, |waiting| waiting.number) {
        Ok(_) => {
            let verdict = Verdict::SequenceConflict { last: state.last };
            return decision(state, verdict, Action::Refuse(Reason::SequenceConflict));
        }
        Err(index) => index,
    };
    let until = now.plus(rules.wait);
    let among = arrival.among.map(Into::into);
    let (id, completes) = (arrival.id.clone(), arrival.completes);
    let own = Waiting { number: arrival.number, id, among, until, completes };
    state.waiting.insert(index, own);
    let mut released = Vec::new();
    while state.waiting.len() > rules.waiting_max.clamp(1, crate::bounds::ORDER_WAITING_MAX) {
        let lowest = state.waiting[0].number;
        released.extend(state.release_to(lowest));
        state.expires_at = now.plus(rules.ttl);
    }
    let Some(own) = released.iter().position(|message| message.number == arrival.number) else {
        return Judged { before: released, ..decision(state, Verdict::Waits { until }, Action::Hold) };
    };
    let after = released.split_off(own + 1);
    let size = released.pop().map_or(0, |own| own.gap);
    let verdict = if size == 0 { Verdict::InOrder } else { Verdict::Gap { size } };
    let closes = arrival.completes;
    Judged { before: released, after, closes, ..decision(state, verdict, Action::Deliver) }
}

fn decision(state: impl Into<Option<EntityState>>, verdict: Verdict, action: Action) -> Judged {
    Judged { verdict, action, before: Vec::new(), after: Vec::new(), closes: false, state: state.into() }
}

impl EntityState {
    /// The state of an entity after its first message.
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

    /// Whether the message is the last one or a waiting one, even if its claim has expired. The same id with
    /// another number, or at another destination, is another message: to call it a duplicate would lose it
    /// (ORD-4).
    fn remembers(&self, arrival: &Arrival<'_>) -> bool {
        let is_arrival = |number: i64, id: &MessageId, among: Option<&str>| {
            (number, id, among) == (arrival.number, arrival.id, arrival.among)
        };
        is_arrival(self.last, &self.last_id, self.last_among.as_deref())
            || self
                .waiting
                .iter()
                .any(|message| is_arrival(message.number, &message.id, message.among.as_deref()))
    }

    /// Moves the entity to a higher number and returns the size of the gap before it.
    fn advance(&mut self, number: i64, (id, among): (&MessageId, Option<&str>), completes: bool) -> u64 {
        let size = self.gaps.open_above(self.last, number);
        (self.last, self.last_id, self.closed) = (number, id.clone(), false);
        self.last_among = among.map(Into::into);
        if completes {
            self.close();
        }
        size
    }

    /// Marks the entity as closed and forgets its gaps. The mark keeps a late message from beginning the
    /// entity again (ORD-5).
    fn close(&mut self) {
        self.closed = true;
        self.gaps = Gaps::default();
    }

    /// Releases the waiting messages up to a number, and those that follow it without a gap.
    fn release_to(&mut self, number: i64) -> Vec<Released> {
        let count = self.waiting.partition_point(|message| message.number <= number);
        let up_to: Vec<_> = self.waiting.drain(..count).collect();
        let mut released: Vec<_> = up_to.into_iter().map(|message| self.release(message)).collect();
        released.extend(self.release_run());
        released
    }

    /// Releases the waiting messages that follow the last number directly.
    fn release_run(&mut self) -> Vec<Released> {
        let mut released = Vec::new();
        while self.waiting.first().is_some_and(|message| Some(message.number) == self.last.checked_add(1)) {
            let next = self.waiting.remove(0);
            released.push(self.release(next));
        }
        released
    }

    fn release(&mut self, message: Waiting) -> Released {
        let gap = self.advance(message.number, (&message.id, message.among.as_deref()), message.completes);
        Released { number: message.number, id: message.id, gap }
    }

    /// Releases the messages with an expired wait and all below them; all messages, if the route no longer
    /// reorders.
    fn end_waits(&mut self, rules: &Rules, now: Timestamp) -> Vec<Released> {
        let has_ended = |message: &&Waiting| message.until <= now || rules.mode != Mode::Reorder;
        let Some(highest) = self.waiting.iter().filter(has_ended).map(|message| message.number).max() else {
            return Vec::new();
        };
        self.expires_at = now.plus(rules.ttl);
        self.release_to(highest)
    }
}
