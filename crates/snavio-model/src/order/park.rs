//! What becomes of an entity when one of its messages fails for good (ORD-7).

use super::config::{OnFailure, Rules};
use super::position::NumberKind;
use super::state::EntityState;
use crate::id::MessageId;
use crate::time::Timestamp;

/// What follows a message that failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Later messages of its entity go on.
    GoesOn,
    /// They queue behind it.
    Parks,
}

/// The entity does not wait for that message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entity is not parked behind that message")]
pub struct NotParked;

impl EntityState {
    /// A message failed for good. Where its route parks, its entity is held from now on, even one that was forgotten
    /// meanwhile: the state says so and is to be written with the dead letter.
    pub fn failed(
        state: Option<Self>,
        number: i64,
        kind: NumberKind,
        id: &MessageId,
        rules: &Rules,
        now: Timestamp,
    ) -> (Option<Self>, AfterFailure) {
        if rules.on_failure == OnFailure::Continue {
            return (state, AfterFailure::GoesOn);
        }
        let new = || Self::begin(number, id, kind, now.plus(rules.ttl));
        let mut state = state.filter(|it| it.is_live(now)).unwrap_or_else(new);
        // One is handed out at a time, lowest first: what fails while another is parked was handed out before that.
        state.parked_at = Some(state.parked_at.map_or(number, |before| before.min(number)));
        (Some(state), AfterFailure::Parks)
    }

    /// Whether a message of the entity must not be handed out: those behind the parked one. That one itself may, once
    /// it is redriven.
    pub fn holds_back(&self, number: i64) -> bool {
        self.parked_at.is_some_and(|parked| number > parked)
    }

    /// The parked message was mended and processed, or skipped by a person: later ones go on, in order. They have the
    /// whole time to live again.
    pub fn unparked(self, number: i64, rules: &Rules, now: Timestamp) -> Result<Self, NotParked> {
        if self.parked_at != Some(number) {
            return Err(NotParked);
        }
        Ok(Self { parked_at: None, expires_at: now.plus(rules.ttl), ..self })
    }
}
