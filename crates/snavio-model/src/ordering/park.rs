//! Parks an entity when one of its messages fails for good (ORD-7).

use super::config::{OnFailure, Rules};
use super::position::NumberKind;
use super::state::EntityState;
use crate::bounds::ORDER_FAILED_MAX;
use crate::id::MessageId;
use crate::time::Timestamp;

/// The effect of a final failure on the entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Later messages of the entity are delivered.
    GoesOn,
    /// Later messages are parked behind the failed one.
    Parks,
}

/// The entity is not parked behind the given message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entity is not parked behind that message")]
pub struct NotParked;

impl EntityState {
    /// Records that a message failed for good. If its route parks, the entity is parked from now on, even if
    /// its state had expired. The caller writes the new state in the commit of the dead letter.
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
        let begin = || Self::begin(number, (id, None), kind, now.plus(rules.ttl));
        let mut state = state.filter(|state| state.is_live(now)).unwrap_or_else(begin);
        state.note_failed(number);
        (Some(state), AfterFailure::Parks)
    }

    /// Records a failed number. Further messages may fail while the entity is parked: redriven ones before
    /// the parked message, and ones behind it that no consumer leased in time. Past the limit the lowest
    /// numbers and the highest remain, so no message above the highest is delivered before that one is fixed.
    fn note_failed(&mut self, number: i64) {
        let Err(index) = self.failed.binary_search(&number) else { return };
        self.failed.insert(index, number);
        if self.failed.len() > ORDER_FAILED_MAX {
            self.failed.remove(ORDER_FAILED_MAX - 1);
        }
    }

    /// Whether a message of the entity must not be leased because it is behind the parked one. The parked
    /// message itself may be leased after a redrive.
    pub fn holds_back(&self, number: i64) -> bool {
        self.parked_at().is_some_and(|parked| number > parked)
    }

    /// Records that a failed message was processed after all, or that a person skipped it. Later messages go
    /// on, in order, up to the next failed one. The state lives for its whole time again.
    pub fn unparked(mut self, number: i64, rules: &Rules, now: Timestamp) -> Result<Self, NotParked> {
        let index = self.failed.binary_search(&number).map_err(|_| NotParked)?;
        self.failed.remove(index);
        Ok(Self { expires_at: now.plus(rules.ttl), ..self })
    }
}
